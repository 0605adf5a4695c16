// The audit log: a table of entries, the newest first, with filters, older pages and a live tail.
//
// At most one request is pending (`busy`). When a filter changes, another list begins, and the
// response of an earlier request is dropped (`generation`). While "Live" is on and the page is
// visible, new entries are requested every `POLL_MS`; a lost connection only delays that. The table
// has at most `ROWS_MAX` rows: the oldest ones are dropped, and can be read again.

import { el, newId, setText } from "./dom.js";
import { addShortcuts } from "./keys.js";
import { EVENTS } from "./audit_events.js";
import { auditRow, filterParams } from "./audit_words.js";
import { LostError } from "./rpc.js";
import { codeOf } from "./shown.js";
import { visible } from "./text.js";

const PAGE = 100;
const POLL_MS = 1500;
const TYPING_MS = 300;
const ROWS_MAX = 3000;
const TIMES = {
  "": "Any time", "1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days",
  between: "Between …",
};
const COLUMNS = ["Time", "Action", "Agent", "Session", "Terminal", "Details"];
// The names of members in the details; other members have their own names.
const NAMES = { endedBy: "ended by", from: "gap from", to: "gap to" };

/** Mount the view; see main.js. */
export function mount(container, { rpc, store }) {
  const fields = { time: "", from: "", to: "", agent: "", session: "", terminal: "", event: "", decision: "" };
  let generation = 0;
  let busy = false;
  let next = null;
  let newest = null;
  // Whether the oldest rows were dropped, so that only a new list can show them.
  let isTrimmed = false;
  let typing;

  const agents = el("datalist", { id: newId("agents") });
  const sessions = el("datalist", { id: newId("sessions") });
  const select = (name, label, options) =>
    labelled(label, el("select", { class: "field", onchange: (event) => change(name, event.target.value) },
      options.map(([value, text]) => el("option", { value }, text))));
  const input = (name, label, more = {}) =>
    labelled(label, el("input", {
      class: "field", autocomplete: "off", spellcheck: "false", placeholder: "any",
      oninput: (event) => change(name, event.target.value, TYPING_MS), ...more,
    }));
  const between = el("div", { class: "toolbar audit-between", hidden: true },
    input("from", "From", { type: "datetime-local" }), input("to", "To", { type: "datetime-local" }));
  const agent = input("agent", "Agent", { list: agents.id });
  const filters = el("form", { class: "toolbar filters", role: "search", "aria-label": "Filter entries" },
    select("time", "Time", Object.entries(TIMES)), between, agent,
    input("session", "Session", { list: sessions.id }),
    input("terminal", "Terminal"),
    select("event", "Action", [["", "any"], ...Object.keys(EVENTS).map((name) => [name, name])]),
    select("decision", "Decision", [["", "any"], ["allow", "allow"], ["ask", "ask"], ["deny", "deny"]]),
    el("button", { class: "button", type: "reset" }, "Clear"),
    agents, sessions);
  const box = el("details", { class: "filter-box", open: !matchMedia("(max-width: 640px)").matches }, el("summary", {}, "Filter"), filters);
  const live = el("input", { type: "checkbox", checked: true, onchange: () => poll() });
  const status = el("p", { class: "muted", role: "status" });
  const problem = el("p", { class: "banner", role: "alert", hidden: true });
  const body = el("tbody");
  const table = el("table", { class: "table table-audit", "aria-label": "Audit log, the newest entry first" },
    el("thead", {}, el("tr", {}, COLUMNS.map((name) => el("th", { scope: "col" }, name)))), body);
  const older = el("button", { class: "button", type: "button", hidden: true, onclick: () => (isTrimmed ? restart() : read({ before: next })) }, "Older entries");
  container.replaceChildren(
    el("div", { class: "panel panel-wide" },
      el("div", { class: "panel-head" }, el("h1", {}, "Audit log"), status, el("span", { class: "spacer" }),
        el("label", { class: "check" }, live, "Live")),
      box, problem, table, el("div", { class: "more" }, older)),
  );

  filters.addEventListener("submit", (event) => {
    event.preventDefault();
    restart();
  });
  filters.addEventListener("reset", () => {
    for (const name of Object.keys(fields)) fields[name] = "";
    between.hidden = true;
    restart();
  });

  function change(name, value, delay = 0) {
    fields[name] = value;
    between.hidden = fields.time !== "between";
    clearTimeout(typing);
    typing = setTimeout(restart, delay);
  }

  function restart() {
    generation += 1;
    busy = false;
    next = newest = null;
    isTrimmed = false;
    read({});
  }

  async function read({ before = null, after = null }) {
    if (busy || !rpc.isOpen) return;
    const mine = generation;
    busy = true;
    older.disabled = true;
    try {
      const place = before ? { before } : after ? { after } : {};
      const page = await rpc.request("_acpterm/audit/read", { limit: PAGE, ...filterParams(fields, Date.now()), ...place });
      // New entries that do not fit into one page: read the rest of them at once.
      let rest = after ? page.next : null;
      while (rest && mine === generation) {
        const more = await rpc.request("_acpterm/audit/read", {
          limit: PAGE, ...filterParams(fields, Date.now()), before: rest, after,
        });
        page.entries.push(...more.entries);
        rest = page.entries.length < ROWS_MAX ? more.next : null;
      }
      if (mine !== generation) return;
      show(page, { before, after });
      showProblem(page.enabled ? "" : "The daemon does not write the audit log: the setting audit is off. Older entries may be here.");
    } catch (error) {
      if (mine === generation && !(error instanceof LostError)) showProblem(error.message);
    } finally {
      if (mine === generation) {
        busy = false;
        older.disabled = false;
      }
    }
  }

  function show(page, { before, after }) {
    const rows = page.entries.flatMap((entry) => rowsOf(entry, { isNew: Boolean(after) }));
    if (after) body.prepend(...rows);
    else if (before) body.append(...rows);
    else body.replaceChildren(...rows);
    if (!before) newest = page.newest ?? newest;
    if (!after) next = page.next;
    while (body.rows.length > ROWS_MAX && after) {
      body.lastChild.remove();
      isTrimmed = true;
    }
    const count = body.querySelectorAll(".audit-entry").length;
    const more = next || isTrimmed ? " so far" : "";
    setText(status, count ? `${count} ${count === 1 ? "entry" : "entries"}${more}` : next ? "No entry found yet" : "No entry matches");
    older.hidden = next === null && !isTrimmed;
    setText(older, page.entries.length === 0 && before ? "Search on" : "Older entries");
    // A page searches only a part of the log, in which there may be no matching entry.
    if (!after && next && count === 0) {
      const mine = generation;
      queueMicrotask(() => setTimeout(() => {
        if (mine === generation) read({ before: next });
      }));
    }
  }

  function focusFilters() {
    box.open = true;
    filters.querySelector("select").focus();
  }

  function showProblem(text) {
    problem.hidden = !text;
    setText(problem, text);
  }

  function poll() {
    if (!live.checked || document.hidden || filterParams(fields, 0).until !== undefined) return;
    if (newest) read({ after: newest });
    else read({});
  }

  const endSuggestions = store.subscribe(() => {
    suggest(agents, [...store.sessions.values()].map((one) => one.agent));
    suggest(sessions, [...store.sessions.values()].map((one) => one.sessionId));
  });
  const timer = setInterval(poll, POLL_MS);
  document.addEventListener("visibilitychange", poll);
  const endOpen = rpc.onOpen(() => (newest ? poll() : restart()));
  const removeShortcuts = addShortcuts("Audit log", [
    { keys: "f", label: "Go to the filters", run: focusFilters },
    { keys: "o", label: "Older entries", run: () => older.hidden || older.click() },
    { keys: "v", label: "Live on or off", run: () => live.click() },
  ]);

  return () => {
    generation += 1;
    clearInterval(timer);
    clearTimeout(typing);
    document.removeEventListener("visibilitychange", poll);
    endOpen();
    endSuggestions();
    removeShortcuts();
  };
}

