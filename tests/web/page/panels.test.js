// The parts of the views that need no browser.

import assert from "node:assert/strict";
import { test } from "node:test";

import { alwaysWords, answerText, leftText } from "./js/approvals.js";
import { auditRow, filterParams } from "./js/audit_words.js";
import { CastError, CastParser, parseSize, Timeline } from "./js/cast.js";
import { clampSize, Player } from "./js/player.js";
import { decisionWords } from "./js/policy.js";
import { newQuestions } from "./js/questions.js";
import { clock } from "./js/recordings.js";
import { pieces, shellJoin } from "./js/shown.js";
import { allowOnce } from "./js/words.js";

const HEADER = '{"version": 2, "width": 80, "height": 24}\n';

function parse(...texts) {
  const parser = new CastParser();
  for (const text of texts) parser.feed(text);
  parser.finish();
  return parser;
}

// A screen that records what it is told; `release()` lets held writes end.
function screenOf({ held = false } = {}) {
  const writing = [];
  const screen = { calls: [], release: () => writing.splice(0).forEach((end) => end()) };
  screen.write = (text) => {
    if (text) screen.calls.push(text);
    return held && text ? new Promise((resolve) => writing.push(resolve)) : Promise.resolve();
  };
  screen.clear = () => screen.calls.push("clear");
  screen.resize = ({ cols, rows }) => screen.calls.push(`${cols}x${rows}`);
  return screen;
}

