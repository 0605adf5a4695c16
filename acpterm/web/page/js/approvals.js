// The view of the questions: commands that wait for the user's approval, and buttons to answer.
//
// The daemon owns the questions. This view subscribes to them itself, since it shows answers that
// are given elsewhere. A card is *pending*; *sending*, after a button was pressed; or *answered*,
// here or elsewhere, and then it disappears. After a reconnect the daemon sends the pending
// questions again, and the cards of other questions are removed.
//
// When a card disappears, the next card moves under the pointer, so a click just after that is
// ignored. Keys act only on the question that has the focus.

import { announce, notify, Settling } from "./dialog.js";
import { el, newId, setText } from "./dom.js";
import { addShortcuts } from "./keys.js";
import { LostError } from "./rpc.js";
import { codeOf, levelBadge, localTime, shellJoin } from "./shown.js";
import { oneLine, visible } from "./text.js";
import { allowOnce, duration } from "./words.js";

const TICK_MS = 1000;
const LEAVE_MS = 1800;
const ANSWERED_MAX = 20;
const SOON_S = 30;
const REASON_MAX = 2000;
const BY = {
  page: "on the page",
  approvals: "with acpterm approve or deny",
  editor: "in the editor",
  prompt: "at acpterm prompt",
  elicitation: "in the agent's client",
  session: "by an answer for always",
  timeout: "no answer in time",
  cancelled: "no longer asked",
  unattended: "there was no way to ask",
};

/** Return the words for an answer, such as "Allowed in the editor". */
export function answerText(answer) {
  const always = answer.scope === "always" ? " always" : "";
  const what = answer.decision === "allow" ? "Allowed" : "Denied";
  const how = BY[answer.by] ?? oneLine(answer.by, 40);
  const reason = answer.reason ? ` (${oneLine(answer.reason, 200)})` : "";
  return answer.by in { timeout: 0, cancelled: 0, unattended: 0 }
    ? `Not run: ${how}${reason}`
    : `${what}${always} ${how}${reason}`;
}

/** Return what the answer "always" covers: a text about the commands, and the command. */
export function alwaysWords(question) {
  if (question.prefix === null) {
    return ["Always is not offered: no part of this command can be recognised safely.", ""];
  }
  const words = visible(shellJoin(question.prefix));
  return question.level === "dangerous"
    ? ["Always, in this session: only ", words]
    : ["Always, in this session: all commands that begin with ", words];
}

/** Return the remaining time in words; empty if there is no limit. */
export function leftText(seconds) {
  if (seconds === null) return "";
  return seconds < 1 ? "no time left" : `${duration(seconds)} left`;
}

/** One question. `onAnswer(card, params)` sends an answer. */
class Card {
  constructor(question, onAnswer) {
    this.question = question;
    this.isDone = false;
    this.left = el("span", { class: "question-left", role: "timer", "aria-live": "off" });
    this.status = el("p", { class: "question-status", hidden: true });
    const agent = oneLine(question.agent || question.connection, 60);
    const title = el("h2", { id: newId("question") }, `${agent} wants to run`);
    const [about, prefix] = alwaysWords(question);
    const always = el("p", { class: "question-always muted", id: newId("always") }, about, prefix ? el("code", {}, prefix) : null);
    this.reason = el("input", {
      class: "field", placeholder: "Reason (optional)", "aria-label": `Reason to deny, which ${agent} reads`,
      autocomplete: "off", maxlength: String(REASON_MAX),
      onkeydown: (event) => {
        if (event.key === "Enter" && !event.isComposing) this.send("deny");
        if (event.key === "Escape") this.element.focus();
      },
    });
    const button = (text, kind, run, more = {}) =>
      el("button", { class: `button ${kind}`, type: "button", onclick: run, ...more }, text);
    this.buttons = [
      button(allowOnce(question), question.level === "dangerous" ? "" : "button-primary", (event) => this.click(event, "allow")),
      question.prefix === null ? null
        : button("Always allow", "", (event) => this.click(event, "allow", "always"), { "aria-describedby": always.id }),
      button("Deny", "button-danger", (event) => this.click(event, "deny")),
    ];
    this.form = el(
      "div",
      { class: "question-actions" },
      el("div", { class: "toolbar" }, this.buttons.slice(0, 2)),
      el("div", { class: "toolbar question-deny" }, this.reason, this.buttons[2]),
    );
    this.element = el(
      "article",
      { class: question.level === "dangerous" ? "card question is-dangerous" : "card question", tabindex: "-1", "aria-labelledby": title.id, },
      el("header", { class: "question-head" }, title, levelBadge(question.level), el("span", { class: "spacer" }), this.left),
      el("pre", { class: "question-command", tabindex: "0", "aria-label": "Command" }, codeOf(question.command)),
      el(
        "dl",
        { class: "facts" },
        ...fact("Reason", visible(question.reason)),
        ...fact("Directory", el("span", { class: "mono" }, visible(question.cwd))),
        ...fact("Session", el("span", {}, visible(question.sessionId))),
        ...fact("Asked", localTime(question.askedAt) ?? ""),
      ),
      this.form,
      always,
      this.status,
    );
    this.onAnswer = onAnswer;
    this.update(question);
  }

