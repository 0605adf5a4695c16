"""Prints a program's output and forwards stdin to it: `acpterm run` in a script or a pipeline.

The program runs in a terminal of the user; no window is attached to the terminal. The program's
output is printed as it arrives. If the reader of stdout is slow, the program blocks, as it would
without a terminal. This command exits when the program exits. The program is killed when stdout
loses its reader, or when this command gets a shutdown signal. If stdout is a window, that is
attached instead, and only stdin is forwarded.

This command's stdin is forwarded to the program through a named pipe, until stdin ends. The program
opens the named pipe as its standard input. So the program's stdin is not a terminal: the program
reads every byte unchanged, and then the end of the input, as in a pipeline.
"""

import base64
import os
import re
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from signal import Signals
from typing import Final, NamedTuple

import msgspec
import trio

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import ExitInfo, TerminalInfo, UserSignalRequest
from acpterm.acp.user_streams import FollowedNotification, FollowRequest, FollowResponse
from acpterm.commands.client import UserClient
from acpterm.commands.format import queue_notice
from acpterm.commands.output.blocking_stdout import named
from acpterm.commands.output.show import missing
from acpterm.commands.output.trio_stdout import note, put, while_stdout_is_read
from acpterm.jsonrpc import RpcError
from acpterm.link.errors import LostError
from acpterm.runtime.shutdown_signals import shutdown_event
from acpterm.runtime.stdio import StdioStream, write_all
from acpterm.runtime.threads import run_blocking

_notifications: Final = msgspec.json.Decoder(FollowedNotification)


class OutputPart(NamedTuple):
    data: bytes
    lost: int
    """Number of bytes lost before `data`: 0, unless the daemon's worker was replaced."""


async def follow_output(
    client: UserClient, terminal: str, take: Callable[[OutputPart], Awaitable[object]]
) -> ExitInfo | None:
    """Await `take` for each part of the output until the program exits; return its exit."""
    # With `hold`, the program waits for `take`: output is lost only if the worker is replaced.
    request = FollowRequest(terminal, client.token(), 0, hold=True)
    while True:
        with client.stream("terminal/follow", request, FollowResponse) as stream:
            try:
                async for params in stream:
                    part = _notifications.decode(params)
                    request.since = part.position
                    await take(OutputPart(base64.b64decode(part.data), part.lost))
            except LostError:
                await client.reconnect(stream.endpoint)
            else:
                return stream.response.exit_status


_STDIN: Final = 0
_CHUNK_BYTES: Final = 64 * 1024
# Seconds after which a program that is still queued is reported. Slurm takes about one second to
# start a program, even if the queue is empty.
_QUEUE_NOTE_S: Final = 3.0
# Maximum bytes of an escape sequence that is recognised although it is split over two pieces of
# output. Sequences in the text that agents read have the same limit.
_SEQUENCE_MAX: Final = 8192
_SEQUENCE: Final = re.compile(
    rb"\x1b(?:"
    rb"\[[0-?]*[ -/]*[@-~]"
    rb"|\][^\x07\x1b\n]*(?:\x07|\x1b\\|(?=[\x1b\n]))"
    rb"|P[^\x1b]*(?:\x1b\\|(?=\x1b))"
    rb"|[X^_][^\x1b\n]*(?:\x1b\\|(?=[\x1b\n]))"
    rb"|[ -/]*[0-OQ-WYZ\\`-~]"
    rb"|)"
)
# The end of a piece that the next piece may complete: an escape sequence, or a CR before an LF.
_UNFINISHED: Final = re.compile(
    rb"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]*\x1b?|P[^\x1b]*\x1b?|[X^_][^\x1b\n]*\x1b?|[ -/]*)"
    rb"|\r)\Z"
)


class ExitResult(NamedTuple):
    """How a program exited (None: it was removed), and the shutdown signal received, if any."""

    status: ExitInfo | None
    signal: Signals | None


class PipeOutput:
    """Converts output to what the program would write to a pipe: no CR of CR LF, no sequences."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        data, self._rest = self._rest + data, b""
        begin = data.rfind(b"\x1b", max(0, len(data) - _SEQUENCE_MAX))
        # An ESC at the end may begin the terminator of a string, so look for the string before it.
        if begin > 0 and data[begin:] == b"\x1b":
            begin = max(0, data.rfind(b"\x1b", max(0, begin - _SEQUENCE_MAX), begin))
        at = begin if begin >= 0 else len(data) - data.endswith(b"\r")
        if found := _UNFINISHED.search(data, at):
            data, self._rest = data[: found.start()], data[found.start() :]
        return _SEQUENCE.sub(b"", data).replace(b"\r\n", b"\n")

    def finish(self) -> bytes:
        # A CR that was held back is output; an incomplete escape sequence is not.
        rest, self._rest = self._rest, b""
        return rest if rest == b"\r" else b""


async def follow(
    client: UserClient, info: TerminalInfo, *, pipe: str | None, raw: bool
) -> ExitResult:
    """Print a terminal's output until its program has exited; pass stdin to `pipe`, if given."""
    received: list[Signals] = []
    async with shutdown_event(received.append) as shutdown, trio.open_nursery() as nursery:
        nursery.start_soon(_kill_on_shutdown, shutdown, received, client, info)
        if pipe is not None:
            nursery.start_soon(pass_stdin, pipe)
        if info.state == "queued":
            nursery.start_soon(_report_queue, client, info)
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
    # After SIGINT, the program gets SIGINT first.
    await shutdown.wait()
    if received[0] == Signals.SIGINT:
        with suppress(RpcError):  # the program has exited
            interrupt = UserSignalRequest(info.terminal_id, "SIGINT")
            await client.call("terminal/signal", interrupt, Empty)
        await trio.sleep(client.settings.kill_grace)
    with suppress(RpcError):  # the terminal was removed
        await client.terminal_request("kill", info.terminal_id, Empty)


async def _report_queue(client: UserClient, info: TerminalInfo) -> None:
    await trio.sleep(_QUEUE_NOTE_S)
    with suppress(RpcError):  # the terminal was removed, or the connection is lost
        info = await client.terminal_request("get", info.terminal_id, TerminalInfo)
        if info.state == "queued":
            await note(f"acpterm: {queue_notice(info)}")


async def _print(
    client: UserClient, info: TerminalInfo, output: PipeOutput | None
) -> ExitInfo | None:
    async def put_part(part: OutputPart) -> None:
        if part.lost:
            await note(missing(part.lost))
        await put(output.feed(part.data) if output else part.data)

    end: ExitInfo | None = None
    async with while_stdout_is_read():
        end = await follow_output(client, info.terminal_id, put_part)
        await put(output.finish() if output else b"")
    return end


def is_passed_on(*, even_terminal: bool) -> bool:
    return even_terminal or sys.stdin is None or not os.isatty(_STDIN)


async def pass_stdin(path: str) -> None:
    """Forward stdin to the named pipe at `path`, until stdin ends or the pipe has no reader."""
    # Opening blocks until the program opens its end. When cancelled, the thread is abandoned.
    opening = partial(os.open, path, os.O_WRONLY | os.O_CLOEXEC)
    pipe = await run_blocking(opening, abandon_on_cancel=True)
    try:
        if sys.stdin is None:
            return
        stdin = StdioStream(_STDIN, -1)
        with suppress(BrokenPipeError), named("stdin"):
            while data := await _read(stdin):
                await write_all(pipe, data)
    finally:
        os.close(pipe)


async def _read(stdin: StdioStream) -> bytes:
    try:
        return await stdin.receive_some(_CHUNK_BYTES)
    except trio.BrokenResourceError:
        return b""
