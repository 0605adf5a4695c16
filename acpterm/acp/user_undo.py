"""The user's requests of ``acpterm undo``: list snapshots, show what would change, and restore.

The id of a snapshot is its time in milliseconds since 1970. Agents and shares have no such methods.
"""

from typing import Annotated, Literal

from msgspec import Meta, field

from acpterm.acp.base import Wire
from acpterm.acp.user_api import TerminalName
from acpterm.acp.user_review import Milliseconds

SnapshotId = Annotated[str, Meta(pattern="^[0-9]{13}$", description="the id of a snapshot")]


class UndoRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/undo/list``.

    The directory is that of a terminal, or `cwd`; one of the two is needed.
    """

    terminal_id: TerminalName | None = None
    cwd: Annotated[str | None, Meta(description="an absolute path")] = None


class UndoPlanRequest(UndoRequest, omit_defaults=True):
    """The params of ``_acpterm/undo/plan``: return what would be restored, and restore nothing.

    The target is the newest snapshot before `before`, or before the command of the terminal; with
    `cwd` alone, it is the newest one that differs from the directory.
    """

    before: Milliseconds | None = None


class UndoRestoreRequest(Wire):
    """The params of ``_acpterm/undo/restore``: restore what ``_acpterm/undo/plan`` has returned.

    `directory`, `to` and `digest` are from its response. It fails if the directory has changed
    since.
    """

    directory: str
    to: SnapshotId
    digest: str


class UndoSnapshot(Wire):
    """A snapshot, and before what it was taken.

    `why` begins with ``during`` if a command began before the snapshot was complete.
    """

    id: SnapshotId
    why: str


class UndoListResponse(Wire):
    """The response to ``_acpterm/undo/list``: snapshots of `directory`, the oldest first."""

    directory: str
    snapshots: list[UndoSnapshot]


class UndoChange(Wire):
    """A change of a path in the directory."""

    path: str
    what: Literal["restore", "remove", "change", "mode"]


class UndoPlanResponse(Wire):
    """The response to ``_acpterm/undo/plan``.

    `directory` is what was kept: the directory, or its repository. `to` is the snapshot, and `why`
    says before what it was taken. `changes` are the first 1000; `omitted` is how many more there
    are. `diffstat` is git's summary of the files' changes. `note` says what is not restored, and
    may be empty. `running` are terminals in which something runs that may write there.
    """

    directory: str
    to: SnapshotId
    why: str
    changes: list[UndoChange]
    omitted: int
    diffstat: str
    note: str
    digest: str
    running: list[str] = field(default_factory=list)


class UndoRestoreResponse(Wire):
    """The response to ``_acpterm/undo/restore``: `failures` are what was not restored, and why."""

    failures: list[str]
