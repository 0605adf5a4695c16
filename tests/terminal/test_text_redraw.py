"""Text of programs that draw rows again after moving the cursor up: it agrees with libghostty."""

import json
from itertools import pairwise
from pathlib import Path

import pyghostty
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wcwidth import wcswidth

from acpterm.terminal.text.slices import text_of
from acpterm.terminal.text.stream import TextView
from tests.support.cases import each_case
from tests.support.depth import examples

STREAMS = Path(__file__).parent / "streams"
COLS, ROWS = 10, 5


def text(*chunks, size=(COLS, ROWS), limit=1 << 20):
    view = TextView(limit, size=size)
    for chunk in chunks:
        view.feed(chunk)
    return view.text()


class Terminal(pyghostty.Terminal):
    def _format_sel(self, sel, **_unwrap):
        # As rows, not as lines.
        return super()._format_sel(sel)


def agree(data, cols, rows):
    """Check that the text has the rows that libghostty scrolled off, and those on its screen."""
    lines = text(data, size=(cols, rows)).split("\n")
    shown = "\n".join(row for line in lines for row in wrapped(line, cols))
    with Terminal(cols, rows) as terminal:
        terminal.feed(data)
        assert trimmed(shown) == trimmed(terminal.contents())


def wrapped(line, cols):
    rows = [""]
    for char in line:
        if wcswidth(rows[-1] + char) > cols:
            rows.append("")
        rows[-1] += char
    return rows


def trimmed(shown):
    """Return the rows, without the blanks that libghostty leaves out: at ends and at the top."""
    return [row.rstrip() for row in shown.strip().split("\n")]


FRAMES = [b"".join(b"\x1b[2Kstep %d: %d/50\r\n" % (n, at) for n in range(10)) for at in range(51)]


def test_ten_lines_that_are_drawn_fifty_times_are_ten_lines():
    data = b"building\r\n" + b"\x1b[10A".join(FRAMES) + b"done\r\n"
    lines = [f"step {n}: 50/50" for n in range(10)]
    assert text(data, size=(80, 24)).splitlines() == ["building", *lines, "done"]
    # Without the size of the screen, nothing says which rows are drawn again.
    assert text(data, size=None).count("building") == 1
    assert text(data, size=None).count("step 3: ") == 51


def test_lines_that_scrolled_off_stay_when_the_region_is_higher_than_the_screen():
    shown = text(b"\x1b[10A".join(FRAMES), size=(80, 4)).splitlines()
    # The three rows that the cursor reaches hold the last lines; seven scroll off in each frame.
    assert len(shown) == 10 + 50 * 7
    assert shown[-3:] == [f"step {n}: 50/50" for n in (7, 8, 9)]


def test_rows_are_those_of_the_new_size_after_a_resize():
    view = TextView(100, size=(5, 24))
    view.feed(b"1234567\r\n\x1b[2Ax\r\n\r\n\r\n")
    assert view.text() == "x234567\n\n"
    view.resize(80, 24)
    view.feed(b"\x1b[2Ay\r\n")
    assert view.text() == "y234567\n"


def test_lines_beyond_the_limit_are_not_drawn_again():
    view = TextView(40, size=(80, 24))
    view.feed(b"x" * 20 + b"\r\n" + b"y" * 30 + b"\r\nlast\r\n\x1b[3A\rnew\x1b[3B")
    # The row of the first line stays, although a part of its text was dropped.
    assert view.text() == "new\n" + "y" * 30 + "\nlast\n"
    assert view.truncated


# Much output that is fed at once is skipped, except for its end.

OLD = "abcdefghijklmnopqrstuvwxyz\n" * 4
NEW = "".join(f"{number}" * 20 + "\n" for number in range(4))
END = "some words of a line without a control\r\n" * 9


