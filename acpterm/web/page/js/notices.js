// Texts that replace a view: why the view cannot be shown, and what the user can do.

import { el } from "./dom.js";
import { visible } from "./text.js";

const NOTICES = {
  refused: {
    title: "This link does not work",
    text: "A link works once, and for ten minutes. A new one is printed by:",
    command: "acpterm open --no-browser",
  },
  login: {
    title: "This browser is not logged in",
    text: "Open the page with a one-use link, which is printed by:",
    command: "acpterm open --no-browser",
  },
  share: {
    title: "This share has ended",
    text: "It was revoked or has expired. Ask its sender for another link.",
  },
  vendor: {
    title: "This page was not built",
    text: "The terminal emulator is missing from acpterm/web/page/vendor. Build it in the checkout with:",
    command: "make page",
  },
  failed: {
    title: "This view cannot be shown",
    text: "Reload the page. If that does not help, the daemon's log says more.",
  },
  gone: {
    title: "There is no such terminal",
    text: "It was removed, or released and no longer retained.",
  },
};

/**
 * Show a notice in `container`; `detail` is what the server or the browser reports, and `more` are
 * further elements.
 */
export function showNotice(container, name, detail = "", ...more) {
  const { title, text, command } = NOTICES[name];
  container.replaceChildren(
    el(
      "div",
      { class: "notice card", role: "alert" },
      el("h1", {}, title),
      el("p", {}, text),
      command ? el("pre", {}, el("code", {}, command)) : null,
      detail ? el("p", { class: "muted" }, visible(detail)) : null,
      more,
    ),
  );
}
