"""acpterm's own methods for agents: read from a position, type, resize, signal, set the folder.

Documented in `docs/protocol.md`, advertised in `clientCapabilities._meta.acpterm`.
"""

import base64
from collections.abc import Coroutine
from typing import Any, Final

import trio
from msgspec import UNSET

from acpterm.acp import (
    Empty,
    ReadRequest,
    ReadResponse,
    ResizeRequest,
    SetSessionRequest,
    SignalRequest,
    WriteRequest,
    WriteResponse,
)
from acpterm.host.caller import Caller
from acpterm.host.checks import check_absolute, check_format, seconds
from acpterm.host.terminal_methods import exit_status
from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.pty.signals import number_of
from acpterm.terminal import InputFullError, Terminal, views

# Bytes that one read gives when it does not say, and at most.
MOST: Final = 1024 * 1024


def read(caller: Caller, params: ReadRequest) -> Coroutine[Any, Any, ReadResponse]:
    """`_acpterm/terminal/read`: what came after a position, waiting for it up to `waitMs`.

    The terminal is looked up now: a release that is sent after it only ends the waiting.
    """
    terminal = caller.session(params.session_id).get(params.terminal_id)
    view = params.format or terminal.view
    check_format(view)
    if view == "screen":
        caller.check_screen(terminal.cols, terminal.rows)
    if params.since is not None and params.since > terminal.ring.end:
        raise RpcError(
            INVALID_PARAMS,
            f"since {params.since} is after the end of the output, {terminal.ring.end}: "
            "use the position that an earlier read gave",
        )
    return _read(caller, terminal, params, view)


async def _read(caller: Caller, terminal: Terminal, params: ReadRequest, view: str) -> ReadResponse:
    deadline = trio.current_time() + seconds(params.wait_ms or 0)
    since = terminal.ring.start if params.since is None else params.since
    seen = since
    while True:
        with trio.move_on_at(deadline):
            while terminal.exit is None and terminal.ring.end <= seen:
                await terminal.wait_news()
        await caller.room()
        if view == "screen":
            return await _read_screen(caller, terminal, params)
        part = _part(terminal, params, as_text=view == "text")
        # Half a character or half an escape sequence is no news yet.
        if part.position > since or terminal.exit is not None or trio.current_time() >= deadline:
            break
        seen = terminal.ring.end
    return ReadResponse(
        data=part.data.decode() if view == "text" else base64.b64encode(part.data).decode(),
        encoding=UNSET if view == "text" else "base64",
        position=part.position,
        lost=part.lost,
        exit_status=exit_status(caller, terminal.exit),
    )


async def _read_screen(caller: Caller, terminal: Terminal, params: ReadRequest) -> ReadResponse:
    text, position = await caller.screen(terminal)
    lost = max(0, terminal.ring.start - (params.since or 0)) if params.since is not None else 0
    return ReadResponse(
        data=text,
        position=position,
        lost=lost,
        exit_status=exit_status(caller, terminal.exit),
    )


def _part(terminal: Terminal, params: ReadRequest, *, as_text: bool) -> views.Part:
    most = min(params.max_bytes or MOST, MOST)
    return views.since(terminal, params.since, most, as_text=as_text)


def write(caller: Caller, params: WriteRequest) -> Coroutine[Any, Any, WriteResponse]:
    """`_acpterm/terminal/write`: type; answered when the terminal has taken it all.

    What is typed is in order from here on, whichever answer comes first.
    """
    terminal = caller.session(params.session_id).get(params.terminal_id)
    data = params.data.encode()
    try:
        typed = terminal.keyboard.type(data)
    except (trio.ClosedResourceError, OSError) as error:
        raise _has_ended(terminal) from error
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
            raise _has_ended(terminal) from error
        return WriteResponse(len(data))

    return wait()


def resize(caller: Caller, params: ResizeRequest) -> Empty:
    """`_acpterm/terminal/resize`: set the window's size."""
    terminal = caller.session(params.session_id).get(params.terminal_id)
    try:
        terminal.resize(params.cols, params.rows)
    except (trio.ClosedResourceError, OSError) as error:
        raise _has_ended(terminal) from error
    return Empty()


def signal(caller: Caller, params: SignalRequest) -> Empty:
    """`_acpterm/terminal/signal`: signal the foreground process group, as a key would."""
    terminal = caller.session(params.session_id).get(params.terminal_id)
    try:
        number = number_of(params.signal)
    except ValueError as error:
        raise RpcError(INVALID_PARAMS, str(error)) from error
    if not terminal.signal(number):
        if terminal.exit is not None:
            raise _has_ended(terminal)
        raise RpcError(
            INVALID_PARAMS,
            f"no process group is in the foreground of terminal {terminal.id!r}, "
            "or it may not be signalled",
        )
    return Empty()


def set_session(caller: Caller, params: SetSessionRequest) -> Empty:
    """`_acpterm/session/set`: the folder of the session's terminals that name none.

    It holds from here on, so the folder itself is looked at only when it is used.
    """
    check_absolute(params.cwd)
    session = caller.session(params.session_id)
    caller.own(session)
    session.cwd = params.cwd
    return Empty()


def _has_ended(terminal: Terminal) -> RpcError:
    return RpcError(
        INVALID_PARAMS, f"terminal {terminal.id!r} has ended: its output can still be read"
    )
