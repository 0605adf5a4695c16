// Copies text to the clipboard, also where the browser has no clipboard API.

import { el } from "./dom.js";

/** Copy text to the clipboard; return a promise of whether that worked. */
export async function copyText(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // The API is not allowed here: use `execCommand`.
    }
  }
  // Browsers have no clipboard API on pages without TLS from another host.
  const area = el("textarea", { class: "visually-hidden", "aria-hidden": "true" });
  area.value = text;
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  focused?.focus?.({ preventScroll: true });
  return isCopied;
}
