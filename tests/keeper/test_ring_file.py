"""The ring file: reads, records, released memory, recovery and validation."""

import mmap
import os
import random

import pytest

from acpterm.keeper import ring_file
from acpterm.keeper.ring_file import CAPACITY_MIN_BYTES, CONSUMED, HEAD, RECORD, RESERVED
from tests.keeper.terminals import read_ring
from tests.support.cases import each_case


@pytest.fixture
def files():
    """Return a function that creates a ring and maps it twice, like keeper and worker."""
    opened = []

    def make(size=CAPACITY_MIN_BYTES):
        fd, written = ring_file.create_ring(size)
        opened.append((fd, written, read := ring_file.map_ring(fd)))
        return written, read

    yield make
    for fd, written, read in opened:
        written.close()
        read.close()
        os.close(fd)


def write(file, data):
    """Write bytes as the keeper does, but one at a time."""
    for byte in data:
        head = file.header[HEAD]
        file.header[RESERVED] = head + 1
        file.data[head % file.capacity] = byte
        file.header[HEAD] = head + 1


def test_capacity_is_rounded_up_to_whole_pages():
    assert ring_file.capacity_for(0) == CAPACITY_MIN_BYTES
    assert ring_file.capacity_for(CAPACITY_MIN_BYTES + 1) == CAPACITY_MIN_BYTES + 4096
    assert ring_file.capacity_for(1 << 20) == 1 << 20


def test_free_bytes_grow_when_output_is_consumed(files):
    written, read = files()
    assert written.free_bytes() == written.capacity
    write(written, bytes(1000))
    assert written.free_bytes() == written.capacity - 1000
    read.header[CONSUMED] = 400
    assert written.free_bytes() == written.capacity - 600


@pytest.mark.skipif(not hasattr(mmap, "MADV_REMOVE"), reason="the system cannot punch holes")
@pytest.mark.parametrize("head", [70_000, 131_072, 150_000, 200_001])
@pytest.mark.parametrize("kept", [0, 1, 5000, 40_000, 65_536])
def test_only_free_pages_are_released(head, kept):
    fd, file = ring_file.create_ring(CAPACITY_MIN_BYTES)
    try:
        data = random.Random(head).randbytes(head)
        for at in range(0, head, 1000):
            write(file, data[at : at + 1000])
        file.header[CONSUMED] = head - kept
        file.write_record(b"the record")
        file.release_free_pages()
        position, read = read_ring(file, head - kept, kept)
        assert (position, read) == (head - kept, data[head - kept :])
        assert file.record() == b"the record"
        # The header, the record, and each page with unconsumed output.
        assert os.fstat(fd).st_blocks * 512 <= (2 + kept // 4096 + 3) * 4096
        write(file, b"more")
        assert read_ring(file, head, 10) == (head, b"more")
    finally:
        file.close()
        os.close(fd)


def test_record_is_replaced_as_a_whole(files):
    written, read = files()
    assert read.record() == b""
    assert written.write_record(b"first")
    before = read.header[RECORD]
    assert read.record() == b"first"
    assert written.write_record(b"second, and longer")
    # The previous record is intact, in case the keeper dies just before the last store.
    after, read.header[RECORD] = read.header[RECORD], before
    assert read.record() == b"first"
    read.header[RECORD] = after
    assert read.record() == b"second, and longer"


def test_records_never_overlap_whatever_their_sizes(files):
    written, read = files()
    draw = random.Random(2)
    kept = b""
    for _ in range(300):
        record = draw.randbytes(draw.choice([0, 1, 100, 30_000, 60_000, 70_000]))
        before = read.header[RECORD]
        if written.write_record(record):
            after, read.header[RECORD] = read.header[RECORD], before
            assert read.record() == kept
            read.header[RECORD] = after
            kept = record
        assert read.record() == kept


def test_small_records_stay_in_the_first_pages(files):
    written, read = files()
    for number in range(1000):
        assert written.write_record(b"%d" % number * 200)
        location = read.header[RECORD]
        assert (location >> 32) + (location & 0xFFFFFFFF) < 4096


def test_file_that_is_no_ring_is_refused(tmp_path, files):
    path = tmp_path / "file"
    path.write_bytes(b"short")
    with open(path, "r+b") as file:
        with pytest.raises(ring_file.RingError, match="has at least"):
            ring_file.map_ring(file.fileno())
        file.truncate(1 << 20)
        with pytest.raises(ring_file.RingError, match="not a ring file of this layout: magic"):
            ring_file.map_ring(file.fileno())


def test_views_stay_valid_when_the_file_is_closed(files):
    fd, written = ring_file.create_ring(0)
    view = written.data[:10]
    written.close()
    view[0] = 1
    assert view[0] == 1
    os.close(fd)


@each_case("data", [b"", b"abc", b"x" * 4096, b"a\xffb"])
@each_case("head", [0, 1000, ring_file.CAPACITY_MIN_BYTES - 2])
def test_interrupted_read_is_recovered_after_the_keeper_was_killed(data, head):
    fd, file = ring_file.create_ring(ring_file.CAPACITY_MIN_BYTES)
    try:
        file.header[ring_file.HEAD] = file.header[ring_file.CONSUMED] = head
        file.header[ring_file.RESERVED] = head + 64 * 1024
        file.mark_unread(head, head + 64 * 1024)
        at = head % file.capacity
        # The keeper reads no further than to the end of the ring.
        kept = data[: file.capacity - at]
        file.data[at : at + len(kept)] = kept
        file.recover()
        recovered = len(kept.rstrip(b"\xff"))
        assert file.header[ring_file.HEAD] == file.header[ring_file.RESERVED] == head + recovered
    finally:
        file.close()
        os.close(fd)


@pytest.mark.parametrize("filled", [0, 1, 100, 4096])
def test_old_output_is_not_recovered_after_the_keeper_was_killed_before_the_read(filled):
    fd, file = ring_file.create_ring(ring_file.CAPACITY_MIN_BYTES)
    try:
        file.data[:] = b"o" * file.capacity
        head = file.capacity
        file.mark_unread(head - 4096, head)
        file.header[ring_file.HEAD] = file.header[ring_file.CONSUMED] = head
        file.header[ring_file.RESERVED] = head + 64 * 1024
        # The keeper was killed while it filled the space of the next read.
        file.data[:filled] = ring_file.UNREAD[:filled]
        file.recover()
        assert file.header[ring_file.HEAD] == file.header[ring_file.RESERVED] == head
    finally:
        file.close()
        os.close(fd)