@each_case(
    ("before", "data"),
    [
        ("", f"{OLD}\x1b[4A{NEW}{END}"),
        (f"{OLD}\x1b[4A", f"\x1b[m{NEW}{END}"),
        (OLD, f"\x1b[m\na\n\x1b[4A{NEW}{END}"),
        (f"{OLD}\x1b[4A", f"\x1b[m{END}\x1b[2Aa\n"),
        (f"{OLD}\x1b[4A{END}", f"{END}a\n\x1b[2Aa\n"),
    ],
)
def test_text_is_the_same_when_much_is_skipped(before, data):
    for limit in range(300, 400):
        shown = []
        for margin in (0, 1 << 20):
            view = TextView(limit, size=(40, ROWS), restart_margin_bytes=margin)
            view.feed(before.encode())
            view.feed(data.encode())
            shown.append((view.text(), view.truncated))
        assert shown[0] == shown[1], limit


def test_text_agrees_when_lines_are_added_and_taken_out_in_pieces():
    lines = b"".join(b"%d \xc3\xa9\r\n" % n for n in range(5000))
    for drawn in (1, 3, 20):
        data = lines + b"\x1b[%dA" % drawn + b"\x1b[2Knew\r\n" * drawn
        kept = [f"{n} é\n" for n in range(5000 - drawn)]
        assert text(data, size=(80, 24)) == "".join(kept) + "new\n" * drawn


# -- Parts, for readers by position


@each_case(
    ("part", "expected"),
    [
        # A program that goes up to a line, draws it and comes back, as docker pull does.
        (b"\x1b[3A\x1b[2K\ra: done\r\x1b[3B\x1b[2A\x1b[2K\rb: 5 MB\r\x1b[2B", "a: done\nb: 5 MB\n"),
        (b"\x1b[3A\x1b[2K\ra: 1\r\x1b[3B\x1b[3A\x1b[2K\ra: 2\r\x1b[3Bend\r\n", "a: 2\nend\n"),
        (b"\x1b[2Aone\r\ntwo\r\nthree\r\n", "one\ntwo\nthree\n"),
        (b"\x1b[2A\x1b[2A", ""),
    ],
)
def test_part_has_each_row_that_it_draws_once(part, expected):
    assert text_of(part, final=False, size=(80, 24)) == (expected, len(part))


@each_case(
    ("data", "expected"),
    [
        # Cursor up, and each way to come down again.
        (b"a\r\nb\r\n\x1b[2Ax\r\n", "x\nb"),
        (b"a\r\nb\r\n\x1b[2Ax\x1b[2Bc", "x\nb\n c"),
        (b"a\r\nb\r\n\x1b[2Fx\x1b[2Ec", "x\nb\nc"),
        (b"a\r\nb\r\n\x1b[Ax\r\nc", "a\nx\nc"),
        (b"a\r\nb\r\n\x1b[0;3Ax\r\nc", "a\nx\nc"),
        # The cursor stops at the top of the screen, and so do rows that are drawn again.
        (b"a\r\nb\x1b[9A\rx", "x\nb"),
        (b"1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n\x1b[9Ax", "1\n2\nx\n4\n5\n6\n"),
        # Erasures.
        (b"a\r\nb\r\nc\x1b[2A\r\x1b[Jx", "x"),
        (b"a\r\nb\r\n\x1b[2K\x1b[A\x1b[2K\x1b[Adone\r\nend", "done\nend"),
        # A line that is wider than the screen has several rows.
        (b"123456789012\r\n\x1b[Ax\r\n", "1234567890x2\n"),
        (b"123456789012\r\n\x1b[2Ax\r\n", "x23456789012"),
        (b"a\r\nb\r\n\x1b[2A1234567890123\r\n", "1234567890123\n"),
        ("日本語日本語\r\n\x1b[Ax\r\n".encode(), "日本語日本x\n"),
        ("1日本語日本語\r\n\n\n\n\x1b[9A\x1b[Jb".encode(), "1日本語日\nb"),
        # What is not followed keeps all lines before it.
        (b"a\r\nb\r\n\x1b[H\x1b[2Jc\r\n\x1b[9Ax\r\n", "a\nb\nx\n"),
        (b"a\r\nb\r\n\x1b[2A\x1b[Hc\x1b[9Ax", "a\nb\ncx"),
        (b"a\r\nb\r\n\x1bM\x1b[9Ax", "a\nb\nx"),
        # These are no movements.
        (b"a\r\nb\r\n\x1b[?2A\x1b[>1ux", "a\nb\nx"),
    ],
)
def test_rows_that_are_drawn_again_are_in_the_text_once(data, expected):
    assert text(data) == expected
    assert text(*(bytes([byte]) for byte in data)) == expected


