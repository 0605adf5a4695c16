"""A terminal of the user's own that is run where there is no window: in a script, or a pipe.

Its output is printed as it comes, and the program blocks while the reader is slow, as it would
without a terminal. The command ends with the program. The program is ended when the reader closes
the pipe, or when a signal asks this process to end.
"""

from contextlib import suppress
from signal import Signals
from typing import NamedTuple

import trio

from acpterm.acp import Empty
from acpterm.acp.user_api import ExitOf, PersonSignalRequest, TerminalInfo
from acpterm.client.user.attach.stdin_pipe import pass_stdin
from acpterm.client.user.client import Front
from acpterm.client.user.output.follow import following
from acpterm.client.user.output.pipe_output import PipeOutput
from acpterm.client.user.output.show import missing
from acpterm.client.user.output.stdout import note, put, while_read
from acpterm.jsonrpc import RpcError
from acpterm.runtime.shutdown_signals import told_to_end


class Ended(NamedTuple):
    """How a program ended, and the signal that ended this process before, if any."""

    status: ExitOf | None
    signal: Signals | None


async def follow(front: Front, info: TerminalInfo, *, pipe: str | None, raw: bool) -> Ended:
    """Print what a terminal prints until its program has ended. Raises `RpcError`, `OSError`.

    `pipe` is a named pipe that stdin is passed on through. Unless `raw`, what is printed is what a
    pipe would have got.
    """
    heard: list[Signals] = []
    async with told_to_end(heard.append) as told, trio.open_nursery() as nursery:
        nursery.start_soon(_end_when, told, heard, front, info)
        if pipe is not None:
            nursery.start_soon(pass_stdin, pipe)
        try:
            end = await _print(front, info, None if raw else PipeOutput())
        except* OSError:
            await front.about("kill", info.terminal_id, Empty)
            raise
        if end is None:
            await front.about("kill", info.terminal_id, Empty)
            end = (await front.about("wait", info.terminal_id, TerminalInfo)).exit_status
        nursery.cancel_scope.cancel()
    return Ended(end, heard[0] if heard else None)


async def _end_when(
    told: trio.Event, heard: list[Signals], front: Front, info: TerminalInfo
) -> None:
    """End the program when a signal asks this process to end; SIGINT is passed on first."""
    await told.wait()
    if heard[0] == Signals.SIGINT:
        with suppress(RpcError):  # it has ended
            interrupt = PersonSignalRequest(info.terminal_id, "SIGINT")
            await front.ask("terminal/signal", interrupt, Empty)
        await trio.sleep(front.settings.kill_grace)
    await front.about("kill", info.terminal_id, Empty)


async def _print(front: Front, info: TerminalInfo, output: PipeOutput | None) -> ExitOf | None:
    """Print it to its end; return how it ended, if all that was read."""
    async with while_read(), following(front, info.terminal_id, since=0, hold=True) as parts:
        async for data, _, lost in parts:
            if lost:
                await note(missing(lost))
            await put(output.feed(data) if output else data)
        await put(output.finish() if output else b"")
    return parts.end.exit_status if parts.end else None
