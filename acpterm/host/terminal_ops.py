"""What both agents and the user can do: read, write, resize or signal a terminal, get its screen.

A failure raises an `RpcError` that names the terminal.

Longer than 300 lines because the errors of all operations are raised here, so that agents and the
user get the same ones.
"""

import base64
import math
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import trio
from msgspec import UNSET

from acpterm.acp.agent_api import Format, ReadResponse, WriteResponse
from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import ScreenResponse, TerminalInfo
from acpterm.host.entry import InputWait, TerminalEntry
from acpterm.host.host_state import HostState
from acpterm.host.input_monitor import QUIET_S, input_wait
from acpterm.host.launch.validation import seconds
from acpterm.host.server.dispatch import Sender
from acpterm.host.terminal_info import background_processes, exit_status, stopped_info
from acpterm.host.windows import Windows
from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.pty.signals import number_of
from acpterm.terminal import views
from acpterm.terminal.keyboard import InputFullError, InputInterruptedError, LineTooLongError
from acpterm.terminal.remote import RemoteProgram
from acpterm.terminal.terminal import Terminal
from acpterm.terminal.text.slices import resync
from acpterm.terminal.vt import emulator
from acpterm.terminal.vt.emulator import ScreenTooLargeError
from acpterm.terminal.vt.library import EmulatorMissingError
from acpterm.terminal.vt.paint import main_output
from acpterm.terminal.vt.rows import rows
from acpterm.terminal.vt.screen import Screen

# The number of bytes that one read returns at most, and by default.
READ_BYTES_MAX: Final = 1024 * 1024
# The response to a kill or release is sent after this time even if the program has not ended.
KILL_REPLY_TIMEOUT_S: Final = 0.3
# While a read waits until the program waits for input: the period of the checks, each some 100 µs.
_INPUT_CHECK_S: Final = 0.25


class ReadParams(Protocol):
    """The params that agents' and users' read requests share: see `agent_api.ReadRequest`."""

    since: int | None
    max_bytes: int | None
    format: Format | None
    wait_ms: int | None
    until_input: bool


class Reader(Protocol):
    """A connection whose peer, an agent or a client of the user, reads from a terminal."""

    @property
    def host(self) -> HostState:
        """What all connections share."""

    @property
    def sender(self) -> Sender:
        """The object that sends notifications to the peer."""

    @property
    def signal_code(self) -> bool:
        """Whether the exit code of a program ended by signal n is sent as 128 + n, not as null.

        See `terminal_info.gives_signal_code`.
        """


def read(
    reader: Reader, entry: TerminalEntry, params: ReadParams
) -> Coroutine[Any, Any, ReadResponse]:
    """Return a coroutine that waits, then returns the output or the screen, as `params` request.

    The wait ends when there is output after `since`, when the program has exited, or after
    `wait_ms` milliseconds; with `until_input`, also when the program waits for input or is stopped.
    `read` itself raises `RpcError` (-32602) if `since` is after the end of the output, or if the
    requested screen is too large. The coroutine raises the errors of `current_screen` if the screen
    is requested.
    """
    terminal = entry.terminal
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
    return _read(reader, entry, params, view)


async def _read(
    reader: Reader, entry: TerminalEntry, params: ReadParams, view: str
) -> ReadResponse:
    terminal = entry.terminal
    deadline = trio.current_time() + seconds(params.wait_ms or 0)
    since = terminal.ring.start if params.since is None else params.since
    seen = since
    while True:
        blocked = None
        with trio.move_on_at(deadline):
            blocked = await _wait_for_output(entry, seen, until_input=params.until_input)
        await reader.host.background.check(entry)
        await reader.sender.drain()
        terminal.catch_up()
        if view == "screen":
            screen, position = await current_screen(reader.sender, terminal)
            text = screen.text()
            lost = 0 if params.since is None else max(0, terminal.ring.start - params.since)
            return _response(reader, entry, text, position, lost, blocked=blocked)
        limit = min(params.max_bytes or READ_BYTES_MAX, READ_BYTES_MAX)
        chunk = views.since(terminal, params.since, limit, as_text=view == "text")
        # An incomplete character or escape sequence yields no text yet.
        is_over = terminal.exit is not None or trio.current_time() >= deadline
        if chunk.position > since or blocked or is_over:
            break
        seen = terminal.ring.end
    if view == "text":
        data = chunk.data.decode()
        return _response(reader, entry, data, chunk.position, chunk.lost, blocked=blocked)
    data = base64.b64encode(chunk.data).decode()
    response = _response(reader, entry, data, chunk.position, chunk.lost, blocked=blocked)
    response.encoding = "base64"
    return response


