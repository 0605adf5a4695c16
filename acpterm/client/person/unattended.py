"""A terminal of the person's own that is run where there is no window: in a script, or a pipe.

What it prints is printed as it comes; nothing is typed. Its end is the command's end, and the
other way round: when nobody reads any more, or this process is told to end, so is the program.
"""

import base64
from typing import Any, Final

import trio

from acpterm.acp import Empty
from acpterm.acp.person import ExitOf, PersonReadRequest, TerminalInfo
from acpterm.acp.wire import Wire
from acpterm.client.person.front import Front
from acpterm.host import stdio
from acpterm.host.ending import told_to_end

# Bytes in one answer, which are many: a program does not wait for whoever reads what it prints.
STEP: Final = 1024 * 1024
_WAIT: Final = 60_000


class _Part(Wire):
    """What is used of the answer to a read."""

    data: str
    position: int
    lost: int
    exit_status: dict[str, Any] | None = None


async def follow(front: Front, info: TerminalInfo) -> ExitOf | None:
    """Print what a terminal prints until its program has ended: how. Raises `RpcError`."""
    async with told_to_end() as told, trio.open_nursery() as nursery:
        nursery.start_soon(_end_when, told, front, info)
        try:
            await _print(front, info)
        except OSError:
            # Nobody reads what it prints.
            await front.about("kill", info.terminal_id, Empty)
        ended = await front.about("wait", info.terminal_id, TerminalInfo)
        nursery.cancel_scope.cancel()
    return ended.exit_status


async def _end_when(told: trio.Event, front: Front, info: TerminalInfo) -> None:
    await told.wait()
    await front.about("kill", info.terminal_id, Empty)


async def _print(front: Front, info: TerminalInfo) -> None:
    position = 0
    while True:
        params = PersonReadRequest(
            info.terminal_id, since=position, max_bytes=STEP, format="raw", wait_ms=_WAIT
        )
        part = await front.ask("terminal/read", params, _Part)
        if part.lost:
            await stdio.write_all(2, f"acpterm: {part.lost} bytes are missing here\n".encode())
        data = base64.b64decode(part.data)
        position = part.position
        if data:
            await stdio.write_all(1, data)
        elif part.exit_status is not None:
            return
