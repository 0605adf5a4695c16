// A client on the official TypeScript SDK of MCP: uses a terminal, prints a report.
//
//     mcp.mjs '{"version": …, "server": {"command": …, "args": […]} or {"url": …, "token": …}}'

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { setTimeout as sleep } from "node:timers/promises";

const { version, server } = JSON.parse(process.argv[2]);

const client = new Client(
  { name: "typescript", version: "1" },
  {
    capabilities: { elicitation: { form: {} } },
    versionNegotiation: { mode: version === "legacy" ? "legacy" : { pin: version } },
  },
);
const asked = [];
client.setRequestHandler("elicitation/create", (request) => {
  asked.push(request.params.message);
  return { action: "accept", content: { decision: "allow" } };
});

function transport() {
  if (server.command) return new StdioClientTransport(server);
  const headers = { Authorization: `Bearer ${server.token}`, "Acpterm-Cwd": process.cwd() };
  return new StreamableHTTPClientTransport(new URL(server.url), { requestInit: { headers } });
}

async function call(name, args, options) {
  const result = await client.callTool({ name, arguments: args }, options);
  return { isError: result.isError ?? false, text: result.content.map((block) => block.text).join("") };
}

// Return what a notification resolves.
function notified(method) {
  return new Promise((resolve) => client.setNotificationHandler(method, ({ params }) => resolve(params ?? {})));
}

await client.connect(transport());
const report = { version: client.getNegotiatedProtocolVersion() };
report.tools = (await client.listTools()).tools.map((tool) => tool.name);
report.bash = await call("terminal_bash", { command: "echo hi; exit 3" });
report.wrong = await client.callTool({ name: "no_such_tool", arguments: {} }).catch((error) => error.code);

// Progress is sent every 10 s.
const slow = call("terminal_bash", { command: "sleep 11; echo done" }, {
  onprogress: ({ message }) => (report.progress ??= message),
});

report.started = await call("terminal_start", { command: "cat" });
const id = /Terminal Id: (\S+)/.exec(report.started.text)[1];
const uri = `acpterm://terminal/${id}`;
const updated = notified("notifications/resources/updated");
const changed = notified("notifications/resources/list_changed");
let listening;
if (version === "legacy") await client.subscribeResource({ uri });
else listening = await client.listen({ resourceSubscriptions: [uri], resourcesListChanged: true });
report.continued = await call("terminal_continue", { sessionId: id, stdin: "hi\n", wait_for: "hi\nhi\n" });
report.updated = (await updated).uri === uri;
report.resource = (await client.readResource({ uri })).contents[0].text;

report.dangerous = await call("terminal_bash", { command: "rm -r no-such-directory" });
report.asked = asked.length;

const aborting = new AbortController();
const aborted = call("terminal_bash", { command: "sleep 600" }, { signal: aborting.signal }).catch(() => null);
const list = async () => (await call("terminal_list", {})).text;
while (!(await list()).includes("sleep 600")) await sleep(20);
aborting.abort();
await aborted;
while ((await list()).includes("sleep 600")) await sleep(20);

report.stopped = await call("terminal_stop", { sessionId: id });
await changed;
report.slow = await slow;
await listening?.close();
await client.close();
console.log(JSON.stringify(report));
