// The words for terminals: texts for a terminal's state, times and sizes.
//
// They are the words of `acpterm ls` (`acpterm/commands/format.py`); a test compares the two.
// All results are safe to show. Times are in milliseconds since 1970 on the wire, and `now` is in
// seconds, as in the Python module.

import { COMMAND_MAX, ORDER, REASONS, SPANS } from "./shared.js";
import { cut, oneLine } from "./text.js";

export const WAITS = "waits for input";
export const ENDING = "ending";
export const NOTHING = "-";

const KIB = 1024;

/** Return the text of the button that allows a command once. */
export function allowOnce({ canUndo }) {
  return canUndo ? "Allow once (Undo can bring back all of it)" : "Allow once";
}

/** Return the columns of `acpterm ls` for a terminal. `short` is the short id to show. */
export function row(terminal, short, now) {
  return {
    id: short,
    name: word(terminal.name),
    state: state(terminal, now),
    owner: terminal.owner,
    agent: word(terminal.agent),
    session: word(terminal.sessionId),
    where: where(terminal),
    size: `${terminal.cols}x${terminal.rows}`,
    age: ago(terminal.createdAt, now),
    output: ago(terminal.lastOutputAt, now),
    command: cut(summaryLine(terminal.command), COMMAND_MAX),
  };
}

/**
 * Return where a terminal's program runs: the provider, and the host if it has another name; "-"
 * for a program of this machine without isolation.
 */
export function where({ provider, host }) {
  if (provider === undefined || provider === "local") return NOTHING;
  if (host === undefined || provider.endsWith(`:${host}`)) return summaryLine(provider);
  return `${summaryLine(provider)} (${summaryLine(host)})`;
}

/** Return whether a terminal's program runs, or waits for a cluster's resources. */
export function isActive(terminal) {
  return terminal.state === "running" || terminal.state === "queued";
}

/** Return whether a terminal's program runs, or something that an ended one has left. */
export function isRunning(terminal) {
  return terminal.state === "running" || backgroundNumber(terminal) > 0;
}

/** Return whether a terminal has ended for all who use it, as for `acpterm rm --exited`. */
export function isOver(terminal) {
  const isLeft = terminal.state === "released" || (terminal.state === "exited" && terminal.owner === "user");
  return isLeft && !isRunning(terminal);
}

/** Compare two terminals by state: running ones first. */
export function byState(one, other) {
  const rank = (terminal) => ORDER.indexOf(backgroundNumber(terminal) ? "queued" : terminal.state);
  return rank(one) - rank(other);
}

/**
 * Return the state of a terminal: running, queued, or how it ended; what is still running; if
 * released, how long ago.
 */
export function state(terminal, now) {
  const status = terminal.exitStatus;
  let how;
  if (status == null) {
    how = terminal.ending ? ENDING : terminal.state;
    if (how === "running" && (terminal.waitingForInput || terminal.waitingProgram)) how = summaryLine(terminal.waitingProgram ?? WAITS);
    if (how === "running" && terminal.stopped) {
      how = `stopped: ${summaryLine(terminal.stopped.command)} ${terminal.stopped.why}`;
    }
  } else {
    how = status.signal == null ? `exited ${status.exitCode ?? "None"}` : ended(status);
    how += reason(status);
  }
  const number = backgroundNumber(terminal);
  if (number) {
    const ports = background(terminal).flatMap((each) => each.ports).map((port) => ` :${port}`);
    return `${how}, ${number} still running${ports.length ? ` on${ports.join("")}` : ""}`;
  }
  if (terminal.state !== "released" || how === "released") return how;
  const when = ago(terminal.releasedAt, now);
  return when === NOTHING ? `${how}, released` : `${how}, released ${when} ago`;
}

/** Return what an exited program has left running, as far as the daemon lists it. */
function background(terminal) {
  return terminal.background ?? [];
}

/** Return how many processes an exited program has left running. */
export function backgroundNumber(terminal) {
  return background(terminal).length + (terminal.backgroundOmitted ?? 0);
}

