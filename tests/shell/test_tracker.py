"""Which bytes of a shell's output count as the output of a command."""

import pytest

from acpterm.shell.kind import without_typed_lines
from acpterm.shell.tracker import Tracker

NONCE = "0123"


def mark(letter, n, status=""):
    return f"\x1b]133;{letter}{status};aid={NONCE};pid=7;n={n}\x07".encode()


def test_bytes_lost_outside_of_a_command_are_not_lost_from_its_output():
    tracker = Tracker(NONCE, 1 << 20)
    tracker.expect(1)
    tracker.feed(b"typed")
    tracker.skip(10)
    tracker.feed(mark("C", 1) + b"one")
    assert (tracker.lost, tracker.truncated) == (0, False)
    tracker.skip(3)
    tracker.feed(b"two" + mark("D", 1, ";0"))
    assert (tracker.output, tracker.lost, tracker.truncated) == ("onetwo", 3, True)
    tracker.skip(20)
    assert tracker.lost == 3


@pytest.mark.timeout(20)
def test_lines_that_were_typed_are_found_in_linear_time():
    assert without_typed_lines(" " * 200_000 + "x") == " " * 200_000 + "x"
    assert without_typed_lines("$  __acpterm_begin 1 2") == "$"
