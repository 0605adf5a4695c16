// Actions on a terminal as a whole. The user confirms actions that cannot be undone.
//
// Each function takes `{rpc, store, navigate, info}`, where `info` is the terminal's TerminalInfo. An
// error, for example because the terminal was removed meanwhile, is shown as a notice.

import { confirm, notifyError } from "./dialog.js";
import { visible } from "./text.js";
import { isOver } from "./words.js";

/** Make the user the owner of an agent's terminal. */
export async function takeOver(context) {
  const isConfirmed = await confirm({
    title: "Take over this terminal?",
    text: [
      "It becomes yours: you can type, and it gets the size of your window.",
      "The agent can still read its output and exit status, but no longer type, resize, signal or kill it. " +
        "Its time limit no longer applies, and it outlives the agent.",
      "This cannot be undone.",
    ],
    code: visible(context.info.command),
    action: "Take over",
  });
  if (isConfirmed) await request(context, "_acpterm/terminal/promote", (result) => context.store.put(result));
}

/** Kill the program. */
export async function killProgram(context) {
  const { info } = context;
  const isConfirmed = await confirm({
    title: "Kill this program?",
    text: info.owner === "agent"
      ? "The program and everything that it has started is killed. The agent sees that you did it."
      : "The program and everything that it has started is killed.",
    code: visible(info.command),
    action: "Kill",
    danger: true,
  });
  if (isConfirmed) await request(context, "_acpterm/terminal/kill");
}

/** Run the same command in a new terminal, and show the new terminal. */
export async function restartProgram(context) {
  await request(context, "_acpterm/terminal/restart", (info) => {
    context.store.put(info);
    context.store.refresh();
    context.navigate(`#/terminal/${encodeURIComponent(info.terminalId)}`);
  });
}

/** Remove the terminal and its output, and show the list. */
export async function removeTerminal(context) {
  const isConfirmed = await confirm({
    title: "Remove this terminal?",
    text: "Its output is removed, too.",
    code: visible(context.info.command),
    action: "Remove",
    danger: true,
  });
  if (!isConfirmed) return;
  await request(context, "_acpterm/terminal/release", () => {
    context.store.refresh();
    context.navigate("#/");
  });
}

/** Remove all terminals that have ended, and their output. */
export async function removeEnded({ rpc, store }) {
  const ended = [...store.terminals.values()].filter(isOver).map((info) => info.terminalId);
  const isConfirmed = await confirm({
    title: ended.length === 1 ? "Remove the terminal that has ended?" : `Remove the ${ended.length} terminals that have ended?`,
    text: "Their output is removed, too. Those that an agent may still read stay.",
    action: "Remove",
    danger: true,
  });
  if (!isConfirmed) return;
  const results = await Promise.allSettled(ended.map((id) => rpc.request("_acpterm/terminal/release", { terminalId: id })));
  store.refresh();
  const failed = results.find((result) => result.status === "rejected");
  if (failed) notifyError(failed.reason);
}

async function request({ rpc, info }, method, onResult = () => {}) {
  try {
    onResult(await rpc.request(method, { terminalId: info.terminalId }));
  } catch (error) {
    notifyError(error);
  }
}
