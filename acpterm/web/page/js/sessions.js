// The view of a session: its tool calls in order, with the terminals that they embed.
//
// While the agent is connected, the daemon sends the tool calls and the output of their terminals, in
// ACP v2's encoding, even of terminals that were released. The view keeps the end of each terminal's
// output as plain text. After the agent has disconnected, the view keeps what it has received. If it
// has received nothing, it lists the retained terminals of the session by their tool calls.

import { el, setAttribute, setChildren, setText } from "./dom.js";
import { fromBase64 } from "./emulator.js";
import { RpcError } from "./rpc.js";
import { sessionKey } from "./store.js";
import { oneLine, stripControls, visible, visibleText } from "./text.js";
import { dotOf, ended, shortId, state } from "./words.js";

// How many characters of a terminal's output are kept and shown.
const TAIL_CHARACTERS = 16 << 10;
const TAIL_LINES = 12;
const TEXT_CHARACTERS_MAX = 20000;
const TICK_MS = 1000;

/** Return the state in which no tool call is known. */
export function initial() {
  return { calls: new Map(), terminals: new Map() };
}

/** Change `known` by the `update` of a `session/update` in ACP v2's encoding. */
export function applyUpdate(known, update) {
  const { sessionUpdate: kind } = update;
  if (kind === "tool_call" || kind === "tool_call_update") {
    const call = known.calls.get(update.toolCallId) ?? { toolCallId: update.toolCallId };
    for (const [name, value] of Object.entries(update)) {
      if (name !== "sessionUpdate" && name !== "_meta") call[name] = value;
    }
    known.calls.set(update.toolCallId, call);
  } else if (kind === "terminal_update" || kind === "terminal_output_chunk") {
    const one = known.terminals.get(update.terminalId) ?? { tail: "", decoder: new TextDecoder(), exitStatus: null };
    known.terminals.set(update.terminalId, one);
    if ("command" in update) one.command = update.command;
    if ("exitStatus" in update) one.exitStatus = update.exitStatus;
    if (update.output) {
      one.tail = "";
      one.decoder = new TextDecoder();
    }
    const data = update.data ?? update.output?.data;
    if (data) one.tail = (one.tail + one.decoder.decode(fromBase64(data), { stream: true })).slice(-TAIL_CHARACTERS);
  }
}

/** Return the last lines of output as text that is safe to show. */
export function tailLines(tail, lines = TAIL_LINES) {
  const text = stripControls(tail.split("\n").map(afterReturn).join("\n"));
  return visibleText(text.trimEnd().split("\n").slice(-lines).join("\n"));
}

/** Return the visible end of a line: the text after its last carriage return, except at its end. */
function afterReturn(line) {
  const end = line.endsWith("\r") ? line.length - 1 : line.length;
  return line.slice(line.lastIndexOf("\r", end - 1) + 1, end);
}

/** Mount the view; see main.js. `params` are the connection's id and the session's. */
export function mount(container, { rpc, store, params }) {
  const [connection, sessionId] = params;
  const key = sessionKey(connection, sessionId);
  const known = initial();
  const cards = new Map();
  let scheduled = false;
  let isOver = false;
  let stream = null;

  const heading = el("h1", {}, "Session");
  const detail = el("p", { class: "muted" });
  const list = el("ol", { class: "calls", "aria-label": "Tool calls" });
  const empty = el("p", { class: "empty", hidden: true }, "No tool call shows a terminal yet.");
  container.replaceChildren(
    el("div", { class: "session-head" },
      el("a", { class: "button button-quiet term-back", href: "#/", "aria-label": "Back to the list" }, "‹"),
      el("div", {}, heading, detail)),
    empty,
    list,
  );

  function schedule() {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      render();
    });
  }

  /** Return the tool calls in order; calls that are known only from retained terminals come last. */
  function calls() {
    const found = new Map([...known.calls].map(([id, call]) => [id, { ...call, ids: terminalIds(call.content) }]));
    for (const info of store.terminals.values()) {
      if (sessionKey(info.connection, info.sessionId) !== key) continue;
      for (const id of info.toolCalls) {
        if (!found.has(id)) found.set(id, { toolCallId: id, title: null, ids: [] });
        const { ids } = found.get(id);
        if (!ids.includes(info.terminalId)) ids.push(info.terminalId);
      }
    }
    return [...found.values()];
  }

  function render() {
    const session = store.sessions.get(key);
    const agent = session?.agent ?? [...store.terminals.values()].find((info) => info.connection === connection)?.agent;
    setText(heading, oneLine(agent || "agent", 60));
    setText(detail, [`session ${oneLine(sessionId, 60)}`, session?.cwd && oneLine(session.cwd, 120), (isOver || !session) && "disconnected"].filter(Boolean).join(" · "));
    const shown = calls();
    empty.hidden = shown.length > 0;
    const elements = shown.map((call) => {
      if (!cards.has(call.toolCallId)) cards.set(call.toolCallId, new Card());
      const card = cards.get(call.toolCallId);
      card.show(call, known.terminals, store.terminals);
      return card.element;
    });
    setChildren(list, elements);
  }

  function subscribe() {
    isOver = false;
    const current = (stream = rpc.stream(
      "_acpterm/session/subscribe",
      { sessionId, connection, format: "v2" },
      ({ update }) => {
        applyUpdate(known, update);
        schedule();
      },
    ));
    current.done.then(
      () => {
        isOver = true;
        schedule();
      },
      (error) => {
        // The session's connection has closed before.
        if (error instanceof RpcError) isOver = true;
        schedule();
      },
    );
  }

  const ends = [
    store.subscribe(schedule),
    rpc.onOpen(() => {
      // The snapshot repeats all output.
      known.terminals.clear();
      subscribe();
    }),
  ];
  const timer = setInterval(schedule, TICK_MS);
  return () => {
    for (const end of ends) end();
    clearInterval(timer);
    stream?.cancel();
  };
}

