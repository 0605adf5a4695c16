"""Follow one of the user's own terminals without a window: in a script, or in a pipe.

Output is printed as it arrives. The program blocks while the reader is slow, as it would without a
terminal. This command exits with the program. The program is killed when the reader closes the
pipe, or when a shutdown signal arrives.
"""

from contextlib import suppress
from signal import Signals
from typing import NamedTuple

import trio

from acpterm.acp import Empty
from acpterm.acp.user_api import ExitInfo, TerminalInfo, UserSignalRequest
from acpterm.client.user.attach.stdin_pipe import pass_stdin
from acpterm.client.user.client import UserClient
from acpterm.client.user.output.follow import Part, follow_output
from acpterm.client.user.output.pipe_output import PipeOutput
from acpterm.client.user.output.show import missing
from acpterm.client.user.output.stdout import note, put, while_read
from acpterm.jsonrpc import RpcError
from acpterm.runtime.shutdown_signals import shutdown_event


class ExitResult(NamedTuple):
    """How a program exited, and the shutdown signal that this process got before, if any."""

    status: ExitInfo | None
    signal: Signals | None


async def follow(
    client: UserClient, info: TerminalInfo, *, pipe: str | None, raw: bool
) -> ExitResult:
    """Print a terminal's output until its program has exited. Raises `RpcError`, `OSError`.

    `pipe` is the path of a named pipe to which stdin is forwarded. Unless `raw`, the output is
    converted to what the program would have written to a pipe.
    """
    received: list[Signals] = []
    async with shutdown_event(received.append) as shutdown, trio.open_nursery() as nursery:
        nursery.start_soon(_kill_on_shutdown, shutdown, received, client, info)
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
    return ExitResult(end, received[0] if received else None)


async def _kill_on_shutdown(
    shutdown: trio.Event, received: list[Signals], client: UserClient, info: TerminalInfo
) -> None:
    """Kill the program when a shutdown signal arrives. SIGINT is first sent to the program."""
    await shutdown.wait()
    if received[0] == Signals.SIGINT:
        with suppress(RpcError):  # the program has exited
            interrupt = UserSignalRequest(info.terminal_id, "SIGINT")
            await client.call("terminal/signal", interrupt, Empty)
        await trio.sleep(client.settings.kill_grace)
    await client.terminal_request("kill", info.terminal_id, Empty)


async def _print(
    client: UserClient, info: TerminalInfo, output: PipeOutput | None
) -> ExitInfo | None:
    """Print all output; return how the program exited, or None if stdout was closed before."""

    async def put_part(part: Part) -> None:
        if part.lost:
            await note(missing(part.lost))
        await put(output.feed(part.data) if output else part.data)

    end: ExitInfo | None = None
    async with while_read():
        end = await follow_output(client, info.terminal_id, put_part)
        await put(output.finish() if output else b"")
    return end
