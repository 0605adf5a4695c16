"""Starts terminals of agents with limits, in a host of this process, as the gate does."""

import os
from typing import Any

from acpterm.config.profiles import Limits
from acpterm.host.entry import TerminalEntry
from acpterm.host.host import Host
from acpterm.host.launch.placement import Placement
from acpterm.host.launch.request import LaunchRequest
from acpterm.runtime.exec_context import current


async def start(host: Host, line: str, *, strict: bool = True, **limits: Any) -> TerminalEntry:
    """Start a shell line with the limits of a profile, and return the terminal's entry."""
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
