import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { LostError } from "../js/rpc.js";
import { cutAt, Typing } from "../js/typing.js";

const { setTimeout: setTimeoutBefore, clearTimeout: clearTimeoutBefore } = globalThis;
let outage = null;

afterEach(() => Object.assign(globalThis, { setTimeout: setTimeoutBefore, clearTimeout: clearTimeoutBefore }));

/** Return a connection that records the requests, each of which the test answers, and what is said. */
function connected() {
  outage = null;
  globalThis.setTimeout = (fn) => (outage = fn);
  globalThis.clearTimeout = () => (outage = null);
  const rpc = { isOpen: true, requests: [], onOpen: (fn) => (rpc.open = fn, fn(), () => {}), onState: (fn) => (rpc.change = fn, () => {}) };
  rpc.request = (method, params) => new Promise((resolve, reject) => rpc.requests.push({ params, resolve, reject }));
  const said = [];
  const typing = new Typing(rpc, "term_1", (text) => said.push(text));
  return { rpc, said, typing };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));
const typed = (rpc) => rpc.requests.map(({ params }) => params.data);

test("what is typed while a request is pending is sent in one request after it", async () => {
  const { rpc, typing } = connected();
  for (const key of "abc") typing.type(key);
  assert.deepEqual(typed(rpc), ["a"]);
  rpc.requests[0].resolve({});
  await settle();
  assert.deepEqual(typed(rpc), ["a", "bc"]);
});

test("request whose connection is lost is repeated with its token, then the rest follows", async () => {
  const { rpc, said, typing } = connected();
  typing.type("a");
  rpc.isOpen = false;
  rpc.requests[0].reject(new LostError());
  rpc.change("reconnecting");
  await settle();
  typing.type("b");
  assert.match(said.at(-1), /is sent when the connection is back/);
  assert.equal(rpc.requests.length, 1);
  rpc.isOpen = true;
  rpc.open();
  assert.deepEqual(rpc.requests[1].params, rpc.requests[0].params);
  rpc.requests[1].resolve({});
  await settle();
  assert.deepEqual(typed(rpc), ["a", "a", "b"]);
  assert.notEqual(rpc.requests[2].params.token, rpc.requests[1].params.token);
  assert.equal(said.at(-1), "");
});

test("what is typed is dropped after a long outage, and the user is shown how much", async () => {
  const { rpc, said, typing } = connected();
  rpc.isOpen = false;
  rpc.change("reconnecting");
  typing.type("rm");
  outage();
  assert.match(said.at(-1), /last characters that you typed \(2\) were not sent/);
  typing.type("x");
  assert.match(said.at(-1), /what you type is not sent/);
  rpc.isOpen = true;
  rpc.open();
  assert.deepEqual(typed(rpc), []);
  typing.type("y");
  assert.deepEqual(typed(rpc), ["y"]);
});

test("long text is cut, but not within a character", () => {
  assert.equal(cutAt("abc", 8), 3);
  assert.equal(cutAt("ab😀", 3), 4);
  assert.equal(cutAt("abcd", 3), 3);
});
