"""Reads pages of the audit log, from the newest entry back to older ones.

A *place* names one line of the log, and stays valid when files are rotated: it has the inode of the
file, since only the name of a file changes. The inode of a file that was removed may be used again
by a newer one, so a place has a checksum of its line as well. A place whose line was removed with
the oldest file has nothing before it.

One page costs at most `SCANNED_BYTES` bytes that are read, whatever is selected. So a page may have
few entries or none, although there are more before it: then `Page.following` is set.
"""

import os
import zlib
from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from acpterm.policy.audit.entry import LATE_S, Entry, time_text
from acpterm.policy.audit.log_files import CHUNK_BYTES, LINE_BYTES_MAX, find_files, open_file
from acpterm.policy.audit.selection import Selection

SCANNED_BYTES: Final = 4 * 1024 * 1024
PAGE_BYTES: Final = 1024 * 1024
_PLACE_NUMBERS: Final = 4


class Place(NamedTuple):
    """Where a line of the log is."""

    inode: int
    offset: int
    length: int
    checksum: int

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Return the place that `str` has made `text` of. Raises `ValueError`."""
        numbers = [int(number, 16) for number in text.split(".")]
        if len(numbers) != _PLACE_NUMBERS or not all(0 <= one < 1 << 63 for one in numbers):
            raise ValueError("it is no place in the audit log")
        return cls(*numbers)

    def __str__(self) -> str:
        """Return the place as a text, for `parse`."""
        return ".".join(f"{number:x}" for number in self)


class Page(NamedTuple):
    """Some entries of the log, the newest first, each as its line."""

    entries: list[bytes]
    newest: Place | None
    """The newest line of the log, selected or not, for `read_page(after=…)`; None if unknown."""
    following: Place | None
    """For `read_page(before=…)`, if there may be older entries."""


class _Line(NamedTuple):
    text: bytes
    place: Place


def read_page(
    directory: str,
    selection: Selection,
    *,
    limit: int,
    before: Place | None = None,
    after: Place | None = None,
) -> Page:
    """Return at most `limit` selected entries, the newest first. Blocks. Raises `OSError`.

    `before` and `after` are places that an earlier page has returned: only entries that are older
    than the one, and newer than the other, are returned.
    """
    decoder = msgspec.json.Decoder(Entry)
    oldest = None if selection.since is None else _earlier(selection.since)
    entries: list[bytes] = []
    newest: Place | None = None
    scanned = size = 0
    for line in _lines(directory, before):
        if line.place == after:
            return Page(entries, newest or after, None)
        if before is None and newest is None:
            newest = line.place
        scanned += len(line.text) + 1
        try:
            line.text.decode()  # the decoder does not look into members that it does not know
            entry = decoder.decode(line.text)
            if oldest is not None and entry.time < oldest:
                break
            is_selected = selection.has(entry)
        except (msgspec.DecodeError, UnicodeDecodeError):
            is_selected = False
        if is_selected:
            entries.append(line.text)
            size += len(line.text)
        if len(entries) == limit or size > PAGE_BYTES or scanned > SCANNED_BYTES:
            return Page(entries, newest, line.place)
    return Page(entries, newest, None)


def _earlier(time: str) -> str:
    """Return a time, as in an entry, after which an entry from `time` on cannot come any more."""
    return time_text(datetime.fromisoformat(time).timestamp() - LATE_S)


def _lines(directory: str, before: Place | None) -> Iterator[_Line]:
    """Yield the lines of all files, from the last one, or the one before `before`, to the first."""
    current: os.stat_result | None = None
    while True:
        fd = _open_at(directory, before) if before else _open_older(directory, current)
        if fd is None:
            return
        try:
            current = os.fstat(fd)
            for offset, text in _lines_of(fd, before.offset if before else current.st_size):
                place = Place(current.st_ino, offset, len(text), zlib.crc32(text))
                yield _Line(text, place)
        finally:
            os.close(fd)
        before = None


def _open_at(directory: str, place: Place) -> int | None:
    """Open the file that has the line at `place`; return None if there is none any more."""
    for name, status in find_files(directory):
        if status.st_ino == place.inode and place.length <= LINE_BYTES_MAX:
            fd = open_file(directory, name, status)
            if fd is None:
                return _open_at(directory, place)  # it was rotated meanwhile
            if zlib.crc32(os.pread(fd, place.length, place.offset)) == place.checksum:
                return fd
            os.close(fd)
    return None


def _open_older(directory: str, current: os.stat_result | None) -> int | None:
    """Open the file that is older than `current`, or else the newest; None if there is none."""
    while True:
        found = find_files(directory)
        if current is not None:
            places = [os.path.samestat(status, current) for _, status in found]
            found = found[: places.index(True)] if True in places else []
        if not found:
            return None
        fd = open_file(directory, *found[-1])
        if fd is not None:
            return fd


def _lines_of(fd: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield offset and text of the whole lines of a file before `end`, the last one first."""
    rest = b""
    # What follows the last newline is no whole line, and neither is what follows a cut.
    is_cut = True
    while end > 0:
        start = max(0, end - CHUNK_BYTES)
        data = os.pread(fd, end - start, start) + rest
        offset = start + len(data)
        *begun, rest = reversed(data.split(b"\n"))
        for text in begun:
            offset -= len(text)
            if text and not is_cut:
                yield offset, text
            offset -= 1
            is_cut = False
        if len(rest) > LINE_BYTES_MAX:
            rest, is_cut = b"", True
        end = start
    if rest and not is_cut:
        yield 0, rest
