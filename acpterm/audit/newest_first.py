"""Reads pages of the audit log, from the newest entry back to older ones.

A *place* identifies one line of the log by the inode of the file and the position in it. A rotation
renames files but keeps their inodes, so a place stays valid. A new file may get the inode of a
removed file; so a place also has a checksum of its line, which shows the difference. A rotation
removes only the oldest files. So if the line of a place was removed, all older lines were removed
too, and a page before that place is empty.

An entry is *selected* if it matches the `Selection`. A page ends once about `SCANNED_BYTES` bytes
were read, even if few or none of the entries in them are selected. Then `LogPage.following` is set,
because older entries may be selected.
"""

import contextlib
import os
import zlib
from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from acpterm.audit.entry import LATE_S, Entry, time_text
from acpterm.audit.log_files import CHUNK_BYTES, ENTRY_BYTES_MAX, find_files, open_file
from acpterm.audit.selection import Selection

SCANNED_BYTES: Final = 4 * 1024 * 1024
"""A page ends once more than this number of bytes was read."""
PAGE_BYTES: Final = 1024 * 1024
"""A page ends once its entries have more than this number of bytes."""
_PLACE_NUMBERS: Final = 4


class LogPlace(NamedTuple):
    """Identifies one line of the log, also after its file was renamed by a rotation."""

    inode: int
    """The inode of the file."""
    offset: int
    """The position of the line's first byte in the file."""
    length: int
    """The length of the line in bytes, without the newline."""
    checksum: int
    """The CRC-32 of the line, without the newline."""

    @classmethod
    def parse(cls, text: str) -> "LogPlace":
        """Return the place whose `str` is `text`. Raises `ValueError` if `text` is not a place."""
        numbers = [int(number, 16) for number in text.split(".")]
        if len(numbers) != _PLACE_NUMBERS or not all(0 <= one < 1 << 63 for one in numbers):
            raise ValueError("it is no place in the audit log")
        return cls(*numbers)

    def __str__(self) -> str:
        """Return the place as a text that `parse` accepts."""
        return ".".join(f"{number:x}" for number in self)


class LogPage(NamedTuple):
    """Selected entries of the log, the newest first, each as the bytes of its line."""

    entries: list[bytes]
    newest: LogPlace | None
    """The place of the newest line of the log, selected or not, for `read_page(after=…)`.

    None if the log is empty. A page that was read with `before` does not begin at the newest line:
    then this is the given `after` if the page extends to it, otherwise None.
    """
    following: LogPlace | None
    """The place to continue from, for `read_page(before=…)`; None if no older entry is selected."""


class _Line(NamedTuple):
    text: bytes
    place: LogPlace


def read_page(
    directory: str,
    selection: Selection,
    *,
    limit: int,
    before: LogPlace | None = None,
    after: LogPlace | None = None,
) -> LogPage:
    """Return at most `limit` selected entries between two places, the newest first. Blocks."""
    decoder = msgspec.json.Decoder(Entry)
    oldest = None if selection.since is None else _earlier(selection.since)
    entries: list[bytes] = []
    newest: LogPlace | None = None
    scanned = size = 0
    for line in _lines(directory, before):
        if line.place == after:
            return LogPage(entries, newest or after, None)
        if before is None and newest is None:
            newest = line.place
        scanned += len(line.text) + 1
        try:
            # msgspec does not check the UTF-8 of members that `Entry` does not have.
            line.text.decode()
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
            return LogPage(entries, newest, line.place)
    return LogPage(entries, newest, None)


def last_of(directory: str, worker: int) -> Entry | None:
    """Return the last entry that the process `worker` wrote, in the newest `SCANNED_BYTES`."""
    decoder = msgspec.json.Decoder(Entry)
    scanned = 0
    for line in _lines(directory, None):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            if (entry := decoder.decode(line.text)).worker == worker:
                return entry
        scanned += len(line.text)
        if scanned > SCANNED_BYTES:
            break
    return None


def _earlier(time: str) -> str:
    # An entry may be up to `LATE_S` older than the entry before it.
    return time_text(datetime.fromisoformat(time).timestamp() - LATE_S)


def _lines(directory: str, before: LogPlace | None) -> Iterator[_Line]:
    """Yield the lines of all files before the place `before`, from the newest to the oldest."""
    current: os.stat_result | None = None
    while True:
        fd = _open_at(directory, before) if before else _open_older(directory, current)
        if fd is None:
            return
        try:
            current = os.fstat(fd)
            for offset, text in _lines_of(fd, before.offset if before else current.st_size):
                place = LogPlace(current.st_ino, offset, len(text), zlib.crc32(text))
                yield _Line(text, place)
        finally:
            os.close(fd)
        before = None


def _open_at(directory: str, place: LogPlace) -> int | None:
    """Return a descriptor of the file that has the line at `place`; None if it was removed."""
    for name, status in find_files(directory):
        if status.st_ino == place.inode and place.length <= ENTRY_BYTES_MAX:
            fd = open_file(directory, name, status)
            if fd is None:
                return _open_at(directory, place)  # the file was rotated meanwhile
            if zlib.crc32(os.pread(fd, place.length, place.offset)) == place.checksum:
                return fd
            os.close(fd)
    return None


def _open_older(directory: str, current: os.stat_result | None) -> int | None:
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
    """Yield offset and text of each whole line before `end`, the last first; skip too long ones."""
    rest = b""
    # The text after the last newline is not a whole line, and neither is the remaining beginning of
    # a line whose end was dropped because it is too long.
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
        if len(rest) > ENTRY_BYTES_MAX:
            rest, is_cut = b"", True
        end = start
    if rest and not is_cut:
        yield 0, rest
