// The words for entries of the audit log, and the filters of the view.
//
// The words are those of `acpterm audit` (`acpterm/commands/audit_format.py`); a test compares
// the two. All results are safe to show.

import { DECISION_COLOURS, EVENTS, WORDS } from "./audit_events.js";
import { localTime, shellJoin } from "./shown.js";
import { oneLine } from "./text.js";

const AGENT = 16;
const SESSION = 12;
const ID = 8;
const EVENT = 8;
const TEXT = 2000;
const NOTHING = "-";
const SHELL = /^(|ba|da|k|z)sh$/;
const COMMAND_OPTION = /^-[a-z]*c$/;
const UNITS = {
  bytes: ["byte", "bytes"],
  changes: ["change", "changes"],
  failures: ["failure", "failures"],
  lost: ["entry", "entries"],
};
const HOUR_MS = 3600 * 1000;

const whole = (text) => oneLine(text, Infinity);

/** The spans of time that the view offers, in milliseconds. */
export const SPANS = { "1h": HOUR_MS, "24h": 24 * HOUR_MS, "7d": 7 * 24 * HOUR_MS, "30d": 30 * 24 * HOUR_MS };

/** Return the columns of `acpterm audit` for an entry, and its colour. */
export function auditRow(entry) {
  const { words = WORDS, colour = null } = EVENTS[entry.event] ?? {};
  return {
    time: localTime(entry.time) ?? oneLine(entry.time, 19),
    event: oneLine(entry.event, 2 * EVENT) || NOTHING,
    agent: word(entry.agent || entry.connection, AGENT),
    session: word(entry.session, SESSION),
    terminal: word((entry.terminal ?? "").replace(/^term_/, "").slice(0, ID), ID),
    what: oneLine(details(words, entry), TEXT),
    colour: entry.event === "decision" ? DECISION_COLOURS[entry.decision] ?? null : colour,
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

function at(time) {
  return (localTime(time) ?? oneLine(time, 19)).trim();
}

/** Return the details of an entry; see `Event` in `acpterm/audit/entry.py`. */
function details(words, entry) {
  const filled = (pieces) => pieces.map((piece) => fill(piece, entry)).filter(Boolean);
  return words.split("  ").map((piece) => {
    if (!piece.startsWith("(")) return filled(piece.split(" | "))[0];
    const found = filled(piece.slice(1, -1).split(", ")).join(", ");
    return found && `(${found})`;
  }).filter(Boolean).join("  ");
}

/** Return the piece with the members that it names; "" if one of them is missing. */
function fill(piece, entry) {
  const names = Array.from(piece.matchAll(/\{(\w+)\}/g), ([, name]) => name);
  if (names.some((name) => (entry[name] ?? "") === "" || entry[name].length === 0)) return "";
  return piece.replace(/\{(\w+)\}/g, (_, name) => memberText(name, entry));
}

function memberText(name, entry) {
  const value = entry[name];
  if (name === "command") return whole(commandLine(value, entry.args));
  if (name === "from" || name === "to") return at(value);
  if (name in UNITS) return `${value} ${UNITS[name][value === 1 ? 0 : 1]}`;
  return whole(Array.isArray(value) ? value.join(", ") : String(value));
}
