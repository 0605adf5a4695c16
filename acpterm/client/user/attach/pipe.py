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
from acpterm.acp.user_api import ExitInfo, TerminalInfo, UserSignalRequest
from acpterm.client.user.attach.stdin_pipe import pass_stdin
from acpterm.client.user.client import UserClient
from acpterm.client.user.output.follow import follow_output
from acpterm.client.user.output.pipe_output import PipeOutput
from acpterm.client.user.output.show import missing
from acpterm.client.user.output.stdout import note, put, while_read
from acpterm.jsonrpc import RpcError
from acpterm.runtime.shutdown_signals import shutdown_event


class ExitResult(NamedTuple):
    """How a program ended, and the signal that ended this process before, if any."""

    status: ExitInfo | None
    signal: Signals | None


async def follow(
    client: UserClient, info: TerminalInfo, *, pipe: str | None, raw: bool
) -> ExitResult:
    """Print what a terminal prints until its program has ended. Raises `RpcError`, `OSError`.

    `pipe` is a named pipe that stdin is passed on through. Unless `raw`, what is printed is what a
    pipe would have got.
    """
    heard: list[Signals] = []
    async with shutdown_event(heard.append) as told, trio.open_nursery() as nursery:
        nursery.start_soon(_end_when, told, heard, client, info)
        if pipe is not None:
            nursery.start_soon(pass_stdin, pipe)
        try:
            end = await _print(client, info, None if raw else PipeOutput())
        except* OSError:
            await client.terminal_request("kill", info.terminal_id, Empty)
            raise
        if end is None:
            await client.terminal_request("kill", info.terminal_id, Empty)
            end = (
                await client.terminal_request("wait", info.terminal_id, TerminalInfo)
            ).exit_status
        nursery.cancel_scope.cancel()
    return ExitResult(end, heard[0] if heard else None)


async def _end_when(
    told: trio.Event, heard: list[Signals], client: UserClient, info: TerminalInfo
) -> None:
    """End the program when a signal asks this process to end; SIGINT is passed on first."""
    await told.wait()
    if heard[0] == Signals.SIGINT:
        with suppress(RpcError):  # it has ended
            interrupt = UserSignalRequest(info.terminal_id, "SIGINT")
            await client.call("terminal/signal", interrupt, Empty)
        await trio.sleep(client.settings.kill_grace)
    await client.terminal_request("kill", info.terminal_id, Empty)


async def _print(
    client: UserClient, info: TerminalInfo, output: PipeOutput | None
) -> ExitInfo | None:
    """Print it to its end; return how it ended, if all that was read."""
    async with while_read(), follow_output(client, info.terminal_id) as parts:
        async for data, _, lost in parts:
            if lost:
                await note(missing(lost))
            await put(output.feed(data) if output else data)
        await put(output.finish() if output else b"")
    return parts.end.exit_status if parts.end else None
