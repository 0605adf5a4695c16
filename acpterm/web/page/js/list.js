// The list of all terminals, grouped by agent and session.
//
// Groups and terminals that wait for the user come first. Every row is created once and changed in
// place, so that changes of 200 terminals cost little, and a row keeps the focus when it moves.
// One row has the tab stop, which the arrow keys move, as in `acpterm ls --watch`.

import { Asked } from "./asked.js";
import { el, newId, setAttribute, setChildren, setText } from "./dom.js";
import { addShortcuts } from "./keys.js";
import { openNewTerminal } from "./new_terminal.js";
import { levelBadge } from "./shown.js";
import { sessionKey } from "./store.js";
import { killProgram, removeEnded } from "./terminal_actions.js";
import { oneLine } from "./text.js";
import { byState, dotOf, isActive, isOver, isRunning, isWaiting, needsUser, NOTHING, row, shortId } from "./words.js";

const TICK_MS = 1000;
const COLUMNS = [
  ["state", "State"],
  ["command", "Command"],
  ["owner", "Owner"],
  ["where", "Where"],
  ["size", "Size"],
  ["age", "Age"],
  ["output", "Output"],
  ["id", "ID"],
  ["actions", ""],
];
const SHOWN = { all: "All", running: "Running", waiting: "Waiting" };
const COMMAND_MAX = 300;

/** Return the groups to show, in order, each with its terminals in order. */
export function groupTerminals(terminals, sessions, { shown = "all", filter = "", now = 0 } = {}) {
  const groups = new Map();
  const groupOf = (connection, sessionId, agent) => {
    const key = sessionKey(connection, sessionId);
    if (!groups.has(key)) groups.set(key, { key, connection, sessionId, agent, terminals: [] });
    return groups.get(key);
  };
  if (!filter && shown === "all") {
    for (const info of sessions.values()) groupOf(info.connection, info.sessionId, info.agent);
  }
  const wanted = filter.toLowerCase();
  for (const info of terminals.values()) {
    if (shown === "running" && !isRunning(info)) continue;
    if (shown === "waiting" && !isWaiting(info)) continue;
    if (wanted) {
      const words = Object.values(row(info, shortId(info.terminalId), now)).join("  ");
      if (!`${words}  ${info.level ?? ""}`.toLowerCase().includes(wanted)) continue;
    }
    groupOf(info.connection, info.sessionId, info.agent).terminals.push(info);
  }
  for (const group of groups.values()) {
    group.session = sessions.get(group.key) ?? null;
    group.running = group.terminals.filter(isRunning).length;
    group.queued = group.terminals.filter((info) => info.state === "queued").length;
    group.waiting = group.terminals.filter(needsUser).length;
    // Sorting is stable, so otherwise the daemon's order, by age, remains.
    group.terminals.sort((a, b) => Number(isWaiting(b)) - Number(isWaiting(a)) || byState(a, b));
  }
  const rank = (group) => [group.waiting, group.session, group.connection == null, group.running || group.queued];
  return [...groups.values()].sort((a, b) => {
    const [one, other] = [rank(a), rank(b)];
    const at = one.findIndex((value, index) => Boolean(value) !== Boolean(other[index]));
    return at < 0 ? 0 : Boolean(other[at]) - Boolean(one[at]);
  });
}

/** A row of a terminal. */
class Row {
  /** `onKill(info)` is called if the user presses the button to kill the program. */
  constructor(onKill) {
    this.cells = Object.fromEntries(
      COLUMNS.map(([name]) => [name, el("span", { role: "cell", class: `cell cell-${name}` })]),
    );
    this.dot = el("span", { class: "dot", "aria-hidden": "true" });
    this.stateText = el("span");
    this.cells.state.append(this.dot, this.stateText);
    this.link = el("a", { class: "row-link", tabindex: "-1" });
    this.name = el("span", { class: "row-name" });
    this.command = el("span", { class: "row-command" });
    this.danger = levelBadge("dangerous");
    this.link.append(this.name, this.danger, this.command);
    this.cells.command.append(this.link);
    this.kill = el("button", { class: "button button-danger row-kill", type: "button", tabindex: "-1", onclick: () => onKill(this.info) }, "Kill");
    this.cells.actions.append(this.kill);
    this.element = el("div", { role: "row", class: "row" }, Object.values(this.cells));
    this.element.addEventListener("click", (event) => {
      if (!event.target.closest("a, button") && !getSelection().toString()) this.link.click();
    });
  }

  /** Show the state of a terminal; `tick` sets the texts that change with time. */
  show(info) {
    this.info = info;
    this.element.dataset.id = info.terminalId;
    setAttribute(this.link, "href", `#/terminal/${encodeURIComponent(info.terminalId)}`);
    this.element.classList.toggle("row-waits", needsUser(info));
    setAttribute(this.dot, "data-state", dotOf(info));
    this.danger.hidden = info.level !== "dangerous";
    this.kill.hidden = !isActive(info) && !isRunning(info);
    setAttribute(this.kill, "aria-label", `Kill ${oneLine(info.name || info.command, 60)}`);
    setText(this.cells.owner, info.owner);
    setAttribute(this.cells.owner, "data-owner", info.owner);
  }

