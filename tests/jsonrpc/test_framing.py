"""The line splitter compared with a slow, simple model."""

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpterm.jsonrpc import LineSplitter, Oversized

STREAMS = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b" ", b"a", b"bc", b"\xff", b"{}", b"x" * 9])
).map(b"".join)


def split(data: bytes, positions: list[int]) -> list[bytes]:
    at = sorted({min(position, len(data)) for position in positions})
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


def model(data: bytes, limit: int) -> tuple[list[bytes | Oversized], bytes]:
    *lines, rest = data.split(b"\n")
    out: list[bytes | Oversized] = []
    for line in lines:
        if len(line) > limit:
            out.append(Oversized(len(line)))
        elif line.strip():
            out.append(line[:-1] if line.endswith(b"\r") else line)
    return out, rest if len(rest) <= limit else b""


@given(STREAMS, st.lists(st.integers(0, 60)), st.integers(1, 12))
def test_splitter_returns_the_lines_of_the_model_for_any_split(data, positions, limit):
    splitter = LineSplitter(limit)
    got = [line for part in split(data, positions) for line in splitter.feed(part)]
    expected, rest = model(data, limit)
    assert got == expected
    assert splitter.close() == rest
    assert splitter.feed(b"new\n") == ([b"new"] if limit >= 3 else [Oversized(3)])


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_splitter_returns_the_lines_of_the_model_for_random_bytes(data, positions):
    splitter = LineSplitter()
    got = [line for part in split(data, positions) for line in splitter.feed(bytearray(part))]
    assert got == model(data, 1000)[0]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_feed_accepts_every_bytes_type(kind):
    splitter = LineSplitter()
    assert splitter.feed(kind(b"ab")) == []
    out = splitter.feed(kind(b"c\r\n\nd\n"))
    assert out == [b"abc", b"d"]
    assert all(type(line) is bytes for line in out)


def test_buffer_can_be_reused_after_feed():
    splitter = LineSplitter()
    buffer = bytearray(b"half")
    splitter.feed(memoryview(buffer))
    buffer[:] = b"XXXX"
    assert splitter.feed(b"\n") == [b"half"]


@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_line_over_the_limit_is_reported_once_and_the_next_line_is_returned(pieces):
    splitter = LineSplitter(100)
    assert splitter.feed(b"a" * 100 + b"\n") == [b"a" * 100]
    data = b"b" * 101 + b"\nnext\n" + b"c" * 900 + b"\n" + b"d" * 100 + b"\n"
    size = -(-len(data) // pieces)
    got = [x for i in range(0, len(data), size) for x in splitter.feed(data[i : i + size])]
    assert got == [Oversized(101), b"next", Oversized(900), b"d" * 100]


def test_line_over_the_limit_is_not_retained_while_it_arrives():
    splitter = LineSplitter(1000)
    for _ in range(100):
        assert splitter.feed(b"x" * 999) == []
        assert len(splitter._partial) <= 1000
    assert splitter.close() == b""


@pytest.mark.long
def test_long_line_takes_linear_time_when_it_arrives_in_small_pieces():
    def seconds(pieces: int) -> float:
        splitter = LineSplitter()
        begin = time.process_time()
        for _ in range(pieces):
            splitter.feed(b"x" * 64)
        assert splitter.feed(b"\n") == [b"x" * 64 * pieces]
        return time.process_time() - begin

    # Scanning again from the start of the line would be about 100 times slower, not 10.
    assert min(seconds(100_000) for _ in range(3)) < 40 * min(seconds(10_000) for _ in range(3))


def test_splitter_refuses_a_limit_below_one():
    with pytest.raises(ValueError, match="max_line is 0"):
        LineSplitter(0)


def test_only_the_last_carriage_return_is_removed():
    assert LineSplitter().feed(b"a\r\r\nb\r\n\r\n \r\n") == [b"a\r", b"b"]


LIMITED = """
import resource
from acpterm.jsonrpc import LineSplitter, Oversized, Peer

def size():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()

part, parts = b"x" * (1 << 20), 40
for splitter in (LineSplitter(), Peer()):
    feed = getattr(splitter, "feed", None) or splitter.receive_data
    resource.setrlimit(resource.RLIMIT_AS, (size() + (24 << 20), resource.RLIM_INFINITY))
    for _ in range(parts):
        assert feed(part) == []
    (found,) = feed(b"\\n")
    message = str(found)
    assert "41943040" in message, message
    (found,) = feed(b"{}\\n")
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_line_without_memory_for_it_is_dropped_and_the_next_one_is_read():
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
