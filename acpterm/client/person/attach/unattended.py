"""A terminal of the person's own that is run where there is no window: in a script, or a pipe.

What it prints is printed as it comes, and its program waits for whoever reads that, as it would
without a terminal; nothing is typed. Its end is the command's end, and the other way round: when
nobody reads any more, or this process is told to end, so is the program.
"""

import trio

from acpterm.acp import Empty
from acpterm.acp.person import ExitOf, TerminalInfo
from acpterm.client.person.front import Front
from acpterm.client.person.reading.following import following
from acpterm.client.person.reading.printed import missing
from acpterm.client.person.reading.stdout import note, put, while_read
from acpterm.host.ending import told_to_end


async def follow(front: Front, info: TerminalInfo) -> ExitOf | None:
    """Print what a terminal prints until its program has ended: how. Raises `RpcError`."""
    async with told_to_end() as told, trio.open_nursery() as nursery:
        nursery.start_soon(_end_when, told, front, info)
        try:
            end = await _print(front, info)
        except* OSError:
            await front.about("kill", info.terminal_id, Empty)
            raise
        if end is None:
            await front.about("kill", info.terminal_id, Empty)
            end = (await front.about("wait", info.terminal_id, TerminalInfo)).exit_status
        nursery.cancel_scope.cancel()
    return end


async def _end_when(told: trio.Event, front: Front, info: TerminalInfo) -> None:
    await told.wait()
    await front.about("kill", info.terminal_id, Empty)


async def _print(front: Front, info: TerminalInfo) -> ExitOf | None:
    """Print it to its end: how it ended, if somebody has read all that."""
    async with while_read(), following(front, info.terminal_id, since=0, hold=True) as parts:
        async for data, _, lost in parts:
            if lost:
                await note(missing(lost))
            await put(data)
    return parts.end.exit_status if parts.end else None
