// The dialog that creates shares of one terminal, which are links, and lists and revokes them.

import { copyText } from "./clipboard.js";
import { notify, notifyError, openDialog } from "./dialog.js";
import { el } from "./dom.js";
import { span, title } from "./words.js";

const HOUR_MS = 3600 * 1000;
const DURATIONS = [["1 hour", HOUR_MS], ["8 hours", 8 * HOUR_MS], ["1 day", 24 * HOUR_MS], ["1 week", 7 * 24 * HOUR_MS]];

/** Show the dialog for the terminal `info`. */
export async function openShare({ rpc, info }) {
  const list = el("ul", { class: "share-list" });
  const link = el("input", { class: "field field-wide mono", readonly: true, "aria-label": "Link" });
  const made = el("div", { class: "toolbar", hidden: true }, link);
  let madeId = null;

  async function read() {
    const ids = await readShares({ rpc, info, list, read });
    if (ids) made.hidden = !ids.includes(madeId);
  }

  const opened = openDialog(`Share ${title(info)}`, (close) => {
    const duration = el("select", { class: "field" }, DURATIONS.map(([text, value]) => el("option", { value }, text)));
    const write = el("input", { type: "checkbox", disabled: info.owner !== "user" });
    made.append(el("button", { class: "button button-primary", type: "button", onclick: () => copyLink(link.value) }, "Copy the link"));
    return [
      el("p", {}, "Anyone with the link, who can reach this server, sees this terminal until the link expires or is revoked."),
      el("label", { class: "labelled" }, "Valid for", duration),
      el("label", { class: "check" }, write, " Allow typing (only in your own terminals)"),
      made,
      list,
      el(
        "div",
        { class: "dialog-actions" },
        el("button", { class: "button", type: "button", onclick: () => close(null) }, "Close"),
        el("button", {
          class: "button button-primary",
          type: "button",
          onclick: async () => {
            try {
              const params = { terminalId: info.terminalId, write: write.checked, forMs: Number(duration.value) };
              const share = await rpc.request("_acpterm/share/create", params);
              link.value = ofThisPage(share.url);
              madeId = share.shareId;
              made.hidden = false;
              await read();
              link.select();
            } catch (error) {
              notifyError(error);
            }
          },
        }, "Make a link"),
      ),
    ];
  });
  // After a reconnect the daemon may be another one, with other shares.
  const end = rpc.onOpen(read);
  await opened;
  end();
}

/** Return a link with the origin of this page, since the daemon does not know that of a proxy. */
function ofThisPage(url) {
  const { pathname, hash } = new URL(url);
  return `${location.origin}${pathname}${hash}`;
}

async function copyLink(text) {
  if (await copyText(text)) notify("Copied");
  else notify("The browser does not allow to copy", { danger: true });
}

/** Show the shares of a terminal; return their ids, or null if the connection is lost. */
async function readShares({ rpc, info, list, read }) {
  let shares;
  try {
    ({ shares } = await rpc.request("_acpterm/share/list", {}));
  } catch {
    return null;
  }
  const now = Date.now();
  const mine = shares.filter((share) => share.terminalId === info.terminalId);
  const items = mine.map((share) => {
    const left = span(Math.max(0, (share.endsAt - now) / 1000));
    const text = `${share.write ? "typing" : "read-only"}, ${left} left`;
    return el(
      "li",
      {},
      text,
      el("button", {
        class: "button button-danger",
        type: "button",
        "aria-label": `Revoke: ${text}`,
        onclick: async () => {
          try {
            await rpc.request("_acpterm/share/revoke", { shareId: share.shareId });
          } catch (error) {
            notifyError(error);
          }
          await read();
        },
      }, "Revoke"),
    );
  });
  list.replaceChildren(...items);
  return mine.map((share) => share.shareId);
}
