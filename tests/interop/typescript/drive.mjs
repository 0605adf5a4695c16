// An agent on the official TypeScript SDK: uses terminals from creation to release, prints a report.
//
//     drive.mjs '{"directory": …, "host": [command to spawn…] or "path of a socket" or
//         {"url": "ws:…", "token": …}, …}'
//
// Everything goes through the SDK's agent side of protocol v1: `createTerminal` and the handle that
// it gives, and its plain `request` where an agent has no typed method.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { connect } from "node:net";
import { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";

import { agent, methods, ndJsonStream, PROTOCOL_VERSION, RequestError } from "@agentclientprotocol/sdk";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket } from "ws";

const sessionId = "session-1";

// Spawn a host or connect to one; return its stream and a promise of its exit status.
async function open(host) {
  if (typeof host === "string") {
    const socket = connect(host);
    await once(socket, "connect");
    return {
      stream: ndJsonStream(Writable.toWeb(socket), Readable.toWeb(socket)),
      close: async () => { socket.destroy(); return []; },
    };
  }
  if (host.url) {
    const headers = { Authorization: `Bearer ${host.token}` };
    const stream = createWebSocketStream(host.url, { WebSocket, headers });
    return { stream, close: async () => { await stream.writable.close().catch(() => {}); return []; } };
  }
  const child = spawn(host[0], host.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
  const exit = once(child, "exit");
  return {
    stream: ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)),
    close: async () => { child.stdin.end(); return [(await exit)[0]]; },
  };
}

// Return a response; an error as its code and message.
async function resultOf(request) {
  try {
    return (await request) ?? null;
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    return { error: error.code, message: error.message };
  }
}

// Poll until the output contains `text`.
async function untilOutput(terminal, text) {
  for (const end = Date.now() + 30_000; Date.now() < end; await sleep(10)) {
    const seen = await terminal.currentOutput();
    if (seen.output.includes(text)) return seen;
  }
  throw new Error(`no ${text} in 30 seconds`);
}

async function wholeLife(client, plan) {
  const terminal = await client.createTerminal({
    sessionId,
    command: "/bin/sh",
    args: ["-c", plan.script, "sh", "two  words"],
    env: [{ name: "GREETING", value: plan.greeting }],
    cwd: plan.directory,
    outputByteLimit: 1000,
  });
  await client.notify(methods.client.session.update, {
    sessionId,
    update: {
      sessionUpdate: "tool_call",
      toolCallId: "call-1",
      title: "Run it",
      kind: "execute",
      content: [{ type: "terminal", terminalId: terminal.id }],
    },
  });
  const waiting = resultOf(terminal.waitForExit());
  const running = await untilOutput(terminal, "waiting");
  writeFileSync(`${plan.directory}/go`, "");
  const waited = await waiting;
  const output = await resultOf(terminal.currentOutput());
  await client.notify(methods.client.session.update, {
    sessionId,
    update: { sessionUpdate: "tool_call_update", toolCallId: "call-1", status: "completed" },
  });
  return {
    running,
    waited,
    output,
    killed: await resultOf(terminal.kill()),
    released: await resultOf(terminal.release()),
    again: await resultOf(terminal.release()),
    after: await resultOf(terminal.currentOutput()),
  };
}

async function run(client, command, more = {}) {
  const terminal = await client.createTerminal({ sessionId, command, ...more });
  const waited = await resultOf(terminal.waitForExit());
  const output = await resultOf(terminal.currentOutput());
  await terminal.release();
  return { waited, output };
}

// Do what agents do after a timeout: kill, output, release.
async function timeOut(client, plan) {
  const terminal = await client.createTerminal({ sessionId, command: plan.sleeper });
  await untilOutput(terminal, "asleep");
  const gave_up = await resultOf(
    client.request(
      methods.client.terminal.waitForExit,
      { sessionId, terminalId: terminal.id },
      { cancellationSignal: AbortSignal.timeout(50) },
    ),
  );
  const start = performance.now();
  const killed = await resultOf(terminal.kill());
  const seconds = (performance.now() - start) / 1000;
  const output = await resultOf(terminal.currentOutput());
  const waited = await resultOf(terminal.waitForExit());
  return {
    gave_up,
    killed,
    seconds,
    output,
    waited,
    released: await resultOf(terminal.release()),
    again: await resultOf(terminal.release()),
  };
}

async function goWrong(client, plan) {
  const terminal = await client.createTerminal({ sessionId, command: "true" });
  const { create, output } = methods.client.terminal;
  const foreign = { sessionId: "session-2", terminalId: terminal.id };
  const path = `${plan.directory}/go`;
  const wrong = {
    relative: await resultOf(client.request(create, { sessionId, command: "true", cwd: "not/absolute" })),
    empty: await resultOf(client.request(create, { sessionId, command: "" })),
    unknown: await resultOf(client.request(output, { sessionId, terminalId: "never-was" })),
    foreign: await resultOf(client.request(output, foreign)),
    file: await resultOf(client.request(methods.client.fs.readTextFile, { sessionId, path })),
    extension: await resultOf(client.request("_nobody/knows", {})),
  };
  await terminal.release();
  return wrong;
}

const plan = JSON.parse(process.argv[2]);
const host = await open(plan.host);
const report = await agent({ name: "drive" }).connectWith(host.stream, async (client) => {
  const initialized = await client.request("initialize", {
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: { terminal: true },
    clientInfo: { name: "drive", version: "1" },
  });
  const life = await wholeLife(client, plan);
  const cut = await run(client, plan.long, { outputByteLimit: plan.limit });
  const signalled = await run(client, plan.signalled);
  const timed_out = await timeOut(client, plan);
  const wrong = await goWrong(client, plan);
  const last = await client.createTerminal({ sessionId, command: plan.sleeper });
  const left = await untilOutput(last, "asleep");
  return { initialized, life, cut, signalled, timed_out, wrong, left };
});
report.ended = await host.close();
console.log(JSON.stringify(report));
