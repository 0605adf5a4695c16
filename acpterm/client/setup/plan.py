"""Plans a change of one file, and carries it out.

A target (see `targets`) is the file, and what acpterm writes into it: entries among other settings,
or the whole file if the file is acpterm's skill (instructions for an agent). A `Plan` has the
contents of the file before and after the change. Nothing is written until `apply`, which fails if
the file has changed since the plan was made. `plan_setup` first removes the entries of an earlier
setup from the contents. So a second setup replaces the first one, and `--undo` then restores the
contents that the file had before the first setup.
"""

from dataclasses import dataclass
from difflib import unified_diff

from acpterm.client.setup import files
from acpterm.client.setup.journal import (
    Journal,
    Record,
    make_record,
    matches,
    reverted,
)
from acpterm.client.setup.targets import Target


@dataclass(frozen=True)
class Plan:
    """A change of a target's file from the contents `before` to `after`; None means no file."""

    target: Target
    before: bytes | None
    after: bytes | None
    original: bytes | None
    """The contents without acpterm's entries, which `--undo` restores."""
    is_undo: bool
    """Whether the change removes acpterm's entries."""
    parents: int
    """Number of objects in the settings that are created around the entries."""
    directories: list[str]
    """Directories that an earlier setup has created for the file."""

    @property
    def is_needed(self) -> bool:
        """Whether the contents after the change differ from those before."""
        return self.before != self.after

    def diff(self) -> list[str]:
        """Return the change as the lines of a unified diff.

        Long lines are not shortened, since the user decides by the diff whether to make the change.
        """
        old, new = (_lines(content) for content in (self.before, self.after))
        path = self.target.path
        names = (
            (path if self.before is not None else "/dev/null"),
            (path if self.after is not None else "/dev/null"),
        )
        return list(unified_diff(old, new, *names, lineterm=""))


def plan_setup(target: Target, journal: Journal) -> Plan:
    """Return the plan to write acpterm's entries, or its skill, into the target's file.

    `journal` has the record of an earlier setup, if any. Raises `SetupError` if the file cannot be
    read or written, is not valid, has another program's entry under the same name, or is a skill
    that the user has changed.
    """
    before = files.read(target.path)
    if target.is_set_up(before):
        return _plan(target, before, before)
    files.check_writable(target.path)
    record = journal.load(target.name)
    original, directories = _original(target, before, record)
    after, parents = target.within(original, before)
    return Plan(target, before, after, original, False, parents, directories)


def plan_undo(target: Target, journal: Journal) -> Plan:
    """Return the plan to undo the setup of `target`.

    If the target's file is acpterm's skill, the plan removes the file; otherwise it removes
    acpterm's entries from the file. `journal` has the record of the setup, if any. Raises
    `SetupError` if the file cannot be read or written, is not valid, or is a skill that the user
    has changed.
    """
    before = files.read(target.path)
    original, directories = _original(target, before, journal.load(target.name))
    if before != original:
        files.check_writable(target.path)
    return Plan(target, before, original, original, True, 0, directories)


def apply(plan: Plan, journal: Journal) -> None:
    """Change the file as planned.

    If the plan is a setup, record the change for `--undo`. If the plan is an undo, delete that
    record. Raises `SetupError` if the file has changed since the plan was made, or cannot be
    written.
    """
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
    # Store the record first: without it, the change could not be undone byte for byte.
    with journal.recorded(target.name, record):
        files.replace(target.path, plan.before, plan.after, target.mode)


def _plan(target: Target, before: bytes | None, after: bytes | None) -> Plan:
    return Plan(target, before, after, before, False, 0, [])


def _original(
    target: Target, content: bytes | None, record: Record | None
) -> tuple[bytes | None, list[str]]:
    """Return the contents without acpterm's changes, and the directories that acpterm created.

    `content` has the present contents. If `content` is None, there is no file, and the returned
    contents are None too. `record` is the record of the last setup, if any. If the file was not
    changed after that setup, return the contents before the setup; otherwise return what
    `target.without` returns. Raises the errors of `target.without`.
    """
    if content is None:
        return None, []
    if record is None or record.path != target.path:
        return target.without(content, 0), []
    if matches(record, target.path, content):
        return reverted(record, content), record.directories
    return target.without(content, record.parents), record.directories


def _lines(content: bytes | None) -> list[str]:
    return (content or b"").decode(errors="replace").removeprefix("\ufeff").splitlines()