function terminalIds(content) {
  return (Array.isArray(content) ? content : []).filter((part) => part?.type === "terminal").map((part) => part.terminalId);
}

/** One tool call. */
class Card {
  constructor() {
    this.title = el("span", { class: "call-title" });
    this.kind = el("span", { class: "badge", hidden: true });
    this.status = el("span", { class: "call-status" });
    this.body = el("div", { class: "call-body" });
    this.element = el("li", { class: "card call" }, el("div", { class: "call-head" }, this.title, this.kind, this.status), this.body);
    this.parts = new Map();
  }

  show(call, streamed, infos) {
    setText(this.title, oneLine(call.title || `call ${call.toolCallId}`, 300));
    this.kind.hidden = !call.kind;
    setText(this.kind, call.kind ? oneLine(String(call.kind), 24) : "");
    const status = call.status ? String(call.status).replaceAll("_", " ") : "";
    setText(this.status, oneLine(status, 24));
    setAttribute(this.status, "data-status", call.status ?? null);
    const shown = [];
    const content = Array.isArray(call.content) ? call.content : [];
    content.forEach((part, at) => {
      if (part?.type === "terminal") return;
      const text = contentText(part);
      if (text) shown.push(this._text(`content-${at}`, text));
    });
    for (const id of call.ids) shown.push(this._terminal(id, streamed.get(id), infos.get(id)));
    setChildren(this.body, shown);
  }

  _text(name, text) {
    if (!this.parts.has(name)) this.parts.set(name, el("pre", { class: "call-text" }));
    const element = this.parts.get(name);
    setText(element, visibleText(text.slice(0, TEXT_CHARACTERS_MAX)));
    return element;
  }

  _terminal(id, streamed, info) {
    if (!this.parts.has(id)) {
      const dot = el("span", { class: "dot", "aria-hidden": "true" });
      const name = el("a", { class: "mono", href: `#/terminal/${encodeURIComponent(id)}` });
      const words = el("span", { class: "muted" });
      const output = el("pre", { class: "call-output", "aria-label": "End of the output" });
      const element = el("div", { class: "call-terminal" }, el("div", { class: "call-terminal-head" }, dot, name, words), output);
      this.parts.set(id, Object.assign(element, { dot, name, words, output }));
    }
    const element = this.parts.get(id);
    setText(element.name, oneLine(info?.command ?? streamed?.command ?? shortId(id), 300));
    // A terminal that the daemon has forgotten has no page, but its output was received.
    setAttribute(element.name, "href", info ? `#/terminal/${encodeURIComponent(id)}` : null);
    setAttribute(element.dot, "data-state", info ? dotOf(info) : "ended");
    const status = streamed?.exitStatus;
    const words = info ? state(info, Date.now() / 1000) : status ? ended({ exitCode: null, signal: null, ...status }) : "no longer retained";
    setText(element.words, words);
    const text = streamed ? tailLines(streamed.tail) : "";
    element.output.hidden = !text;
    setText(element.output, text);
    return element;
  }
}

/** Return the text of a part of a tool call's content; a diff as its new text. */
function contentText(part) {
  if (part?.type === "content" && part.content?.type === "text") return String(part.content.text ?? "");
  if (part?.type === "diff") return `${visible(String(part.path ?? part.changes?.[0]?.path ?? "diff"))}\n${part.newText ?? part.patch ?? ""}`.trim();
  return "";
}
