// Copies text to the clipboard, also where the browser has no clipboard API.

import { el } from "./dom.js";

/** Copy text to the clipboard; return whether that worked. */
export async function copyText(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Not allowed here: try the old way.
    }
  }
  // Without TLS on another host there is no clipboard API.
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
