"""Skipping simple output that has scrolled off does not change the screen."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpterm.terminal.text import simple_output
from acpterm.terminal.vt import emulator
from acpterm.terminal.vt.emulator import Emulator
from tests.support.cases import each_case
from tests.terminal.vt.fuzzing import piece

ROWS = 5
LENGTH = 8192
SGR = st.sampled_from(
    ["\x1b[m", "\x1b[0m", "\x1b[1;31m", "\x1b[48;5;9m", "\x1b[4:3m", "\x1b[;7m", "\x1b[22m"]
)
TEXT = st.lists(st.one_of(st.text("ab \t~", max_size=9), SGR), max_size=6).map("".join)
LINES = st.lists(TEXT.map(str.encode), min_size=1, max_size=4)
AFTER = st.one_of(st.binary(max_size=20), st.just(b"\x1b[3b"))


def run_of(lines, ending=b"\r\n"):
    """Return simple output that is long enough for skipping."""
    piece = ending.join(lines) + ending
    return piece * (LENGTH // len(piece) + 3 * ROWS)


def emulator_fed(*pieces, whole):
    emulator = Emulator(20, ROWS)
    for data in pieces:
        if whole:
            emulator.feed(data)
        else:
            end = simple_output.find_end(data)
            assert emulator.feed_simple_for(data[:end], 60) == end
            emulator.feed(data[end:])
    return emulator


def state_of(emulator):
    screen = emulator.screen()
    rows = [screen.cells(y) for y in range(screen.rows)]
    return rows, screen.cursor, screen.modes, screen.is_alternate, screen.held


@pytest.mark.parametrize(
    "line",
    [b"y", b"x" * 78, b"x" * 20, b" ", b"\ta", b"\x1b[1;31mred\x1b[0m", b"\x1b[44mblue\x1b[m"],
)
def test_all_but_the_last_of_equal_lines_have_scrolled_off(line):
    run = run_of([line])
    assert simple_output.find_end(run + b"\x1b[3") == len(run)
    found = emulator.find_scrolled_off(run, ROWS)
    assert run[found.size :].count(b"\r\n") == 2 * ROWS
    assert state_of(emulator_fed(b"before", run, b"after", whole=False)) == state_of(
        emulator_fed(b"before", run, b"after", whole=True)
    )


def test_pen_set_by_skipped_lines_is_kept():
    run = b"\x1b[31mred\r\n" + run_of([b"\x1b[1mx\x1b[22my"]) + b"z"
    found = emulator.find_scrolled_off(run, ROWS)
    assert found.substitute.startswith(b"\r\n\x1b[31m")
    assert state_of(emulator_fed(b"before", run, whole=False)) == state_of(
        emulator_fed(b"before", run, whole=True)
    )


def test_rep_repeats_the_last_character_of_skipped_output():
    run = run_of([b"Q"]) + b"\r\n" * (3 * ROWS)
    assert emulator.find_scrolled_off(run, ROWS) is None
    for data in (run, run + b"x\r\n"):
        assert state_of(emulator_fed(b"a", data, b"\x1b[3b", whole=False)) == state_of(
            emulator_fed(b"a", data, b"\x1b[3b", whole=True)
        )


def test_substitute_has_only_the_pen_since_the_last_reset():
    run = b"\x1b[31mred\r\n\x1b[0m\x1b[32m" + run_of([b"y"])
    found = emulator.find_scrolled_off(run, ROWS)
    assert found.substitute == b"\r\n\x1b[0m\x1b[32m"


ODD = [
    b"\x1b[1A",
    b"\x1b[?1m",
    b"\x1b[>4m",
    b"\x1b[1",
    b"\x1b",
    b"\x1bM",
    b"\b",
    b"\a",
    b"\x0e",
    b"\0",
]


@each_case("odd", [*ODD, b"\v", b"\xc3\xa4"])
def test_output_with_any_other_sequence_is_not_simple(odd):
    assert simple_output.find_end(b"a\r\n" + odd + b"\r\n") == 0


@pytest.mark.parametrize("cut", [b"\r", b"\x1b", b"\x1b[", b"\x1b[38;5", b"\r\x1b[3"])
def test_incomplete_end_is_left_for_later(cut):
    assert simple_output.find_end(b"a\r\nb" + cut) == 4


def test_output_without_carriage_returns_is_emulated():
    assert emulator.find_scrolled_off(run_of([b"y"], ending=b"\n"), ROWS) is None


@pytest.mark.parametrize(
    "before", [b"\x1b[2;4r", b"\x1b[?69h\x1b[3;9s", b"\x1b]0;title", b"\x1bP", b"\x1b[3"]
)
def test_output_within_margins_or_a_sequence_is_emulated(before):
    run = run_of([b"one", b"two", b"three"])
    emulator = emulator_fed(before, whole=True)
    assert emulator._scrolled_off(run) is None
    assert state_of(emulator_fed(before, run, whole=False)) == state_of(
        emulator_fed(before, run, whole=True)
    )


@given(st.integers(), LINES, AFTER)
@pytest.mark.long
def test_screen_with_skipping_equals_the_screen_without_it(seed, lines, after):
    chance = random.Random(seed)
    before = b"".join(piece(chance) for _ in range(40))
    run = run_of(lines)
    assert state_of(emulator_fed(before, run, after, whole=False)) == state_of(
        emulator_fed(before, run, after, whole=True)
    )
