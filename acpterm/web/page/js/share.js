// The page of a share: one terminal, without the list and the other views.
//
// The connection of a share may read its terminal, but is sent no events. So the state of the
// terminal is read repeatedly while the page is visible.

import { mount } from "./terminal.js";

const REFRESH_MS = 2000;

/** Replaces the store for the view of one terminal: it has the members that the view uses. */
class SharedTerminal {
  constructor(rpc, id) {
    this.terminals = new Map();
    this.isLoaded = false;
    this._rpc = rpc;
    this._id = id;
    this._subscribers = new Set();
  }

  subscribe(fn) {
    this._subscribers.add(fn);
    fn(this);
    return () => this._subscribers.delete(fn);
  }

  put(info) {
    this.terminals.set(info.terminalId, info);
    this._notify();
  }

  async refresh() {
    if (!this._rpc.isOpen || document.hidden) return;
    try {
      const info = await this._rpc.request("_acpterm/terminal/get", { terminalId: this._id });
      this.isLoaded = true;
      this.put(info);
    } catch (error) {
      if (error.name !== "RpcError") return;
      this.isLoaded = true;
      this.terminals.delete(this._id);
      this._notify();
    }
  }

  _notify() {
    for (const fn of [...this._subscribers]) fn(this);
  }
}

/** Show the terminal of a share; `access` is the result of `readAccess` (login.js). */
export function startShare(container, { rpc, access, navigate }) {
  const store = new SharedTerminal(rpc, access.terminalId);
  const unmount = mount(container, { rpc, store, navigate, params: [access.terminalId], share: access });
  const end = rpc.onOpen(() => store.refresh());
  const timer = setInterval(() => store.refresh(), REFRESH_MS);
  return () => {
    clearInterval(timer);
    end();
    unmount();
  };
}