function labelled(label, control) {
  return el("label", { class: "labelled" }, label, control);
}

function suggest(list, texts) {
  const wanted = [...new Set(texts.filter(Boolean))].slice(0, 50);
  if (wanted.join("\n") === [...list.children].map((option) => option.value).join("\n")) return;
  list.replaceChildren(...wanted.map((value) => el("option", { value })));
}

/** Return the row of an entry, and the hidden one with all its members. */
function rowsOf(entry, { isNew }) {
  const words = auditRow(entry);
  const members = el("tr", { class: "audit-members", hidden: true });
  const toggle = el(
    "button",
    {
      class: "audit-toggle", type: "button", "aria-expanded": "false",
      "aria-label": `All of the entry: ${words.event}, ${words.time}`,
      onclick: () => {
        members.hidden = !members.hidden;
        toggle.setAttribute("aria-expanded", String(!members.hidden));
        if (!members.hasChildNodes()) members.append(el("td", { colspan: String(COLUMNS.length) }, membersOf(entry)));
      },
    },
    words.time,
  );
  const cell = (name, ...content) => el("td", { class: `audit-${name}${words[name] === "-" ? " is-nothing" : ""}` }, ...content);
  const row = el(
    "tr",
    { class: isNew ? "audit-entry is-new" : "audit-entry" },
    el("td", { class: "audit-time" }, toggle),
    el("td", { class: "audit-event", dataset: words.colour ? { colour: words.colour } : {} }, words.event),
    cell("agent", words.agent),
    cell("session", words.session),
    cell("terminal", entry.terminal ? el("a", { href: `#/terminal/${encodeURIComponent(entry.terminal)}` }, words.terminal) : words.terminal),
    el("td", { class: "audit-what" }, el("div", { class: "audit-words" }, words.what)),
  );
  return [row, members];
}

function membersOf(entry) {
  return el(
    "dl",
    { class: "facts" },
    Object.entries(entry).flatMap(([name, value]) => {
      const isCommand = name === "command" && typeof value === "string";
      const text = typeof value === "string" ? value : JSON.stringify(value);
      return [el("dt", {}, visible(NAMES[name] ?? name)), el("dd", { class: "mono" }, isCommand ? codeOf(text) : visible(text))];
    }),
  );
}
