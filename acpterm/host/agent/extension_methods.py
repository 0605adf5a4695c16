"""acpterm's own methods for agents: read, write, resize, signal, and set the directory.

Documented in `docs/protocol.md`, advertised in `clientCapabilities._meta.acpterm`.
"""

from collections.abc import Coroutine
from typing import Any

import trio

from acpterm.acp.agent_api import (
    ReadRequest,
    ReadResponse,
    ResizeRequest,
    SetSessionRequest,
    SignalRequest,
    WriteRequest,
    WriteResponse,
)
from acpterm.acp.terminal import Empty
from acpterm.host import terminal_ops
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.launch.validation import check_absolute


def read(connection: AgentConnection, params: ReadRequest) -> Coroutine[Any, Any, ReadResponse]:
    """`_acpterm/terminal/read`: read the output after a position, wait up to `waitMs` for it.

    The terminal is looked up at once: a later release only ends the wait.
    """
    return terminal_ops.read(
        connection, connection.session(params.session_id).readable(params.terminal_id), params
    )


def write(connection: AgentConnection, params: WriteRequest) -> Coroutine[Any, Any, WriteResponse]:
    """`_acpterm/terminal/write`: type; the response comes once the terminal has taken all input."""
    entry = connection.session(params.session_id).owned(params.terminal_id, "typed into")
    return terminal_ops.write(entry.terminal, params.data.encode())


def resize(connection: AgentConnection, params: ResizeRequest) -> Empty:
    """`_acpterm/terminal/resize`: set the window's size, now or once no window is attached."""
    entry = connection.session(params.session_id).owned(params.terminal_id, "resized")
    try:
        connection.host.windows.resize(entry, params.cols, params.rows)
    except (trio.ClosedResourceError, OSError) as error:
        raise terminal_ops.has_ended(entry.terminal) from error
    return Empty()


def signal(connection: AgentConnection, params: SignalRequest) -> Empty:
    """`_acpterm/terminal/signal`: signal the foreground process group, as a key does."""
    entry = connection.session(params.session_id).owned(params.terminal_id, "signalled")
    terminal_ops.signal(entry.terminal, params.signal)
    return Empty()


def set_session(connection: AgentConnection, params: SetSessionRequest) -> Empty:
    """`_acpterm/session/set`: set the directory of the session's terminals that name none.

    It applies to later requests, so only its use checks that the directory exists.
    """
    check_absolute(params.cwd)
    session = connection.session(params.session_id)
    connection.retain(session)
    session.cwd = params.cwd
    connection.count_memory(session)
    return Empty()
