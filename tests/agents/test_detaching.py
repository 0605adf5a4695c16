"""Detach keys, and the window that `acpterm attach` prints to."""

import itertools
import os
import pty
import re
import termios

import pytest
import trio
import trio.testing
from hypothesis import assume, given
from hypothesis import strategies as st

from acpterm.commands.attach.detach_keys import DetachFilter
from acpterm.commands.attach.tty import CHUNK_BYTES, HIGH_WATER_BYTES, Printer, Tty
from acpterm.keys import key_bytes
from tests.support.cases import each_case
from tests.support.depth import DEADLINE_S

PASTE = b"\x1b[200~%s\x1b[201~"


def fed(keys, *typed):
    """Feed `typed`, one item per read, to a filter with the detach keys `keys`.

    Return all input that it passed on, and whether the last read detached.
    """
    detaching, passed, left = DetachFilter(keys), b"", False
    for part in typed:
        assert not left
        more, left = detaching.feed(part)
        passed += more
    return passed, left


@each_case(
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
        # Lower case, locks, other sub-fields, and other formats.
        ("c-b", b"\x1b[98;5u"),
        ("c-B", b"\x1b[98;197u"),
        ("M-x", b"\x1b[120;3u"),
        ("M-x", b"\x1b[27;3;120~"),
        ("M-X", b"\x1b[120;4u"),
        ("C-S-b", b"\x1b[98:66;6u"),
        ("C-b", b"\x1b[1080::98;5u"),
        ("C-b", b"\x1b[98;5:1;u"),
        ("D", b"\x1b[100;2u"),
        ("D", b"\x1b[27;2;68~"),
        ("C-_", b"\x1b[45:95;6u"),
        ("C-_", b"\x1b[27;6;95~"),
        ("?", b"\x1b[47;2;63u"),
        ("Escape", b"\x1b[27u"),
        ("Enter", b"\x1b[13;129u"),
        ("BTab", b"\x1b[9;2u"),
        ("C-Space", b"\x1b[32;5u"),
        ("F12", b"\x1b[24;129~"),
        ("F12", b"\x1b[24;1:1~"),
        ("F3", b"\x1b[13~"),
        ("C-Up", b"\x1b[1;69A"),
        ("Up", b"\x1b[A"),
        ("Up", b"\x1bOA"),
        # All keys as escape codes, with modifier keys, releases and repetitions in between.
        ("C-b d", b"\x1b[98;5u\x1b[100u"),
        ("C-b d", b"\x1b[98;5u\x1b[57442;1:3u\x1b[100;1:1u"),
        ("C-b d", b"\x1b[98;5:1u\x1b[98;5:2u\x1b[98;5:3ud"),
        ("C-b C-d", b"\x1b[98;5u\x1b[57442;5u\x1b[100;5u"),
        ("C-b F12", b"\x1b[98;5u\x1b[98;1:3u\x1b[24~"),
        ("C-a C-a", b"\x1b[97;5:1u\x1b[97;5:3u\x1b[97;5:1u"),
    ],
)
def test_detach_key_is_found_in_every_encoding_and_split(keys, typed):
    assert fed(keys, b"before" + typed + b"after") == (b"before", True)
    for at in range(1, len(typed)):
        # Escape, and Alt with [ and O, are keys by themselves: they do not wait for more.
        if not typed[:at].endswith((b"\x1b", b"\x1b[", b"\x1bO")):
            assert fed(keys, b"ab" + typed[:at], typed[at:] + b"cd") == (b"ab", True), at


