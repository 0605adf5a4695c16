// Prints what the page makes of the input: entries of the audit log, and lines of casts.

import { readFileSync } from "node:fs";

import { auditRow } from "./js/audit_words.js";
import { CastError, CastParser } from "./js/cast.js";

const { entries, casts } = JSON.parse(readFileSync(0, "utf8"));

function cast(text) {
  const parser = new CastParser();
  try {
    parser.feed(text);
    parser.finish();
  } catch (error) {
    if (error instanceof CastError) return null;
    throw error;
  }
  const { cols, rows, title } = parser.header;
  return [cols, rows, title, parser.events.map(({ time, code, data }) => [time, code, data]), parser.unread];
}

console.log(JSON.stringify({
  rows: entries.map((entry) => Object.values(auditRow(entry))),
  casts: casts.map(cast),
}));
