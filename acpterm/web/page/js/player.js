// Plays a cast on a screen. It does not use the DOM: the caller provides the screen and the frames.
//
// States: paused, playing, and at the end, where it is paused. `frame(now)` advances the time. While
// the screen is still writing (`isBusy`), the time stands still: a slow screen plays more slowly, and
// no output is queued. A frame advances the time by at most `FRAME_MAX_MS`, so playback does not jump
// after the page was hidden.
//
// Only one task writes to the screen. A seek during the writing of another seek replaces it: the
// older one stops after its current piece, and the screen is cleared and written from the start, as
// for every seek to an earlier time.

import { parseSize, Timeline } from "./cast.js";

export const SPEED_MIN = 0.25;
export const SPEED_MAX = 64;
const FRAME_MAX_MS = 250;
const PIECE_CHARS = 256 * 1024;
const COLS_MAX = 500;
const ROWS_MAX = 300;

/** Return the nearest size that the screen can have. */
export function clampSize({ cols, rows }) {
  return { cols: Math.min(cols, COLS_MAX), rows: Math.min(rows, ROWS_MAX) };
}

export class Player {
  /**
   * `screen` has `write(text)`, which returns a promise, `clear()` and `resize(size)`. `onChange()`
   * is called after changes of the time or the state.
   */
  constructor({ header, events }, screen, onChange = () => {}) {
    this.isPlaying = false;
    this.speed = 1;
    this.time = 0;
    this.idleLimit = Infinity;
    this.isBusy = false;
    this._size = clampSize(header);
    this._events = events;
    this._screen = screen;
    this._onChange = onChange;
    this._timeline = new Timeline(events);
    this._index = 0;
    this._generation = 0;
    this._now = null;
  }

  get duration() {
    return this._timeline.duration;
  }

  get isAtEnd() {
    return this._index >= this._events.length;
  }

  /** The text of the last marker that was passed; empty if there is none. */
  get marker() {
    for (let at = this._index - 1; at >= 0; at--) {
      if (this._events[at].code === "m") return this._events[at].data;
      // A marker is shown until the next output.
      if (this._events[at].code === "o") return "";
    }
    return "";
  }

  /** Play; from the start if this is the end. */
  async play() {
    if (this.isAtEnd) await this.seek(0);
    this.isPlaying = true;
    this._now = null;
    this._onChange();
  }

  pause() {
    this.isPlaying = false;
    this._onChange();
  }

  toggle() {
    if (this.isPlaying) this.pause();
    else return this.play();
  }

  setSpeed(speed) {
    this.speed = Math.max(SPEED_MIN, Math.min(SPEED_MAX, speed));
    this._onChange();
  }

  /** Cut pauses to `seconds` from now on; the screen stays the same. */
  setIdleLimit(seconds) {
    const timeline = new Timeline(this._events, seconds);
    this.time = timeline.timeFrom(this._timeline, this.time);
    this.idleLimit = seconds;
    this._timeline = timeline;
    this._onChange();
  }

  /** Show the screen at a time. */
  async seek(time) {
    this.time = Math.max(0, Math.min(this.duration, time));
    const index = this._timeline.indexAt(this.time);
    const mine = (this._generation += 1);
    if (index < this._index || this.isBusy) {
      this._index = 0;
      this._screen.clear();
      this._screen.resize(this._size);
    }
    await this._write(index, mine);
  }

  /** Show the next output, and pause. */
  async step() {
    this.isPlaying = false;
    const at = this._events.findIndex((event, index) => index >= this._index && event.code === "o");
    await this.seek(at < 0 ? this.duration : this._timeline.times[at]);
  }

  /** Advance to the time `now` of a frame, in milliseconds. */
  frame(now) {
    const passed = this._now === null ? 0 : Math.min(now - this._now, FRAME_MAX_MS);
    this._now = now;
    if (!this.isPlaying || this.isBusy) return;
    this.time = Math.min(this.duration, this.time + (passed / 1000) * this.speed);
    const index = this._timeline.indexAt(this.time);
    if (index > this._index) this._write(index, this._generation);
    else this._onChange();
    if (this.time >= this.duration) this.pause();
  }

  /** Write the events before `index`, until a newer seek replaces this one. */
  async _write(index, generation) {
    this.isBusy = true;
    let text = "";
    while (this._index < index) {
      const { code, data } = this._events[this._index++];
      if (code === "o") text += data;
      const size = code === "r" ? parseSize(data) : null;
      if (size || text.length > PIECE_CHARS) {
        await this._screen.write(text);
        text = "";
        if (generation !== this._generation) return;
        if (size) this._screen.resize(clampSize(size));
      }
    }
    await this._screen.write(text);
    if (generation !== this._generation) return;
    this.isBusy = false;
    this._onChange();
  }
}
