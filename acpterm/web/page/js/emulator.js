// xterm.js, set up so that the output of a program can only draw.
//
// The daemon's emulator answers the program's queries, so xterm.js must not: handlers drop the
// queries, and data that looks like an answer is not sent as input. The clipboard sequence (OSC 52)
// has no effect. Links open only after the user has confirmed their http or https address.
// Characters that reorder text are removed.
//
// `vendor/` is built by `make page`. `loadLibraries` rejects if it is missing.

import { confirm } from "./dialog.js";
import { allowInlineStyles } from "./inline_styles.js";
import { BidiFilter, visible, webLink } from "./text.js";

// A line takes 12 bytes of memory for each cell, also if it is short.
const SCROLLBACK_CELLS = 24e6;
const SCROLLBACK_LINES = SCROLLBACK_CELLS / 80;
// The minimum contrast of colours: that of WCAG AA.
const CONTRAST = 4.5;
// Ends an incomplete sequence.
const CANCEL = "\x18";
// Answers of a terminal that no key produces: device attributes, mode reports, control strings.
// Two characters, such as ESC ], are a key with Alt.
const ANSWER = /^\x1b(?:\[[?>=][\d;]*(?:c|n|R|u|\$y)|\[[\d;]*(?:\$y|t|n|c)$|[P\]_].)/;

const LIGHT = {
  background: "#ffffff", foreground: "#1b1f24", cursor: "#0757ba", cursorAccent: "#ffffff",
  selectionBackground: "#b6d7ff", selectionInactiveBackground: "#d5dde6",
  black: "#24292f", red: "#b3261e", green: "#17692f", yellow: "#7d4e00", blue: "#0757ba", magenta: "#7b36b5",
  cyan: "#0f6674", white: "#6e7781", brightBlack: "#57606a", brightRed: "#a40e26", brightGreen: "#1a7f37",
  brightYellow: "#633c01", brightBlue: "#0969da", brightMagenta: "#8250df", brightCyan: "#1b7c83", brightWhite: "#424a53",
};
const DARK = {
  background: "#0d1013", foreground: "#dce1e6", cursor: "#7cb8ff", cursorAccent: "#0d1013",
  selectionBackground: "#2b4f7a", selectionInactiveBackground: "#333a42",
  black: "#484f58", red: "#ff8a80", green: "#6fce8c", yellow: "#f3c063", blue: "#7cb8ff", magenta: "#d0a5ff",
  cyan: "#6cd3df", white: "#c3cad1", brightBlack: "#8b949e", brightRed: "#ffb1aa", brightGreen: "#93e3aa",
  brightYellow: "#ffd88a", brightBlue: "#a8d0ff", brightMagenta: "#e0c4ff", brightCyan: "#9be8f0", brightWhite: "#ffffff",
};

let libraries = null;

/** Load xterm.js and its addons. */
export function loadLibraries() {
  libraries ??= Promise.all([
    import("../vendor/xterm.mjs"),
    import("../vendor/addon-fit.mjs"),
    import("../vendor/addon-unicode-graphemes.mjs"),
    import("../vendor/addon-web-links.mjs"),
  ]).then((modules) => {
    allowInlineStyles();
    return Object.assign({}, ...modules);
  });
  return libraries;
}

/** Decode base64 to bytes. */
export function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

/** Return whether data from xterm.js is an answer to a query, and not a key or a paste. */
export function isAnswer(data) {
  return ANSWER.test(data);
}

/** Ask the user whether to open a link in the output; its text may not show its address. */
async function openLink(address) {
  const href = webLink(address);
  if (href === null) return;
  const { host } = new URL(href);
  const isAllowed = await confirm({
    title: "Open this link?",
    text: `A program has printed this address. It leads to ${visible(host)}.`,
    code: visible(href),
    action: "Open",
  });
  if (isAllowed) window.open(href, "_blank", "noopener,noreferrer");
}

/** One emulator in an element. Create it with `Emulator.create`. */
export class Emulator {
  /** Return a new emulator in `container`; `options` are xterm.js's. */
  static async create(container, options = {}) {
    return new Emulator(await loadLibraries(), container, options);
  }

  constructor(library, container, options) {
    const { Terminal, FitAddon, UnicodeGraphemesAddon, WebLinksAddon } = library;
    this._colours = matchMedia("(prefers-color-scheme: dark)");
    this.term = new Terminal({
      allowProposedApi: true,
      cursorBlink: false,
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"),
      fontSize: 13,
      linkHandler: { activate: (_, address) => openLink(address), allowNonHttpProtocols: false },
      logLevel: "off",
      minimumContrastRatio: CONTRAST,
      scrollback: SCROLLBACK_LINES,
      theme: this._theme(),
      ...options,
    });
    this.fit = new FitAddon();
    this.term.loadAddon(this.fit);
    this.term.loadAddon(new UnicodeGraphemesAddon());
    this.term.loadAddon(new WebLinksAddon((_, address) => openLink(address)));
    this._swallowQueries();
    this._filter = new BidiFilter();
    this.term.open(container);
    this._onColours = () => {
      this.term.options.theme = this._theme();
    };
    this._colours.addEventListener("change", this._onColours);
  }

  /** Show a picture of the whole screen; drop an incomplete sequence before it. */
  paint(bytes, done) {
    this._filter = new BidiFilter();
    this.term.write(CANCEL);
    this.write(bytes, done);
  }

  /**
   * Show output from its beginning instead of all that was shown: `bytes` may begin on the
   * alternate screen. Nothing is drawn before the next picture.
   */
  replay(bytes, isAlternate, done) {
    this._filter = new BidiFilter();
    this.term.write(`${CANCEL}\x1bc\x1b[?2026h${isAlternate ? "\x1b[?1049h" : ""}`);
    this.write(bytes, done);
  }

  /** Scroll the screen up by `lines`, into the scrollback. */
  scrollUp(lines) {
    return new Promise((resolve) => {
      this.term.write(`${CANCEL}\x1b[?6l\x1b[r\x1b[${this.term.rows}H${"\n".repeat(lines)}`, resolve);
    });
  }

  /** Show output; call `done()` when it has been processed. */
  write(bytes, done) {
    this.term.write(this._filter.feed(bytes), done);
  }

  /** Call `fn(data)` with what the user types or pastes, and `fn(data, true)` for mouse bytes. */
  onInput(fn) {
    this.term.onData((data) => {
      if (!isAnswer(data)) fn(data, false);
    });
    this.term.onBinary((data) => fn(data, true));
  }

  dispose() {
    this._colours.removeEventListener("change", this._onColours);
    this.term.dispose();
  }

  _theme() {
    return this._colours.matches ? DARK : LIGHT;
  }

  _swallowQueries() {
    const { parser } = this.term;
    const swallow = () => true;
    for (const id of [
      { final: "c" }, { prefix: ">", final: "c" }, { prefix: "=", final: "c" },
      { final: "n" }, { prefix: "?", final: "n" }, { final: "t" }, { final: "x" },
      { prefix: ">", final: "q" }, { prefix: "?", final: "u" },
      { intermediates: "$", final: "p" }, { prefix: "?", intermediates: "$", final: "p" },
    ]) {
      parser.registerCsiHandler(id, swallow);
    }
    parser.registerDcsHandler({ intermediates: "$", final: "q" }, swallow);
    parser.registerDcsHandler({ intermediates: "+", final: "q" }, swallow);
    parser.registerOscHandler(52, swallow);
    for (const colour of [4, 5, 10, 11, 12]) {
      parser.registerOscHandler(colour, (data) => data.includes("?"));
    }
  }
}
