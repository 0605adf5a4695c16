"""Records what `acpterm setup` has changed, so that `--undo` can restore it byte for byte.

Each target (a settings file, and what acpterm writes into it: see `targets`) has one record, a JSON
file in the state directory. The record has only the bytes that the change has removed, not the
whole settings file, since that may have secrets. These bytes are only used as long as the settings
file is as the change has left it. If the settings file was written since, `--undo` removes the
entries from the present contents instead. A record that is lost or damaged is not an error.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256

import msgspec

from acpterm.client.setup import files
from acpterm.client.setup.files import SetupError


class Record(msgspec.Struct, frozen=True):
    """One change of a file: at `offset`, the bytes `removed` were replaced by other bytes."""

    path: str
    digest: str
    """SHA-256 of the file after the change."""
    offset: int
    removed: bytes
    inserted: int
    """Number of bytes that were inserted."""
    is_new: bool
    """Whether the change has created the file."""
    directories: list[str]
    """Directories that were created for the file."""
    parents: int
    """Number of objects in the settings that were created around the entries."""


def make_record(
    path: str, before: bytes | None, after: bytes, directories: list[str], parents: int
) -> Record:
    """Return the record of a change of the file at `path` from the contents `before` to `after`."""
    old = before or b""
    # The change is recorded as one piece, from the first byte that differs to the last one.
    start = common_length(old, after)
    common = common_length(old[start:][::-1], after[start:][::-1])
    return Record(
        path=path,
        digest=sha256(after).hexdigest(),
        offset=start,
        removed=old[start : len(old) - common],
        inserted=len(after) - common - start,
        is_new=before is None,
        directories=directories,
        parents=parents,
    )


def common_length(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the number of equal items at the beginning of both sequences."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def matches(record: Record, path: str, content: bytes | None) -> bool:
    """Return whether the file at `path` still is as the recorded change has left it."""
    return (
        content is not None and record.path == path and record.digest == sha256(content).hexdigest()
    )


def reverted(record: Record, content: bytes) -> bytes | None:
    """Return the contents before the change; None if there was no file."""
    if record.is_new:
        return None
    end = record.offset + record.inserted
    return content[: record.offset] + record.removed + content[end:]


class Journal:
    """The records in the directory at the path `directory`."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def load(self, name: str) -> Record | None:
        """Return the record of the target `name`; None if it is missing or damaged."""
        try:
            with open(self._file(name), "rb") as file:
                return msgspec.json.decode(file.read(), type=Record)
        except (OSError, msgspec.MsgspecError):
            return None

    @contextmanager
    def recorded(self, name: str, record: Record) -> Iterator[None]:
        """Store the record of the target `name`, and restore the earlier one if the block fails."""
        path, new = self._file(name), msgspec.json.encode(record)
        old = files.read(path)
        files.replace(path, old, new, 0o600)
        try:
            yield
        except BaseException:
            with suppress(SetupError):
                if old is None:
                    files.delete(path, new)
                else:
                    files.replace(path, new, old, 0o600)
            raise

    def drop(self, name: str) -> None:
        """Delete the record of the target `name`, if there is one."""
        with suppress(OSError):
            os.unlink(self._file(name))

    def _file(self, name: str) -> str:
        return os.path.join(self._directory, f"{name}.json")
