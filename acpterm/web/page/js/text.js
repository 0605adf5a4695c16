// Makes untrusted text safe to show: names, commands, titles and output come from programs and
// agents. The rules are those of `acpterm/runtime/sanitize.py`, whose patterns `shared.js` has.
//
// The page shows text only as `textContent`, so markup has no effect. Characters that are invisible
// or change the direction of text are shown as escapes, such as \u202e.

import { CONTROL, HIDDEN, HIDDEN_IN_TEXT, SEQUENCE } from "./shared.js";

// The characters that Python's `str.strip` removes; JavaScript's `trim` removes others.
const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const IS_SPACE = new RegExp(`^${SPACE}$`, "u");
const PLAIN = /^[\x20-\x7e]*$/;
const NAMES = { "\t": "\\t", "\n": "\\n", "\r": "\\r" };

function escape(text, pattern) {
  return text.replace(pattern, (found, ...rest) => {
    if (rest.at(-1).kept !== undefined) return found;
    const code = found.codePointAt(0);
    const hex = code.toString(16);
    if (NAMES[found]) return NAMES[found];
    if (code < 0x100) return `\\x${hex.padStart(2, "0")}`;
    return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
  });
}

/** Return text with all invisible and control characters as escapes, also tab and newline. */
export function visible(text) {
  return PLAIN.test(text) ? text : escape(text, HIDDEN);
}

/** Return text of several lines with invisible characters as escapes; keep tabs and newlines. */
export function visibleText(text) {
  return PLAIN.test(text) ? text : escape(text, HIDDEN_IN_TEXT);
}

/** Return text as one line of at most `max` characters, with invisible ones as escapes. */
export function oneLine(text, max = 200) {
  return cut(visible(strip(text)), max);
}

/** Return text without the white space around it. A regular expression would take quadratic time. */
function strip(text) {
  let [from, to] = [0, text.length];
  while (from < to && IS_SPACE.test(text[from])) from += 1;
  while (to > from && IS_SPACE.test(text[to - 1])) to -= 1;
  return text.slice(from, to);
}

/** Return text cut to `max` characters (not code units), with "…" at the end if it was longer. */
export function cut(text, max) {
  if (text.length <= max) return text;
  const characters = [...text];
  return characters.length <= max ? text : `${characters.slice(0, max - 1).join("")}…`;
}

/** Return text without control sequences and control characters; keep tabs and line feeds. */
export function stripControls(text) {
  return text.replaceAll("\r\n", "\n").replace(SEQUENCE, "").replace(CONTROL, "");
}

/** Return an http or https URL in the form in which the browser opens it; null for other text. */
export function webLink(text) {
  let url;
  try {
    url = new URL(text);
  } catch {
    return null;
  }
  return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
}

// Return the number of bytes, in UTF-8, of the character at `at` if it changes the direction of text:
// U+061C, U+200E, U+200F, U+202A to U+202E, and U+2066 to U+2069. Return 0 if it does not, and -1 if
// more bytes are needed to decide.
function bidiLength(bytes, at) {
  const [a, b, c] = [bytes[at], bytes[at + 1], bytes[at + 2]];
  if (a === 0xd8) return b === undefined ? -1 : b === 0x9c ? 2 : 0;
  if (a !== 0xe2) return 0;
  if (b === undefined) return -1;
  if (b !== 0x80 && b !== 0x81) return 0;
  if (c === undefined) return -1;
  if (b === 0x81) return c >= 0xa6 && c <= 0xa9 ? 3 : 0;
  return c === 0x8e || c === 0x8f || (c >= 0xaa && c <= 0xae) ? 3 : 0;
}

/**
 * Removes the characters that change the direction of text from a terminal's output.
 *
 * They have no width in a terminal, but would reorder text in the browser. A character at the end
 * of a piece that may be one of them is held back until the next piece.
 */
export class BidiFilter {
  constructor() {
    this._held = new Uint8Array(0);
  }

  /** Return the bytes to show now, of those given and those held back. */
  feed(bytes) {
    if (this._held.length > 0) {
      const joined = new Uint8Array(this._held.length + bytes.length);
      joined.set(this._held);
      joined.set(bytes, this._held.length);
      bytes = joined;
      this._held = new Uint8Array(0);
    }
    if (!bytes.includes(0xe2) && !bytes.includes(0xd8)) return bytes;
    const kept = new Uint8Array(bytes.length);
    let size = 0;
    for (let at = 0; at < bytes.length; ) {
      const length = bidiLength(bytes, at);
      if (length < 0) {
        this._held = bytes.slice(at);
        break;
      }
      if (length === 0) kept[size++] = bytes[at];
      at += length || 1;
    }
    return kept.subarray(0, size);
  }
}

/** Return pasted text with its line ends as "\n", and without control characters but tabs. */
export function cleanPaste(text) {
  return text.replace(/\r\n?/g, "\n").replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, "");
}
