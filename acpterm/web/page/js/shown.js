// Shows untrusted commands exactly: an invisible character is shown as an escape, and marked, so that
// it differs from the same escape typed as text. Also shows times and levels.

import { el } from "./dom.js";
import { visible, visibleText } from "./text.js";

// In the words of a part, this stands for text that is known only when the command runs.
const COMPUTED = "\ufffd";

const SAFE_WORD = /^[\w@%+=:,./-]+$/;

/**
 * Split text into pieces `{text, isEscape}`: an escape stands for one character, which is invisible
 * or a tab. Line ends are kept.
 */
export function pieces(original) {
  const shown = visibleText(original);
  if (shown === original && !original.includes("\t")) return original ? [{ text: original, isEscape: false }] : [];
  const found = [];
  let plain = "";
  let at = 0;
  for (const character of original) {
    if (character !== "\t" && shown.startsWith(character, at)) {
      plain += character;
      at += character.length;
      continue;
    }
    if (plain) found.push({ text: plain, isEscape: false });
    plain = "";
    const escape = visible(character);
    found.push({ text: escape, isEscape: true });
    at += character === "\t" ? 1 : escape.length;
  }
  if (plain) found.push({ text: plain, isEscape: false });
  return found;
}

/** Return a `<code>` element with a command of one or several lines. */
export function codeOf(command) {
  return el(
    "code",
    { class: "command", dir: "ltr" },
    pieces(command).map(({ text, isEscape }) =>
      isEscape ? el("span", { class: "escape", title: "an invisible character" }, text) : text,
    ),
  );
}

/** Return a `<code>` element with the words of a part of a command; unknown text is marked. */
export function partOf(words) {
  return el(
    "code",
    { class: "command", dir: "ltr" },
    words.flatMap((word, index) => [
      index ? " " : "",
      ...(word.includes(COMPUTED)
        ? [el("span", { class: "computed", title: "computed when the command runs" }, visible(word.replaceAll(COMPUTED, "…")))]
        : [visible(shellJoin([word]))]),
    ]),
  );
}

/** Return words as one shell command, quoted like Python's `shlex.join`. */
export function shellJoin(words) {
  return words.map((word) => (SAFE_WORD.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`)).join(" ");
}

/** Return the local time as "2026-01-31 10:30:00"; `moment` is an argument of `Date`. */
export function localTime(moment) {
  const at = new Date(moment);
  if (Number.isNaN(at.getTime())) return null;
  const two = (number) => String(number).padStart(2, "0");
  const date = [String(at.getFullYear()).padStart(4, "0"), two(at.getMonth() + 1), two(at.getDate())].join("-");
  return `${date} ${[at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":")}`;
}

/** Return a badge with a level: safe, unknown or dangerous. */
export function levelBadge(level) {
  const kinds = { dangerous: "badge badge-danger", safe: "badge badge-ok" };
  return el("span", { class: kinds[level] ?? "badge badge-warn" }, visible(level));
}
