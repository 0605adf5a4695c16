// The bar that finds text in a terminal's screen and scrollback.
//
// The scrollback begins when the window is attached, and lacks output that was skipped because the
// window fell behind. If text is not found there, the retained output is searched, once after each
// change of the pattern; if it is found, the bar offers to show the output as text.

import { el, setText } from "./dom.js";

const COLOURS = {
  decorations: {
    matchBackground: "#e8c36a", matchBorder: "#b38600", matchOverviewRuler: "#b38600",
    activeMatchBackground: "#ff9d3b", activeMatchBorder: "#c85c00", activeMatchColorOverviewRuler: "#c85c00",
  },
};

const TYPING_MS = 250;

/** Return the regular expression for the typed text; throw a SyntaxError if it is not valid. */
export function patternOf(text, isCase, isRegex) {
  const source = isRegex ? text : text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
  return new RegExp(source, isCase ? "m" : "im");
}

/**
 * Show the bar in `container`; `onClose()` is called when the user closes it. `output` is null, or
 * has `read()`, which returns a promise of the retained output, and `show(pattern)`.
 */
export function openSearch(container, emulator, onClose, output = null) {
  if (!container.hidden) {
    container.querySelector("input").select();
    return;
  }
  const { search, term } = emulator;
  const input = el("input", { class: "field", type: "search", "aria-label": "Find in the output", placeholder: "Find", autocomplete: "off", spellcheck: "false" });
  const isCase = el("input", { type: "checkbox", onchange: changed });
  const isRegex = el("input", { type: "checkbox", onchange: changed });
  const result = el("span", { class: "muted", role: "status" });
  const listener = search.onDidChangeResults(({ resultIndex, resultCount }) => {
    if (resultCount) isFound = true;
    if (isFound) earlier.hidden = true;
    if (earlier.hidden) setText(result, !input.value ? "" : resultCount ? `${resultIndex + 1} of ${resultCount}` : "nothing found");
  });
  const earlier = el("button", { class: "button", type: "button", hidden: true, onclick: showOutput }, "Show it");
  let typing;
  let isFound = false;
  const options = (incremental) => ({ ...COLOURS, caseSensitive: isCase.checked, regex: isRegex.checked, incremental });

  function changed() {
    isFound = false;
    earlier.hidden = true;
    clearTimeout(typing);
    if (output && input.value) typing = setTimeout(findInOutput, TYPING_MS);
    find(true);
  }

  async function findInOutput() {
    const { value } = input;
    if (isFound) return;
    try {
      const text = await output.read();
      if (isFound || container.hidden || value !== input.value || !pattern().test(text)) return;
      setText(result, "in the earlier output");
      earlier.hidden = false;
    } catch {
      // The expression is not valid, or the connection is lost: the page shows this already.
    }
  }

  function showOutput() {
    const wanted = pattern();
    close();
    output.show(wanted);
  }

  function pattern() {
    return patternOf(input.value, isCase.checked, isRegex.checked);
  }

  function find(incremental, backwards = false) {
    if (!input.value) search.clearDecorations();
    try {
      if (backwards) search.findPrevious(input.value, options(false));
      else search.findNext(input.value, options(incremental));
    } catch {
      setText(result, "not a regular expression");
    }
  }

  function close() {
    clearTimeout(typing);
    listener.dispose();
    search.clearDecorations();
    term.clearSelection();
    container.hidden = true;
    container.replaceChildren();
    onClose();
  }

  const button = (text, label, run) => el("button", { class: "button", type: "button", "aria-label": label, title: label, onclick: run }, text);
  input.addEventListener("input", changed);
  container.onkeydown = (event) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && event.target === input) find(false, event.shiftKey);
    else return;
    event.preventDefault();
  };
  container.setAttribute("role", "search");
  container.replaceChildren(
    input,
    button("↑", "Previous match", () => find(false, true)),
    button("↓", "Next match", () => find(false)),
    el("label", { class: "check" }, isCase, "Case"),
    el("label", { class: "check" }, isRegex, "Regex"),
    result,
    earlier,
    el("span", { class: "spacer" }),
    button("×", "Close", close),
  );
  container.hidden = false;
  input.value = term.getSelection().split("\n")[0];
  input.select();
  input.focus();
  if (input.value) changed();
}
