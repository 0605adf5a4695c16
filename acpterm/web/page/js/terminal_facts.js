// The facts about a terminal that are shown above its screen, in addition to title and state.

import { backgroundText, duration, endedBy, NOTHING, summaryLine, where } from "./words.js";

/** Return the facts about a terminal, as pairs of name and text; `now` is in seconds. */
export function factsOf(info, now) {
  const status = info.exitStatus;
  const facts = {
    Owner: info.owner,
    Agent: info.agent ? summaryLine(info.agent) : null,
    Level: info.level === "unknown" ? null : info.level,
    Loses: info.loss ? summaryLine(info.loss) : null,
    Where: where(info),
    Stopped: info.stopped && !status ? `${info.stopped.hint} (pid ${info.stopped.pid})` : null,
    Isolation: (info.isolation ?? "none") === "none" ? null : info.isolation,
    Size: `${info.cols}x${info.rows}`,
    Age: duration(Math.max(0, now - info.createdAt / 1000)),
    Ran: status ? `${duration(status.wallMs / 1000)}${status.endedBy === "exited" ? "" : `, ended ${endedBy(status)}`}` : null,
    "Still running": backgroundText(info) || null,
    Directory: info.cwd ? summaryLine(info.cwd) : null,
    Pid: info.pid == null ? null : String(info.pid),
    "Tool calls": info.toolCalls?.length ? String(info.toolCalls.length) : null,
    "Not enforced": info.unenforcedLimits?.length ? summaryLine(info.unenforcedLimits.join(" ")) : null,
  };
  return Object.entries(facts).filter(([, value]) => value && value !== NOTHING);
}
