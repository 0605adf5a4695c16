"""The ring of a terminal: positions, lost bytes and capacity."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpterm.terminal.private_ring import PrivateRing
from tests.terminal.models import RingModel


def test_positions_are_absolute_and_only_grow():
    ring = PrivateRing(4)
    assert (ring.start, ring.end) == (0, 0)
    ring.write(b"abc")
    assert (ring.start, ring.end) == (0, 3)
    ring.write(b"defg")
    assert (ring.start, ring.end) == (3, 7)
    assert ring.read(3, None) == (b"defg", 3, 0)


def test_read_reports_lost_bytes():
    ring = PrivateRing(4)
    ring.write(b"abcdefg")
    assert ring.read(1, None) == (b"defg", 3, 2)
    assert ring.read(1, 2) == (b"de", 3, 2)
    assert ring.read(7, None) == (b"", 7, 0)


def test_max_bytes_returns_the_oldest_bytes():
    ring = PrivateRing(4)
    ring.write(b"abc")
    ring.write(b"def")
    assert ring.read(2, 3) == (b"cde", 2, 0)
    assert ring.read(2, 0) == (b"", 2, 0)


@pytest.mark.parametrize("since", [-1, 4])
def test_read_outside_the_stream_raises_with_the_values(since):
    ring = PrivateRing(2)
    ring.write(b"abc")
    with pytest.raises(ValueError, match=rf"{since}; the stream is at 0 to 3"):
        ring.read(since, None)


def test_negative_sizes_raise():
    with pytest.raises(ValueError, match="-1"):
        PrivateRing(-1)
    with pytest.raises(ValueError, match="-2"):
        PrivateRing(1).read(0, -2)


def test_capacity_0_retains_nothing_and_counts():
    ring = PrivateRing(0)
    ring.write(b"abc")
    assert (ring.start, ring.end) == (3, 3)
    assert ring.read(1, None) == (b"", 3, 2)


def test_write_larger_than_the_capacity_retains_its_end():
    ring = PrivateRing(3)
    ring.write(b"a")
    ring.write(memoryview(b"bcdefghij"))
    assert ring.read(0, None) == (b"hij", 7, 7)


def test_buffer_grows_with_the_output_up_to_the_capacity():
    ring = PrivateRing(1 << 20)
    ring.write(b"$ ")
    assert sys.getsizeof(ring._buffer) < 200
    for _ in range(100):
        ring.write(b"x" * 65536)
    assert sys.getsizeof(ring._buffer) <= 1.13 * (1 << 20)


@given(
    st.integers(0, 20),
    st.lists(st.binary(max_size=30)),
    st.integers(0, 400),
    st.none() | st.integers(0, 25),
)
def test_ring_agrees_with_the_model(capacity, writes, since, max_bytes):
    ring, model = PrivateRing(capacity), RingModel(capacity)
    for data in writes:
        ring.write(data)
        model.write(data)
        at = since % (ring.end + 1)
        assert ring.end == len(model.data)
        assert ring.end - ring.start == min(capacity, ring.end)
        assert ring.read(at, max_bytes) == model.read(at, max_bytes)
