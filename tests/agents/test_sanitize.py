"""Sanitizing untrusted text: what is removed, escaped and kept."""

import ast
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpterm.runtime.sanitize import (
    escape_invisible,
    escape_invisible_text,
    keep_sgr,
    one_line,
    strip_controls,
)
from tests.support.cases import each_case

PIECES = [
    "\x1b",
    "\x1b[",
    "\x1b[31m",
    "\x1b[0;1;38:5:9m",
    "\x1b]0;title",
    "\x1b]52;c;aGk=\x07",
    "\x1b\\",
    "\x1bP",
    "\x9b",
    "\x9d",
    "\x9c",
    "\x07",
    "[31m",
    "2J",
    "m",
    ";",
    "\r",
    "\n",
    "\r\n",
    "\t",
    "\b",
    "\u202e",
    "\ud800",
    "text",
    "é🙂",
]
HOSTILE = st.lists(st.sampled_from(PIECES) | st.text(max_size=5)).map("".join)
SGR = re.compile(r"\x1b\[[0-9;:]*m")


def steers(text: str) -> list[str]:
    """Return control characters and lone surrogates, except line feeds and tabs."""
    return [c for c in text if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]


@given(HOSTILE)
def test_strip_controls_removes_all_control_characters(text):
    assert not steers(strip_controls(text))


@given(HOSTILE)
def test_strip_controls_removes_direction_characters(text):
    turning = [*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))]
    assert not set(strip_controls(text)) & set(turning)
    assert not set(keep_sgr(text)) & set(turning)


@given(HOSTILE)
def test_keep_sgr_keeps_only_colours(text):
    line = keep_sgr(text)
    assert not steers(SGR.sub("", line))
    # Colours are reset at the end of the line.
    assert not SGR.search(line) or line.endswith("\x1b[0m")


@given(HOSTILE)
def test_one_line_is_bounded_and_has_no_line_breaks(text):
    line = one_line(text, 10)
    assert not steers(line)
    assert len(line) <= 10
    assert not re.search(r"[\n\t]|  |^ | $", line)


@given(st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs", "Cf"))))
def test_text_without_control_characters_is_unchanged(text):
    assert strip_controls(text) == keep_sgr(text) == text


@given(HOSTILE)
def test_safe_text_is_unchanged(text):
    assert strip_controls(strip_controls(text)) == strip_controls(text)


@each_case(
    ("text", "left"),
    [
        ("a\x1b[31mb\x1b[0mc", "abc"),
        ("a\x1b[2J\x1b[Hb", "ab"),
        ("a\x1b]0;a title\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x1b]52;c;aGk=", "a"),
        ("a\x1bPq#0\x1b\\b", "ab"),
        ("a\x9b31mb\x9d0;title\x9cc", "abc"),
        ("a\x1b(Bb\x1b=c\x1bcd", "abcd"),
        ("one\r\ntwo\tthree\rfour\b", "one\ntwo\tthreefour"),
        ("user\u202etxt.exe", "usertxt.exe"),
    ],
)
def test_strip_controls_examples(text, left):
    assert strip_controls(text) == left


@each_case(
    ("line", "left"),
    [
        ("\x1b[1;31mred\x1b[m plain", "\x1b[1;31mred\x1b[m plain\x1b[0m"),
        ("\x1b[38:5:9mred", "\x1b[38:5:9mred\x1b[0m"),
        ("10%\r50%\r100%", "100%"),
        ("100%\r", "100%"),
        ("\x1b[2K\x1b[1Gdone\x1b[?25h", "done"),
        ("\x1b[>4;1mno colour", "no colour"),
        ("\x1b[31\x1b[2Jm", "m"),
        ("no colours", "no colours"),
    ],
)
def test_keep_sgr_examples(line, left):
    assert keep_sgr(line) == left


def test_one_line_truncates_with_an_ellipsis():
    assert one_line("x" * 300) == "x" * 199 + "…"
    assert one_line("x" * 200) == "x" * 200
    assert one_line(" a\n b\tc ") == "a\\n b\\tc"


def test_escape_invisible_shows_control_and_direction_characters():
    assert (
        escape_invisible("echo \x1b]0;x; rm -rf ~ #\x07 hi") == "echo \\x1b]0;x; rm -rf ~ #\\x07 hi"
    )
    assert escape_invisible("make # all\nrm\u202e\u200b") == "make # all\\nrm\\u202e\\u200b"
    assert escape_invisible("👩\u200d👩 é→") == "👩\u200d👩 é→"


@pytest.mark.long
def test_escape_invisible_escapes_every_invisible_character():
    hidden = "\u115f\u1160\u3164\uffa0\u034f\u17b4\u180b\ufe00\ufe0f\U000e0041\U000e0100"
    unseen = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) in ("Cf", "Cc", "Cs")]
    for char in (*unseen, *hidden):
        code = ord(char)
        escaped = escape_invisible(f"a{char}b")
        assert escaped == escaped.encode("ascii", "replace").decode(), hex(code)
        assert ast.literal_eval(f"'{escaped}'") == f"a{char}b"


