import assert from "node:assert/strict";
import test from "node:test";

import { groupTerminals } from "../js/list.js";
import { applyUpdate, initial as initialCalls, tailLines } from "../js/sessions.js";
import { counts, initial, nextRefresh, Store, withApproval, withEvent, withSessions, withTerminals } from "../js/store.js";

let serial = 0;

function terminal(more = {}) {
  serial += 1;
  return {
    terminalId: `term_${String(serial).padStart(32, "0")}`, name: null, state: "running", owner: "agent",
    agent: "a", connection: "c1", sessionId: "s1", toolCalls: [], command: "x", cols: 80, rows: 24,
    createdAt: 0, lastOutputAt: null, attached: 0, waitingForInput: false, exitStatus: null, ending: false,
    isolation: "none", provider: "local", level: "unknown", ...more,
  };
}

function stateOf(...terminals) {
  return withTerminals(initial(), terminals);
}

test("list replaces what was known", () => {
  const [a, b] = [terminal(), terminal()];
  const state = withTerminals(stateOf(a), [b]);
  assert.deepEqual([...state.terminals.values()], [b]);
});

test("event adds and changes a terminal, without changing the former state", () => {
  const a = terminal();
  const before = stateOf(a);
  const changed = { ...a, waitingForInput: true };
  const after = withEvent(before, { event: "waiting", terminal: changed });
  assert.equal(after.terminals.get(a.terminalId), changed);
  assert.equal(before.terminals.get(a.terminalId), a);
});

test("late event does not bring an exited or released terminal back", () => {
  const a = terminal({ state: "exited", exitStatus: { exitCode: 0, signal: null } });
  const state = stateOf(a);
  assert.equal(withEvent(state, { event: "waiting", terminal: { ...a, state: "running", exitStatus: null } }), state);
  const released = stateOf(terminal({ state: "released" }));
  const [info] = released.terminals.values();
  assert.equal(withEvent(released, { event: "exited", terminal: { ...info, state: "exited", exitStatus: {} } }), released);
});

test("list is read less often while nothing is printed, and often again when something is", () => {
  const a = terminal({ lastOutputAt: 1 });
  const quiet = stateOf(a);
  const delays = [10000];
  for (let i = 0; i < 4; i++) delays.push(nextRefresh(delays.at(-1), quiet, stateOf({ ...a })));
  assert.deepEqual(delays, [10000, 20000, 40000, 80000, 80000]);
  assert.equal(nextRefresh(80000, quiet, stateOf({ ...a, lastOutputAt: 2 })), 10000);
  assert.equal(nextRefresh(80000, quiet, stateOf(a, terminal())), 10000);
});

test("terminal that is created while the list is read is not lost", async () => {
  globalThis.document = { hidden: true };
  const responses = [];
  const rpc = { isOpen: true, request: () => new Promise((resolve) => responses.push(resolve)) };
  const store = new Store(rpc);
  const [a, b, c] = [terminal(), terminal(), terminal()];
  const ids = () => [...store.terminals.keys()];
  const first = store._readTerminals();
  store.put(b);
  responses.pop()({ terminals: [a] });
  await first;
  assert.deepEqual(ids(), [a.terminalId, b.terminalId]);
  // The events belong to that list alone.
  const second = store._readTerminals();
  store._onEvent({ event: "created", terminal: c });
  responses.pop()({ terminals: [a] });
  await second;
  assert.deepEqual(ids(), [a.terminalId, c.terminalId]);
});

test("event without a terminal changes nothing", () => {
  const state = stateOf();
  assert.equal(withEvent(state, { event: "connected", connection: "c" }), state);
});

test("approvals are added when asked and removed when withdrawn", () => {
  const asked = withApproval(initial(), "_acpterm/approval/asked", { approval: { approvalId: "q" } });
  assert.deepEqual(counts(asked), { waiting: 0, approvals: 1 });
  assert.equal(withApproval(asked, "_acpterm/approval/withdrawn", { approvalId: "q" }).approvals.size, 0);
});

test("agents' terminals that wait are counted, and the user's shells are not", () => {
  const waits = { waitingForInput: true };
  const state = stateOf(
    terminal(waits), terminal({ ...waits, owner: "user" }), terminal({ ...waits, state: "released" }),
    terminal({ ...waits, ending: true }), terminal(),
  );
  assert.equal(counts(state).waiting, 1);
});

