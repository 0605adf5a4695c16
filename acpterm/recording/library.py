"""Lists and reads the recordings in a directory, including those of earlier daemons.

All functions block, so they run in threads. Files are found by the names that `cast_file` gives
them, and are opened relative to the directory without following links, so no other file can be
read. Between two calls a recording may grow, or may be removed.
"""

import os
import stat
import time
from calendar import timegm
from codecs import utf_8_decode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec

from acpterm.recording.cast_file import AGENT_SUFFIX, NAME, SUFFIX

LISTED_MAX: Final = 1000
PIECE_BYTES: Final = 256 * 1024
# How many bytes are read for the first line, whose title has 1000 characters at most, and for the
# last line. The last line is usually a short marker, but may be 16 KiB of output in which each byte
# is escaped.
_HEADER_BYTES: Final = 16 * 1024
_LAST_LINE_BYTES: Final = (4 * 1024, 128 * 1024)
_STARTED: Final = "%Y%m%dT%H%M%SZ"
_STAMP_CHARS: Final = len("20260131T103000Z-")


class Header(msgspec.Struct):
    """The first line of a recording."""

    width: int
    height: int
    title: str = ""


class Recording(NamedTuple):
    """A recording; `header` and `seconds` are None if the file has no valid ones."""

    name: str
    terminal: str
    is_agents: bool
    started: float
    size: int
    header: Header | None
    seconds: float | None


class Listing(NamedTuple):
    """The newest recordings of a directory, newest first, and the number of older ones."""

    recordings: list[Recording]
    omitted: int


class Piece(NamedTuple):
    """A piece of a recording, the offset of the next one, and the size of the file."""

    text: str
    end: int
    size: int


def list_recordings(directory: str) -> Listing:
    """Return the newest recordings that can be read. Raises `OSError`."""
    try:
        names = sorted(filter(NAME.fullmatch, os.listdir(directory)), reverse=True)
    except FileNotFoundError:
        return Listing([], 0)
    with _opened(directory) as fd:
        found = [_recording(fd, name) for name in names[:LISTED_MAX]]
    return Listing([one for one in found if one is not None], max(0, len(names) - LISTED_MAX))


def read_piece(directory: str, name: str, offset: int) -> Piece:
    """Return at most `PIECE_BYTES` from `offset` on, in whole characters. Raises `OSError`."""
    if not NAME.fullmatch(name):
        raise FileNotFoundError(f"{name!r} is not the name of a recording")
    with _opened(directory) as fd, _file(fd, name) as (file, size):
        data = os.pread(file, PIECE_BYTES, min(offset, size))
    is_end = offset + len(data) >= size
    text, used = utf_8_decode(data, "replace", is_end)
    return Piece(text, offset + used, size)


def _recording(directory: int, name: str) -> Recording | None:
    is_agents = name.endswith(AGENT_SUFFIX)
    try:
        started = time.strptime(name[: _STAMP_CHARS - 1], _STARTED)
        with _file(directory, name) as (file, size):
            first = os.pread(file, _HEADER_BYTES, 0).partition(b"\n")[0]
            seconds = _last_time(file, size)
    except (OSError, ValueError):
        return None
    return Recording(
        name=name,
        terminal=name[_STAMP_CHARS:].removesuffix(AGENT_SUFFIX if is_agents else SUFFIX),
        is_agents=is_agents,
        started=timegm(started),
        size=size,
        header=_header(first),
        seconds=seconds,
    )


def _header(line: bytes) -> Header | None:
    try:
        return msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _last_time(file: int, size: int) -> float | None:
    """Return the duration in seconds; None if the last event cannot be parsed."""
    for most in _LAST_LINE_BYTES:
        # Skip an incomplete line, which is still being written.
        lines = os.pread(file, most, max(0, size - most)).split(b"\n")[:-1]
        if len(lines) > 1:
            return _time(lines[-1])
        if size <= most:
            return 0.0
    return None


def _time(event: bytes) -> float | None:
    try:
        return float(msgspec.json.decode(event)[0])
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError, ValueError):
        return None


@contextmanager
def _opened(directory: str) -> Iterator[int]:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _file(directory: int, name: str) -> Iterator[tuple[int, int]]:
    """Open a regular file of the directory `directory`; yield its descriptor and size."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=directory)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(f"{name} is no regular file")
        yield fd, status.st_size
    finally:
        os.close(fd)
