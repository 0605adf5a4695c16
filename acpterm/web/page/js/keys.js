// Keyboard shortcuts of the page, the dialog that lists them, and the row of keys for phones.
//
// Shortcuts of a single character work only where no text is typed: not in fields, dialogs and
// terminals, and not at all if the user has turned them off. Combinations with Ctrl and Shift work
// everywhere.

import { openDialog } from "./dialog.js";
import { el } from "./dom.js";

const OFF = "acpterm.no-single-keys";
// How long after the first key of a sequence, such as "g t", the second key must follow.
const SEQUENCE_MS = 1500;

const groups = new Map();
let prefix = "";
let prefixUntil = 0;

/**
 * Register shortcuts under a heading of the dialog; return a function that removes them.
 *
 * A shortcut is `{keys, label, run}`. `keys` is a character ("/"), two ("g t"), or a combination
 * ("Ctrl+Shift+F"). A shortcut without `run` is only listed: other code handles it.
 */
export function addShortcuts(heading, shortcuts) {
  groups.set(heading, shortcuts);
  return () => {
    if (groups.get(heading) === shortcuts) groups.delete(heading);
  };
}

/** Return the name of the pressed key, in the form of `keys` of a shortcut. */
function keyName(event) {
  if (event.ctrlKey && event.shiftKey && !event.altKey && !event.metaKey) {
    return `Ctrl+Shift+${event.code.replace(/^Key/, "")}`;
  }
  return event.ctrlKey || event.altKey || event.metaKey ? "" : event.key;
}

/** Return the shortcut for a pressed key, if any, and the keys of a sequence that has begun. */
export function findShortcut(shortcuts, begun, name) {
  if (!name) return { found: null, begun: "" };
  const typed = begun ? `${begun} ${name}` : name;
  const found = shortcuts.find((one) => one.run && one.keys === typed) ?? null;
  const continues = !found && shortcuts.some((one) => one.keys.startsWith(`${typed} `));
  if (!found && !continues && begun) return findShortcut(shortcuts, "", name);
  return { found, begun: continues ? typed : "" };
}

/** Start to handle the page's shortcuts. */
export function startShortcuts() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    const name = keyName(event);
    if (!name.startsWith("Ctrl+") && (isTyping(event.target) || areSingleKeysOff())) return;
    const begun = event.timeStamp < prefixUntil ? prefix : "";
    const result = findShortcut([...groups.values()].flat(), begun, name);
    prefix = result.begun;
    prefixUntil = event.timeStamp + SEQUENCE_MS;
    if (result.found && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      result.found.run();
    }
  });
}

function isTyping(target) {
  return Boolean(target.closest?.("input, textarea, select, dialog, .xterm, [contenteditable]"));
}

function areSingleKeysOff() {
  return localStorage.getItem(OFF) === "1";
}

/** Show the dialog that lists all shortcuts. */
export function showShortcuts() {
  return openDialog(
    "Keyboard shortcuts",
    (close) => [
      el(
        "div",
        { class: "shortcuts" },
        [...groups].map(([heading, shortcuts]) =>
          el(
            "section",
            {},
            el("h3", {}, heading),
            el(
              "dl",
              {},
              shortcuts.map(({ keys, label }) =>
                el("div", {}, el("dt", {}, keyCaps(keys)), el("dd", {}, label)),
              ),
            ),
          ),
        ),
      ),
      el(
        "label",
        { class: "check" },
        el("input", {
          type: "checkbox",
          checked: !areSingleKeysOff(),
          onchange: ({ target }) => localStorage.setItem(OFF, target.checked ? "" : "1"),
        }),
        " Shortcuts of a single key",
      ),
      el(
        "div",
        { class: "dialog-actions" },
        el("button", { class: "button", type: "button", autofocus: true, onclick: () => close(null) }, "Close"),
      ),
    ],
    { wide: true },
  );
}