  /** Update the card from the question that was sent again, which has its remaining time. */
  update(question) {
    this.question = question;
    this.endsAt = question.remainingMs === null ? null : performance.now() + question.remainingMs;
    this.tick();
  }

  tick() {
    const seconds = this.endsAt === null ? null : Math.max(0, (this.endsAt - performance.now()) / 1000);
    setText(this.left, leftText(seconds));
    this.left.classList.toggle("is-soon", seconds !== null && seconds < SOON_S);
  }

  click(event, decision, scope = "once") {
    // `detail` is 0 if a key has pressed the button.
    this.send(decision, scope, { isPointer: event.detail > 0 });
  }

  send(decision, scope = "once", options = {}) {
    if (!this.isDone && !this.isSending) this.onAnswer(this, decision, scope, options);
  }

  setSending(isSending) {
    this.isSending = isSending;
    // A disabled control loses the focus: keep it in the card.
    if (isSending && this.form.contains(document.activeElement)) this.element.focus({ preventScroll: true });
    for (const control of [...this.buttons, this.reason]) if (control) control.disabled = isSending;
  }

  /** Show `text`, the answer, until the card is removed. */
  finish(text) {
    this.isDone = true;
    this.setSending(true);
    this.form.hidden = true;
    this.left.hidden = true;
    this.status.hidden = false;
    this.element.classList.add("is-answered");
    setText(this.status, text);
  }
}

function fact(name, value) {
  return value === "" ? [] : [el("dt", {}, name), el("dd", {}, value)];
}

