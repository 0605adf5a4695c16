// What the page knows: terminals, sessions and pending approvals, kept up to date by events.
//
// The state belongs to the daemon. After each connection the store subscribes to events and
// approvals, then reads the lists, which replace the known state. An event changes one terminal at
// once. The lists are read again a little later if there may be a change that events do not report
// (retained terminals that were dropped). Events do not report times of output either: for these, the
// list is read while the page is visible, less often while no terminal prints.
//
// An event may be older than the list: an event never makes a terminal that has exited run again.
// It may also be newer, although it arrives first: the daemon reads its terminals one after the other,
// and meanwhile creates others. So events that arrive while a list is read are applied to it again.
// Subscribers are notified at most once a frame, however many events arrive.

import { needsUser } from "./words.js";

// How often times of output are refreshed while terminals print.
const REFRESH_MS = 10000;
const REFRESH_MAX_MS = 80000;
const RELIST_MS = 300;
const HIDDEN_NOTIFY_MS = 250;
// Events after which there may be other sessions, or more tool calls in one.
const SESSION_EVENTS = new Set(["connected", "disconnected", "created", "tool_call"]);
// Events after which a terminal may be missing in the lists.
const LIST_EVENTS = new Set(["released"]);

/** Return the key of a session, since two connections may have sessions with the same id. */
export function sessionKey(connection, sessionId) {
  return `${connection ?? ""}/${sessionId ?? ""}`;
}

/** Return the state in which nothing is known. */
export function initial() {
  return { terminals: new Map(), sessions: new Map(), approvals: new Map() };
}

/** Return the state with the terminals of a list instead of the known ones. */
export function withTerminals(state, list) {
  return { ...state, terminals: new Map(list.map((info) => [info.terminalId, info])) };
}

/** Return the state with the sessions of a list instead of the known ones. */
export function withSessions(state, list) {
  const entries = list.map((info) => [sessionKey(info.connection, info.sessionId), info]);
  return { ...state, sessions: new Map(entries) };
}

/** Return the state after an event of the daemon. */
export function withEvent(state, event) {
  const info = event.terminal;
  if (!info) return state;
  const known = state.terminals.get(info.terminalId);
  if (known?.exitStatus && !info.exitStatus) return state;
  if (known?.state === "released" && info.state !== "released") return state;
  const terminals = new Map(state.terminals);
  terminals.set(info.terminalId, info);
  return { ...state, terminals };
}

/** Return the state after a question was asked, or answered (`method` ends with "withdrawn"). */
export function withApproval(state, method, params) {
  const approvals = new Map(state.approvals);
  if (method.endsWith("/asked")) approvals.set(params.approval.approvalId, params.approval);
  else approvals.delete(params.approvalId);
  return { ...state, approvals };
}

/**
 * Return the delay in ms before the list is read again. `delay` was the last delay; `before` and
 * `after` are the states before and after the list was read.
 */
export function nextRefresh(delay, before, after) {
  for (const [id, info] of after.terminals) {
    if (info.lastOutputAt !== before.terminals.get(id)?.lastOutputAt) return REFRESH_MS;
  }
  return Math.min(2 * delay, REFRESH_MAX_MS);
}

/** Return the number of terminals that wait for the user, and of pending approvals. */
export function counts(state) {
  let waiting = 0;
  for (const info of state.terminals.values()) if (needsUser(info)) waiting += 1;
  return { waiting, approvals: state.approvals.size };
}

export class Store {
  constructor(rpc) {
    this.state = initial();
    /** Whether the lists were read at least once. */
    this.isLoaded = false;
    this._rpc = rpc;
    this._subscribers = new Set();
    this._listeners = new Set();
    this._scheduled = false;
    this._timers = new Map();
    /** For each list of terminals that is being read, the events since it was requested. */
    this._readings = new Set();
  }

  get terminals() {
    return this.state.terminals;
  }

  get sessions() {
    return this.state.sessions;
  }

  get approvals() {
    return this.state.approvals;
  }

  /** Start to follow the daemon. */
  start() {
    this._rpc.onState(() => this._schedule());
    this._rpc.keep("_acpterm/events", {}, (event) => this._onEvent(event));
    this._rpc.keep(
      "_acpterm/approval/subscribe",
      {},
      (params, method) => this._set(withApproval(this.state, method, params)),
      () => this._set({ ...this.state, approvals: new Map() }),
    );
    this._rpc.onOpen(() => this.refresh());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.refresh();
    });
  }

  /** Call `fn(store)` now and after changes, at most once a frame; return a function to end this. */
  subscribe(fn) {
    this._subscribers.add(fn);
    fn(this);
    return () => this._subscribers.delete(fn);
  }

  /** Call `fn(event)` for each event of the daemon; return a function that ends this. */
  onEvent(fn) {
    this._listeners.add(fn);
    return () => this._listeners.delete(fn);
  }

  /** Read the lists again. */
  refresh() {
    this._refreshAfter(REFRESH_MS);
    this._readTerminals();
    this._readSessions();
  }

  /** Store a newer TerminalInfo, such as the result of a request. */
  put(info) {
    this._apply({ terminal: info });
  }

  _apply(event) {
    for (const events of this._readings) events.push(event);
    this._set(withEvent(this.state, event));
  }

  _onEvent(event) {
    this._apply(event);
    if (this._refreshDelay > REFRESH_MS) this._refreshAfter(REFRESH_MS);
    if (event.lost || LIST_EVENTS.has(event.event)) {
      this._later("list", RELIST_MS, () => this._readTerminals());
    }
    if (event.lost || SESSION_EVENTS.has(event.event)) {
      this._later("sessions", RELIST_MS, () => this._readSessions());
    }
    for (const fn of this._listeners) fn(event);
  }

  _refreshAfter(delay) {
    clearTimeout(this._refreshTimer);
    this._refreshDelay = delay;
    this._refreshTimer = setTimeout(async () => {
      const before = this.state;
      if (!document.hidden) await this._readTerminals();
      this._refreshAfter(nextRefresh(delay, before, this.state));
    }, delay);
  }

  async _readTerminals() {
    const events = [];
    this._readings.add(events);
    const response = await this._read("_acpterm/terminal/list", { all: true });
    this._readings.delete(events);
    if (response) {
      this.isLoaded = true;
      this._set(events.reduce(withEvent, withTerminals(this.state, response.terminals)));
    }
  }

  async _readSessions() {
    const response = await this._read("_acpterm/session/list", {});
    if (response) this._set(withSessions(this.state, response.sessions));
  }

  /** Return the response; null if the connection is lost, since the lists are read after the next. */
  async _read(method, params) {
    if (!this._rpc.isOpen) return null;
    try {
      return await this._rpc.request(method, params);
    } catch (error) {
      if (error.name !== "LostError") console.error(`${method}: ${error.message}`);
      return null;
    }
  }

  _later(name, delay, fn) {
    if (this._timers.has(name)) return;
    this._timers.set(
      name,
      setTimeout(() => {
        this._timers.delete(name);
        fn();
      }, delay),
    );
  }

  _set(state) {
    if (state === this.state) return;
    this.state = state;
    this._schedule();
  }

  _schedule() {
    if (this._scheduled) return;
    this._scheduled = true;
    const notify = () => {
      this._scheduled = false;
      for (const fn of [...this._subscribers]) fn(this);
    };
    // Browsers draw no frames of a hidden page, but its title must be up to date.
    if (document.hidden) setTimeout(notify, HIDDEN_NOTIFY_MS);
    else requestAnimationFrame(notify);
  }
}
