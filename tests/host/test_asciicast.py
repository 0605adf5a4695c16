"""Terminals as asciicasts: each byte once, whole characters, markers for missing output."""

import codecs
import json
import os
import shutil
import time
from contextlib import asynccontextmanager

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from acpterm.pty.program import Program
from acpterm.recording.asciicast import Encoder
from acpterm.recording.asciicast import RawEvent as Event
from acpterm.recording.walk import CHUNK_BYTES, Walk, ending, export
from acpterm.terminal.private_ring import PrivateRing
from acpterm.terminal.spec import TerminalSpec
from acpterm.terminal.status import EndedBy, ExitStatus
from acpterm.terminal.timeline import Timeline
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.pools import running_pool

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


class Printed:
    """Replaces a terminal that is exported: the test calls `print` and `resize` in its place."""

    exit = None
    started = 1_700_000_000.9

    def __init__(self, ring_size=1 << 20):
        self.ring = PrivateRing(ring_size)
        self.timeline = Timeline(50.0, kept=ring_size, size=(80, 24))

    def print(self, data, seconds):
        self.timeline.record(len(data), 50.0 + seconds)
        self.ring.write(data)

    def resize(self, cols, rows, seconds):
        self.timeline.record_size(cols, rows, 50.0 + seconds)


def events(lines):
    """Return the header and the events of lines."""
    data = b"".join(lines)
    assert data.endswith(b"\n")
    header, *rest = [json.loads(line) for line in data.split(b"\n")[:-1]]
    times = [event[0] for event in rest]
    assert times == sorted(times)
    return header, rest


def output(recorded):
    return "".join(data for _, code, data in recorded if code == "o")


def test_header_describes_the_terminal_with_two_variables_only():
    header, recorded = events(export(Printed(), command="make \udcff all"))
    assert header == {
        "version": 2,
        "width": 80,
        "height": 24,
        "timestamp": 1_700_000_000,
        "title": "make ? all",
        "env": {},
    }
    assert recorded == []


def test_output_has_times_and_sizes_and_the_exit_have_positions():
    terminal = Printed()
    terminal.print(b"one\r\n", 0.5)
    terminal.resize(100, 30, 0.75)
    terminal.print(b"two\x1b[31m\r\n", 1.25)
    terminal.resize(90, 20, 2.0)
    terminal.exit = ExitStatus(3, None, EndedBy.EXITED, 2.5, 0.0, 0)
    _, recorded = events(export(terminal, command=""))
    assert recorded == [
        [0.5, "o", "one\r\n"],
        [0.75, "r", "100x30"],
        [1.25, "o", "two\x1b[31m\r\n"],
        [2.0, "r", "90x20"],
        [2.5, "m", "exited with 3"],
    ]


def test_size_has_its_position_where_marks_were_thinned_out():
    terminal = Printed()
    terminal.print(b"one", 1.0)
    terminal.resize(100, 30, 1.5)
    terminal.print(b"two", 2.0)
    del terminal.timeline._times[1], terminal.timeline._positions[1]
    _, recorded = events(export(terminal, command=""))
    assert recorded == [[1.0, "o", "one"], [1.5, "r", "100x30"], [1.5, "o", "two"]]


def test_death_by_a_signal_is_named():
    status = ExitStatus(None, "SIGTERM", EndedBy.AGENT, 1.0, 0.0, 0)
    assert ending(status) == Event(1.0, "m", b"ended by SIGTERM")


@given(st.lists(st.binary(max_size=6) | st.text(max_size=3).map(str.encode), max_size=20))
def test_text_does_not_depend_on_how_output_is_divided(pieces):
    encoder = Encoder()
    lines = [encoder.encode(Event(0.0, "o", piece)) for piece in pieces] + [encoder.finish()]
    text = "".join(json.loads(line)[2] for line in lines if line)
    assert text == b"".join(pieces).decode(errors="replace")


def test_divided_character_is_whole_in_the_later_event():
    terminal = Printed()
    terminal.print("a€".encode()[:2], 1.0)
    terminal.print("€".encode()[1:2], 2.0)
    terminal.print("€b".encode()[2:], 3.0)
    terminal.print(b"\xff\xe2", 4.0)
    _, recorded = events(export(terminal, command=""))
    assert recorded == [
        [1.0, "o", "a"],
        [3.0, "o", "€b"],
        [4.0, "o", "\ufffd"],
        [4.0, "o", "\ufffd"],
    ]


def test_output_and_input_are_decoded_separately_and_time_never_decreases():
    encoder = Encoder()
    given = [
        Event(2.0, "o", b"\xe2\x82"),
        Event(1.0, "i", b"x\xc3"),
        Event(3.0, "o", b"\xac"),
        Event(3.0, "i", b"\xa9"),
    ]
    recorded = [json.loads(line) for line in map(encoder.encode, given) if line]
    assert recorded == [[2.0, "i", "x"], [3.0, "o", "€"], [3.0, "i", "é"]]


def test_marker_reports_dropped_output_and_the_rest_begins_with_a_line():
    terminal = Printed(ring_size=1000)
    terminal.resize(100, 30, 0.5)
    for number in range(100):
        terminal.print(b"line %05d of a hundred\r\n" % number, 1.0 + number)
    terminal.resize(70, 20, 200.0)
    header, recorded = events(export(terminal, command=""))
    # The size is that of when the rest begins.
    assert (header["width"], header["height"]) == (100, 30)
    marker, *rest = recorded
    shown = output(rest).encode()
    assert marker[1:] == ["m", f"{terminal.ring.end - len(shown)} bytes are missing here"]
    assert shown.startswith(b"line ")
    assert terminal.ring.read(terminal.ring.start).data.endswith(shown)
    assert len(shown) > 900
    assert rest[0][0] == marker[0] == pytest.approx(61.0, abs=1.0)
    assert rest[-1] == [200.0, "r", "70x20"]


