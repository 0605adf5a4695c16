// The dialog that creates a terminal of the user.

import { notifyError, openDialog } from "./dialog.js";
import { el } from "./dom.js";

const SHELL = "exec \"${SHELL:-/bin/sh}\"";
const DIRECTORY = "acpterm.directory";

/** Ask for a command, run it in a new terminal, and show the terminal. Empty means a shell. */
export async function openNewTerminal({ rpc, store, navigate }) {
  const order = await openDialog("New terminal", (close) => {
    const command = el("input", { class: "field field-wide mono", name: "command", autofocus: true, autocomplete: "off", autocapitalize: "off", spellcheck: "false", placeholder: "your shell" });
    const name = el("input", { class: "field field-wide", name: "name", autocomplete: "off", autocapitalize: "off", spellcheck: "false", maxlength: "64", placeholder: "optional" });
    const cwd = el("input", { class: "field field-wide mono", name: "cwd", autocomplete: "off", autocapitalize: "off", spellcheck: "false", placeholder: "your home", value: localStorage.getItem(DIRECTORY) ?? "" });
    return el(
      "form",
      {
        method: "dialog",
        onsubmit: (event) => {
          event.preventDefault();
          close({ command: command.value.trim(), name: name.value.trim(), cwd: cwd.value.trim() });
        },
      },
      el("label", { class: "labelled" }, "Command", command),
      el("label", { class: "labelled" }, "Name", name),
      el("label", { class: "labelled" }, "Directory", cwd),
      el(
        "div",
        { class: "dialog-actions" },
        el("button", { class: "button", type: "button", onclick: () => close(null) }, "Cancel"),
        el("button", { class: "button button-primary", type: "submit" }, "Create"),
      ),
    );
  });
  if (order === null) return;
  const params = { command: "/bin/sh", args: ["-c", order.command || SHELL] };
  if (order.name) params.name = order.name;
  if (order.cwd) params.cwd = order.cwd;
  try {
    const info = await rpc.request("_acpterm/terminal/create", params);
    localStorage.setItem(DIRECTORY, order.cwd);
    store.put(info);
    navigate(`#/terminal/${encodeURIComponent(info.terminalId)}`);
  } catch (error) {
    notifyError(error);
  }
}
