"""Runs `acpterm stdio` with a daemon: sends our own `initialize`, then starts `stdio_relay`.

Our `initialize` has the execution context of this process (environment, directory, umask and
limits), which this process has inherited from the agent; terminals start with this context. The
agent does not see the response. Then `stdio_relay` passes on all messages between the agent and the
daemon, in both directions.
"""

from typing import Final

import structlog
import trio

from acpterm.client.stdio_relay import (
    GONE_MESSAGE,
    UNANSWERED_BYTES_MAX,
    StdioRelay,
)
from acpterm.config import Settings, agent_socket
from acpterm.link.daemon import DaemonError, read_lock
from acpterm.link.daemon_stream import Answered, connect, shake_hands
from acpterm.link.handshake import HandshakeError, initialize_params
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

    The daemon is started if it is not running; `config` is the path of the settings file given on
    the command line, if any. `connect_timeout_s` is how long the daemon may take to respond to our
    `initialize`. The descriptors of the agent stay open, since a thread may still be reading from
    `stdin_fd`. Raises `DaemonError` if the daemon cannot be started or used, or ends before the
    agent.
    """
    context = exec_context.current()
    restore_signal_defaults()
    path = agent_socket(settings)
    async with shutdown_event(logs.log_shutdown) as shutdown, trio.open_nursery() as nursery:
        starting = trio.CancelScope()
        nursery.start_soon(_cancel_when, shutdown, starting)
        relay: StdioRelay | None = None
        with starting:
            relay = StdioRelay(
                await _connect(path, settings, config, context, connect_timeout_s),
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
) -> Answered:
    try:
        stream = await connect(settings, config)
    except DaemonError as error:
        if "--embedded" in str(error):
            raise
        raise DaemonError(f"{error}; put that right, or {_USE_EMBEDDED}") from error
    params = initialize_params(context=context, relay=True)
    failure = f"it does not answer within {timeout_s:g} s"
    with trio.move_on_after(timeout_s):
        try:
            return await shake_hands(stream, params)
        except HandshakeError as error:
            failure = str(error)
    message = read_lock(settings).message
    why = f"{failure}; end it" if message is None else f"{failure}: {message}"
    raise DaemonError(f"the daemon at {path} cannot be used: {why}, or {_USE_EMBEDDED}")
