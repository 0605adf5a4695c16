// Dialogs, short messages that disappear, and announcements to screen readers.
//
// A dialog is modal, closes with Escape, and then returns the focus to the element that had it. A
// short message is called a notice. Only one notice is visible at a time; it is also announced to
// screen readers. The text of notices and announcements may come from an agent, so its invisible
// characters are shown as escapes.

import { el, newId } from "./dom.js";
import { visible } from "./text.js";

const NOTICE_MS = 6000;
const SETTLE_MS = 600;

/**
 * Show a dialog. `fill(close)` returns its content; `close(value)` closes it. Return a promise of
 * `value`, or of null if the dialog was cancelled.
 */
export function openDialog(title, fill, { wide = false } = {}) {
  return new Promise((resolve) => {
    let result = null;
    const opener = document.activeElement;
    const close = (value) => {
      result = value;
      dialog.close();
    };
    const heading = el("h2", { id: newId("dialog") }, title);
    const dialog = el(
      "dialog",
      { class: wide ? "dialog dialog-wide" : "dialog", "aria-labelledby": heading.id },
      heading,
    );
    dialog.append(...[fill(close)].flat());
    dialog.addEventListener("close", () => {
      dialog.remove();
      opener?.focus?.({ preventScroll: true });
      resolve(result);
    });
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog && isOutside(dialog, event)) dialog.close();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

function isOutside(dialog, { clientX, clientY }) {
  const box = dialog.getBoundingClientRect();
  const isInside =
    clientX >= box.left && clientX <= box.right && clientY >= box.top && clientY <= box.bottom;
  return !isInside;
}

/**
 * Ask the user to confirm an action; return a promise of whether they did.
 *
 * `text` explains the action; each item is a paragraph. `code` is shown exactly, as code. If the
 * action is dangerous (`danger`), the cancel button has the focus first.
 */
export async function confirm({ title, text, code = null, action, danger = false }) {
  const paragraphs = [text].flat().map((line) => el("p", {}, line));
  const answer = await openDialog(title, (close) => [
    ...paragraphs,
    code === null ? "" : el("pre", { class: "dialog-code", tabindex: "0" }, code),
    el(
      "div",
      { class: "dialog-actions" },
      el("button", { class: "button", type: "button", autofocus: danger, onclick: () => close(false) }, "Cancel"),
      el(
        "button",
        {
          class: danger ? "button button-danger" : "button button-primary",
          type: "button",
          autofocus: !danger,
          onclick: () => close(true),
        },
        action,
      ),
    ),
  ]);
  return answer === true;
}

/** Show a notice for some seconds, and announce it. */
export function notify(text, { danger = false } = {}) {
  document.querySelector(".toast")?.remove();
  const toast = el("div", { class: danger ? "toast toast-danger" : "toast" }, visible(text));
  document.body.append(toast);
  setTimeout(() => toast.remove(), NOTICE_MS);
  announce(text);
}

/** Refuses clicks just after a list has changed: another row may have moved under the pointer. */
export class Settling {
  constructor() {
    this._until = 0;
  }

  begin() {
    this._until = performance.now() + SETTLE_MS;
  }

  /** Return whether a click is refused now; then say so. */
  refuses() {
    const isRefused = performance.now() < this._until;
    if (isRefused) notify("The list has just changed: look again, then press the button.");
    return isRefused;
  }
}

/** Show the error of a request, except a lost connection, which the page's header shows. */
export function notifyError(error) {
  notify(error.message, { danger: true });
}

/** Make screen readers read `text`, after the text that they are reading now. */
export function announce(text) {
  const live = document.getElementById("live");
  // The same text twice is announced twice only if it was removed in between.
  live.textContent = "";
  requestAnimationFrame(() => {
    live.textContent = visible(text);
  });
}