function playerOf(events, options) {
  const screen = screenOf(options);
  const cast = { header: { cols: 80, rows: 24 }, events: events.map(([time, code, data]) => ({ time, code, data })) };
  return { player: new Player(cast, screen), screen };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

test("pieces mark escapes of invisible characters, and not the same characters typed", () => {
  assert.deepEqual(pieces("a\\u202e\u202eb"), [
    { text: "a\\u202e", isEscape: false },
    { text: "\\u202e", isEscape: true },
    { text: "b", isEscape: false },
  ]);
  const shown = (text) => pieces(text).map((one) => (one.isEscape ? `<${one.text}>` : one.text)).join("");
  assert.equal(shown("a\tb\r\nc\x1b[2K\x9b\0"), "a<\\t>b<\\r>\nc<\\x1b>[2K<\\x9b><\\x00>");
  assert.equal(shown("\u{e0041}👩\u200d💻\u200d"), "<\\U000e0041>👩\u200d💻<\\u200d>");
  assert.equal(shown("\ud800"), "<\\ud800>");
  assert.deepEqual(pieces(""), []);
});

test("pieces put together are the text, for any text", () => {
  const alphabet = ["a", " ", "\\", "\\x1b", "u202e", "\u202e", "\t", "\n", "\x1b", "\u200d", "👩", "💻", "\ufe0f", "ن", "\u200c", "\ud83d"];
  let seed = 7;
  for (let round = 0; round < 2000; round++) {
    let text = "";
    for (let at = 0; at < 8; at++) {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      text += alphabet[seed % alphabet.length];
    }
    let back = "";
    for (const one of pieces(text)) {
      back += one.isEscape
        ? one.text.replace(/^\\(?:([tnr])|x(..)|u(....)|U(.{8}))$/, (_, name, ...hex) =>
          name ? { t: "\t", n: "\n", r: "\r" }[name] : String.fromCodePoint(parseInt(hex.slice(0, 3).find(Boolean), 16)))
        : one.text;
    }
    assert.equal(back, text);
  }
});

test("shell words are quoted where a shell needs it", () => {
  assert.equal(shellJoin(["git", "push", "it's", "", "a b", "--x=1"]), `git push 'it'"'"'s' '' 'a b' --x=1`);
});

test("a cast in any pieces has its events, and damaged lines are counted", () => {
  const text = `${HEADER}[0.5, "o", "a"]\n\n[x]\n[1, "o"]\n[0.25, "o", "b"]\n[2, "r", "10x5"]\n[3, "m", "end"]`;
  for (const size of [1, 7, 1000]) {
    const parser = parse(...(text.match(new RegExp(`[^]{1,${size}}`, "g"))));
    assert.deepEqual(parser.events.map((one) => [one.time, one.code, one.data]),
      [[0.5, "o", "a"], [0.5, "o", "b"], [2, "r", "10x5"], [3, "m", "end"]]);
    assert.equal(parser.unread, 2);
    assert.equal(parser.header.cols, 80);
  }
});

test("times of version 3 are relative, and it has comments", () => {
  const parser = parse('{"version": 3, "term": {"cols": 9, "rows": 3}}\n# c\n[1, "o", "a"]\n[0.5, "o", "b"]\n');
  assert.deepEqual(parser.events.map((one) => one.time), [1, 1.5]);
  assert.deepEqual([parser.header.cols, parser.unread], [9, 0]);
});

test("a header that is none is an error", () => {
  for (const text of ["", "x\n", "[]\n", "null\n", '{"version": 1}\n', '{"version": 2, "width": 0, "height": 2}\n', '{"version": 3, "term": 7}\n']) {
    assert.throws(() => parse(text), CastError, text);
  }
});

test("sizes are read and bounded", () => {
  assert.deepEqual(parseSize("120x40"), { cols: 120, rows: 40 });
  for (const text of ["", "0x1", "1x0", "axb", "120x40x", "-1x2", "1000000x1"]) assert.equal(parseSize(text), null);
  assert.deepEqual(clampSize({ cols: 99999, rows: 99999 }), { cols: 500, rows: 300 });
});

test("a timeline cuts pauses, finds events and keeps the place", () => {
  const events = [{ time: 10 }, { time: 11 }, { time: 60 }];
  const whole = new Timeline(events);
  const cut = new Timeline(events, 2);
  assert.deepEqual([...cut.times], [2, 3, 5]);
  assert.deepEqual([whole.duration, cut.duration, new Timeline([]).duration], [60, 5, 0]);
  assert.deepEqual([0, 2, 2.9, 3, 9].map((time) => cut.indexAt(time)), [0, 1, 1, 2, 3]);
  assert.deepEqual([cut.timeFrom(whole, 11), cut.timeFrom(whole, 40), cut.timeFrom(whole, 60)], [3, 5, 5]);
  assert.equal(whole.timeFrom(cut, 3.5), 11.5);
});

test("a player writes events when they are due, and stops at the end", async () => {
  const { player, screen } = playerOf([[0.1, "o", "a"], [0.2, "i", "typed"], [0.3, "o", "b"], [0.4, "m", "exited with 0"]]);
  await player.play();
  player.frame(1000);
  player.frame(1150);
  await settle();
  assert.deepEqual(screen.calls, ["a"]);
  player.setSpeed(10);
  player.frame(1200);
  await settle();
  assert.deepEqual(screen.calls, ["a", "b"]);
  assert.deepEqual([player.isPlaying, player.isAtEnd, player.marker], [false, true, "exited with 0"]);
  await player.play();
  assert.deepEqual(screen.calls.slice(2), ["clear", "80x24"]);
  assert.equal(player.time, 0);
});

test("a hidden page does not skip what it did not show", async () => {
  const { player, screen } = playerOf([[1, "o", "a"], [100, "o", "b"]]);
  await player.play();
  player.frame(0);
  player.frame(60000);
  await settle();
  assert.deepEqual(screen.calls, []);
  assert.equal(player.time, 0.25);
});

test("a seek back clears the screen and writes everything before it, with its sizes", async () => {
  const { player, screen } = playerOf([[1, "o", "a"], [2, "r", "9999x5"], [3, "o", "b"], [4, "o", "c"]]);
  await player.seek(4);
  assert.deepEqual(screen.calls, ["a", "500x5", "bc"]);
  screen.calls.length = 0;
  await player.seek(3.5);
  assert.deepEqual(screen.calls, ["clear", "80x24", "a", "500x5", "b"]);
  await player.seek(-5);
  assert.equal(player.time, 0);
  await player.seek(99);
  assert.equal(player.time, 4);
});

test("a newer seek takes the place of one that still writes", async () => {
  const { player, screen } = playerOf([[1, "o", "a"], [2, "r", "10x10"], [3, "o", "b"]], { held: true });
  const first = player.seek(3);
  await settle();
  const second = player.seek(1);
  screen.release();
  await settle();
  screen.release();
  await Promise.all([first, second]);
  assert.deepEqual(screen.calls, ["a", "clear", "80x24", "a"]);
  assert.equal(player.isBusy, false);
});

test("a seek forward while another one writes loses nothing of it", async () => {
  const { player, screen } = playerOf([[1, "o", "a"], [2, "r", "10x10"], [3, "o", "b"], [4, "o", "c"]], { held: true });
  player.seek(3);
  await settle();
  const second = player.seek(4);
  for (let round = 0; round < 4; round++) {
    screen.release();
    await settle();
  }
  await second;
  assert.deepEqual(screen.calls, ["a", "clear", "80x24", "a", "10x10", "bc"]);
});

test("time stands still while the screen writes", async () => {
  const { player, screen } = playerOf([[0.1, "o", "a"], [5, "o", "b"]], { held: true });
  await player.play();
  player.frame(0);
  player.frame(200);
  assert.equal(player.isBusy, true);
  player.frame(400);
  assert.equal(player.time, 0.2);
  screen.release();
  await settle();
  player.frame(500);
  assert.ok(Math.abs(player.time - 0.3) < 1e-9);
});

test("a step shows the next output only", async () => {
  const { player, screen } = playerOf([[1, "o", "a"], [2, "m", "x"], [3, "o", "b"], [4, "o", "c"]]);
  await player.step();
  await player.step();
  assert.deepEqual(screen.calls, ["a", "b"]);
  assert.deepEqual([player.time, player.isPlaying], [3, false]);
  await player.step();
  await player.step();
  assert.equal(player.time, 4);
});

test("times are shown as on a clock", () => {
  assert.deepEqual([0, 65.9, 3605].map(clock), ["0:00", "1:05", "1:00:05"]);
});

test("filters become params of a request", () => {
  const now = 1000 * 3600 * 1000;
  assert.deepEqual(filterParams({ agent: " codex ", session: "", event: "exit", time: "1h" }, now),
    { agent: "codex", event: "exit", since: now - 3600000 });
  const between = filterParams({ time: "between", from: "2026-01-31T10:30", to: "2026-01-31T10:31" }, now);
  assert.equal(between.since, new Date(2026, 0, 31, 10, 30).getTime());
  assert.equal(between.until, new Date(2026, 0, 31, 10, 32).getTime() - 1);
  assert.deepEqual(filterParams({ time: "between", from: "", to: "x" }, now), {});
});

test("an entry with the name of a property of objects is like any other", () => {
  assert.equal(auditRow({ time: "x", event: "constructor", reason: "why" }).what, "why");
});

test("answers are told in words", () => {
  assert.equal(answerText({ decision: "allow", scope: "always", by: "editor", reason: "" }), "Allowed always in the editor");
  assert.equal(answerText({ decision: "deny", scope: "once", by: "page", reason: "a\u202eb" }), "Denied on the page (a\\u202eb)");
  assert.equal(answerText({ decision: "deny", scope: "once", by: "timeout", reason: "" }), "Not run: no answer in time");
  assert.deepEqual(alwaysWords({ prefix: ["npm", "a b"], level: "unknown" })[1], "npm 'a b'");
  assert.match(alwaysWords({ prefix: ["rm", "x"], level: "dangerous" })[0], /only/);
  assert.equal(alwaysWords({ prefix: null, level: "unknown" })[1], "");
  assert.deepEqual([null, 0.2, 65].map(leftText), ["", "no time left", "1m 5s left"]);
  assert.equal(decisionWords("ask")[0], "Asked");
});

test("the button that allows says whether the files come back", () => {
  assert.equal(allowOnce({ canUndo: true }), "Allow once (Undo can bring back all of it)");
  assert.equal(allowOnce({ canUndo: false }), "Allow once");
});

test("a new question is announced once", () => {
  const one = { approvalId: "1", agent: "codex", connection: "c1", level: "dangerous", command: "rm -r\u202e x" };
  const approvals = new Map([["1", one]]);
  assert.equal(newQuestions(approvals, new Set()), "codex asks for approval, dangerous: rm -r\\u202e x");
  assert.equal(newQuestions(approvals, new Set(["1"])), null);
  approvals.set("2", { ...one, approvalId: "2" });
  approvals.set("3", { ...one, approvalId: "3" });
  assert.equal(newQuestions(approvals, new Set(["1"])), "2 commands wait for approval");
});
