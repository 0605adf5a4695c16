// Parses asciicasts, versions 2 and 3, and computes when to play their events.
//
// The rules are those of `acpterm replay` (`acpterm/recording/asciicast.py`); a test compares the two.
// Only the header must be valid; lines that are not events are skipped and counted.

const TIME_MAX = 1e12;
const NUMBERS = { 2: ["width", "height"], 3: ["cols", "rows"] };

/** The input is not an asciicast; the message says why. */
export class CastError extends Error {}

/** Parses a cast that arrives in pieces. */
export class CastParser {
  constructor() {
    /** `{cols, rows, title, timestamp}`; null until the first line was parsed. */
    this.header = null;
    /** `{time, code, data}`; the time is in seconds since the start, and never decreases. */
    this.events = [];
    /** How many lines were skipped. */
    this.unread = 0;
    this._rest = "";
    this._last = 0;
  }

  /** Parse the next piece. Throws CastError if the header is invalid. */
  feed(text) {
    const lines = (this._rest + text).split("\n");
    this._rest = lines.pop();
    for (const line of lines) this._line(line);
  }

  /** Parse the text after the last line end. Throws CastError if there was no header. */
  finish() {
    if (this._rest) this._line(this._rest);
    this._rest = "";
    if (this.header === null) throw new CastError("the recording is empty");
  }

  _line(line) {
    if (this.header === null) {
      this.header = parseHeader(line);
      return;
    }
    if (!line.trim() || (this.header.version === 3 && line.startsWith("#"))) return;
    const event = parseEvent(line);
    if (event === null) {
      this.unread += 1;
      return;
    }
    this._last = Math.max(this._last, this.header.version === 3 ? this._last + event.time : event.time);
    event.time = this._last;
    this.events.push(event);
  }
}

function parseHeader(line) {
  let header;
  try {
    header = JSON.parse(line.replace(/^\ufeff/, ""));
  } catch {
    throw new CastError("the first line is no JSON, so this is no asciicast");
  }
  const names = NUMBERS[header?.version];
  if (typeof header !== "object" || !names) throw new CastError("the first line is no header of an asciicast 2 or 3");
  const size = header.version === 3 ? (header.term ?? {}) : header;
  const [cols, rows] = names.map((name) => size[name]);
  if (!Number.isInteger(cols) || cols < 1 || !Number.isInteger(rows) || rows < 1) {
    throw new CastError("the header of the asciicast has no valid size");
  }
  return {
    version: header.version, cols, rows,
    title: typeof header.title === "string" ? header.title : "",
    timestamp: isTime(header.timestamp) ? header.timestamp : null,
  };
}

function parseEvent(line) {
  let value;
  try {
    value = JSON.parse(line);
  } catch {
    return null;
  }
  if (!Array.isArray(value) || value.length < 3) return null;
  const [time, code, data] = value;
  if (!isTime(time) || typeof code !== "string" || typeof data !== "string") return null;
  return { time, code, data };
}

function isTime(value) {
  return typeof value === "number" && Math.abs(value) < TIME_MAX;
}

/** Return columns and rows of a resize event such as "120x40"; null if it is damaged. */
export function parseSize(data) {
  const match = /^(\d{1,5})x(\d{1,5})$/.exec(data);
  if (!match) return null;
  const size = { cols: Number(match[1]), rows: Number(match[2]) };
  return size.cols >= 1 && size.rows >= 1 ? size : null;
}

/** When to play each event: the times of a cast with each pause cut to `idleLimit` seconds. */
export class Timeline {
  constructor(events, idleLimit = Infinity) {
    this.times = new Float64Array(events.length);
    let last = 0;
    let time = 0;
    for (const [index, event] of events.entries()) {
      time += Math.min(event.time - last, idleLimit);
      last = event.time;
      this.times[index] = time;
    }
  }

  /** The time of the last event. */
  get duration() {
    return this.times.at(-1) ?? 0;
  }

  /** Return how many events have happened at a time. */
  indexAt(time) {
    let [low, high] = [0, this.times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Return the time on this timeline for a time on another timeline of the same events. */
  timeFrom(other, time) {
    const index = other.indexAt(time);
    const [from, to] = [this.times[index - 1] ?? 0, this.times[index] ?? this.duration];
    return Math.min(to, from + time - (other.times[index - 1] ?? 0));
  }
}