@each_case(
    ("text", "shown"),
    [
        ("rm\u200c\u200d -rf", "rm\\u200c\\u200d -rf"),
        ("so\u00adft", "so\\xadft"),
        ("x\U000e0041\U000e007f", "x\\U000e0041\\U000e007f"),
        # A single joiner or selector that changes an emoji is kept; repeated ones are not.
        (
            "❤\ufe0f\u200d🔥 🏳\ufe0f\u200d🌈 1\ufe0f\u20e3",
            "❤\ufe0f\u200d🔥 🏳\ufe0f\u200d🌈 1\ufe0f\u20e3",
        ),
        ("👩🏽\u200d🚀", "👩🏽\u200d🚀"),
        ("👩\u200d", "👩\\u200d"),
        ("👩\u200dx", "👩\\u200dx"),
        ("x\u200d👩", "x\\u200d👩"),
        ("👩\u200d\u200d👩", "👩\\u200d\\u200d👩"),
        ("❤\ufe0f\ufe0f", "❤\ufe0f\\ufe0f"),
        ("1\ufe0f x\ufe0f", "1\\ufe0f x\\ufe0f"),
        ("🏴\U000e0067\U000e007f", "🏴\\U000e0067\\U000e007f"),
    ],
)
def test_emoji_joiners_are_kept_only_between_emoji(text, shown):
    assert escape_invisible(text) == one_line(text) == shown


# Hidden characters in multi-line text, and joiners that scripts need.
SHOWN = [
    ("a\u202eb", r"a\u202eb"),
    ("a\u2066b\u2069", r"a\u2066b\u2069"),
    ("pass\u200bword", r"pass\u200bword"),
    ("a\U000e0068\U000e0069", r"a\U000e0068\U000e0069"),
    ("a\ufe0f\ufe0eb", r"a\ufe0f\ufe0eb"),
    ("\U0001f600\ufe0f\ufe01", "\U0001f600\ufe0f" + r"\ufe01"),
    ("a\u200db", r"a\u200db"),
    ("\x1b[2J\r", r"\x1b[2J\r"),
    ("one\ttwo\nthree\n", "one\ttwo\nthree\n"),
    (
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    ),
    ("\u0645\u200c\u200c\u062e", "\u0645" + r"\u200c\u200c" + "\u062e"),
    ("\U0001f468\u200d\U0001f469", "\U0001f468\u200d\U0001f469"),
]


@each_case(("text", "shown"), SHOWN)
def test_hidden_characters_are_escaped_and_script_joiners_kept(text, shown):
    assert escape_invisible_text(text) == shown


@given(HOSTILE)
def test_escape_invisible_text_leaves_no_control_or_direction_characters(text):
    shown = escape_invisible_text(text)
    assert not steers(shown)
    assert not set(shown) & set(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))
    assert shown.count("\n") == text.count("\n")
