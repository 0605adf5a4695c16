// Announces new questions to screen readers, in every view.

import { announce } from "./dialog.js";
import { oneLine } from "./text.js";

const COMMAND_MAX = 120;
const KNOWN_MAX = 1000;

/** Return the announcement of the questions in `approvals` that are not in `known`; null without. */
export function newQuestions(approvals, known) {
  const found = [...approvals.values()].filter((question) => !known.has(question.approvalId));
  if (!found.length) return null;
  if (found.length > 1) return `${found.length} commands wait for approval`;
  const [question] = found;
  const agent = oneLine(question.agent || question.connection, 40);
  const level = oneLine(question.level, 20);
  return `${agent} asks for approval, ${level}: ${oneLine(question.command, COMMAND_MAX)}`;
}

/** Announce the questions of the store from now on. */
export function announceQuestions(store) {
  let known = new Set();
  store.subscribe(() => {
    const text = newQuestions(store.approvals, known);
    if (text) announce(text);
    // A question that is sent again after a reconnect is not new.
    known = new Set([...known, ...store.approvals.keys()].slice(-KNOWN_MAX));
  });
}
