"""The consumer's side of a ring file, with the test in the role of the keeper."""

import os

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from acpterm.keeper import ring_file as layout
from acpterm.terminal.consumer import SLICE_BYTES, Consumer, Turns
from acpterm.terminal.shared_ring import SharedRing
from acpterm.terminal.text.stream import TextView
from acpterm.terminal.timeline import Timeline
from acpterm.terminal.vt.emulator import Emulator


class Writer:
    """Writes to a ring file as the keeper does."""

    def __init__(self, size=layout.CAPACITY_MIN_BYTES):
        self.fd, self.file = layout.create_ring(size)
        self.kicks = 0

    def ring(self, retained=1000, **more):
        return SharedRing(self.fd, retained, arm=self.arm, on_room=self.kick, **more)

    def arm(self, header):
        header[layout.ARMED] = 1

    def kick(self):
        self.kicks += 1

    def write(self, data):
        """Write as many bytes as fit; return their number."""
        header = self.file.header
        size = min(len(data), self.file.free_bytes())
        for at in range(size):
            self.file.data[(header[layout.HEAD] + at) % self.file.capacity] = data[at]
        header[layout.HEAD] += size
        header[layout.RESERVED] = header[layout.HEAD]
        header[layout.ARMED] = 0
        return size

    def close(self):
        os.close(self.fd)


@pytest.fixture
def writer():
    writer = Writer()
    yield writer
    writer.close()


def test_consumed_bytes_are_readable_while_retained(writer):
    ring = writer.ring(retained=10)
    assert writer.write(b"0123456789abcdef") == 16
    assert (ring.start, ring.end, ring.unread) == (0, 0, 16)
    assert ring.peek(4) == b"0123"
    ring.advance(16)
    assert (ring.start, ring.end, ring.unread) == (6, 16, 0)
    assert ring.read(0) == (b"6789abcdef", 6, 6)
    assert ring.read(14, 1) == (b"e", 14, 0)


@pytest.mark.parametrize(("since", "max_bytes"), [(-1, None), (4, None), (0, -1)])
def test_read_outside_of_the_stream_raises(writer, since, max_bytes):
    ring = writer.ring()
    writer.write(b"abc")
    ring.advance(3)
    with pytest.raises(ValueError, match=r"no such position|max_bytes"):
        ring.read(since, max_bytes)