@each_case(
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
        # Releases, repetitions, more modifiers, another base key, and invalid characters.
        ("C-b", [b"\x1b[98;5:3u\x1b[98;5:2u"]),
        ("C-b", [b"\x1b[98;6u\x1b[98:66;6u\x1b[98;7u\x1b[98;13u\x1b[27;6;98~"]),
        ("C-c", [b"\x1b[106::99;5u"]),
        ("d", [b"\x1b[100;5u\x1b[68;2u\x1b[9999999u\x1b[u\x1b[;;u\x1b[:~\x1b[55296u"]),
        ("5", [b"\x1b[98;5u\x1b[53;1:3u"]),
        ("F12", [b"\x1b[24;1:3~\x1b[23~"]),
        ("F3", [b"\x1b[1;129R"]),
        ("C-b d", [b"\x1b[98;5u\x1b[98;5:3u", b"x"]),
        ("C-b d", [b"\x1b[98;5u\x1b[98;5:3u\x1b[99u", b"d"]),
        ("C-b d", [b"\x1b[98;5u\x1b[100;1:3u\x1b[100;1:2u\x1b[57441;2u\x1b[120u"]),
        ("C-b", [b"\x1b[" + b"1" * 200, b"u"]),
    ],
)
def test_other_input_is_passed_on(keys, typed):
    assert fed(keys, *typed) == (b"".join(typed), False)


@pytest.mark.parametrize("keys", ["Escape", "M-[", "M-O"])
def test_prefix_key_detaches_only_by_itself(keys):
    alone = key_bytes(keys)
    assert fed(keys, b"ab", alone) == (b"ab", True)
    for other in (b"\x1b[D", b"\x1bOD", b"\x1b[3~", b"\x1bx"):
        assert fed(keys, b"ab" + other, other) == (b"ab" + other + other, False)
    # Also with input before it.
    assert fed(keys, b"ab" + alone) == (b"ab", True)


def test_held_key_is_passed_on_when_it_cannot_be_the_detach_key():
    detaching = DetachFilter("C-b d")
    assert detaching.feed(b"a\x1b") == (b"a\x1b", False)
    assert detaching.feed(b"\x02") == (b"", False)
    assert detaching.feed(b"\x02") == (b"\x02", False)
    assert detaching.feed(b"d") == (b"", True)


def test_detach_key_works_after_a_paste():
    assert fed("C-\\", PASTE % b"\x1c" + b"\x1c") == (PASTE % b"\x1c", True)


PIECES = [
    *(b"\x1b", b"[", b"\x1b[", b"\x1b[9", b"\x02", b"\x03", b"x", "é".encode(), b"\x1b[A", b";5u"),
    *(b"\x1b[98;5u", b"\x1b[98;5:1u", b"\x1b[98;5:3u", b"\x1b[98;5:2u", b"\x1b[27;5;98~"),
    *(b"\x1b[1080::98;5u", b"\x1b[99;5u", b"\x1b[57442;5u", b"\x1b[120u", b"\x1b[24;1:3~"),
    *(b"\x1b[200~", b"\x1b[201~", b"\x1b[20"),
]


@given(
    st.lists(st.sampled_from(PIECES) | st.binary(max_size=5)).map(b"".join),
    st.lists(st.integers(0, 200)),
    st.sampled_from(["C-b d", "c-b C-c d", "C-b C-b d", "Escape d", "C-b M-d"]),
)
def test_other_input_is_passed_on_unchanged_however_it_is_split(typed, cuts, keys):
    # The input contains no final byte of these keys in any encoding.
    typed = typed.replace(b"d", b"D").replace(b"100", b"101").replace(b"\x1b[68;", b"\x1b[69;")
    assume(b"100" not in typed)
    cuts = sorted(cut for cut in cuts if cut < len(typed))
    parts = [typed[a:b] for a, b in itertools.pairwise([0, *cuts, len(typed)])]
    # The last key releases the input that was held back.
    assert fed(keys, *parts, b"x") == (typed + b"x", False)


