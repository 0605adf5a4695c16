import assert from "node:assert/strict";
import test from "node:test";

import { isAnswer } from "../js/emulator.js";
import { findShortcut, keyBytes, withCtrl } from "../js/keys.js";

test("answers of a terminal are told from keys", () => {
  const answers = [
    "\x1b[?1;2c", "\x1b[>0;276;0c", "\x1b[0n", "\x1b[?12;3R", "\x1b[?2026;2$y", "\x1b[4;2$y", "\x1b[8;24;80t",
    "\x1b[?0u", "\x1bP1$r0m\x1b\\", "\x1b]11;rgb:ff/ff/ff\x1b\\", "\x1b_G\x1b\\",
  ];
  for (const data of answers) assert.equal(isAnswer(data), true, JSON.stringify(data));
  const keys = [
    "a", "\x1b", "\x1bOP", "\x1b[A", "\x1b[1;2R", "\x1b[15~", "\x1b[1;5D", "\x1b[200~x\x1b[201~", "\x1b[I", "\x1b[<0;1;1M", "\x1bc", "é",
    "\x1bP", "\x1b]", "\x1b_",
  ];
  for (const data of keys) assert.equal(isAnswer(data), false, JSON.stringify(data));
});

test("keys of the row are those of a terminal", () => {
  assert.deepEqual([keyBytes("Up", false), keyBytes("Up", true), keyBytes("Esc", true), keyBytes("|", false)], ["\x1b[A", "\x1bOA", "\x1b", "|"]);
  assert.deepEqual(["c", "C", "[", " ", "?", "é", "\x1b[A"].map(withCtrl), ["\x03", "\x03", "\x1b", "\0", "\x7f", "é", "\x1b[A"]);
});

test("shortcut of two keys needs the second one", () => {
  const run = () => {};
  const shortcuts = [{ keys: "?", run }, { keys: "g t", run }, { keys: "j" }];
  assert.equal(findShortcut(shortcuts, "", "?").found.keys, "?");
  assert.deepEqual(findShortcut(shortcuts, "", "g"), { found: null, begun: "g" });
  assert.equal(findShortcut(shortcuts, "g", "t").found.keys, "g t");
  assert.equal(findShortcut(shortcuts, "g", "?").found.keys, "?");
  assert.deepEqual(findShortcut(shortcuts, "", "j"), { found: null, begun: "" });
});