def test_retained_and_unread_bytes_are_not_overwritten(writer):
    ring = writer.ring(retained=1000)
    data = bytes(range(256)) * (writer.file.capacity // 256)
    assert writer.write(data) == len(data)
    assert writer.write(b"more") == 0
    ring.advance(1000)
    assert writer.write(b"more") == 0
    ring.advance(3)
    assert writer.write(b"more") == 3
    assert ring.read(3).data == data[3:1003]


def test_held_position_is_retained_until_its_reader_releases_it(writer):
    ring = writer.ring(retained=0)
    reader = object()
    writer.write(b"0123456789")
    ring.hold(reader, 0)
    ring.advance(10)
    assert ring.read(0).data == b"0123456789"
    ring.hold(reader, 4)
    assert (ring.start, ring.read(4).data) == (4, b"456789")
    ring.let_go(reader)
    ring.let_go(reader)
    assert ring.start == 10


def test_free_space_is_reported_only_to_a_stalled_keeper(writer):
    ring = writer.ring(retained=0)
    writer.write(b"0123456789")
    ring.advance(5)
    assert writer.kicks == 0
    writer.file.header[layout.STALLED] = 1
    ring.advance(5)
    assert writer.kicks == 1


def test_adopted_ring_begins_at_the_oldest_unreleased_byte(writer):
    old = writer.ring(retained=4)
    writer.write(b"0123456789")
    old.advance(8)
    new = writer.ring(retained=4, adopted=True)
    assert (new.start, new.position, new.unread) == (4, 4, 6)
    assert new.peek(100) == b"456789"


def test_adopted_ring_is_readable_up_to_its_end_at_the_takeover(writer):
    old = writer.ring(retained=4)
    writer.write(b"0123456789")
    old.advance(8)
    new = writer.ring(retained=4, adopted=True)
    assert new.end == 10
    assert new.read(8).data == b"89"
    writer.write(b"more")
    assert new.end == 10
    new.advance(10)
    assert new.read(10).data == b"more"


@given(st.lists(st.binary(max_size=40_000), max_size=12), st.integers(0, 70_000), st.data())
def test_reads_agree_with_the_whole_stream(pieces, retained, data):
    writer = Writer(layout.CAPACITY_MIN_BYTES)
    try:
        ring = writer.ring(retained=min(retained, 50_000))
        stream = b""
        for piece in pieces:
            stream += piece[: writer.write(piece)]
            ring.advance(data.draw(st.integers(0, ring.unread)))
            since = data.draw(st.integers(0, ring.end))
            part = ring.read(since)
            assert part.data == stream[part.position : ring.end]
            assert part.position == max(since, ring.start)
            assert ring.end - ring.start >= min(ring.end, ring.retained)
            assert ring.peek(1 << 20) == stream[ring.end :]
    finally:
        writer.close()


def test_queries_in_output_that_was_not_consumed_are_left_to_the_next_worker(writer):
    ring = writer.ring()
    writer.write(b"query, query, query")
    ring.peek(100)
    assert ring.claim_reply()
    # The reply is claimed before it is typed: it is never typed twice.
    assert writer.ring(adopted=True).replied_until == 19
    ring.advance(5)
    assert writer.ring(adopted=True).replied_until == 5


class Consuming:
    """A consumer, with the objects that it feeds."""

    def __init__(self, writer, limit=1 << 20, *, retained=100, adopted=False):
        self.ring = writer.ring(retained=retained, adopted=adopted)
        self.text = TextView(limit)
        self.timeline = Timeline(0.0, kept=100, size=(80, 24))
        self.changes = 0
        self.saved = []
        self.emulator = Emulator(80, 24)
        self.consumer = Consumer(
            self.ring,
            self.text,
            self.emulator,
            self.timeline,
            turns=Turns(),
            on_change=self.count,
            save=lambda position, state: self.saved.append((position, state, self.ring.start)),
        )

    def count(self):
        self.changes += 1


async def test_consumer_consumes_everything_and_requests_a_wake_up(writer):
    consuming = Consuming(writer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consuming.consumer.run)
        await trio.testing.wait_all_tasks_blocked()
        assert writer.file.header[layout.ARMED]
        for piece in (b"one\n", b"x" * (3 * SLICE_BYTES // 4), b"\nlast\n"):
            writer.write(piece)
            consuming.consumer.wake()
            await trio.testing.wait_all_tasks_blocked()
            assert consuming.ring.unread == 0
        assert writer.file.header[layout.ARMED]
        assert consuming.text.text().endswith("x\nlast\n")
        nursery.cancel_scope.cancel()


async def test_catch_up_consumes_at_most_one_slice():
    writer = Writer(4 * SLICE_BYTES)
    try:
        consuming = Consuming(writer)
        writer.write(b"here")
        assert consuming.consumer.catch_up()
        assert consuming.text.text() == "here"
        writer.write(b"y" * (3 * SLICE_BYTES))
        assert not consuming.consumer.catch_up()
        assert consuming.ring.unread >= 2 * SLICE_BYTES
        await consuming.consumer.caught_up()
        assert consuming.ring.unread == 0
    finally:
        writer.close()


def test_catch_up_stops_early_when_output_is_expensive_to_emulate(writer):
    consuming = Consuming(writer)
    # Each sequence repeats the character 65,535 times.
    writer.write(b"x\x1b[65535b" * 5000)
    assert not consuming.consumer.catch_up()
    assert consuming.ring.unread > SLICE_BYTES // 2


async def test_emulators_state_is_saved_before_output_after_the_last_one_is_released(writer):
    consuming = Consuming(writer)
    for _ in range(50):
        writer.write(b"\x1b[Hupdate\r\n" * 40)
        await consuming.consumer.caught_up()
    assert consuming.ring.start > 0
    assert len(consuming.saved) == 50
    previous = 0
    for position, _, released in consuming.saved:
        assert released <= previous
        previous = position


@pytest.mark.parametrize("retained", [0, 100])
async def test_next_workers_emulator_continues_from_the_saved_state(writer, retained):
    first = Consuming(writer, retained=retained)
    writer.write(b"\x1b[HHEADER" + b"\x1b[3Hline 3\r\n" * 50)
    await first.consumer.caught_up()
    position, state, _ = first.saved[-1]
    writer.write(b"\x1b[5Hline 5\r\n\x1b[7Hline 7")
    second = Consuming(writer, retained=retained, adopted=True)
    second.consumer.restore(position, state, pytest.fail)
    for consuming in (first, second):
        await consuming.consumer.caught_up()
    rows = second.emulator.screen().text().split("\n")
    assert rows == ["HEADER", "", "line 3", "", "line 5", "", "line 7"]
    assert rows == first.emulator.screen().text().split("\n")


async def test_size_is_applied_at_the_position_of_its_change(writer):
    consuming = Consuming(writer)
    writer.write(b"before")
    consuming.consumer.resize(100, 30, consuming.ring.head)
    writer.write(b"after")
    assert consuming.timeline.resized == 0
    await consuming.consumer.caught_up()
    assert consuming.timeline.resize_at(0)[1:] == (6, 100, 30)
    consuming.consumer.resize(90, 20, consuming.ring.head)
    assert consuming.timeline.resize_at(1)[1:] == (11, 90, 20)


async def test_other_tasks_run_between_two_slices_of_a_flood():
    writer = Writer(8 * SLICE_BYTES)
    try:
        consuming = Consuming(writer)
        writer.write(b"y" * (8 * SLICE_BYTES))
        turns = 0

        async def other():
            nonlocal turns
            while consuming.ring.unread:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consuming.consumer.run)
            nursery.start_soon(other)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert turns >= 8
    finally:
        writer.close()