function keyCaps(keys) {
  const parts = keys.split(/(?<=.)([+ ])(?=.)/);
  return parts.map((part, at) => (at % 2 === 1 ? part : el("kbd", {}, part)));
}

// The bytes that a terminal receives for a key: without and with "application cursor keys".
const KEY_BYTES = {
  Esc: "\x1b",
  Tab: "\t",
  Enter: "\r",
  Home: ["\x1b[H", "\x1bOH"],
  End: ["\x1b[F", "\x1bOF"],
  PgUp: "\x1b[5~",
  PgDn: "\x1b[6~",
  Up: ["\x1b[A", "\x1bOA"],
  Down: ["\x1b[B", "\x1bOB"],
  Right: ["\x1b[C", "\x1bOC"],
  Left: ["\x1b[D", "\x1bOD"],
};
// Name, text, and the label for screen readers if the text is not a word.
const ROW = [
  ["Esc", "Esc"],
  ["Tab", "Tab"],
  ["Ctrl", "Ctrl", "Ctrl, for the next key"],
  ["Left", "←", "Left"],
  ["Down", "↓", "Down"],
  ["Up", "↑", "Up"],
  ["Right", "→", "Right"],
  ["PgUp", "PgUp"],
  ["PgDn", "PgDn"],
  ["Home", "Home"],
  ["End", "End"],
  ["/", "/", "Slash"],
  ["|", "|", "Pipe"],
  ["-", "-", "Dash"],
];

/** Return the bytes of a key of the row. */
export function keyBytes(name, applicationCursor) {
  const bytes = KEY_BYTES[name] ?? name;
  return typeof bytes === "string" ? bytes : bytes[applicationCursor ? 1 : 0];
}

/** Return typed text as if Ctrl were held; text that has no such form is returned unchanged. */
export function withCtrl(text) {
  if (text.length !== 1) return text;
  if (text === " " || text === "@") return "\0";
  if (text === "?") return "\x7f";
  const code = text.toUpperCase().charCodeAt(0);
  return code >= 0x41 && code <= 0x5f ? String.fromCharCode(code - 0x40) : text;
}

/**
 * A row of keys that phones lack. `send(bytes)` types; `isApplicationCursor()` says whether arrow
 * keys are sent as "application cursor keys". Ctrl applies to the next key: see `apply`.
 */
export class KeyRow {
  constructor({ send, isApplicationCursor, focus }) {
    this._isCtrl = false;
    this._buttons = ROW.map(([name, text, label]) => {
      const button = el("button", { class: "key", type: "button", tabindex: "-1", "aria-label": label }, text);
      if (name === "Ctrl") button.setAttribute("aria-pressed", "false");
      // Keep the focus in the terminal: otherwise the phone's keyboard would close.
      button.addEventListener("pointerdown", (event) => event.preventDefault());
      button.addEventListener("click", () => {
        if (name === "Ctrl") this._setCtrl(!this._isCtrl);
        else send(this.apply(keyBytes(name, isApplicationCursor())));
        focus();
      });
      return button;
    });
    this._buttons[0].tabIndex = 0;
    this.element = el("div", { class: "key-row", role: "toolbar", "aria-label": "Keys" }, this._buttons);
    this.element.addEventListener("keydown", (event) => this._rove(event));
  }

  /** Return typed text as if Ctrl were held, if Ctrl was pressed in the row. */
  apply(text) {
    if (!this._isCtrl) return text;
    this._setCtrl(false);
    return withCtrl(text);
  }

  _setCtrl(value) {
    this._isCtrl = value;
    const ctrl = this._buttons.find((button) => button.hasAttribute("aria-pressed"));
    ctrl.setAttribute("aria-pressed", String(value));
  }

  _rove(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = this._buttons.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = this._buttons[(at + step + this._buttons.length) % this._buttons.length];
    for (const button of this._buttons) button.tabIndex = button === next ? 0 : -1;
    next.focus();
  }
}
