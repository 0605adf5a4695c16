import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { delayBefore, LostError, Rpc, RpcError } from "../js/rpc.js";

/** A socket that records what is sent, and does what the test says. */
class FakeSocket {
  constructor() {
    this.sent = [];
    this.isClosed = false;
  }

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close() {
    this.isClosed = true;
    this.onclose?.();
  }

  receive(message) {
    this.onmessage({ data: typeof message === "string" ? message : JSON.stringify({ jsonrpc: "2.0", ...message }) });
  }
}

// Timers that run when the test says.
const { setTimeout: setTimeoutBefore, clearTimeout: clearTimeoutBefore } = globalThis;
let timers = new Map();

function runTimers() {
  const due = [...timers.values()];
  timers.clear();
  for (const fn of due) fn();
}

afterEach(() => {
  Object.assign(globalThis, { setTimeout: setTimeoutBefore, clearTimeout: clearTimeoutBefore });
});

function connected() {
  timers = new Map();
  globalThis.setTimeout = (fn) => {
    const id = {};
    timers.set(id, fn);
    return id;
  };
  globalThis.clearTimeout = (id) => timers.delete(id);
  const sockets = [];
  const rpc = new Rpc(() => {
    sockets.push(new FakeSocket());
    return sockets.at(-1);
  });
  rpc.start();
  sockets[0].onopen();
  return { rpc, sockets, socket: sockets[0] };
}

test("request resolves with the result of its own id", async () => {
  const { rpc, socket } = connected();
  const first = rpc.request("a", { x: 1 });
  const second = rpc.request("b");
  assert.deepEqual(socket.sent, [
    { jsonrpc: "2.0", id: 0, method: "a", params: { x: 1 } },
    { jsonrpc: "2.0", id: 1, method: "b", params: {} },
  ]);
  socket.receive({ id: 1, result: "two" });
  socket.receive({ id: 0, result: null });
  assert.equal(await second, "two");
  assert.equal(await first, null);
});

test("request rejects with the daemon's error", async () => {
  const { rpc, socket } = connected();
  const request = rpc.request("a");
  socket.receive({ id: 0, error: { code: -32602, message: "no such terminal" } });
  await assert.rejects(request, (error) => error instanceof RpcError && error.code === -32602 && error.message === "no such terminal");
});

test("messages that belong to nothing are dropped", () => {
  const { socket } = connected();
  for (const text of ["", "{", "null", "[]", '"x"', '{"id":7,"result":1}', '{"method":"m","params":{"token":"x"}}', '{"method":"m"}']) {
    socket.receive(text);
  }
});

test("stream gets the notifications with its token, also in _meta, until it is cancelled", async () => {
  const { rpc, socket } = connected();
  const received = [];
  const stream = rpc.stream("s", { a: 1 }, (params, method) => received.push([method, params.n]));
  const { token } = socket.sent[0].params;
  assert.deepEqual(socket.sent[0].params, { a: 1, token });
  socket.receive({ method: "m", params: { token, n: 1 } });
  socket.receive({ method: "m", params: { token: "other", n: 2 } });
  socket.receive({ method: "session/update", params: { _meta: { acpterm: { token } }, n: 3 } });
  stream.cancel();
  assert.deepEqual(socket.sent[1], { jsonrpc: "2.0", method: "$/cancel_request", params: { requestId: 0 } });
  socket.receive({ method: "m", params: { token, n: 4 } });
  socket.receive({ id: 0, error: { code: -32800, message: "cancelled" } });
  await assert.rejects(stream.done, RpcError);
  assert.deepEqual(received, [["m", 1], ["session/update", 3]]);
});

test("lost connection rejects what is pending, and is tried again", async () => {
  const { rpc, sockets, socket } = connected();
  const states = [];
  rpc.onState((state) => states.push(state));
  const request = rpc.request("a");
  const stream = rpc.stream("s", {}, () => assert.fail("a stream ends with its connection"));
  socket.close();
  await assert.rejects(request, LostError);
  await assert.rejects(stream.done, LostError);
  await assert.rejects(rpc.request("b"), LostError);
  assert.equal(rpc.state, "reconnecting");
  runTimers();
  assert.equal(sockets.length, 2);
  sockets[1].onopen();
  assert.equal(states.at(-1), "open");
  assert.equal(sockets[1].sent.length, 0);
});

test("messages of a former connection are ignored", async () => {
  const { rpc, sockets, socket } = connected();
  socket.close();
  runTimers();
  sockets[1].onopen();
  const request = rpc.request("a");
  socket.receive({ id: 0, result: "old" });
  sockets[1].receive({ id: 0, result: "new" });
  assert.equal(await request, "new");
});

test("keep sends its stream on each connection until it ends", async () => {
  const { rpc, sockets, socket } = connected();
  let starts = 0;
  const received = [];
  const end = rpc.keep("s", {}, ({ n }) => received.push(n), () => (starts += 1));
  socket.receive({ method: "m", params: { token: socket.sent[0].params.token, n: 1 } });
  socket.close();
  runTimers();
  sockets[1].onopen();
  sockets[1].receive({ method: "m", params: { token: sockets[1].sent[0].params.token, n: 2 } });
  assert.deepEqual([starts, received], [2, [1, 2]]);
  end();
  assert.equal(sockets[1].sent.at(-1).method, "$/cancel_request");
  sockets[1].close();
  runTimers();
  sockets[2].onopen();
  assert.deepEqual(sockets[2].sent, []);
});

test("delays grow up to a limit, and hurry skips them", () => {
  assert.deepEqual([0, 1, 2, 3].map((attempt) => delayBefore(attempt, 0.5)), [250, 500, 1000, 2000]);
  assert.equal(delayBefore(50, 0.5), 5000);
  const { rpc, sockets, socket } = connected();
  socket.close();
  rpc.hurry();
  rpc.hurry();
  assert.equal(sockets.length, 2);
});

test("closed connection is not opened again", () => {
  const { rpc, sockets, socket } = connected();
  rpc.close();
  runTimers();
  assert.deepEqual([socket.isClosed, sockets.length, rpc.state], [true, 1, "closed"]);
});
