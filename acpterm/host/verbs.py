"""The verbs of a terminal, each with one handler for agents and the user.

`Access` finds the terminal and says whether the peer may do so. An error names the terminal.
Handlers that only one side has are in `host.agent` and `host.user`.
"""

import base64
import binascii
import hashlib
import math
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import trio
from msgspec import UNSET

from acpterm.acp.agent_api import (
    AgentGetRequest,
    ReadRequest,
    ReadResponse,
    ResizeRequest,
    SignalRequest,
    WriteRequest,
    WriteResponse,
)
from acpterm.acp.terminal import Empty, TerminalRequest
from acpterm.acp.user_api import (
    GetRequest,
    ScreenResponse,
    TerminalInfo,
    UserReadRequest,
    UserResizeRequest,
    UserSignalRequest,
    UserTerminalRequest,
    UserWriteRequest,
)
from acpterm.host.access import Access, Need
from acpterm.host.entry import InputWait, TerminalEntry
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
from acpterm.terminal.vt.screen import EmulatorScreen

# The number of bytes that one read returns at most, and by default.
READ_BYTES_MAX: Final = 1024 * 1024
# The response to a kill or release is sent after this time even if the program has not ended.
KILL_REPLY_TIMEOUT_S: Final = 0.3
# While a read waits until the program waits for input: the period of the checks, each some 100 µs.
_INPUT_CHECK_S: Final = 0.25

AnyTerminalRequest: TypeAlias = TerminalRequest | UserTerminalRequest
AnyReadRequest: TypeAlias = ReadRequest | UserReadRequest


def get(
    access: Access, params: AgentGetRequest | GetRequest
) -> TerminalInfo | Coroutine[Any, Any, TerminalInfo]:
    """`_acpterm/terminal/get`: return one terminal."""
    is_own = isinstance(params, GetRequest) and params.own
    entry = access.resolve(params, Need.TYPE if is_own else Need.READ)

    async def checked() -> TerminalInfo:
        if not params.background or entry.terminal.exit is not None:
            await access.background.check(entry)
            return access.info(entry)
        found = await access.background.of_running(entry)
        return msgspec.structs.replace(
            access.info(entry),
            background=background_processes(found),
            background_omitted=found.omitted or UNSET,
        )

    return checked() if params.background or entry.may_have_background else access.info(entry)


def read(access: Access, params: AnyReadRequest) -> Coroutine[Any, Any, ReadResponse]:
    """`_acpterm/terminal/read`: return the output after a position.

    If there is no such output yet, wait for output up to `waitMs` milliseconds.
    """
    return read_from(access, access.resolve(params, Need.READ), params)


def read_from(
    access: Access, entry: TerminalEntry, params: AnyReadRequest
) -> Coroutine[Any, Any, ReadResponse]:
    """Return a coroutine that waits, then returns the output or the screen, as `params` request."""
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

    async def reading() -> ReadResponse:
        with access.cancel_on_close():
            return await _read(access, entry, params, view)

    return reading()


async def _read(
    access: Access, entry: TerminalEntry, params: AnyReadRequest, view: str
) -> ReadResponse:
    terminal = entry.terminal
    deadline = trio.current_time() + seconds(params.wait_ms or 0)
    since = terminal.ring.start if params.since is None else params.since
    seen = since
    while True:
        blocked = None
        with trio.move_on_at(deadline):
            blocked = await _wait_for_output(entry, seen, until_input=params.until_input)
        await access.background.check(entry)
        await access.sender.drain()
        terminal.catch_up()
        if view == "screen":
            screen, position = await current_screen(access.sender, terminal)
            text = screen.text()
            lost = 0 if params.since is None else max(0, terminal.ring.start - params.since)
            return _response(access, entry, text, position, lost, blocked=blocked)
        limit = min(params.max_bytes or READ_BYTES_MAX, READ_BYTES_MAX)
        chunk = views.since(terminal, params.since, limit, as_text=view == "text")
        # An incomplete character or escape sequence yields no text yet.
        is_over = terminal.exit is not None or trio.current_time() >= deadline
        if chunk.position > since or blocked or is_over:
            break
        seen = terminal.ring.end
    if view == "text":
        data = chunk.data.decode()
        return _response(access, entry, data, chunk.position, chunk.lost, blocked=blocked)
    data = base64.b64encode(chunk.data).decode()
    response = _response(access, entry, data, chunk.position, chunk.lost, blocked=blocked)
    response.encoding = "base64"
    return response


