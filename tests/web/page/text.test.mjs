import assert from "node:assert/strict";
import test from "node:test";

import { tailLines } from "../js/sessions.js";
import { BidiFilter, cleanPaste, cut, oneLine, webLink } from "../js/text.js";

const encode = (text) => new TextEncoder().encode(text);
const BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069";

function filtered(pieces) {
  const filter = new BidiFilter();
  return pieces.map((piece) => [...filter.feed(piece)]).flat();
}

test("filter removes the characters that change the direction of text, and no other", () => {
  const kept = "a→b\u200b\u2026é日\u065c\u2065\u206a\u0600👩‍👧";
  assert.deepEqual(filtered([encode(kept + BIDI + kept)]), [...encode(kept + kept)]);
});

test("filter finds a character that is cut at any place", () => {
  const bytes = encode(`x\u202ey\u061cz→`);
  for (let at = 0; at <= bytes.length; at++) {
    assert.deepEqual(filtered([bytes.slice(0, at), bytes.slice(at)]), [...encode("xyz→")]);
  }
  assert.deepEqual(filtered([...bytes].map((byte) => Uint8Array.of(byte))), [...encode("xyz→")]);
});

test("filter passes bytes that are not UTF-8", () => {
  const bytes = Uint8Array.of(0xe2, 0x41, 0xd8, 0xe2, 0x80, 0x42, 0xff);
  assert.deepEqual(filtered([bytes]), [...bytes]);
});

test("only http and https are links", () => {
  assert.equal(webLink("https://example.org/a b"), "https://example.org/a%20b");
  assert.equal(webLink("http://user@example.org"), "http://user@example.org/");
  for (const text of ["javascript:alert(1)", " JavaScript:alert(1)", "data:text/html,x", "file:///etc/passwd", "vbscript:x", "/a", ""]) {
    assert.equal(webLink(text), null, text);
  }
});

test("text is cut by characters", () => {
  assert.equal(cut("👩👩👩", 3), "👩👩👩");
  assert.equal(cut("👩👩👩", 2), "👩…");
});

test("pasted text cannot end the paste or control the terminal", () => {
  assert.equal(cleanPaste("a\x1b[201~rm\r\nb\rc\x00\x9b1m\td\n"), "a[201~rm\nb\nc1m\td\n");
});

test("text with much white space in it takes no quadratic time", () => {
  const spaces = " ".repeat(1 << 20);
  const start = performance.now();
  assert.equal(oneLine(`  a${spaces}b  `, 3), "a …");
  assert.equal(tailLines(`${"x".repeat(1 << 18)}\ny${" ".repeat(1 << 18)}z`, 1).length, (1 << 18) + 2);
  // Quadratic time would be minutes.
  assert.ok(performance.now() - start < 20_000);
});
