"""The origin of a process: all terminals to which the process or an ancestor may belong.

A process can remove most of the evidence of its origin, and can forge some. So this module does not
weigh the evidence: it returns every terminal that any evidence names. A caller that must refuse the
processes of a terminal must refuse a process if any evidence names that terminal.
"""

import os
import resource
from collections.abc import Collection
from typing import Final, NamedTuple

from acpterm.pty import linux, processes
from acpterm.pty.linux import ProcStat
from acpterm.pty.tracking import cgroup, marks
from acpterm.pty.tracking.tree import ProcessTree

_ATTEMPTS_MAX: Final = 5


class Origin(NamedTuple):
    """The terminals that a process may come from, and the process's ancestors."""

    # itself first, up to the process that starts programs, without it
    ancestry: tuple[ProcStat, ...]
    terminals: frozenset[str]  # ids that any evidence names: descent, session, control group, marks
    is_descendant: bool  # of this process, or of the one that starts programs
    is_foreign: bool  # there is evidence of a terminal of another daemon, or an unknown one


def find_origin(
    pid: int, *, parent: int, trees: Collection[ProcessTree], base: str | None
) -> Origin | None:
    """Return the terminals from which a process may come.

    None if its ancestors keep changing, or if `/proc` hides it. `base` is the name of the directory
    of our control groups. Raises `OSError` if no descriptor is free.
    """
    for _ in range(_ATTEMPTS_MAX):
        ancestry, top = _ancestry(pid, parent)
        terminals, is_foreign = _evidence(ancestry, trees, base)
        # Read the ancestry again: if an ancestor has ended meanwhile, its child has another parent.
        if ancestry and _identities(_ancestry(pid, parent)[0]) == _identities(ancestry):
            return Origin(tuple(ancestry), terminals, top in (parent, os.getpid()), is_foreign)
    return None


def _identities(ancestry: list[ProcStat]) -> list[tuple[int, float]]:
    return [(process.pid, process.started) for process in ancestry]


def _ancestry(pid: int, parent: int) -> tuple[list[ProcStat], int]:
    """Return the process with its ancestors, and the pid at which the search for them ended."""
    # 0 in place of 1: to be a child of process 1 proves nothing, since it adopts orphans from
    # everywhere.
    ancestry: list[ProcStat] = []
    while pid not in (0, parent, os.getpid()):
        process = processes.identity(pid)
        if process is None or (ancestry and process.started > ancestry[-1].started):
            break
        ancestry.append(process)
        pid = process.ppid
    return ancestry, 0 if pid == 1 else pid


def _evidence(
    ancestry: list[ProcStat], trees: Collection[ProcessTree], base: str | None
) -> tuple[frozenset[str], bool]:
    """Return `Origin.terminals` and `Origin.is_foreign`."""
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
