// The bar that finds text in a terminal's screen and scrollback.

import { el, setText } from "./dom.js";

const COLOURS = {
  decorations: {
    matchBackground: "#e8c36a", matchBorder: "#b38600", matchOverviewRuler: "#b38600",
    activeMatchBackground: "#ff9d3b", activeMatchBorder: "#c85c00", activeMatchColorOverviewRuler: "#c85c00",
  },
};

/** Show the bar in `container`; `onClose()` is called when the user closes it. */
export function openSearch(container, emulator, onClose) {
  if (!container.hidden) {
    container.querySelector("input").select();
    return;
  }
  const { search, term } = emulator;
  const input = el("input", { class: "field", type: "search", "aria-label": "Find in the output", placeholder: "Find", autocomplete: "off", spellcheck: "false" });
  const isCase = el("input", { type: "checkbox", onchange: () => find(true) });
  const isRegex = el("input", { type: "checkbox", onchange: () => find(true) });
  const result = el("span", { class: "muted", role: "status" });
  const listener = search.onDidChangeResults(({ resultIndex, resultCount }) => {
    setText(result, !input.value ? "" : resultCount ? `${resultIndex + 1} of ${resultCount}` : "nothing found");
  });
  const options = (incremental) => ({ ...COLOURS, caseSensitive: isCase.checked, regex: isRegex.checked, incremental });

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
    listener.dispose();
    search.clearDecorations();
    term.clearSelection();
    container.hidden = true;
    container.replaceChildren();
    onClose();
  }

  const button = (text, label, run) => el("button", { class: "button", type: "button", "aria-label": label, title: label, onclick: run }, text);
  input.addEventListener("input", () => find(true));
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
    el("span", { class: "spacer" }),
    button("×", "Close", close),
  );
  container.hidden = false;
  input.value = term.getSelection().split("\n")[0];
  input.select();
  input.focus();
  if (input.value) find(true);
}
