"""Operations on a terminal that agents and the user share: reading, its screen, typing, signals.

Failures are `RpcError`s that name the terminal.
"""

import base64
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple, Protocol

import trio

from acpterm.acp.agent_api import Format, ReadResponse, WriteResponse
from acpterm.acp.terminal import Empty
from acpterm.host.launch.validation import seconds
from acpterm.host.server.dispatch import Sender
from acpterm.host.terminal_info import exit_status
from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.pty.signals import number_of
from acpterm.terminal import views
from acpterm.terminal.keyboard import InputFullError
from acpterm.terminal.terminal import Terminal
from acpterm.terminal.vt import emulator
from acpterm.terminal.vt.emulator import ScreenTooLargeError
from acpterm.terminal.vt.library import EmulatorMissingError
from acpterm.terminal.vt.screen import Screen

# Bytes that one read returns by default, and at most.
READ_BYTES_MAX: Final = 1024 * 1024
# Kill and release are answered after this long, whether the program has ended or not.
KILL_REPLY_TIMEOUT_S: Final = 0.3


class ReadParams(Protocol):
    """The parameters that both kinds of read request have: see `agent_api.ReadRequest`."""

    since: int | None
    max_bytes: int | None
    format: Format | None
    wait_ms: int | None


class Reader(Protocol):
    """The connection that reads."""

    @property
    def sender(self) -> Sender:
        """Sends to the reader's client."""

    @property
    def signal_code(self) -> bool:
        """Whether the reader gets an exit code after death by a signal: see `exit_status`."""


def read(
    reader: Reader, terminal: Terminal, params: ReadParams
) -> Coroutine[Any, Any, ReadResponse]:
    """Return a coroutine that reads the output after a position, and waits up to `wait_ms` for it.

    If the terminal is released meanwhile, the wait ends early.
    """
    view = params.format or terminal.view
    if view == "screen":
        check_screen(terminal.cols, terminal.rows)
    terminal.catch_up()
    if params.since is not None and params.since > terminal.ring.end:
        raise RpcError(
            INVALID_PARAMS,
            f"since {params.since} is after the end of the output, {terminal.ring.end}: "
            "use the position that an earlier read gave",
        )
    return _read(reader, terminal, params, view)


async def _read(reader: Reader, terminal: Terminal, params: ReadParams, view: str) -> ReadResponse:
    deadline = trio.current_time() + seconds(params.wait_ms or 0)
    since = terminal.ring.start if params.since is None else params.since
    seen = since
    while True:
        with trio.move_on_at(deadline):
            while terminal.exit is None and terminal.ring.end <= seen:
                await terminal.wait_changed()
        await reader.sender.drain()
        terminal.catch_up()
        if view == "screen":
            screen, position = await current_screen(terminal)
            text = screen.text()
            lost = 0 if params.since is None else max(0, terminal.ring.start - params.since)
            return _response(reader, terminal, text, position, lost)
        limit = min(params.max_bytes or READ_BYTES_MAX, READ_BYTES_MAX)
        chunk = views.since(terminal, params.since, limit, as_text=view == "text")
        # An incomplete character or escape sequence yields no text yet.
        if chunk.position > since or terminal.exit is not None or trio.current_time() >= deadline:
            break
        seen = terminal.ring.end
    if view == "text":
        return _response(reader, terminal, chunk.data.decode(), chunk.position, chunk.lost)
    response = _response(
        reader, terminal, base64.b64encode(chunk.data).decode(), chunk.position, chunk.lost
    )
    response.encoding = "base64"
    return response


def _response(
    reader: Reader, terminal: Terminal, data: str, position: int, lost: int
) -> ReadResponse:
    status = exit_status(terminal.exit, signal_code=reader.signal_code)
    return ReadResponse(data=data, position=position, lost=lost, exit_status=status)


def write(terminal: Terminal, data: bytes) -> Coroutine[Any, Any, WriteResponse]:
    """Type `data`; return a coroutine that waits until the terminal has taken all of it.

    The input is queued at once, so the order of calls is kept whichever response comes first.
    """
    try:
        typed = terminal.keyboard.type(data)
    except (trio.ClosedResourceError, OSError) as error:
        raise has_ended(terminal) from error
    except InputFullError as error:
        raise RpcError(
            INVALID_PARAMS,
            f"{len(data)} bytes were not typed: the program in terminal {terminal.id!r} does not "
            "read its input; wait for the answers to earlier writes",
        ) from error

    async def wait() -> WriteResponse:
        try:
            await terminal.keyboard.wait(typed)
        except trio.ClosedResourceError as error:
            raise has_ended(terminal) from error
        return WriteResponse(len(data))

    return wait()


def signal(terminal: Terminal, name: str) -> None:
    """Send a signal to the foreground process group, as a key such as Ctrl-C does."""
    try:
        number = number_of(name)
    except ValueError as error:
        raise RpcError(INVALID_PARAMS, str(error)) from error
    if not terminal.signal(number):
        if terminal.exit is not None:
            raise has_ended(terminal)
        raise RpcError(
            INVALID_PARAMS,
            f"no process group is in the foreground of terminal {terminal.id!r}, "
            "or it may not be signalled",
        )


def has_ended(terminal: Terminal) -> RpcError:
    """Return the error for a terminal that has ended: only its output can still be read."""
    return RpcError(
        INVALID_PARAMS, f"terminal {terminal.id!r} has ended: its output can still be read"
    )


def respond_after_exit(terminal: Terminal) -> Empty | Coroutine[Any, Any, Empty]:
    """Return the response to a kill or release: once the program has ended.

    After `KILL_REPLY_TIMEOUT_S` the response is sent anyway; the escalation to SIGKILL continues.
    """
    if terminal.exit is not None:
        return Empty()

    async def wait() -> Empty:
        with trio.move_on_after(KILL_REPLY_TIMEOUT_S):
            await terminal.wait_exited()
        return Empty()

    return wait()


class CurrentScreen(NamedTuple):
    """A screen, and the position in the output that it corresponds to."""

    screen: Screen
    position: int


async def current_screen(terminal: Terminal) -> CurrentScreen:
    """Return the screen as it is now.

    Raises `RpcError` (-32602) when the window is too large for it, or no emulator is installed.
    """
    try:
        await terminal.caught_up()
        return CurrentScreen(terminal.emulator.screen(), terminal.ring.end)
    except (ScreenTooLargeError, EmulatorMissingError) as error:
        raise _no_screen(error) from error


def check_screen(cols: int, rows: int) -> None:
    """Raise `RpcError` (-32602) for a window that is too large to be shown as a screen."""
    try:
        emulator.check_size(cols, rows)
    except ScreenTooLargeError as error:
        raise _no_screen(error) from error


def _no_screen(error: Exception) -> RpcError:
    return RpcError(INVALID_PARAMS, f"format 'screen': {error}")
