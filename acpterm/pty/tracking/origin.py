"""Where a process comes from: all evidence of the terminals that it, or an ancestor, is of.

A process can get rid of most evidence, and can forge some. So nothing is weighed here: every
terminal that any evidence names is returned, and the caller lets in only what none speaks against.
"""

import os
import resource
from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

from acpterm.pty import linux, processes
from acpterm.pty.linux import ProcStat
from acpterm.pty.tracking import cgroup, marks

_TRIES: Final = 5


class KnownTree(Protocol):
    """The processes of one terminal. See `subreaper.DescendantTree`."""

    @property
    def name(self) -> str:
        """The terminal's id."""

    @property
    def tag(self) -> int:
        """The resource limit that marks its processes."""

    def has(self, process: ProcStat) -> bool:
        """Return whether a process is of the terminal, as far as that is known without marks."""


class Origin(NamedTuple):
    """Where a process comes from."""

    ancestry: tuple[ProcStat, ...]
    """The process and its ancestors, up to the one that starts programs, or as far as visible."""
    terminals: frozenset[str]
    """The ids of terminals that some evidence names: descent, session, control group, marks."""
    is_descendant: bool
    """Whether it descends from the process that starts programs."""
    is_foreign: bool
    """Whether it bears the mark of a terminal, or is in its group, that is not open here."""


def find_origin(
    pid: int, *, parent: int, trees: Collection[KnownTree], base: str | None
) -> Origin | None:
    """Return where a process comes from; None if its ancestors changed during each look.

    `parent`: the process that starts programs and adopts their orphans. `base`: the name of the
    directory of the trees' control groups. Raises `OSError` when no descriptor is left to look.
    """
    for _ in range(_TRIES):
        line, top = _ancestry(pid, parent)
        found = _evidence(line, trees, base)
        # An ancestor that ended meanwhile has given its child to another parent.
        if line and _identities(_ancestry(pid, parent)[0]) == _identities(line):
            return Origin(tuple(line), found[0], top in (parent, os.getpid()), found[1])
    return None


def _identities(line: list[ProcStat]) -> list[tuple[int, float]]:
    return [(process.pid, process.started) for process in line]


def _ancestry(pid: int, parent: int) -> tuple[list[ProcStat], int]:
    """Return a process with its ancestors, and the pid of the one above the last of them."""
    line: list[ProcStat] = []
    while pid not in (0, parent, os.getpid()):
        process = processes.identity(pid)
        if process is None or (line and process.started > line[-1].started):
            break
        line.append(process)
        pid = process.ppid
    return line, 0 if pid == 1 else pid


def _evidence(
    line: list[ProcStat], trees: Collection[KnownTree], base: str | None
) -> tuple[frozenset[str], bool]:
    """Return the terminals that are named, and whether there is one that is not open here."""
    names: set[str] = set()
    tags: set[int] = set()
    is_foreign = False
    # A daemon that was itself started in a terminal has that one's marks and groups.
    own_groups = cgroup.terminals_of("self")
    own_name = os.environ.get(marks.TERMINAL)
    own_tag = resource.getrlimit(linux.RLIMIT_LOCKS)[0] if linux.AVAILABLE else None
    for process in line:
        names.update(tree.name for tree in trees if tree.has(process))
        found = marks.read(process.pid)
        if found.terminal not in (None, own_name):
            names.add(found.terminal or "")
        if found.tag not in (None, own_tag):
            tags.add(found.tag or 0)
        for group, terminal in cgroup.terminals_of(process.pid) - own_groups:
            if group == base:
                names.add(terminal)
            else:
                is_foreign = True
    for tag in tags:
        owners = {tree.name for tree in trees if tree.tag == tag}
        names |= owners
        if not owners and tag not in map(marks.tag, names):
            is_foreign = True
    return frozenset(names), is_foreign
