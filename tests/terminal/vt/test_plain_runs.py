"""What is left out of plain output shows nowhere."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpterm.terminal.vt import plain_runs
from acpterm.terminal.vt.emulator import Emulator
from tests.terminal.vt.fuzzing import piece

ROWS = 5
LINES = st.lists(st.text("ab \t~", max_size=30).map(str.encode), min_size=1, max_size=4)


def run_of(lines, ending=b"\r\n"):
    """Make a plain run that is long enough to be looked at."""
    piece = ending.join(lines) + ending
    return piece * (plain_runs.MIN_BYTES // len(piece) + 3 * ROWS)


def fed(*pieces, whole):
    emulator = Emulator(20, ROWS)
    for piece in pieces:
        if whole:
            emulator.feed(piece)
        else:
            at = 0
            while at < len(piece):
                at += emulator.feed_for(memoryview(piece)[at:], 1.0)
    return emulator


def shown(emulator):
    screen = emulator.screen()
    rows = [screen.cells(y) for y in range(screen.rows)]
    return rows, screen.cursor, screen.modes, screen.is_alternate, screen.held


@pytest.mark.parametrize("line", [b"y", b"x" * 78, b"x" * 20, b"", b"\ta"])
def test_run_of_equal_lines_is_skipped_but_for_the_last(line):
    run = run_of([line])
    skipped = plain_runs.skippable(run, ROWS)
    assert run[skipped:].count(b"\r\n") == 2 * ROWS
    assert shown(fed(b"before", run, b"after", whole=False)) == shown(
        fed(b"before", run, b"after", whole=True)
    )


@pytest.mark.parametrize("odd", [b"\x1b[m", b"\b", b"\a", b"\x0e", b"\xc3\xa4", b"\0", b"\v"])
def test_run_with_anything_else_is_not_skipped(odd):
    assert plain_runs.skippable(run_of([b"y"]) + odd + b"\r\n", ROWS) == 0


def test_run_without_carriage_returns_is_not_skipped():
    assert plain_runs.skippable(run_of([b"y"], ending=b"\n"), ROWS) == 0


@pytest.mark.parametrize(
    "before", [b"\x1b[2;4r", b"\x1b[?69h\x1b[3;9s", b"\x1b]0;title", b"\x1bP", b"\x1b[3"]
)
def test_run_is_not_skipped_within_margins_or_a_sequence(before):
    run = run_of([b"one", b"two", b"three"])
    emulator = fed(before, whole=True)
    assert emulator._skip(memoryview(run)) == 0
    assert shown(fed(before, run, whole=False)) == shown(fed(before, run, whole=True))


@given(st.integers(), LINES, st.binary(max_size=20))
def test_screen_is_that_of_all_output_whatever_came_before(seed, lines, after):
    chance = random.Random(seed)
    before = b"".join(piece(chance) for _ in range(40))
    run = run_of(lines)
    assert shown(fed(before, run, after, whole=False)) == shown(fed(before, run, after, whole=True))