async def _wait_for_output(
    entry: TerminalEntry, seen: int, *, until_input: bool
) -> InputWait | None:
    """Wait until there is output after the position `seen`, or the program exits; return None.

    With `until_input`, the wait also ends when the program waits for input, or is stopped: then
    return what was found.
    """
    # A program that has not read the latest input yet still seems to wait for input.
    check_at = trio.current_time() + QUIET_S if until_input else math.inf
    while True:
        with trio.move_on_at(check_at):
            await entry.terminal.wait_output(seen)
            return None
        found = input_wait(entry)
        if found.is_blocked:
            return found
        check_at = trio.current_time() + _INPUT_CHECK_S


def _response(
    reader: Reader,
    entry: TerminalEntry,
    data: str,
    position: int,
    lost: int,
    *,
    blocked: InputWait | None,
) -> ReadResponse:
    terminal = entry.terminal
    status = exit_status(entry, signal_code=reader.signal_code)
    response = ReadResponse(data=data, position=position, lost=lost, exit_status=status)
    if terminal.exit is None:
        # Checked even without `untilInput`: the MCP server reports the result of such reads. The
        # check takes 50 to 100 µs of a read's 320 µs, and is skipped while the program is active.
        found = blocked or input_wait(entry)
        response.waiting_for_input = UNSET if found.is_waiting is None else found.is_waiting
        response.waiting_program = found.program or UNSET
        response.stopped = stopped_info(found.stopped)
    return response


def resize(windows: Windows, entry: TerminalEntry, cols: int, rows: int) -> Empty:
    """Set the size that a terminal has while no window is attached (see `Windows.resize`).

    Raises `RpcError` (-32602) if the terminal has ended, or if the system refuses the size.
    """
    try:
        windows.resize(entry, cols, rows)
    except (trio.ClosedResourceError, OSError) as error:
        raise has_ended(entry.terminal) from error
    return Empty()


def write(terminal: Terminal, data: bytes) -> Coroutine[Any, Any, WriteResponse]:
    """Queue `data` as keyboard input; return a coroutine that waits until it has been written.

    The input is queued before this function returns, so inputs keep the order of the calls. If a
    cluster has not started the program yet, the coroutine does not wait, since that may take hours.
    Raises `RpcError` (-32602) if the terminal has ended, if too much input is queued, or if a line
    is too long for the terminal. The coroutine also raises it if the input is dropped.
    """
    try:
        typed = terminal.keyboard.type(terminal.ring.encode_input(data))
    except (trio.ClosedResourceError, OSError) as error:
        raise has_ended(terminal) from error
    except InputFullError as error:
        why = f"{len(data)} bytes were not typed: the program in terminal {terminal.id!r} "
        unread = "does not read its input; wait for the answers to earlier writes"
        why += "is queued, and has not started" if terminal.is_queued else unread
        raise RpcError(INVALID_PARAMS, why) from error
    except LineTooLongError as error:
        raise _too_long(terminal, len(data), error) from error

    async def wait() -> WriteResponse:
        try:
            if not terminal.is_queued:
                await terminal.keyboard.wait(typed)
        except InputInterruptedError as error:
            why = f"not all of the {len(data)} bytes were typed into terminal {terminal.id!r}: the "
            why += "rest was dropped when a key was pressed that interrupts the program"
            raise RpcError(INVALID_PARAMS, why) from error
        except trio.ClosedResourceError as error:
            raise has_ended(terminal) from error
        return WriteResponse(len(data))

    return wait()


def _too_long(terminal: Terminal, size: int, error: LineTooLongError) -> RpcError:
    return RpcError(
        INVALID_PARAMS,
        f"{size} bytes were not typed: a line of {error.length} bytes is too long for terminal "
        f"{terminal.id!r}, which passes lines of at most {error.limit} bytes to its program: end "
        "the line earlier, write the text to a file that the program reads, or turn the line mode "
        "off (stty -icanon)",
    )


def signal(terminal: Terminal, name: str) -> Empty | Coroutine[None, None, Empty]:
    """Send the signal `name`, such as `SIGINT`, to the terminal's foreground process group.

    If the program runs on another host, return a coroutine that sends the signal. This function or
    the coroutine raises `RpcError` (-32602) if there is no such signal, or if the process group
    cannot be signalled.
    """
    try:
        number = number_of(name)
    except ValueError as error:
        raise RpcError(INVALID_PARAMS, str(error)) from error
    if terminal.remote is not None:
        return _signal_remote(terminal, terminal.remote, number)
    if not terminal.signal(number):
        raise _not_signalled(terminal)
    return Empty()


