// Actions on a terminal as a whole. The user confirms actions that cannot be undone.
//
// Each function takes `{rpc, store, navigate, info}`, where `info` is the terminal's TerminalInfo. An
// error, for example because the terminal was removed meanwhile, is shown as a notice.

import { confirm, notify, notifyError } from "./dialog.js";
import { visible, visibleText } from "./text.js";
import { isOver } from "./words.js";

const UNDO_LINES_MAX = 10;

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

/** Show what would bring the directory back to what it was before the command; ask, and restore it. */
export async function undo({ rpc, info }) {
  try {
    const found = await rpc.request("_acpterm/undo/plan", { terminalId: info.terminalId });
    if (!found.changes.length) {
      notify("The directory is as it was before this command: there is nothing to restore.");
      return;
    }
    const isConfirmed = await confirm({
      title: "Undo what changed since this command?",
      text: [
        `${visible(found.directory)} is brought back to what it was ${visible(found.why)}, ` +
          `${new Date(Number(found.to)).toLocaleString()}. What you or others have changed since is undone, too.`,
        found.note ? visible(found.note) : [],
        found.running.length ? `Programs run there and may write meanwhile: ${found.running.join(", ")}` : [],
        "The state of now is kept: acpterm undo brings it back.",
      ].flat(),
      code: visibleText(changesText(found)),
      action: "Restore",
      danger: true,
    });
    if (!isConfirmed) return;
    const { directory, to, digest } = found;
    const { failures } = await rpc.request("_acpterm/undo/restore", { directory, to, digest });
    if (failures.length) notify(`Not restored: ${failures.join("; ")}`, { danger: true });
    else notify("Restored.");
  } catch (error) {
    notifyError(error);
  }
}

function changesText({ changes, omitted, diffstat }) {
  // git's summary has no modes, directories and no state of a repository.
  const others = changes.filter(({ path, what }) => what === "mode" || path.endsWith("/") || isOfGit(path));
  const lines = others.slice(0, UNDO_LINES_MAX).map(({ path, what }) => ` ${what} ${visible(path)}`);
  const more = others.length - lines.length + omitted;
  return [diffstat, ...lines, more ? ` and ${more} more` : ""].filter(Boolean).join("\n");
}

function isOfGit(path) {
  return path.split("/").includes(".git");
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