test("terminals are grouped by session: those that wait first, then connected agents, then the user", () => {
  const idle = terminal({ state: "exited", exitStatus: { exitCode: 0, signal: null } });
  const runs = terminal();
  const waits = terminal({ waitingForInput: true });
  const own = terminal({ connection: null, sessionId: null, agent: null, owner: "user" });
  const other = terminal({ connection: "c2" });
  const sessions = withSessions(initial(), [
    { connection: "c1", sessionId: "s1", agent: "a", toolCalls: [], terminals: [] },
    { connection: "c2", sessionId: "s1", agent: "a", toolCalls: ["t"], terminals: [] },
    { connection: "c3", sessionId: "s1", agent: "b", toolCalls: ["t"], terminals: [] },
  ]).sessions;
  const all = stateOf(idle, other, runs, own, waits).terminals;
  const groups = groupTerminals(all, sessions);
  assert.deepEqual(groups.map((group) => group.connection), ["c1", "c2", "c3", null]);
  assert.deepEqual(groups[0].terminals, [waits, runs, idle]);
  assert.deepEqual(groupTerminals(all, sessions, { shown: "waiting" }).map((group) => group.terminals), [[waits]]);
  assert.equal(groupTerminals(all, sessions, { shown: "running" }).flatMap((group) => group.terminals).includes(idle), false);
});

test("what an ended terminal has left running is running", () => {
  const exitStatus = { exitCode: 0, signal: null };
  const over = terminal({ state: "exited", exitStatus });
  const left = terminal({ state: "released", exitStatus, background: [{ pid: 1, command: "vite", ports: [] }] });
  const runs = terminal();
  const all = stateOf(over, left, runs).terminals;
  const [group] = groupTerminals(all, new Map());
  assert.deepEqual(group.terminals, [runs, left, over]);
  assert.equal(group.running, 2);
  assert.deepEqual(groupTerminals(all, new Map(), { shown: "running" })[0].terminals, [runs, left]);
});

test("filter searches the words of the rows", () => {
  const named = terminal({ name: "Web" });
  const all = stateOf(terminal(), named, terminal({ level: "dangerous" })).terminals;
  const found = (filter) => groupTerminals(all, new Map(), { filter }).flatMap((group) => group.terminals);
  assert.deepEqual(found("wEB"), [named]);
  assert.equal(found("dangerous").length, 1);
  assert.equal(found("80x24").length, 3);
  assert.deepEqual(found("nothing"), []);
});

test("tool calls keep their order, and members that an update leaves out", () => {
  const known = initialCalls();
  applyUpdate(known, { sessionUpdate: "tool_call_update", toolCallId: "1", title: "one", status: "pending" });
  applyUpdate(known, { sessionUpdate: "tool_call_update", toolCallId: "2", title: "two" });
  applyUpdate(known, { sessionUpdate: "tool_call_update", toolCallId: "1", status: "completed" });
  assert.deepEqual([...known.calls.values()].map(({ title, status }) => [title, status]), [["one", "completed"], ["two", undefined]]);
});

test("output is appended by bytes, and replaced by a whole output", () => {
  const known = initialCalls();
  const chunk = (bytes) => ({ sessionUpdate: "terminal_output_chunk", terminalId: "t", data: Buffer.from(bytes).toString("base64") });
  applyUpdate(known, { sessionUpdate: "terminal_update", terminalId: "t", command: "make" });
  applyUpdate(known, chunk([0x61, 0xc3]));
  applyUpdate(known, chunk([0xa9]));
  assert.deepEqual([known.terminals.get("t").command, known.terminals.get("t").tail], ["make", "aé"]);
  applyUpdate(known, { sessionUpdate: "terminal_update", terminalId: "t", output: { data: Buffer.from("new").toString("base64") } });
  assert.equal(known.terminals.get("t").tail, "new");
  applyUpdate(known, { sessionUpdate: "terminal_update", terminalId: "t", exitStatus: { exitCode: 1 } });
  assert.equal(known.terminals.get("t").exitStatus.exitCode, 1);
});

test("end of the output has no sequences, and only what a line shows last", () => {
  assert.equal(tailLines("\x1b[31mred\x1b[0m\r\n10%\r20%\r30%\n\u202ex\u200by\n", 3), "red\n30%\nx\\u200by");
  assert.equal(tailLines("1\n2\n3\n4\n", 2), "3\n4");
  assert.equal(tailLines("10%\r\r\n20%\r"), "\n20%");
});