  setStop(isStop) {
    this.link.tabIndex = this.kill.tabIndex = isStop ? 0 : -1;
  }

  tick(now) {
    const words = row(this.info, shortId(this.info.terminalId), now);
    setText(this.stateText, words.state);
    setText(this.name, words.name === NOTHING ? "" : words.name);
    const command = oneLine(words.command, COMMAND_MAX);
    setText(this.command, command);
    setAttribute(this.link, "title", command);
    for (const name of ["where", "size", "age", "output", "id"]) setText(this.cells[name], words[name]);
    this.cells.where.classList.toggle("is-nothing", words.where === NOTHING);
  }
}

/** The heading of a group, and its rows. */
class Group {
  constructor() {
    this.title = el("span", { class: "group-title", id: newId("group") });
    this.detail = el("span", { class: "group-detail muted" });
    this.link = el("a", { class: "group-link" }, "Tool calls");
    const heading = el(
      "div",
      { role: "row", class: "group-head" },
      el("span", { role: "rowheader", class: "group-cell" }, this.title, this.detail, this.link),
    );
    this.heading = heading;
    this.element = el("div", { role: "rowgroup", class: "group", "aria-labelledby": this.title.id });
  }

  show(group, rows) {
    const isUser = group.connection == null;
    setText(this.title, isUser ? "You" : oneLine(group.agent || "agent", 40));
    const calls = group.session?.toolCalls.length ?? 0;
    const parts = [];
    if (!isUser) parts.push(`session ${oneLine(group.sessionId ?? "-", 24)}`);
    if (group.session?.cwd) parts.push(oneLine(group.session.cwd, 60));
    if (group.running) parts.push(`${group.running} running`);
    if (group.queued) parts.push(`${group.queued} queued`);
    if (!isUser && !group.session) parts.push("disconnected");
    setText(this.detail, parts.join(" · "));
    this.link.hidden = isUser || !(calls || group.terminals.some((info) => info.toolCalls.length));
    setText(this.link, calls ? `Tool calls (${calls})` : "Tool calls");
    if (!isUser) {
      setAttribute(this.link, "href", `#/session/${encodeURIComponent(group.connection)}/${encodeURIComponent(group.sessionId ?? "")}`);
      setAttribute(this.link, "aria-label", `Tool calls of ${this.title.textContent}, session ${oneLine(group.sessionId ?? "-", 24)}`);
    }
    setChildren(this.element, [this.heading, ...rows.map((one) => one.element)]);
  }
}

/** Return whether the page shows the terminal with this id. */
function isOpen(id) {
  return location.hash === `#/terminal/${encodeURIComponent(id)}`;
}

