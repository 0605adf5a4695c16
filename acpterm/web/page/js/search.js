// The bar that finds text in a terminal's screen with its scrollback, or in its output as text.

import { el, setText } from "./dom.js";

const TYPING_MS = 250;
const OUTPUT_MS = 500;

/** Return the global regular expression for the typed text; throw a SyntaxError if it is not valid. */
export function patternOf(text, isCase, isRegex) {
  const source = isRegex ? text : text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
  return new RegExp(source, isCase ? "gm" : "gim");
}

export class SearchBar {
  /**
   * A closed bar in `container`. `matches()` makes the matches of what is shown (see matches.js), and
   * `onClose()` is called when the user closes the bar.
   */
  constructor(container, matches, onClose) {
    this._container = container;
    this._newMatches = matches;
    this._onClose = onClose;
    this._matches = null;
    this._index = -1;
    this._count = 0;
    // The numbers of the newest search, and of the one that has ended last.
    this._finding = 0;
    this._found = 0;
    const button = (text, label, run) => el("button", { class: "button", type: "button", "aria-label": label, title: label, onclick: run }, text);
    const option = () => el("input", { type: "checkbox", onchange: () => this._find() });
    this._input = el("input", {
      class: "field", type: "search", "aria-label": "Find in the output", placeholder: "Find",
      autocomplete: "off", spellcheck: "false", oninput: () => this._findSoon(TYPING_MS),
    });
    this._isCase = option();
    this._isRegex = option();
    this._result = el("span", { class: "muted", role: "status" });
    container.setAttribute("role", "search");
    container.replaceChildren(
      this._input,
      button("↑", "Previous match", () => this._step(-1)),
      button("↓", "Next match", () => this._step(1)),
      el("label", { class: "check" }, this._isCase, "Case"),
      el("label", { class: "check" }, this._isRegex, "Regex"),
      this._result,
      el("span", { class: "spacer" }),
      button("×", "Close", () => this.close()),
    );
    container.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
      else if (event.key === "Enter" && event.target === this._input) this._step(event.shiftKey ? -1 : 1);
      else return;
      event.preventDefault();
    });
  }

  /** Show the bar; `text` is what to find, or empty to find the same as before. */
  open(text) {
    this._container.hidden = false;
    if (text) this._input.value = text;
    this._input.select();
    this._input.focus();
    if (!this._matches) this.restart();
  }

  /** What is shown has changed to another view: find in that. */
  restart() {
    if (this._container.hidden) return;
    this._clear();
    this._matches = this._newMatches();
    this._endChange = this._matches.onChange(() => this._changed());
    this._find();
  }

  close() {
    if (this._container.hidden) return;
    this._container.hidden = true;
    this._clear();
    this._onClose();
  }

  /** Forget the matches, without a call of `onClose`. */
  _clear() {
    clearTimeout(this._typing);
    clearTimeout(this._output);
    this._output = undefined;
    this._finding += 1;
    this._endChange?.();
    this._matches?.clear();
    this._matches = null;
  }

  stop() {
    this._clear();
  }

  /** While output arrives, count again now and then, but let a search that runs end and show its match. */
  _changed() {
    if (!this._input.value) return;
    this._output ??= setTimeout(() => {
      this._output = undefined;
      if (this._found < this._finding) this._changed();
      else this._find({ isKept: true });
    }, OUTPUT_MS);
  }

  _findSoon(delay) {
    clearTimeout(this._typing);
    this._typing = setTimeout(() => this._find(), delay);
  }

  /** Find all matches, and show the nearest one, or keep the present one (`isKept`). */
  async _find({ isKept = false } = {}) {
    clearTimeout(this._typing);
    const mine = (this._finding += 1);
    const { value } = this._input;
    let pattern;
    try {
      // An empty pattern has no matches.
      pattern = patternOf(value, this._isCase.checked, this._isRegex.checked);
    } catch {
      setText(this._result, "not a regular expression");
      this._found = mine;
      return;
    }
    const count = await this._matches.find(pattern);
    if (mine !== this._finding) return;
    this._found = mine;
    const hadNone = this._count === 0;
    this._count = count;
    if (!isKept || hadNone) this._index = this._matches.nearest();
    else this._index = Math.min(this._index, count - 1);
    this._showResult();
    if (count && (!isKept || hadNone)) this._matches.show(this._index);
  }

  _step(by) {
    if (!this._count) {
      this._find();
      return;
    }
    this._index = (this._index + by + this._count) % this._count;
    this._showResult();
    this._matches.show(this._index);
  }

  _showResult() {
    const { value } = this._input;
    setText(this._result, !value ? "" : this._count ? `${this._index + 1} of ${this._count}` : "nothing found");
  }
}