async def _signal_remote(terminal: Terminal, remote: RemoteProgram, number: int) -> Empty:
    if terminal.exit is not None or not await remote.signal(number):
        raise _not_signalled(terminal)
    return Empty()


def _not_signalled(terminal: Terminal) -> RpcError:
    if terminal.exit is not None:
        return has_ended(terminal)
    why = f"no process group is in the foreground of terminal {terminal.id!r}, or it may not be "
    why += "signalled" if terminal.remote is None else "signalled, or its host cannot be reached"
    queued = f"the program in terminal {terminal.id!r} is queued: it has not started"
    return RpcError(INVALID_PARAMS, queued if terminal.is_queued else why)


def has_ended(terminal: Terminal) -> RpcError:
    """Return the error for an operation that is impossible because the terminal has ended."""
    return RpcError(
        INVALID_PARAMS, f"terminal {terminal.id!r} has ended: its output can still be read"
    )


async def info_with_background(host: HostState, entry: TerminalEntry) -> TerminalInfo:
    """Describe a terminal, with what runs beside its program if that has not exited."""
    if entry.terminal.exit is not None:
        await host.background.check(entry)
        return host.terminal_info(entry)
    found = await host.background.of_running(entry)
    return msgspec.structs.replace(
        host.terminal_info(entry),
        background=background_processes(found),
        background_omitted=found.omitted or UNSET,
    )


def respond_after_exit(host: HostState, entry: TerminalEntry) -> Empty | Coroutine[Any, Any, Empty]:
    """Return the response to a kill or release request, or a coroutine that returns the response.

    If nothing runs any more, return the response itself. Otherwise the coroutine waits for the exit
    or, after the exit, for the end of the background, for at most `KILL_REPLY_TIMEOUT_S` seconds.
    What still runs after that time is being ended nevertheless, with SIGKILL if necessary.
    """
    terminal = entry.terminal
    if terminal.exit is not None and not entry.may_have_background:
        return Empty()

    async def wait() -> Empty:
        with trio.move_on_after(KILL_REPLY_TIMEOUT_S):
            if terminal.exit is None:
                await terminal.wait_exited()
            elif not entry.record.is_left or entry.record.killed_by is not None:
                await terminal.wait_closed()
        await host.background.check(entry)
        return Empty()

    return wait()


class CurrentScreen(NamedTuple):
    """A screen, and the position in the output just past the last byte that the screen shows."""

    screen: Screen
    position: int


async def current_screen(sender: Sender, terminal: Terminal) -> CurrentScreen:
    """Return the terminal's current screen; first wait until it can be sent.

    It can be sent when the send queue of `sender` is below its high-water mark. Raises `RpcError`
    (-32602) if the terminal size is too large for a screen, or if no emulator is installed.
    """
    try:
        await terminal.caught_up()
        await sender.drain()
        return CurrentScreen(terminal.emulator.screen(), terminal.ring.end)
    except (ScreenTooLargeError, EmulatorMissingError) as error:
        raise _no_screen(error) from error


async def screen(sender: Sender, terminal: Terminal) -> ScreenResponse:
    """Return the current screen for the wire. Arguments and errors are as in `current_screen`."""
    found, position = await current_screen(sender, terminal)
    return ScreenResponse(
        rows=rows(found),
        cols=found.cols,
        lines=found.rows,
        cursor=found.cursor,
        cursor_visible=found.cursor_visible,
        application_cursor=found.application_cursor,
        bracketed_paste=found.bracketed_paste,
        title=found.title,
        position=position,
        alternate=found.is_alternate,
    )


def retained_main_output(terminal: Terminal, end: int) -> bytes:
    """Return the retained raw output up to the position `end` that is of the main screen."""
    ring = terminal.ring
    part = ring.read(ring.start, max(0, end - ring.start))
    return main_output(part.data[resync(part.data) :] if part.position else part.data)


def check_screen(cols: int, rows: int) -> None:
    """Raise `RpcError` (-32602) if a terminal of this size is too large for a screen."""
    try:
        emulator.check_size(cols, rows)
    except ScreenTooLargeError as error:
        raise _no_screen(error) from error


def _no_screen(error: Exception) -> RpcError:
    return RpcError(INVALID_PARAMS, f"format 'screen': {error}")
