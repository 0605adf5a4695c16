// Draws the output of one terminal, with its scrollback, on an emulator.
//
// The daemon sends a picture of the screen, then output, each with its position in the program's
// output. What was printed before the picture is read in pieces, the newest first, when the user
// scrolls to it. xterm.js cannot insert lines above others: so all output from the beginning of the
// new piece is drawn again, and then another picture, since the modes that were set before are
// unknown. Meanwhile messages are held.
//
// Output before a picture that was not drawn is a gap: the window fell behind, or was connected
// again. So is one after a change of the size. A small one is read and drawn before the picture; a large one when the user scrolls up.

import { fromBase64 } from "./emulator.js";

const FIRST_BYTES = 64 << 10;
// How much more is read each time.
const GROWTH = 4;
const READ_BYTES = 512 << 10;
// Maximum of bytes that were received and not drawn yet; further output is skipped.
const UNDRAWN_BYTES_MAX = 4 << 20;
const UNDRAWN_BYTES_FEW = 128 << 10;
// Maximum of output that is drawn before a picture, to close a gap at once.
const GAP_BYTES_MAX = 128 << 10;
const LINE_FEED = 10;
const ALTERNATE_SWITCH = /\x1b\[\?(?:47|104[79])([hl])/;

/** Return whether output begins on the alternate screen, if it ends on it (`isAlternate`) or not. */
export function beginsOnAlternate(bytes, isAlternate) {
  const text = new TextDecoder("latin1").decode(bytes);
  const found = ALTERNATE_SWITCH.exec(text);
  return found ? found[1] === "l" : isAlternate;
}

/** Return output without its first line, of which only the end is there. */
export function wholeLines(bytes) {
  return bytes.subarray(bytes.indexOf(LINE_FEED) + 1);
}

export class Output {
  /**
   * `read({since, maxBytes})` requests raw output, and `repaint()` another picture of the screen;
   * `onError(error)` is called if the output cannot be read.
   */
  constructor(emulator, { read, repaint, onError }) {
    this._emulator = emulator;
    this._read = read;
    this._repaint = repaint;
    this._onError = onError;
    this._undrawn = 0;
    this._isSkipping = false;
    // The part of the output that is drawn without a gap, as positions. Null before the first picture.
    this._from = null;
    this._to = null;
    this._hasGap = false;
    this._isWhole = false;
    this._isUp = false;
    this._held = null;
    this._holding = Promise.resolve();
    // xterm.js moves lines between screen and scrollback, and the picture of the new size hides them.
    emulator.term.onResize(() => {
      this._hasGap = this._to !== null;
    });
  }

  /** The daemon begins with a picture: the window has been attached again. */
  restart() {
    this._isSkipping = false;
    this._isWhole = false;
  }

  /** Draw a message of the daemon. */
  receive(message) {
    const { kind, position } = message;
    if (this._held) this._held.push(message);
    else if (kind === "screen" && this._to < position && position - this._to <= GAP_BYTES_MAX && this._to !== null) {
      this._hold(() => this._closeGap(position), [message]);
    } else this._draw(message);
  }

  /** The window was scrolled, or `isUp`: the user tries to scroll up. Read earlier output if it is due. */
  scrolled(isUp = false) {
    const { term } = this._emulator;
    const { viewportY, baseY, type } = term.buffer.active;
    const isBelow = viewportY < baseY;
    const hasLeft = isUp || (isBelow && !this._isUp);
    this._isUp = isBelow;
    if (type !== "normal") return;
    const isAtTop = isBelow ? viewportY < term.rows : isUp && viewportY === 0;
    if (isAtTop && !this._isWhole) this._load(GROWTH * (this._to - this._from));
    else if (this._hasGap && hasLeft) this._load(this._to - this._from);
  }

  /** Read all output that is retained, and draw it. */
  async loadAll() {
    while (this._held) await this._holding;
    if (!this._isWhole || this._hasGap) await this._load(Infinity);
  }

  _draw({ kind, data, position }) {
    const isFirst = this._to === null;
    if (kind === "screen") {
      if (position !== this._to) this._hasGap = !isFirst;
      this._isSkipping = false;
    } else if (this._isSkipping) return;
    if (isFirst) this._from = position ?? 0;
    // Frames of the screen have no position: what they show does not scroll.
    if (position === undefined) this._hasGap = true;
    this._to = position ?? this._to ?? 0;
    const bytes = fromBase64(data);
    this._undrawn += bytes.length;
    if (this._undrawn > UNDRAWN_BYTES_MAX) this._isSkipping = true;
    const done = () => {
      this._undrawn -= bytes.length;
      if (this._isSkipping && this._undrawn < UNDRAWN_BYTES_FEW) {
        this._isSkipping = false;
        this._repaint();
      }
      if (isFirst) this._load(FIRST_BYTES);
    };
    if (kind === "screen") this._emulator.paint(bytes, done);
    else this._emulator.write(bytes, done);
  }

  /** Draw the output again, beginning `size` bytes before the end of what is drawn. */
  _load(size) {
    if (this._held || this._to === null) return this._holding;
    return this._hold(() => this._replay(Math.max(FIRST_BYTES, size)));
  }

  /** Call `work()`; the messages that arrive meanwhile are drawn after those in `held`. */
  _hold(work, held = []) {
    this._held = held;
    this._holding = work()
      .catch((error) => {
        // Do not try again and again.
        this._isWhole = true;
        this._hasGap = false;
        this._onError(error);
      })
      .finally(() => {
        this._held = null;
        for (const message of held) this.receive(message);
      });
    return this._holding;
  }

  /** Draw the output before a picture with the position `to`. */
  async _closeGap(to) {
    const { bytes, lost } = await this._readPart(this._to, to);
    if (lost) this._hasGap = true;
    this._emulator.write(bytes);
    this._to = to;
  }

  async _replay(size) {
    const { term } = this._emulator;
    const since = Math.max(0, this._to - size);
    const { bytes, lost } = await this._readPart(since, this._to);
    const isWhole = since === 0 || lost > 0;
    const from = since + lost;
    if (from >= this._from && !this._hasGap) {
      this._isWhole = isWhole;
      return;
    }
    const { baseY, viewportY, cursorY, type } = term.buffer.active;
    const selected = term.getSelectionPosition();
    const drawn = from > 0 ? wholeLines(bytes) : bytes;
    await new Promise((resolve) => {
      this._emulator.replay(drawn, beginsOnAlternate(drawn, type === "alternate"), resolve);
    });
    // The daemon's screen may begin further down in the output, after it has grown: lines that are not
    // on it would be lost with the next picture.
    const above = term.buffer.active.type === type ? term.buffer.active.cursorY - cursorY : 0;
    if (above > 0) await this._emulator.scrollUp(above);
    this._from = from;
    this._hasGap = false;
    this._isWhole = isWhole || term.buffer.normal.length >= term.options.scrollback;
    const added = term.buffer.active.baseY - baseY;
    term.scrollToLine(Math.max(0, viewportY + added));
    if (selected) {
      const { start, end } = selected;
      term.select(start.x, start.y + added, (end.y - start.y) * term.cols + end.x - start.x);
    }
    this._repaint();
  }

  /** Read the output from `since` to `to`, as far as it is retained. */
  async _readPart(since, to) {
    const pieces = [];
    let [at, lost] = [since, 0];
    while (at < to) {
      const part = await this._read({ since: at, maxBytes: Math.min(READ_BYTES, to - at), format: "raw" });
      if (part.position <= at) break;
      lost += part.lost;
      pieces.push(fromBase64(part.data));
      at = part.position;
    }
    const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
    pieces.reduce((offset, piece) => (bytes.set(piece, offset), offset + piece.length), 0);
    return { bytes, lost };
  }
}