async def _wait_for_output(
    entry: TerminalEntry, seen: int, *, until_input: bool
) -> InputWait | None:
    """Wait until there is output after the position `seen`, or the program exits; return None."""
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
    access: Access,
    entry: TerminalEntry,
    data: str,
    position: int,
    lost: int,
    *,
    blocked: InputWait | None,
) -> ReadResponse:
    terminal = entry.terminal
    status = exit_status(entry, signal_code=access.signal_code)
    response = ReadResponse(data=data, position=position, lost=lost, exit_status=status)
    if terminal.exit is None:
        # Checked even without `untilInput`: the MCP server reports the result of such reads. The
        # check takes 50 to 100 µs of a read's 320 µs, and is skipped while the program is active.
        found = blocked or input_wait(entry)
        response.waiting_for_input = UNSET if found.is_waiting is None else found.is_waiting
        response.waiting_program = found.program or UNSET
        response.stopped = stopped_info(found.stopped)
    return response


def screen(access: Access, params: AnyTerminalRequest) -> Coroutine[Any, Any, ScreenResponse]:
    """`_acpterm/terminal/screen`: return the current screen, with colours."""
    return _screen(access, access.resolve(params, Need.READ))


async def _screen(access: Access, entry: TerminalEntry) -> ScreenResponse:
    found, position = await current_screen(access.sender, entry.terminal)
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


def resize(access: Access, params: ResizeRequest | UserResizeRequest) -> Empty:
    """`_acpterm/terminal/resize`: set the size that a terminal has while no window is attached."""
    entry = access.resolve(params, Need.CONTROL, "resized")
    return set_size(access.windows, entry, params.cols, params.rows)


def set_size(windows: Windows, entry: TerminalEntry, cols: int, rows: int) -> Empty:
    """Set the size that a terminal has while no window is attached (see `Windows.resize`)."""
    try:
        windows.resize(entry, cols, rows)
    except (trio.ClosedResourceError, OSError) as error:
        raise _has_ended(entry.terminal) from error
    return Empty()


def write(
    access: Access, params: WriteRequest | UserWriteRequest
) -> Coroutine[Any, Any, WriteResponse]:
    """`_acpterm/terminal/write`: write keyboard input; respond once the input was written.

    If a cluster has not started the program yet, respond at once. `@last` means the newest terminal
    that the user has created or taken over. A name means an agent's terminal only if no terminal of
    the user has the name.
    """
    return write_to(access, access.resolve(params, Need.TYPE, "typed into"), params)


def write_to(
    access: Access,
    entry: TerminalEntry,
    params: WriteRequest | UserWriteRequest,
    share: str | None = None,
) -> Coroutine[Any, Any, WriteResponse]:
    """Type the input of a request, of a visitor of `share` if any, unless it repeats the last."""
    if isinstance(params, WriteRequest):
        return type_in(access, entry, params.data.encode(), share)
    token = 0 if params.token is None else _digest(params.token)
    return type_in(access, entry, _input_of(params), share, token)


def _digest(token: str) -> int:
    return int.from_bytes(hashlib.blake2b(token.encode(), digest_size=8).digest())