/** Return what an exited program has left running, such as "vite (pid 4711, port 5173)". */
export function backgroundText(terminal) {
  const text = ({ pid, command, ports }) => {
    const noun = ports.length === 1 ? "port" : "ports";
    return `${summaryLine(command)} (pid ${pid}${ports.length ? `, ${noun} ${ports.join(" ")}` : ""})`;
  };
  return background(terminal).map(text).join(", ");
}

/** Return the time from `moment` to `now`, such as "5m"; "-" if `moment` is null. */
export function ago(moment, now) {
  return moment == null ? NOTHING : span(now - moment / 1000);
}

/** Return a duration in one unit, such as "5m". */
export function span(seconds) {
  for (const [size, unit] of SPANS) {
    if (seconds >= size) return `${Math.floor(seconds / size)}${unit}`;
  }
  return "0s";
}

/** Return a duration in at most two units, such as "1h 5m". */
export function duration(seconds) {
  for (let at = 0; at + 1 < SPANS.length; at++) {
    const [size, unit] = SPANS[at];
    const [smaller, less] = SPANS[at + 1];
    if (seconds >= size) {
      const rest = Math.floor((seconds % size) / smaller);
      return `${Math.floor(seconds / size)}${unit}${rest ? ` ${rest}${less}` : ""}`;
    }
  }
  return span(seconds);
}

/** Return a number of bytes with a unit, such as "1.5 KiB". */
export function memory(size) {
  if (size < KIB) return `${size} B`;
  if (size < KIB * KIB) return `${(size / KIB).toFixed(1)} KiB`;
  return `${(size / KIB / KIB).toFixed(1)} MiB`;
}

/** Return untrusted text as one line, uncut, with invisible characters as escapes. */
export function summaryLine(text) {
  return oneLine(text, Infinity);
}

function word(text) {
  return text ? summaryLine(text) || NOTHING : NOTHING;
}

/** Return the name of a terminal, or the first eight digits of its id. */
export function title(terminal) {
  const plain = terminal.name || terminal.terminalId.replace(/^term_/, "").slice(0, 8);
  return summaryLine(plain);
}

/** Return how a program ended, such as "exited with 3". */
export function ended(status) {
  if (status.signal != null) return `ended by ${oneLine(status.signal)}`;
  return `exited with ${status.exitCode ?? "None"}`;
}

/** Return why a program on another host ended, such as " (node failure)"; else an empty text. */
function reason(status) {
  return REASONS.includes(status.endedBy) ? ` (${status.endedBy.replaceAll("_", " ")})` : "";
}

/** Return what ended a program, such as "by user" or "by idle: idle = 300". */
export function endedBy(status) {
  const by = `by ${summaryLine(status.endedBy)}`;
  if (status.limit === undefined || status.limitValue === undefined) return by;
  return `${by}: ${summaryLine(status.limit)} = ${Number(status.limitValue.toPrecision(15))}`;
}

/** Return whether a terminal's program waits for input. */
export function isWaiting(terminal) {
  return terminal.state === "running" && Boolean(terminal.waitingForInput) && !terminal.ending;
}

/**
 * Return whether a terminal needs the user: whether it is an agent's, and its program waits for
 * input. Most terminals of the user are shells, which always wait, so they do not count.
 */
export function needsUser(terminal) {
  return terminal.owner === "agent" && isWaiting(terminal);
}

/** Return the short id of a terminal, of at least eight digits, that `acpterm` accepts. */
export function shortId(id) {
  return id.replace(/^term_/, "").slice(0, 8);
}

/** Return the class of the coloured dot for a terminal; the state is in words beside it. */
export function dotOf(info) {
  if (info.state === "running") return info.waitingForInput ? "waits" : "running";
  if (info.state === "queued") return "queued";
  if (backgroundNumber(info)) return "background";
  const status = info.exitStatus;
  return status && status.exitCode === 0 ? "done" : status ? "failed" : "ended";
}
