// The questions above the list of terminals, each with buttons to answer it once.
//
// "Always", and a reason to deny, are in the view of the questions (approvals.js).

import { announce, notify, Settling } from "./dialog.js";
import { el, setChildren } from "./dom.js";
import { codeOf, levelBadge } from "./shown.js";
import { oneLine } from "./text.js";
import { allowOnce } from "./words.js";

const SHOWN_MAX = 3;
// A longer command is answered where all of it can be read.
const COMMAND_MAX = 300;

/** The questions, in `element`. */
export class Asked {
  constructor(rpc) {
    this._rpc = rpc;
    this._rows = new Map();
    this._settling = new Settling();
    this._more = el("a", { href: "#/approvals" });
    this.element = el("section", { class: "asked", "aria-label": "Approval needed", hidden: true });
  }

  /** Show the questions of a Map of them. */
  show(approvals) {
    const shown = [...approvals.values()].slice(0, SHOWN_MAX);
    const rows = new Map(shown.map((question) => [question.approvalId, this._rows.get(question.approvalId) ?? this._row(question)]));
    if ([...rows.keys()].join() !== [...this._rows.keys()].join()) this._settling.begin();
    this._rows = rows;
    const more = approvals.size - shown.length;
    this._more.textContent = `${more} more`;
    setChildren(this.element, [...rows.values(), ...(more ? [this._more] : [])]);
    this.element.hidden = shown.length === 0;
  }

  _row(question) {
    const agent = oneLine(question.agent || question.connection, 40);
    const isShort = question.command.length <= COMMAND_MAX;
    const button = (text, kind, decision) =>
      el("button", { class: `button ${kind}`, type: "button", onclick: (event) => this._answer(question, decision, event) }, text);
    return el("div", { class: "asked-row" },
      el("div", { class: "asked-text" },
        el("a", { href: "#/approvals" }, "Approval needed"), ` ${agent} wants to run `,
        question.level === "dangerous" ? levelBadge(question.level) : null, " ",
        isShort ? codeOf(question.command) : el("code", {}, oneLine(question.command, COMMAND_MAX))),
      el("div", { class: "toolbar" },
        isShort ? [button(allowOnce(question), "", "allow"), button("Deny", "button-danger", "deny")]
          : el("a", { class: "button", href: "#/approvals" }, "Read and answer")));
  }

  async _answer({ approvalId, command }, decision, event) {
    // `detail` is 0 if a key has pressed the button.
    if (event.detail > 0 && this._settling.refuses()) return;
    try {
      await this._rpc.request("_acpterm/approval/answer", { approvalId, decision, scope: "once" });
      announce(`${decision === "allow" ? "Allowed" : "Denied"}: ${oneLine(command, 80)}`);
    } catch (error) {
      notify(error.message, { danger: true });
    }
  }
}