def _input_of(params: UserWriteRequest) -> bytes:
    if params.encoding is None:
        return params.data.encode()
    try:
        return base64.b64decode(params.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RpcError(INVALID_PARAMS, f"data is not base64: {error}") from error


def type_in(
    access: Access, entry: TerminalEntry, data: bytes, share: str | None = None, token: int = 0
) -> Coroutine[Any, Any, WriteResponse]:
    """Queue `data` as keyboard input; return a coroutine that waits until it has been written."""
    terminal = entry.terminal
    if not terminal.keyboard.is_repeated(token):
        access.trail.input(entry, "share" if share else access.by.value, data, share)
    # Queued here, and not in the coroutine, so that inputs keep the order of the requests.
    try:
        typed = terminal.keyboard.type(terminal.ring.encode_input(data), token)
    except (trio.ClosedResourceError, OSError) as error:
        raise _has_ended(terminal) from error
    except InputFullError as error:
        why = f"{len(data)} bytes were not typed: the program in terminal {terminal.id!r} "
        unread = "does not read its input; wait for the answers to earlier writes"
        why += "is queued, and has not started" if terminal.is_queued else unread
        raise RpcError(INVALID_PARAMS, why) from error
    except LineTooLongError as error:
        raise _too_long(terminal, len(data), error) from error

    async def wait() -> WriteResponse:
        try:
            # A cluster may take hours to start the program.
            if not terminal.is_queued:
                await terminal.keyboard.wait(typed)
        except InputInterruptedError as error:
            why = f"not all of the {len(data)} bytes were typed into terminal {terminal.id!r}: the "
            why += "rest was dropped when a key was pressed that interrupts the program"
            raise RpcError(INVALID_PARAMS, why) from error
        except trio.ClosedResourceError as error:
            raise _has_ended(terminal) from error
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


def signal(
    access: Access, params: SignalRequest | UserSignalRequest
) -> Empty | Coroutine[None, None, Empty]:
    """`_acpterm/terminal/signal`: send a signal to the terminal's foreground process group."""
    terminal = access.resolve(params, Need.CONTROL, "signalled").terminal
    try:
        number = number_of(params.signal)
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
        return _has_ended(terminal)
    why = f"no process group is in the foreground of terminal {terminal.id!r}, or it may not be "
    why += "signalled" if terminal.remote is None else "signalled, or its host cannot be reached"
    queued = f"the program in terminal {terminal.id!r} is queued: it has not started"
    return RpcError(INVALID_PARAMS, queued if terminal.is_queued else why)


def _has_ended(terminal: Terminal) -> RpcError:
    return RpcError(
        INVALID_PARAMS, f"terminal {terminal.id!r} has ended: its output can still be read"
    )


def kill(access: Access, params: AnyTerminalRequest) -> Empty | Coroutine[Any, Any, Empty]:
    """`_acpterm/terminal/kill`: end the program and all that it has started."""
    entry = access.resolve(params, Need.CONTROL, "killed")
    access.registry.kill(entry, access.by)
    return _respond_after_exit(access, entry)


def release(access: Access, params: AnyTerminalRequest) -> Empty | Coroutine[Any, Any, Empty]:
    """`_acpterm/terminal/release`: end the program, and forget the terminal and its output."""
    entry = access.release_terminal(params)
    return Empty() if entry is None else _respond_after_exit(access, entry)


def _respond_after_exit(access: Access, entry: TerminalEntry) -> Empty | Coroutine[Any, Any, Empty]:
    terminal = entry.terminal
    if terminal.exit is not None and not entry.may_have_background:
        return Empty()

    async def wait() -> Empty:
        with trio.move_on_after(KILL_REPLY_TIMEOUT_S):
            if terminal.exit is None:
                await terminal.wait_exited()
            elif not entry.record.is_left or entry.record.killed_by is not None:
                await terminal.wait_closed()
        await access.background.check(entry)
        return Empty()

    return wait()


def promote(access: Access, params: AnyTerminalRequest) -> TerminalInfo:
    """`_acpterm/terminal/promote`: make the user the owner of a terminal. Idempotent."""
    entry = access.resolve(params, Need.HOLD)
    access.registry.promote(entry, access.by)
    return access.info(entry)


class CurrentScreen(NamedTuple):
    """A screen, and the position in the output just past the last byte that the screen shows."""

    screen: EmulatorScreen
    position: int


async def current_screen(sender: Sender, terminal: Terminal) -> CurrentScreen:
    """Return the terminal's current screen; first wait until it can be sent."""
    try:
        await terminal.caught_up()
        await sender.drain()
        return CurrentScreen(terminal.emulator.screen(), terminal.ring.end)
    except (ScreenTooLargeError, EmulatorMissingError) as error:
        raise _no_screen(error) from error


def retained_main_output(
    terminal: Terminal, start: int, end: int, *, alternate: bool
) -> tuple[bytes, int]:
    """Return the raw output of the main screen that is retained, and how many bytes are not.

    `alternate`: whether the output ends on the alternate screen.
    """
    first = max(start, terminal.ring.start)
    part = terminal.ring.read(first, max(0, end - first))
    lost = part.position - start
    data = part.data[resync(part.data) :] if lost else part.data
    return main_output(data, alternate=alternate), lost


def check_screen(cols: int, rows: int) -> None:
    """Raise `RpcError` (-32602) if a terminal of this size is too large for a screen."""
    try:
        emulator.check_size(cols, rows)
    except ScreenTooLargeError as error:
        raise _no_screen(error) from error


def _no_screen(error: Exception) -> RpcError:
    return RpcError(INVALID_PARAMS, f"format 'screen': {error}")
