// Both ends of a proxy on the official TypeScript SDK: an agent behind its router, and an editor.
//
//     routed.mjs agent VERSION…           an agent that speaks these versions, and prints a banner
//     routed.mjs edit '{"agent": [command…], "cwd": …, "version": …}'        prints a report

import { spawn } from "node:child_process";
import { once } from "node:events";
import { Readable, Writable } from "node:stream";

import { agent, client, methods, ndJsonStream } from "@agentclientprotocol/sdk";
import * as v2 from "@agentclientprotocol/sdk/experimental/v2";

const { update, requestPermission } = methods.client.session;
const [role, ...rest] = process.argv.slice(2);

async function prompt({ params, client }, initialized) {
  const { sessionId } = params;
  const send = (fields) => client.notify(update, { sessionId, update: fields });
  await send({ sessionUpdate: "notice", severity: "warning", title: "Quota low" });
  await send({ sessionUpdate: "compaction_update", compactionId: "1", status: "completed" });
  const terminal = await client.createTerminal({ sessionId, command: "echo from a terminal" });
  const content = [{ type: "terminal", terminalId: terminal.id }];
  const call = { toolCallId: "call", title: "Run it", name: "run_it", status: "in_progress" };
  await send({ sessionUpdate: "tool_call", ...call, content });
  await terminal.waitForExit();
  console.log("not a message");
  await send({ sessionUpdate: "tool_call_update", toolCallId: "call", status: "completed" });
  await terminal.release();
  const text = JSON.stringify(initialized);
  await send({ sessionUpdate: "agent_message_chunk", content: { type: "text", text } });
  return { stopReason: "end_turn" };
}

function serve(versions) {
  let initialized;
  const first = agent({ name: "routed" })
    .onRequest("initialize", ({ params }) => {
      initialized = params;
      return { protocolVersion: 1, agentCapabilities: {}, agentInfo: { name: "routed", version: "1" } };
    })
    .onRequest("session/new", () => ({ sessionId: "the session" }))
    .onRequest("session/prompt", (context) => prompt(context, initialized));
  const router = v2.agentProtocolRouter();
  if (versions.includes("1")) router.withV1(first);
  if (versions.includes("2")) router.withV2(v2.agent({ name: "routed" }));
  process.stdout.write("\x1b[1mWelcome!\x1b[0m\n\n{\"level\":\"info\",\"id\":0}\n");
  router.connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
}

async function edit(plan) {
  const [command, ...words] = plan.agent;
  const child = spawn(command, words, { stdio: ["pipe", "pipe", "pipe"] });
  const exit = once(child, "exit");
  const report = { updates: [], stderr: "" };
  child.stderr.on("data", (data) => { report.stderr += data; });
  const editor = client({ name: "editor" })
    .onNotification(update, ({ params }) => { report.updates.push(params.update); })
    .onRequest(requestPermission, () => ({ outcome: { outcome: "cancelled" } }));
  const stream = ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  await editor.connectWith(stream, async (peer) => {
    try {
      report.initialized = await peer.request("initialize", {
        protocolVersion: plan.version,
        clientCapabilities: { session: { notices: {}, compaction: {} } },
        clientInfo: { name: "editor", version: "1" },
      });
      const { sessionId } = await peer.request("session/new", { cwd: plan.cwd, mcpServers: [] });
      const text = [{ type: "text", text: "go" }];
      report.ended = await peer.request("session/prompt", { sessionId, prompt: text });
    } catch (error) {
      report.error = { code: error.code, data: error.data, message: error.message };
    }
  });
  child.stdin.end();
  [report.status] = await exit;
  return report;
}

if (role === "agent") serve(rest);
else console.log(JSON.stringify(await edit(JSON.parse(rest[0]))));