def test_marker_reports_output_dropped_during_the_export():
    terminal = Printed(ring_size=10 * CHUNK_BYTES)
    terminal.print(b"a" * 8 * CHUNK_BYTES, 1.0)
    lines = export(terminal, command="")
    sent = [next(lines), next(lines)]
    terminal.print(b"b" * 6 * CHUNK_BYTES, 2.0)
    _, recorded = events([*sent, *lines])
    assert [code for _, code, _ in recorded[:3]] == ["o", "m", "o"]
    assert recorded[1][2] == f"{3 * CHUNK_BYTES} bytes are missing here"
    # What came after the export began is no part of it.
    assert output(recorded) == "a" * 5 * CHUNK_BYTES


def test_terminal_that_retains_nothing_can_be_exported():
    terminal = Printed(ring_size=0)
    terminal.print(b"gone", 1.0)
    _, recorded = events(export(terminal, command=""))
    assert recorded == [[1.0, "m", "4 bytes are missing here"]]


def test_export_works_in_small_steps():
    terminal = Printed()
    for _ in range(16):
        terminal.print(b"\x1b" * 65536, 1.0)
    assert terminal.ring.end == 1 << 20
    longest = lines = 0
    steps = export(terminal, command="")
    while True:
        before = time.process_time()
        line = next(steps, None)
        longest = max(longest, time.process_time() - before)
        if line is None:
            break
        lines += 1
        assert len(line) < 6 * CHUNK_BYTES + 100
    assert lines == 1 + (1 << 20) // CHUNK_BYTES
    assert longest < 0.05


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["print", "resize", "walk"]), st.integers(1, 300), st.integers(1, 50)
        ),
        max_size=40,
    )
)
def test_walk_returns_each_byte_once_or_reports_it_lost(acts):
    terminal, now, resizes = Printed(ring_size=500), 0.0, 0
    walk, seen = Walk(terminal), []

    def go(most):
        while event := walk.step(terminal.ring.end, most):
            seen.append(event)

    written = b""
    for act, number, more in acts:
        now += more / 100
        if act == "print":
            data = bytes(range(65, 91)) * 12
            terminal.print(data[:number], now)
            written += data[:number]
        elif act == "resize":
            resizes += 1
            terminal.resize(number, resizes, now)
        else:
            go(more)
    go(1000)
    position = 0
    for event in seen:
        if event.code == "o":
            assert written[position : position + len(event.data)] == event.data
            position += len(event.data)
        elif event.code == "m":
            position += int(event.data.split()[0])
    assert position == len(written)
    assert [int(e.data.split(b"x")[1]) for e in seen if e.code == "r"] == [*range(1, resizes + 1)]


def sh(line):
    return Program(["/bin/sh", "-c", line], {"PATH": "/bin:/usr/bin"}, "/", 0o22)


@asynccontextmanager
async def ran(line, **more):
    """Run a shell line on a terminal to its end; yield the terminal."""
    async with running_pool() as pool:
        terminal = await pool.create(sh(line), TerminalSpec(**more))
        await terminal.wait_exited()
        yield terminal


async def test_unrecorded_terminal_is_exported_with_the_times_of_its_output():
    line = "stty -echo; printf one; read x; printf two; exit 4"
    async with running_pool() as pool:
        terminal = await pool.create(sh(line), TerminalSpec(size=(90, 30)))
        await poll(lambda: terminal.timeline.end == len("one"))
        await trio.sleep(0.3)
        terminal.keyboard.type(b"\n")
        await terminal.wait_exited()
        header, recorded = events(export(terminal, command=line))
    assert (header["width"], header["height"], header["title"]) == (90, 30, line)
    (first, _, one), (second, _, two), (last, *marker) = recorded
    assert (one, two, marker) == ("one", "two", ["m", "exited with 4"])
    assert 0 <= first < second <= last
    assert second - first >= 0.3


@pytest.mark.costly
@pytest.mark.skipif(shutil.which("asciinema") is None, reason="asciinema is not installed")
@pytest.mark.parametrize("command", [["cat"], ["play", "-s", "100"]])
async def test_asciinema_reads_an_export(tmp_path, command):
    line = (
        "printf 'h\\303\\251llo \\033[31mred\\033[m\\n'; sleep 0.2; seq 3000; printf '\\342\\202'"
    )
    path = tmp_path / "exported.cast"
    async with ran(line, ring_size=8192) as terminal:
        terminal_output = terminal.ring.read(terminal.ring.start).data
        path.write_bytes(b"".join(export(terminal, command=line)))
    # It reads keys from its controlling terminal.
    master, slave = os.openpty()
    try:
        with trio.fail_after(DEADLINE_S):
            done = await trio.run_process(
                ["setsid", "--ctty", "asciinema", *command, str(path)],
                stdin=slave,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
            )
    finally:
        os.close(master)
        os.close(slave)
    assert done.returncode == 0, done.stderr
    kept = codecs.decode(terminal_output, "utf-8", "replace")
    assert done.stdout.decode() == kept[kept.index("\n") + 1 :]
