"""Plans a change of one file, carries it out, and records it for `--undo`.

Nothing is written until `apply`, which fails if the file has changed since the plan was made.
`plan_setup` first takes the entries of an earlier setup out. So a second setup replaces the first,
and `--undo` then restores the contents that the file had before the first one.

Each target (see `targets`) has one record, a JSON file in the state directory. A record has only
the bytes that the change has removed, since the rest of the settings may have secrets. They are
used as long as the file is as the change has left it; else `--undo` removes the entries from the
present contents. A record that is lost or damaged is not an error.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import unified_diff
from hashlib import sha256

import msgspec

from acpterm.setup import files
from acpterm.setup.files import SetupError
from acpterm.setup.targets import Target


class FileChange(msgspec.Struct, frozen=True):
    """One change of a file: at `offset`, `inserted` bytes have replaced the bytes `removed`."""

    path: str
    digest: str
    """SHA-256 of the file after the change."""
    offset: int
    removed: bytes
    inserted: int
    is_new: bool
    """Whether the change has created the file."""
    directories: list[str]
    """Directories that were created for the file."""
    parents: int
    """Number of objects in the settings that were created around the entries."""

    def original(self, content: bytes) -> bytes | None:
        """Return the contents before the change that has left `content`; None if no file."""
        end = self.offset + self.inserted
        return None if self.is_new else content[: self.offset] + self.removed + content[end:]


class Journal:
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def load(self, name: str) -> FileChange | None:
        try:
            with open(self._file(name), "rb") as file:
                return msgspec.json.decode(file.read(), type=FileChange)
        except (OSError, msgspec.MsgspecError):
            return None

    @contextmanager
    def recorded(self, name: str, record: FileChange) -> Iterator[None]:
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
        with suppress(OSError):
            os.unlink(self._file(name))

    def _file(self, name: str) -> str:
        return os.path.join(self._directory, f"{name}.json")


@dataclass(frozen=True)
class Plan:
    """A change of a target's file from the contents `before` to `after`; None means no file."""

    target: Target
    before: bytes | None
    after: bytes | None
    original: bytes | None
    """The contents without acpterm's entries, which `--undo` restores."""
    is_undo: bool = False
    parents: int = 0
    """Number of objects in the settings that are created around the entries."""
    directories: Sequence[str] = ()
    """Directories that an earlier setup has created for the file."""

    @property
    def is_needed(self) -> bool:
        return self.before != self.after

    def diff(self) -> list[str]:
        """Return a unified diff with whole lines, since the user decides by it."""
        old, new = self.before, self.after
        one, other = (self.target.path if side is not None else "/dev/null" for side in (old, new))
        return list(unified_diff(_lines(old), _lines(new), one, other, lineterm=""))


def plan_setup(target: Target, journal: Journal) -> Plan:
    """Plan to write acpterm's part into the file, in place of that of an earlier setup."""
    before = files.read(target.path)
    if target.is_set_up(before):
        return Plan(target, before, before, before)
    files.check_writable(target.path)
    original, directories = _original(target, before, journal.load(target.name))
    after, parents = target.within(original, before)
    return Plan(target, before, after, original, parents=parents, directories=directories)


def plan_undo(target: Target, journal: Journal) -> Plan:
    """Plan to take acpterm's part out."""
    before = files.read(target.path)
    original, directories = _original(target, before, journal.load(target.name))
    if before != original:
        files.check_writable(target.path)
    return Plan(target, before, original, original, is_undo=True, directories=directories)


def apply(plan: Plan, journal: Journal) -> None:
    """Change the file as planned, unless it has changed since: then raise `SetupError`."""
    target = plan.target
    if plan.after is None:
        files.delete(target.path, plan.before)
        files.remove_directories(plan.directories)
        journal.drop(target.name)
        return
    if plan.is_undo:
        files.replace(target.path, plan.before, plan.after, target.mode)
        journal.drop(target.name)
        return
    directories = [*plan.directories, *files.missing_directories(target.path)]
    old, after = plan.original or b"", plan.after
    # The change is recorded as one piece, from the first byte that differs to the last one.
    start = _common_length(old, after)
    common = _common_length(old[start:][::-1], after[start:][::-1])
    record = FileChange(
        path=target.path,
        digest=sha256(after).hexdigest(),
        offset=start,
        removed=old[start : len(old) - common],
        inserted=len(after) - common - start,
        is_new=plan.original is None,
        directories=directories,
        parents=plan.parents,
    )
    # Store the record first: without it, the change could not be undone byte for byte.
    with journal.recorded(target.name, record):
        files.replace(target.path, plan.before, after, target.mode)


def _common_length(one: bytes, other: bytes) -> int:
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def _original(
    target: Target, content: bytes | None, record: FileChange | None
) -> tuple[bytes | None, Sequence[str]]:
    """Return the contents without acpterm's part, and the directories that acpterm created."""
    if content is None:
        return None, ()
    if record is None or record.path != target.path:
        return target.without(content, 0), ()
    if record.digest == sha256(content).hexdigest():
        return record.original(content), record.directories
    return target.without(content, record.parents), record.directories


def _lines(content: bytes | None) -> list[str]:
    return (content or b"").decode(errors="replace").removeprefix("\ufeff").splitlines()
