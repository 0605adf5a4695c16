// JSON-RPC 2.0 over a WebSocket, with one message in each text frame.
//
// States: "connecting" (before the first connection), "open", "reconnecting" (the connection was
// lost; attempts to connect have growing delays), and "closed" (after `close`). Every change calls
// the functions of `onState`; every connection calls the functions of `onOpen`.
//
// A request is sent only while the state is "open". If the connection is lost, every pending
// request and stream is rejected with a LostError, and nothing is repeated: only the caller knows
// whether a request may be repeated. `keep` repeats a stream.
//
// A response or notification whose id or token is no longer known is dropped.

const FIRST_DELAY_MS = 250;
const DELAY_MAX_MS = 5000;
// How long a connection may take to open before the attempt is given up.
const OPEN_TIMEOUT_MS = 10000;

export const REQUEST_CANCELLED = -32800;

/** The daemon's error response to a request. */
export class RpcError extends Error {
  constructor({ code, message, data }) {
    super(message || "unknown error");
    this.name = "RpcError";
    this.code = code;
    this.data = data;
  }
}

/** The connection was lost, or there is none: whether a request was executed is unknown. */
export class LostError extends Error {
  constructor() {
    super("the connection to acpterm is lost");
    this.name = "LostError";
  }
}

/** Return the token of a streaming request that a notification's params carry. */
function tokenOf(params) {
  return params?.token ?? params?._meta?.acpterm?.token;
}

/** Return the delay before attempt number `attempt` (from 0); `random` is between 0 and 1. */
export function delayBefore(attempt, random) {
  const delay = Math.min(DELAY_MAX_MS, FIRST_DELAY_MS * 2 ** attempt);
  return delay * (0.75 + random / 2);
}

export class Rpc {
  /** `connect()` returns a new WebSocket. `start` opens the first connection. */
  constructor(connect) {
    this.state = "connecting";
    /** How many attempts to connect have failed since the last connection. */
    this.failures = 0;
    /** Why the server closed the last connection: a code of WebSocket; null if there was none. */
    this.closeCode = null;
    this._connect = connect;
    this._socket = null;
    this._next = 0;
    this._pending = new Map();
    this._streams = new Map();
    this._open = new Set();
    this._changed = new Set();
    this._timer = undefined;
  }

  get isOpen() {
    return this.state === "open";
  }

  start() {
    if (this._socket === null && this.state !== "closed") this._dial();
  }

  /** Connect now instead of after the delay, for example because the network is back. */
  hurry() {
    if (this._timer !== undefined) {
      clearTimeout(this._timer);
      this._timer = undefined;
      this._dial();
    }
  }

  close() {
    clearTimeout(this._timer);
    this._timer = undefined;
    this._setState("closed");
    const socket = this._socket;
    this._lose();
    socket?.close();
  }

  /** Call `fn(state)` after each change of state; return a function that ends this. */
  onState(fn) {
    this._changed.add(fn);
    return () => this._changed.delete(fn);
  }

  /** Call `fn()` now if connected, and after each connection; return a function that ends this. */
  onOpen(fn) {
    this._open.add(fn);
    if (this.isOpen) fn();
    return () => this._open.delete(fn);
  }

  /** Send a request; return a promise of its result. It rejects with RpcError or LostError. */
  request(method, params = {}) {
    return this._send(method, params).result;
  }

  /**
   * Send a streaming request. `onNotification(params, method)` is called for its notifications.
   * Return the request's `token`, a promise `done` of its result, and `cancel()`.
   */
  stream(method, params, onNotification) {
    const token = `page-${this._next}`;
    this._streams.set(token, onNotification);
    const { id, result } = this._send(method, { ...params, token });
    const done = result.finally(() => this._streams.delete(token));
    return { token, done, cancel: () => this._cancel(id, token) };
  }

  /**
   * Send a streaming request on each connection. `onStart()` is called before it is sent.
   * Return a function that cancels it.
   */
  keep(method, params, onNotification, onStart = () => {}) {
    let current = null;
    const end = this.onOpen(() => {
      onStart();
      current = this.stream(method, params, onNotification);
      current.done.catch((error) => {
        if (error instanceof RpcError && error.code !== REQUEST_CANCELLED) {
          console.error(`${method}: ${error.message}`);
        }
      });
    });
    return () => {
      end();
      current?.cancel();
    };
  }

  _send(method, params) {
    const id = this._next++;
    if (!this.isOpen) return { id, result: Promise.reject(new LostError()) };
    const result = new Promise((resolve, reject) => this._pending.set(id, { resolve, reject }));
    this._socket.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    return { id, result };
  }

  _cancel(id, token) {
    this._streams.delete(token);
    if (!this._pending.has(id) || !this.isOpen) return;
    const message = { jsonrpc: "2.0", method: "$/cancel_request", params: { requestId: id } };
    this._socket.send(JSON.stringify(message));
  }

  _dial() {
    let socket;
    try {
      socket = this._connect();
    } catch {
      this._retry();
      return;
    }
    this._socket = socket;
    const timeout = setTimeout(() => socket.close(), OPEN_TIMEOUT_MS);
    socket.onopen = () => {
      clearTimeout(timeout);
      if (socket !== this._socket) return;
      this.failures = 0;
      this._setState("open");
      for (const fn of [...this._open]) fn();
    };
    socket.onmessage = ({ data }) => {
      if (socket === this._socket) this._receive(data);
    };
    socket.onclose = (event) => {
      clearTimeout(timeout);
      if (socket !== this._socket) return;
      this.closeCode = event?.code ?? null;
      this._lose();
      if (this.state !== "closed") this._retry();
    };
  }

  _retry() {
    const delay = delayBefore(this.failures, Math.random());
    this.failures += 1;
    this._setState("reconnecting");
    this._timer = setTimeout(() => {
      this._timer = undefined;
      this._dial();
    }, delay);
  }

  _lose() {
    this._socket = null;
    const pending = [...this._pending.values()];
    this._pending.clear();
    this._streams.clear();
    // Set the state first: a caller whose request is rejected may read it.
    if (this.state === "open") this._setState("reconnecting");
    for (const { reject } of pending) reject(new LostError());
  }

  _setState(state) {
    this.state = state;
    for (const fn of [...this._changed]) fn(state);
  }

  _receive(text) {
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return;
    }
    if (typeof message !== "object" || message === null) return;
    if (typeof message.method === "string") {
      this._streams.get(tokenOf(message.params))?.(message.params, message.method);
      return;
    }
    const pending = this._pending.get(message.id);
    if (pending === undefined) return;
    this._pending.delete(message.id);
    if (message.error) pending.reject(new RpcError(message.error));
    else pending.resolve(message.result);
  }
}
