"""Starts agents' terminals with limits, in a host in this process, as `terminal/create` does."""

import os
from typing import Any

from acpterm.config.profiles import Limits, Profile
from acpterm.host.entry import TerminalEntry
from acpterm.host.host import Host
from acpterm.host.launch.launch import Creator, Judgement, Launch
from acpterm.host.launch.placement import Placement
from acpterm.policy.verdict import Level, Verdict
from acpterm.runtime.exec_context import current


def judged(limits: Limits, *, strict: bool = True) -> Judgement:
    """Return the judgement on a safe command, by a profile with `limits`."""
    profile = Profile(
        name="limited", limits=limits, unenforceable_limits="refuse" if strict else "warn"
    )
    verdict = Verdict(Level.SAFE, "allow", None, "", (), None, is_shell=False)
    return Judgement((profile,), profile, verdict, Level.SAFE, True, False, "local", "/")


async def start(host: Host, line: str, *, strict: bool = True, **limits: Any) -> TerminalEntry:
    """Start a shell line in a terminal with `limits`; return the terminal's entry.

    `limits` are the fields of `Limits`. If `strict`, a limit that cannot be enforced is an error.
    """
    launch = Launch(
        settings=host.settings,
        context=current(),
        command="/bin/sh",
        args=["-c", line],
        cwd="/",
        judgement=judged(Limits(**limits), strict=strict),
        creator=Creator("c1"),
    )
    writer = host.terminals.writer
    placement = Placement(host.guard.policy.provider("local"), workspace="/")
    terminal, record = await launch.start(host.terminals.pool, placement, writer)
    entry = TerminalEntry(terminal, record, writer)
    host.terminals.add(entry, os.environ)
    return entry