@given(st.data(), st.sampled_from(["C-b d", "c-b C-c d"]))
def test_detach_keys_are_found_however_their_events_are_split(data, keys):
    ways = {
        "C-b": [b"\x02", b"\x1b[98;5u", b"\x1b[27;5;98~", b"\x1b[1080::98;133:1u"],
        "C-c": [b"\x03", b"\x1b[99;5u", b"\x1b[27;5;99~"],
        "d": [b"d", b"\x1b[100u", b"\x1b[100;1:1;100u"],
    }
    minor = st.lists(st.sampled_from([b"\x1b[98;5:3u", b"\x1b[57442;1:3u", b"\x1b[99;5:2u"]))
    typed = b""
    for key in keys.replace("c-b", "C-b").split():
        typed += data.draw(st.sampled_from(ways[key])) + b"".join(data.draw(minor))
    end = max(typed.rfind(way) + len(way) for way in ways["d"] if way in typed)
    typed = typed[:end]
    # Escape, and Alt with [, are keys by themselves: they do not wait for more.
    cuts = [at for at in range(1, end) if not typed[:at].endswith((b"\x1b", b"\x1b["))]
    cuts = sorted(data.draw(st.sets(st.sampled_from(cuts)))) if cuts else []
    parts = [typed[a:b] for a, b in itertools.pairwise([0, *cuts, end])]
    assert fed(keys, *parts) == (b"", True)


@each_case("name", [*(f"F{n}" for n in range(1, 13)), "Up", "Home", "PgDn", "IC"])
@each_case("modifiers", ["", "C-", "S-", "M-C-"])
def test_detach_keys_with_escape_sequences_are_found(modifiers, name):
    keys = modifiers + name
    assert fed(keys, b"a" + key_bytes(keys) + b"b") == (b"a", True)


@pytest.mark.parametrize("keys", ["", "  ", "C-Enter", "nosuchkey", "C-b nosuchkey", "C-ä"])
def test_unknown_key_is_an_error(keys):
    name = (keys.split() or [""])[-1]
    with pytest.raises(ValueError, match=re.escape(repr(name)) if name else "no key"):
        DetachFilter(keys)


class Window:
    """A terminal that accepts one write whenever the test allows it."""

    def __init__(self):
        self.written = []
        self.lets = trio.Semaphore(0)

    async def write(self, data):
        await self.lets.acquire()
        self.written.append(data)


async def test_printer_prints_in_order_with_backpressure(autojump_clock):
    window = Window()
    printer = Printer(window)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(printer.run)
        printer.put(b"a" * CHUNK_BYTES)
        printer.put(b"b" * HIGH_WATER_BYTES)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1) as held:
            await printer.drain()
        assert held.cancelled_caught
        window.lets.release()
        with trio.fail_after(1):
            await printer.drain()
        with trio.move_on_after(1) as held:
            await printer.flush()
        assert held.cancelled_caught
        for _ in range(HIGH_WATER_BYTES // CHUNK_BYTES):
            window.lets.release()
        with trio.fail_after(1):
            await printer.flush()
        nursery.cancel_scope.cancel()
    assert b"".join(window.written) == b"a" * CHUNK_BYTES + b"b" * HIGH_WATER_BYTES
    assert max(map(len, window.written)) == CHUNK_BYTES


async def test_terminal_mode_is_restored_after_raw():
    master, slave = pty.openpty()
    try:
        termios.tcsetwinsize(slave, (7, 33))
        before = termios.tcgetattr(slave)
        # Input typed before raw mode is not lost.
        os.write(master, b"ahead\n")
        terminal = Tty(slave, slave)
        assert terminal.size == (33, 7)
        with terminal.raw():
            assert not termios.tcgetattr(slave)[3] & (termios.ECHO | termios.ICANON | termios.ISIG)
            with trio.fail_after(DEADLINE_S):
                assert await terminal.read() == b"ahead\n"
                os.write(master, b"\x03")
                assert await terminal.read() == b"\x03"
                await terminal.write(b"said\n")
            output = b""
            # The kernel may deliver the echo and the output one after the other.
            while not output.endswith(b"said\n"):
                output += os.read(master, 100)
        assert termios.tcgetattr(slave) == before
    finally:
        os.close(slave)
        os.close(master)


async def test_input_ends_when_the_terminal_is_gone():
    master, slave = pty.openpty()
    terminal = Tty(slave, slave)
    with terminal.raw():
        os.close(master)
        with trio.fail_after(DEADLINE_S):
            assert await terminal.read() == b""
            with pytest.raises(OSError, match="error"):
                await terminal.write(b"x")
    assert terminal.size
    os.close(slave)
