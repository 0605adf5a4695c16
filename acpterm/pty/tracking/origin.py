"""The origin of a process: all evidence that it, or an ancestor, belongs to some terminal.

A process can remove most evidence, and can forge some. So this module does not weigh evidence: it
returns every terminal that any evidence names. The caller admits only a process that no evidence
speaks against.
"""

import os
import resource
from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

from acpterm.pty import linux, processes
from acpterm.pty.linux import ProcStat
from acpterm.pty.tracking import cgroup, marks

_ATTEMPTS_MAX: Final = 5


class KnownTree(Protocol):
    """The processes of one terminal. See `descendant_tree.DescendantTree`."""

    @property
    def name(self) -> str:
        """The terminal's id."""

    @property
    def tag(self) -> int:
        """The resource limit that marks its processes."""

    def has(self, process: ProcStat) -> bool:
        """Return whether a process is known to belong to it, without reading its marks."""


class Origin(NamedTuple):
    """The origin of a process."""

    ancestry: tuple[ProcStat, ...]
    """The process and its ancestors below the one that starts programs, as far as visible."""
    terminals: frozenset[str]
    """The ids of terminals that some evidence names: descent, session, control group, marks."""
    is_descendant: bool
    """Whether it descends from the process that starts programs."""
    is_foreign: bool
    """Whether it has the mark of a terminal that is not open here, or is in its control group."""


def find_origin(
    pid: int, *, parent: int, trees: Collection[KnownTree], base: str | None
) -> Origin | None:
    """Return the origin of a process; None if its ancestors changed during every attempt.

    `parent` is the process that starts programs and adopts their orphans. `base` is the name of the
    directory of the trees' control groups. Raises `OSError` when no descriptor is left to read
    them.
    """
    for _ in range(_ATTEMPTS_MAX):
        ancestry, top = _ancestry(pid, parent)
        terminals, is_foreign = _evidence(ancestry, trees, base)
        # If an ancestor ended meanwhile, its child has got another parent.
        if ancestry and _identities(_ancestry(pid, parent)[0]) == _identities(ancestry):
            return Origin(tuple(ancestry), terminals, top in (parent, os.getpid()), is_foreign)
    return None


def _identities(ancestry: list[ProcStat]) -> list[tuple[int, float]]:
    return [(process.pid, process.started) for process in ancestry]


def _ancestry(pid: int, parent: int) -> tuple[list[ProcStat], int]:
    """Return a process with its ancestors, and the pid of the parent of the last of them."""
    ancestry: list[ProcStat] = []
    while pid not in (0, parent, os.getpid()):
        process = processes.identity(pid)
        if process is None or (ancestry and process.started > ancestry[-1].started):
            break
        ancestry.append(process)
        pid = process.ppid
    return ancestry, 0 if pid == 1 else pid


def _evidence(
    ancestry: list[ProcStat], trees: Collection[KnownTree], base: str | None
) -> tuple[frozenset[str], bool]:
    """Return the terminals that evidence names, and whether it names one that is not open here."""
    names: set[str] = set()
    tags: set[int] = set()
    is_foreign = False
    # A daemon that was itself started in a terminal has the marks and groups of that terminal.
    own_groups = cgroup.terminals_of("self")
    own_name = os.environ.get(marks.TERMINAL)
    own_tag = resource.getrlimit(linux.RLIMIT_LOCKS)[0] if linux.AVAILABLE else None
    for process in ancestry:
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
