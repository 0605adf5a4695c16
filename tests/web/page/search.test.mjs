import { test } from "node:test";
import assert from "node:assert/strict";

import { patternOf } from "../js/search.js";

test("what is typed is text, unless it is a regular expression", () => {
  const text = "a.b a+b (x) [y] \\z";
  for (const part of text.split(" ")) assert.equal(text.search(patternOf(part, true, false)), text.indexOf(part));
  assert.equal("aXb".search(patternOf("a.b", true, false)), -1);
  assert.equal("aXb".search(patternOf("a.b", true, true)), 0);
  assert.throws(() => patternOf("(", true, true), SyntaxError);
});

test("case counts if the user wants it", () => {
  assert.equal("one\nTwo".search(patternOf("^two", false, true)), 4);
  assert.equal("one\nTwo".search(patternOf("^two", true, true)), -1);
});
