"""Starts agents' terminals with limits, in a host in this process, as `terminal/create` does."""

import os
from typing import Any

from acpterm.config.profiles import Limits
from acpterm.host.entry import TerminalEntry
from acpterm.host.host import Host
from acpterm.host.launch.placement import Placement
from acpterm.host.launch.request import LaunchRequest
from acpterm.runtime.exec_context import current


async def start(host: Host, line: str, *, strict: bool = True, **limits: Any) -> TerminalEntry:
    """Start a shell line in a terminal with `limits`; return the terminal's entry.

    `limits` are the fields of `Limits`. If `strict`, a limit that cannot be enforced is an error.
    """
    request = LaunchRequest(
        host.settings,
        current(),
        command="/bin/sh",
        args=["-c", line],
        env=[],
        cwd="/",
        size=(80, 24),
    )
    record = request.record(line, limits=Limits(**limits))
    record.is_users, record.connection = False, "c1"
    writer = host.state.state_writer
    placement = Placement(host.state.policy.provider("local"), workspace="/")
    terminal = await request.start(host.pool, record, placement, writer, strict=strict)
    entry = TerminalEntry(terminal, record, writer)
    host.state.add(entry, os.environ)
    return entry
