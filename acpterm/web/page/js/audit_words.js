// The words for entries of the audit log, and the filters of the view.
//
// The words are those of `acpterm audit` (`acpterm/client/user/audit_format.py`); a test compares
// the two. All results are safe to show.

import { localTime, shellJoin } from "./shown.js";
import { oneLine } from "./text.js";

const AGENT = 16;
const SESSION = 12;
const ID = 8;
const EVENT = 8;
const TEXT = 1000;
const NOTHING = "-";
const SHELL = /^(|ba|da|k|z)sh$/;
const COMMAND_OPTION = /^-[a-z]*c$/;
const HOUR_MS = 3600 * 1000;

/** The events of the audit log. */
export const EVENTS = [
  "create", "check", "decision", "refused", "started", "kill", "exit", "promote", "attach", "detach",
  "input", "release", "gap",
];

/** The spans of time that the view offers, in milliseconds. */
export const SPANS = { "1h": HOUR_MS, "24h": 24 * HOUR_MS, "7d": 7 * 24 * HOUR_MS, "30d": 30 * 24 * HOUR_MS };

/** Return the columns of `acpterm audit` for an entry. */
export function auditRow(entry) {
  return {
    time: localTime(entry.time) ?? oneLine(entry.time, 19),
    event: oneLine(entry.event, 2 * EVENT) || NOTHING,
    agent: word(entry.agent || entry.connection, AGENT),
    session: word(entry.session, SESSION),
    terminal: word((entry.terminal ?? "").replace(/^term_/, "").slice(0, ID), ID),
    what: oneLine((DETAILS.get(entry.event) ?? other)(entry), 2 * TEXT),
  };
}

/** Return the params of `_acpterm/audit/read` for the values of the view's fields. */
export function filterParams(fields, now) {
  const params = {};
  for (const name of ["agent", "session", "terminal", "event", "decision"]) {
    const value = (fields[name] ?? "").trim();
    if (value) params[name] = value;
  }
  if (fields.time in SPANS) params.since = now - SPANS[fields.time];
  if (fields.time === "between") {
    const [from, to] = [fields.from, fields.to].map((text) => (text ? new Date(text).getTime() : NaN));
    if (from >= 0) params.since = from;
    // A field has no seconds: include the whole minute.
    if (to >= 0) params.until = to + 59999;
  }
  return params;
}

/** Return the line of a command, as a user would type it; see `acpterm/runtime/command_line.py`. */
function commandLine(command, args) {
  const words = args ?? [];
  if (words.length > 1 && SHELL.test(command.slice(command.lastIndexOf("/") + 1)) && COMMAND_OPTION.test(words.at(-2))) {
    return words.at(-1);
  }
  return words.length ? shellJoin([command, ...words]) : command;
}

function word(text, most) {
  return text ? oneLine(text, most) : NOTHING;
}

function commandOf(entry) {
  return entry.command == null ? "" : oneLine(commandLine(entry.command, entry.args), TEXT);
}

function notes(...found) {
  const some = found.filter(Boolean).map((note) => oneLine(note));
  return some.length ? `(${some.join(", ")})` : "";
}

function join(...words) {
  return words.filter(Boolean).join("  ");
}

function reason(entry) {
  return oneLine(entry.reason ?? "");
}

function rule(entry) {
  return entry.rule && `rule ${entry.rule}`;
}

function created(entry) {
  const about = notes(entry.decision, entry.level, rule(entry), entry.profile, entry.provider);
  return join(commandOf(entry), about, entry.directory && `in ${oneLine(entry.directory)}`);
}

function decided(entry) {
  const words = [entry.decision, entry.by && `by ${entry.by}`].filter(Boolean).join(" ");
  return join(words, notes(entry.level, rule(entry)), reason(entry), commandOf(entry));
}

function ended(entry) {
  const how = entry.signal ? `by ${entry.signal}` : `with ${entry.code ?? "None"}`;
  return join(`ended ${how}`, notes(entry.endedBy, entry.limit), reason(entry));
}

function typed(entry) {
  const by = [entry.by || "unknown", entry.share].filter(Boolean).join(" ");
  return `${entry.bytes || 0} ${entry.bytes === 1 ? "byte" : "bytes"} typed by ${by}`;
}

function gap(entry) {
  const [since, to] = [entry.from, entry.to].map((at) => (localTime(at ?? "") ?? oneLine(at ?? "", 19)).trim());
  const unit = entry.lost === 1 ? "entry" : "entries";
  return `${entry.lost || 0} ${unit} lost from ${since} to ${to}: ${entry.reason || "unknown"}`;
}

function other(entry) {
  const pid = entry.pid == null ? null : `pid ${entry.pid}`;
  const by = entry.by && `by ${entry.by}`;
  const about = notes(entry.limit, entry.rule);
  const left = entry.background && oneLine(`ended ${entry.background.join(", ")}`);
  return join(entry.signal, about, left, pid, by, entry.share, reason(entry), commandOf(entry));
}

const DETAILS = new Map(
  Object.entries({ create: created, check: created, decision: decided, exit: ended, gap, input: typed }),
);