/** Mount the view; see main.js. */
export function mount(container, { rpc }) {
  const cards = new Map();
  const answered = [];
  const settling = new Settling();

  const list = el("div", { class: "questions" });
  const summary = el("p", { class: "muted", role: "status" });
  const empty = el("div", { class: "empty", hidden: true }, el("p", {}, "No command waits for approval."),
    el("p", {}, "Commands that the policy asks about appear here. ", el("a", { href: "#/policy" }, "Try a command"), "."));
  const history = el("section", { class: "answered", hidden: true }, el("h2", {}, "Answered since this view was opened"));
  const historyList = el("ul");
  history.append(historyList);
  container.replaceChildren(
    el("div", { class: "panel" },
      el("div", { class: "panel-head" }, el("h1", {}, "Approvals"), summary),
      empty, list, history),
  );

  function render() {
    const pending = [...cards.values()].filter((card) => !card.isDone).length;
    setText(summary, pending ? `${pending} ${pending === 1 ? "command waits" : "commands wait"}` : "");
    empty.hidden = cards.size > 0;
    history.hidden = answered.length === 0;
  }

  function put(question) {
    const known = cards.get(question.approvalId);
    if (known) {
      known.update(question);
      known.setSending(false);
      return;
    }
    const card = new Card(question, answer);
    cards.set(question.approvalId, card);
    list.append(card.element);
    render();
  }

  function close(id, text) {
    const card = cards.get(id);
    if (!card || card.isDone) return;
    const hadFocus = card.element.contains(document.activeElement);
    card.finish(text);
    if (hadFocus) focusNext(card);
    answered.unshift(id);
    historyList.prepend(
      el("li", {}, el("span", { class: "muted" }, localTime(Date.now()).slice(-8)), ` ${text}: `,
        el("code", {}, oneLine(card.question.command, 160))),
    );
    if (answered.length > ANSWERED_MAX) {
      answered.pop();
      historyList.lastChild.remove();
    }
    render();
    setTimeout(() => remove(id, card), LEAVE_MS);
  }

  function remove(id, card) {
    if (cards.get(id) !== card) return;
    cards.delete(id);
    card.element.remove();
    settling.begin();
    render();
  }

  function focusNext(card) {
    const open = [...cards.values()].filter((one) => !one.isDone);
    const all = [...cards.values()];
    const next = all.slice(all.indexOf(card)).find((one) => !one.isDone) ?? open.at(-1);
    if (next) next.element.focus({ preventScroll: true });
    else heading().focus();
  }

  function heading() {
    const title = container.querySelector("h1");
    title.tabIndex = -1;
    return title;
  }

  async function answer(card, decision, scope, { isPointer = false } = {}) {
    if (isPointer && settling.refuses()) return;
    const { approvalId, command } = card.question;
    card.setSending(true);
    const reason = decision === "deny" && card.reason.value.trim() ? { reason: card.reason.value.trim() } : {};
    try {
      await rpc.request("_acpterm/approval/answer", { approvalId, decision, scope, ...reason });
      const text = answerText({ decision, scope, by: "page", reason: reason.reason ?? "" });
      announce(`${text}: ${oneLine(command, 80)}`);
      close(approvalId, text);
    } catch (error) {
      // If the connection was lost, the daemon sends the pending questions after the reconnect.
      if (!(error instanceof LostError)) card.setSending(false);
      notify(error.message, { danger: true });
    }
  }

  /** After a reconnect: close the cards of questions that are not pending any more. */
  async function reconcile() {
    try {
      const { approvals } = await rpc.request("_acpterm/approval/list");
      const pending = new Set(approvals.map((one) => one.approvalId));
      for (const id of [...cards.keys()]) if (!pending.has(id)) close(id, "Answered or withdrawn meanwhile");
      render();
    } catch {
      // The connection is lost again: `reconcile` is called after the next reconnect.
    }
  }

  const endStream = rpc.keep(
    "_acpterm/approval/subscribe",
    {},
    (params, method) => {
      if (method.endsWith("/asked")) put(params.approval);
      else close(params.approvalId, answerText(params.answer));
    },
    reconcile,
  );
  const timer = setInterval(() => {
    for (const card of cards.values()) card.tick();
  }, TICK_MS);

  const focused = () => [...cards.values()].find((card) => card.element.contains(document.activeElement));
  const move = (step) => {
    const open = [...cards.values()].filter((card) => !card.isDone);
    if (!open.length) return;
    const at = open.indexOf(focused());
    const next = at < 0 ? 0 : Math.max(0, Math.min(open.length - 1, at + step));
    open[next].element.focus();
    open[next].element.scrollIntoView({ block: "nearest" });
  };
  // If no question has the focus, a key only gives a question the focus, so that the user sees it.
  const act = (run) => () => {
    const card = focused();
    if (card) run(card);
    else move(0);
  };
  const removeShortcuts = addShortcuts("Approvals", [
    { keys: "j", label: "Next question", run: () => move(1) },
    { keys: "k", label: "Previous question", run: () => move(-1) },
    { keys: "a", label: "Allow the question once", run: act((card) => card.send("allow")) },
    { keys: "A", label: "Always allow", run: act((card) => card.question.prefix && card.send("allow", "always")) },
    { keys: "d", label: "Deny: type a reason, then Enter", run: act((card) => card.reason.focus()) },
  ]);
  render();

  return () => {
    endStream();
    clearInterval(timer);
    removeShortcuts();
  };
}
