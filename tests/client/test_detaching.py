"""The keys that leave an attached terminal, and how its window is printed to."""

import os
import pty
import re
import termios

import pytest
import trio
import trio.testing

from acpterm.client.person.attach.detaching import Detaching
from acpterm.client.person.attach.tty import HIGH, PIECE, Printer, Tty

PASTE = b"\x1b[200~%s\x1b[201~"


def fed(keys, *typed):
    """Type in several reads: all that is passed on, and whether it is left at the last one."""
    detaching, passed, left = Detaching(keys), b"", False
    for part in typed:
        assert not left
        more, left = detaching.feed(part)
        passed += more
    return passed, left


@pytest.mark.parametrize(
    ("keys", "typed"),
    [
        ("C-\\", b"\x1c"),
        ("C-\\", b"\x1b[92;5u"),
        ("C-\\", b"\x1b[92;5:1u"),
        ("C-\\", b"\x1b[92;133u"),
        ("C-\\", b"\x1b[27;5;92~"),
        ("C-b d", b"\x02d"),
        ("C-b d", b"\x1b[98;5ud"),
        ("C-a C-a", b"\x01\x01"),
        ("F12", b"\x1b[24~"),
        ("M-x", b"\x1bx"),
        ("ä", "ä".encode()),
    ],
)
def test_the_key_leaves_however_it_is_said_and_split(keys, typed):
    assert fed(keys, b"before" + typed + b"after") == (b"before", True)
    for at in range(1, len(typed)):
        # Escape, and Alt with [, are keys by themselves: they do not wait for more.
        if typed[:at] not in (b"\x1b", b"\x1b["):
            assert fed(keys, b"ab" + typed[:at], typed[at:] + b"cd") == (b"ab", True), at


@pytest.mark.parametrize(
    ("keys", "typed"),
    [
        ("C-\\", [b"\x1b"]),
        ("C-\\", [b"\x1b["]),
        ("C-\\", [b"\x1b", b"[", b"A"]),
        ("C-\\", [b"\x1b[9", b"3;5u"]),
        ("C-\\", [b"\x1b[92;5:3u"]),
        ("C-\\", [b"\x1b[92;6u"]),
        ("C-b d", [b"\x02x"]),
        ("C-b d", [b"\x02", b"x", b"d"]),
        ("C-b d", [b"\x02\x02x"]),
        ("C-a C-a", [b"\x01", b"b", b"\x01b"]),
        ("C-b d", [b"\x02" + PASTE % b"d" + b"d"]),
        ("C-\\", [PASTE % b"in \x1c here"]),
        ("C-\\", [b"\x1b[20", b"0~in \x1c", b" here \x1b[2", b"01~"]),
        ("C-\\", ["日本".encode(), bytes(range(1, 28)) + b"x"]),
    ],
)
def test_all_else_is_passed_on(keys, typed):
    assert fed(keys, *typed) == (b"".join(typed), False)


def test_a_key_is_passed_on_as_soon_as_it_is_no_beginning():
    detaching = Detaching("C-b d")
    assert detaching.feed(b"a\x1b") == (b"a\x1b", False)
    assert detaching.feed(b"\x02") == (b"", False)
    assert detaching.feed(b"\x02") == (b"\x02", False)
    assert detaching.feed(b"d") == (b"", True)


def test_the_key_leaves_after_a_paste():
    assert fed("C-\\", PASTE % b"\x1c" + b"\x1c") == (PASTE % b"\x1c", True)


@pytest.mark.parametrize("keys", ["", "  ", "C-Enter", "nosuchkey", "C-b nosuchkey", "C-ä"])
def test_a_key_that_no_terminal_has_is_an_error(keys):
    name = (keys.split() or [""])[-1]
    with pytest.raises(ValueError, match=re.escape(repr(name)) if name else "no key"):
        Detaching(keys)


class Window:
    """A terminal that takes one write at a time, when the test lets it."""

    def __init__(self):
        self.written = []
        self.lets = trio.Semaphore(0)

    async def write(self, data):
        await self.lets.acquire()
        self.written.append(data)


async def test_a_printer_prints_in_order_and_holds_up_who_brings_too_much(autojump_clock):
    window = Window()
    printer = Printer(window)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(printer.run)
        printer.put(b"a" * PIECE)
        printer.put(b"b" * HIGH)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1) as held:
            await printer.room()
        assert held.cancelled_caught
        window.lets.release()
        with trio.fail_after(1):
            await printer.room()
        with trio.move_on_after(1) as held:
            await printer.empty()
        assert held.cancelled_caught
        for _ in range(HIGH // PIECE):
            window.lets.release()
        with trio.fail_after(1):
            await printer.empty()
        nursery.cancel_scope.cancel()
    assert b"".join(window.written) == b"a" * PIECE + b"b" * HIGH
    assert max(map(len, window.written)) == PIECE


async def test_a_terminal_is_raw_for_a_while_and_then_as_before():
    master, slave = pty.openpty()
    try:
        termios.tcsetwinsize(slave, (7, 33))
        before = termios.tcgetattr(slave)
        # Typed before it is raw, and not lost by that.
        os.write(master, b"ahead\n")
        terminal = Tty(slave, slave)
        assert terminal.size == (33, 7)
        with terminal.raw():
            assert not termios.tcgetattr(slave)[3] & (termios.ECHO | termios.ICANON | termios.ISIG)
            with trio.fail_after(5):
                assert await terminal.read() == b"ahead\n"
                os.write(master, b"\x03")
                assert await terminal.read() == b"\x03"
                await terminal.write(b"said\n")
            assert os.read(master, 100).endswith(b"said\n")
        assert termios.tcgetattr(slave) == before
    finally:
        os.close(slave)
        os.close(master)


async def test_a_terminal_that_is_gone_ends_what_is_typed():
    master, slave = pty.openpty()
    terminal = Tty(slave, slave)
    with terminal.raw():
        os.close(master)
        with trio.fail_after(5):
            assert await terminal.read() == b""
            with pytest.raises(OSError, match="error"):
                await terminal.write(b"x")
    assert terminal.size
    os.close(slave)
