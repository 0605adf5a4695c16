"""Reads the audit log from the oldest entry on, and follows it: old files, then the current one.

States of a reader: *between* files; *open*, at a position in a file, which is always the start of a
line. At the end of a file that was rotated, the reader continues with the next newer file. At the
end of the current file `read` returns. A later call continues from there, even if the file was
rotated meanwhile. If the file was rotated so often that it was removed, the reader continues with
the oldest file.

An incomplete line is read later, when it is complete. A line that is not an entry is skipped, and
counted. Memory does not depend on the size of the files.
"""

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from acpterm.audit.entry import FILE_NAME, LATE_S, Entry
from acpterm.audit.log_files import CHUNK_BYTES, ENTRY_BYTES_MAX, find_files, open_file, status_of


class LogLine(NamedTuple):
    """A line of the log that is a valid entry."""

    text: bytes
    """The line without its newline."""
    entry: Entry
    """The decoded entry."""


class AuditReader:
    """Reads the audit log in `directory`, skipping old files with only entries before `since`."""

    def __init__(self, directory: str, since: float | None = None) -> None:
        self.skipped = 0
        """The number of lines that were skipped because they are not entries."""
        self._directory: Final = directory
        self._oldest_mtime: Final = None if since is None else since - LATE_S
        self._fd = -1
        self._position = 0
        self._decoder: Final = msgspec.json.Decoder(Entry)

    def read(self) -> Iterator[LogLine]:
        """Yield the entries from the position to the current end of the log. Raises `OSError`."""
        while self._fd >= 0 or self._open_next(None):
            while lines := self._read_lines():
                yield from self._entries(lines)
            identity = os.fstat(self._fd)
            if os.path.samestat(identity, status_of(self._directory, FILE_NAME) or identity):
                return
            # The file was rotated. Lines may have been appended to it after the last read.
            while lines := self._read_lines():
                yield from self._entries(lines)
            if not self._open_next(identity):
                return

    def close(self) -> None:
        """Close the open file, if there is one. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _open_next(self, current: os.stat_result | None) -> bool:
        """Open the file that is newer than `current`; return False if there is none."""
        # If `current` was removed, that is the oldest file. A rotation meanwhile: search again.
        while True:
            found = find_files(self._directory)
            if current is None:
                found = [item for item in found if self._is_wanted(*item)]
            else:
                places = [os.path.samestat(status, current) for _, status in found]
                if True in places:
                    found = found[places.index(True) + 1 :]
            if not found:
                return False
            fd = open_file(self._directory, *found[0])
            if fd is not None:
                self.close()
                self._fd, self._position = fd, 0
                return True

    def _is_wanted(self, name: str, status: os.stat_result) -> bool:
        is_old = self._oldest_mtime is not None and status.st_mtime < self._oldest_mtime
        return name == FILE_NAME or not is_old

    def _read_lines(self) -> bytes:
        """Return some whole lines of the open file, and advance past them; nothing at its end."""
        if os.fstat(self._fd).st_size < self._position:
            self._position = 0  # another program has truncated the file
        chunk = os.pread(self._fd, CHUNK_BYTES, self._position)
        end = chunk.rfind(b"\n") + 1
        if not end and len(chunk) == CHUNK_BYTES:
            chunk = os.pread(self._fd, ENTRY_BYTES_MAX, self._position)
            end = chunk.rfind(b"\n") + 1
            if not end and len(chunk) == ENTRY_BYTES_MAX:
                # The line is too long for an entry. Skip this part; the rest is no entry either.
                end = len(chunk)
                chunk = b"\n" * end
        self._position += end
        return chunk[:end]

    def _entries(self, lines: bytes) -> Iterator[LogLine]:
        for text in lines.split(b"\n"):
            if not text.strip():
                continue
            try:
                yield LogLine(text, self._decoder.decode(text))
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.skipped += 1
