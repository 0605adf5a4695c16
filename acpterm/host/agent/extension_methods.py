"""acpterm's own methods for agents: read from a position, type, resize, signal, set the folder.

Documented in `docs/protocol.md`, advertised in `clientCapabilities._meta.acpterm`.
"""

from collections.abc import Coroutine
from typing import Any

import trio

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
from acpterm.host import terminal_ops
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.launch.validation import check_absolute


def read(connection: AgentConnection, params: ReadRequest) -> Coroutine[Any, Any, ReadResponse]:
    """`_acpterm/terminal/read`: what came after a position, waiting for it up to `waitMs`.

    The terminal is looked up now: a release that is sent after it only ends the waiting.
    """
    return terminal_ops.read(
        connection, connection.session(params.session_id).readable(params.terminal_id), params
    )


def write(connection: AgentConnection, params: WriteRequest) -> Coroutine[Any, Any, WriteResponse]:
    """`_acpterm/terminal/write`: type; answered when the terminal has taken it all."""
    entry = connection.session(params.session_id).owned(params.terminal_id, "typed into")
    return terminal_ops.write(entry.terminal, params.data.encode())


def resize(connection: AgentConnection, params: ResizeRequest) -> Empty:
    """`_acpterm/terminal/resize`: set the window's size, now or when nobody is attached."""
    entry = connection.session(params.session_id).owned(params.terminal_id, "resized")
    try:
        connection.host.windows.resize(entry, params.cols, params.rows)
    except (trio.ClosedResourceError, OSError) as error:
        raise terminal_ops.has_ended(entry.terminal) from error
    return Empty()


def signal(connection: AgentConnection, params: SignalRequest) -> Empty:
    """`_acpterm/terminal/signal`: signal the foreground process group, as a key would."""
    entry = connection.session(params.session_id).owned(params.terminal_id, "signalled")
    terminal_ops.signal(entry.terminal, params.signal)
    return Empty()


def set_session(connection: AgentConnection, params: SetSessionRequest) -> Empty:
    """`_acpterm/session/set`: the folder of the session's terminals that name none.

    It holds from here on, so the folder itself is looked at only when it is used.
    """
    check_absolute(params.cwd)
    session = connection.session(params.session_id)
    connection.owned(session)
    session.cwd = params.cwd
    connection.remember(session)
    return Empty()
