"""Plans a change of one file, and carries it out.

A `Plan` has the contents of the file before and after the change. Nothing is written until `apply`,
which fails if the file has changed since. `plan_setup` first takes acpterm's earlier entries away,
so that a second setup replaces the first one, and `--undo` restores what was there before both.
"""

from dataclasses import dataclass
from difflib import unified_diff
from typing import Final

from acpterm.client.setup import files
from acpterm.client.setup.journal import (
    Journal,
    Record,
    common_length,
    make_record,
    matches,
    reverted,
)
from acpterm.client.setup.targets import Target

# A file on one line is not printed as a whole.
_LINE_MAX: Final = 160
_AROUND: Final = 30


@dataclass(frozen=True)
class Plan:
    """A change of a target's file; None is no file."""

    target: Target
    before: bytes | None
    after: bytes | None
    original: bytes | None
    """The contents without acpterm's entries, which `--undo` restores."""
    is_undo: bool
    parents: int
    directories: list[str]
    """Directories that acpterm has created for the file."""

    @property
    def is_needed(self) -> bool:
        """Return whether the change is one."""
        return self.before != self.after

    def diff(self) -> list[str]:
        """Return the lines of a unified diff. Of long lines only the part that differs is shown."""
        old, new = (_lines(content) for content in (self.before, self.after))
        path = self.target.path
        names = (
            (path if self.before is not None else "/dev/null"),
            (path if self.after is not None else "/dev/null"),
        )
        return _cut(list(unified_diff(old, new, *names, lineterm="")))


def plan_setup(target: Target, journal: Journal) -> Plan:
    """Plan to write the target. Raises `SetupError`."""
    before = files.read(target.path)
    if target.is_set_up(before):
        return _plan(target, before, before)
    files.check_writable(target.path)
    record = journal.load(target.name)
    original, directories = _original(target, before, record)
    after, parents = target.within(original, before)
    return Plan(target, before, after, original, False, parents, directories)


def plan_undo(target: Target, journal: Journal) -> Plan:
    """Plan to remove what acpterm has in the target. Raises `SetupError`."""
    before = files.read(target.path)
    original, directories = _original(target, before, journal.load(target.name))
    if before != original:
        files.check_writable(target.path)
    return Plan(target, before, original, original, True, 0, directories)


def apply(plan: Plan, journal: Journal) -> None:
    """Carry the plan out. Raises `SetupError` if the file has changed since, or is not writable."""
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
    record = make_record(target.path, plan.original, plan.after, directories, plan.parents)
    # First the record, without which the change could not be undone.
    with journal.recorded(target.name, record):
        files.replace(target.path, plan.before, plan.after, target.mode)


def _plan(target: Target, before: bytes | None, after: bytes | None) -> Plan:
    return Plan(target, before, after, before, False, 0, [])


def _original(
    target: Target, content: bytes | None, record: Record | None
) -> tuple[bytes | None, list[str]]:
    """Return the contents before acpterm's first change, and the directories that it created."""
    if content is None:
        return None, []
    if record is None or record.path != target.path:
        return target.without(content, 0), []
    if matches(record, target.path, content):
        return reverted(record, content), record.directories
    return target.without(content, record.parents), record.directories


def _lines(content: bytes | None) -> list[str]:
    return (content or b"").decode(errors="replace").removeprefix("\ufeff").splitlines()


def _cut(lines: list[str]) -> list[str]:
    """Return the lines of a diff with each long line cut to the part that differs."""
    result = list(lines)
    for at, line in enumerate(lines):
        if len(line) <= _LINE_MAX or line[0] == "@":
            continue
        other = line
        if line[0] == "-" and lines[at + 1 : at + 2] and lines[at + 1][0] == "+":
            other = lines[at + 1]
        elif line[0] == "+" and lines[at - 1][0] == "-":
            other = lines[at - 1]
        text = line[1:]
        start = common_length(text, other[1:])
        end = len(text) - common_length(text[start:][::-1], other[1 + start :][::-1])
        start, end = max(start - _AROUND, 0), max(end + _AROUND, _LINE_MAX)
        before, after = "…" if start else "", "…" if end < len(text) else ""
        result[at] = f"{line[0]}{before}{text[start:end]}{after}"
    return result
