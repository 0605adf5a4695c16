"""Runs `acpterm stdio` with a daemon: sends our own `initialize`, then starts `stdio_relay`.

Our `initialize` has the execution context of this process (environment, directory, umask and
limits), which this process has inherited from the agent; terminals start with this context. The
agent does not see the response. Then `stdio_relay` passes on all messages between the agent and the
daemon, in both directions.
"""

import socket
from typing import Final

import structlog
import trio

from acpterm.client.stdio_relay import (
    GONE_MESSAGE,
    UNANSWERED_BYTES_MAX,
    StdioRelay,
    blocking_socket,
)
from acpterm.config import Settings, agent_socket
from acpterm.link.daemon import DaemonError, read_lock
from acpterm.link.daemon_stream import connect, shake_hands
from acpterm.link.handshake import HandshakeError, Welcome, initialize_params
from acpterm.runtime import exec_context, logs
from acpterm.runtime.exec_context import ExecContext
from acpterm.runtime.send_queue import CLOSE_TIMEOUT_S, SEND_TIMEOUT_S
from acpterm.runtime.shutdown_signals import restore_signal_defaults, shutdown_event

# Time for the daemon to respond to our `initialize`.
_CONNECT_TIMEOUT_S: Final = 10.0
# The daemon's own limits for closing a connection, and a margin.
_CLOSE_TIMEOUT_S: Final = CLOSE_TIMEOUT_S + SEND_TIMEOUT_S + 0.6
_USE_EMBEDDED: Final = "use --embedded, which needs none"

_log = structlog.get_logger("acpterm.stdio")


async def relay_stdio(
    stdin_fd: int,
    stdout_fd: int,
    settings: Settings,
    config: str | None,
    *,
    connect_timeout_s: float = _CONNECT_TIMEOUT_S,
    close_timeout_s: float = _CLOSE_TIMEOUT_S,
    unanswered_bytes_max: int = UNANSWERED_BYTES_MAX,
) -> None:
    """Relay messages between the agent and the daemon until one of them ends or a signal comes.

    The agent is at the descriptors `stdin_fd` and `stdout_fd`. The daemon is started if it is not
    running; `config` is the path of the settings file given on the command line, if any.
    `connect_timeout_s` is how long the daemon may take to respond to our `initialize`, and
    `close_timeout_s` how long pending requests may take after stdin has ended, in seconds. While
    the total size of the requests without a response is more than `unanswered_bytes_max` bytes,
    nothing is read from the agent. The descriptors stay open, since a thread may still be reading
    from `stdin_fd`. Raises `DaemonError` if the daemon cannot be started or used, or ends before
    the agent.
    """
    context = exec_context.current()
    restore_signal_defaults()
    path = agent_socket(settings)
    async with shutdown_event(logs.log_shutdown) as shutdown, trio.open_nursery() as nursery:
        starting = trio.CancelScope()
        nursery.start_soon(_cancel_when, shutdown, starting)
        relay: StdioRelay | None = None
        with starting:
            sock, welcome, received = await _connect(
                path, settings, config, context, connect_timeout_s
            )
            relay = StdioRelay(
                sock,
                welcome,
                received,
                settings,
                stdin_fd=stdin_fd,
                stdout_fd=stdout_fd,
                close_timeout_s=close_timeout_s,
                unanswered_bytes_max=unanswered_bytes_max,
            )
        if relay is not None:
            _log.info("connected", socket=path)
            if why := await relay.run(shutdown):
                raise DaemonError(f"the daemon at {path} {GONE_MESSAGE}: {why}")
        nursery.cancel_scope.cancel()


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def _connect(
    path: str, settings: Settings, config: str | None, context: ExecContext, timeout_s: float
) -> tuple[socket.socket, Welcome, bytes]:
    """Connect to the daemon, and send our `initialize` with the execution context `context`.

    `path` is only used in messages of errors: it is the path of the daemon's socket. Return a
    blocking socket, the parsed response, and the bytes received after it. Raises `DaemonError` if
    the daemon cannot be started, refuses `initialize`, or has not responded after `timeout_s`
    seconds.
    """
    try:
        stream = await connect(settings, config)
    except DaemonError as error:
        if "--embedded" in str(error):
            raise
        raise DaemonError(f"{error}; put that right, or {_USE_EMBEDDED}") from error
    async with stream:
        try:
            params = initialize_params(context=context, relay=True)
            welcome, received = await shake_hands(stream, params, timeout_s)
        except HandshakeError as error:
            message = read_lock(settings).message
            why = f"{error}; end it" if message is None else f"{error}: {message}"
            raise DaemonError(
                f"the daemon at {path} cannot be used: {why}, or {_USE_EMBEDDED}"
            ) from error
        return blocking_socket(stream), welcome, received