# -- Against libghostty

short = st.text("abcdef ", min_size=1, max_size=COLS)
long = st.text("abcdefgh", min_size=1, max_size=3 * COLS)
count = st.integers(0, ROWS + 2)
move = st.builds("\x1b[{}{}".format, count, st.sampled_from("ABEF")) | st.just("\x1b[A")
end = st.one_of(st.just("\r\n"), st.just("\r\n"), st.just("\r\n\r\n"), move)
erase = st.sampled_from(["", "\r", "\r\x1b[K", "\x1b[2K", "\r\x1b[2K", "\x1b[J", "\r\x1b[J"])
# Each item ends by a line end or a movement: the text of one line does not depend on the width.
narrow = st.builds("{}{}{}{}{}".format, move | st.just(""), erase, short | long, end, erase)
wide = st.builds("\r\x1b[J{}{}".format, st.text("日é本b", max_size=3 * COLS), end)
bars = st.builds(
    lambda rows, up, label: (
        "".join(f"\x1b[2K{label}{row}\r\n" for row in range(rows)) + f"\x1b[{up}A"
    ),
    st.integers(1, 4),
    count,
    st.text("xyz", max_size=4),
)


@settings(max_examples=examples(1500), deadline=None)
@given(st.lists(narrow | bars, max_size=25), st.integers(2, 12), st.integers(2, 7))
@pytest.mark.long
def test_text_agrees_with_the_grid(items, cols, rows):
    agree("".join(items).encode(), cols, rows)


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(wide | st.sampled_from(["\r\n"]), max_size=20), st.integers(4, 12))
@pytest.mark.long
def test_text_agrees_with_the_grid_when_characters_are_wide(items, cols):
    agree("".join(items).encode(), cols, ROWS)


@settings(max_examples=examples(500), deadline=None)
@given(
    st.lists(narrow | wide | bars | st.sampled_from(["\x1b[H", "\x1bM", "\t", "\b"]), max_size=20),
    st.lists(st.integers(0, 400), max_size=8) | st.just(range(1000)),
    st.sampled_from([(COLS, ROWS), None]),
)
@pytest.mark.long
def test_text_does_not_depend_on_the_chunks(items, cuts, size):
    data = "".join(items).encode()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[begin:end] for begin, end in pairwise(edges)]
    assert text(*chunks, size=size) == text(data, size=size)


# -- Real programs


@pytest.mark.parametrize("name", ["cargo", "npm", "pip", "uv"])
def test_recorded_progress_agrees_with_the_grid(name):
    _, *events = (STREAMS / f"{name}.cast").read_text().splitlines()
    data = "".join(json.loads(event)[2] for event in events).encode()
    agree(data, 80, 24)
    pieces = (data[at : at + 100] for at in range(0, len(data), 100))
    assert text(*pieces, size=(80, 24)) == text(data, size=(80, 24))


def build(step):
    """Return the output of a build of ten steps, as docker shows it on a terminal."""
    lines = [f"[+] Building {step / 10:.1f}s ({step // 5}/10)"]
    for number in range(10):
        if step >= 5 * number:
            spent = min(step - 5 * number, 5) / 10
            lines.append(f" => [{number + 1:2}/10] RUN make part-{number} {spent:.1f}s")
    return lines


def test_text_of_a_build_is_as_short_as_that_of_plain_progress():
    shown, drawn = b"", 0
    for step in range(51):
        lines = build(step)
        up = f"\x1b[{drawn}A" if drawn else ""
        shown += f"\x1b[?25l{up}\x1b[0G".encode()
        shown += "".join(f"{line}\x1b[K\r\n" for line in lines).encode()
        drawn = len(lines)
    plain = "".join(
        f"#{number + 1} [{number + 1:2}/10] RUN make part-{number}\n#{number + 1} DONE 0.5s\n\n"
        for number in range(10)
    )
    assert text(shown, size=(80, 24)).splitlines() == build(50)
    assert len(text(shown, size=(80, 24))) <= 1.2 * len(plain)