/** Mount the list; see main.js. */
export function mount(container, { rpc, store, navigate }) {
  const rows = new Map();
  const groups = new Map();
  let order = [];
  let stop = null;
  let shown = "all";

  const filter = el("input", {
    class: "field", type: "search", placeholder: "Filter", "aria-label": "Filter terminals",
    autocomplete: "off", spellcheck: "false", oninput: () => render(),
  });
  const choice = el(
    "select",
    { class: "field", "aria-label": "Show", onchange: ({ target }) => { shown = target.value; render(); } },
    Object.entries(SHOWN).map(([value, text]) => el("option", { value }, text)),
  );
  const summary = el("p", { class: "list-summary muted", role: "status" });
  const asked = new Asked(rpc);
  const removal = el("button", { class: "button", type: "button", onclick: () => removeEnded({ rpc, store }) }, "Remove ended");
  const table = el(
    "div",
    { role: "table", class: "table-terminals", "aria-label": "Terminals" },
    el(
      "div",
      { role: "rowgroup", class: "table-head" },
      el("div", { role: "row", class: "row row-head" }, COLUMNS.map(([name, text]) =>
        el("span", { role: "columnheader", class: `cell cell-${name}`, "aria-label": text ? null : "Actions" }, text))),
    ),
  );
  const head = table.firstChild;
  const empty = el("div", { class: "empty", hidden: true });

  container.replaceChildren(
    el("div", { class: "list-head" },
      el("h1", { class: "list-title" }, "Terminals"),
      summary,
      el("div", { class: "toolbar" }, filter, choice, removal,
        el("button", { class: "button", type: "button", onclick: () => openNewTerminal({ rpc, store, navigate }) }, "New terminal")),
    ),
    asked.element,
    empty,
    table,
  );

  function render() {
    const now = Date.now() / 1000;
    const found = groupTerminals(store.terminals, store.sessions, { shown, filter: filter.value.trim(), now });
    order = found.flatMap((group) => group.terminals.map((info) => info.terminalId));
    const selected = order.find(isOpen) ?? null;
    for (const id of rows.keys()) if (!store.terminals.has(id)) rows.delete(id);
    const elements = found.map((group) => {
      if (!groups.has(group.key)) groups.set(group.key, new Group());
      const one = groups.get(group.key);
      one.show(group, group.terminals.map((info) => {
        if (!rows.has(info.terminalId)) rows.set(info.terminalId, new Row((one) => killProgram({ rpc, store, navigate, info: one })));
        const item = rows.get(info.terminalId);
        item.show(info);
        item.tick(now);
        setAttribute(item.link, "aria-current", info.terminalId === selected ? "page" : null);
        item.element.classList.toggle("row-selected", info.terminalId === selected);
        return item;
      }));
      return one.element;
    });
    setChildren(table, [head, ...elements]);
    const keys = new Set(found.map((group) => group.key));
    for (const key of groups.keys()) if (!keys.has(key)) groups.delete(key);
    setStop(order.includes(stop) ? stop : selected ?? order[0] ?? null);
    renderHead(found);
  }

  function renderHead(found) {
    const all = [...store.terminals.values()];
    const running = all.filter(isRunning).length;
    const queued = all.filter((info) => info.state === "queued").length;
    const waiting = all.filter(needsUser).length;
    const ended = all.length - running - queued;
    const counts = [[running, "running"], [queued, "queued"], [ended, "ended"], [waiting, waiting === 1 ? "waits for you" : "wait for you"]];
    const words = counts.filter(([count]) => count).map((one) => one.join(" "));
    const isPart = Boolean(filter.value.trim()) || shown !== "all";
    setText(summary, isPart ? `${order.length} of ${all.length} shown` : words.join(", "));
    summary.classList.toggle("is-waiting", !isPart && waiting > 0);
    removal.hidden = !all.some(isOver);
    asked.show(store.approvals);
    const isEmpty = found.length === 0;
    table.hidden = isEmpty;
    empty.hidden = !isEmpty || !store.isLoaded;
    setText(empty, filter.value || shown !== "all"
      ? "No terminal matches."
      : "No terminals. They appear here when an agent starts one, or with acpterm run.");
  }

  function setStop(id) {
    if (stop !== id && rows.has(stop)) rows.get(stop).setStop(false);
    stop = id;
    if (rows.has(stop)) rows.get(stop).setStop(true);
  }

  function focusRow(at) {
    const id = order[Math.max(0, Math.min(order.length - 1, at))];
    if (id === undefined) return;
    setStop(id);
    const { link, element } = rows.get(id);
    link.focus({ preventScroll: true });
    element.scrollIntoView({ block: "nearest" });
  }

  function onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const id = event.target.closest?.(".row")?.dataset.id;
    const at = order.indexOf(id);
    const steps = {
      ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, PageDown: at + 10, PageUp: at - 10,
      Home: 0, End: order.length - 1,
    };
    if (at < 0 || !(event.key in steps)) return;
    event.preventDefault();
    focusRow(steps[event.key]);
  }

  table.addEventListener("keydown", onKey);
  table.addEventListener("focusin", ({ target }) => {
    const id = target.closest(".row")?.dataset.id;
    if (id && target.classList.contains("row-link")) setStop(id);
  });
  filter.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      filter.value = "";
      render();
      focusRow(order.indexOf(stop));
    } else if (event.key === "Enter" || event.key === "ArrowDown") {
      event.preventDefault();
      focusRow(0);
    }
  });

  const focusFilter = () => {
    if (container.hidden || !container.offsetParent) navigate("#/");
    // At once: what is typed next is for the filter.
    filter.focus();
  };
  addShortcuts("List of terminals", [
    { keys: "/", label: "Filter; Escape clears the filter", run: focusFilter },
    { keys: "l", label: "Go to the list", run: () => focusRow(Math.max(0, order.indexOf(stop))) },
    { keys: "n", label: "New terminal", run: () => openNewTerminal({ rpc, store, navigate }) },
    { keys: "w", label: "Go to the next terminal that waits", run: openWaiting },
    { keys: "j", label: "Next row, as ↓" },
    { keys: "k", label: "Previous row, as ↑" },
    { keys: "Enter", label: "Open the terminal" },
  ]);

  function openWaiting() {
    const waiting = order.filter((id) => needsUser(store.terminals.get(id)));
    const next = waiting[(waiting.findIndex(isOpen) + 1) % waiting.length];
    if (next) navigate(`#/terminal/${encodeURIComponent(next)}`);
  }

  store.subscribe(render);
  window.addEventListener("hashchange", render);
  setInterval(() => {
    if (document.hidden || container.hidden) return;
    const now = Date.now() / 1000;
    for (const id of order) rows.get(id)?.tick(now);
  }, TICK_MS);
}
