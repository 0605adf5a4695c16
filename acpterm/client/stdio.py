"""`acpterm stdio` with a daemon: connects it to the agent on stdin and stdout.

Before the first byte the daemon is sent the environment, directory, umask and limits that terminals
get: those of this process, which are its agent's. That takes a line of our own, whose answer the
agent does not see. Then `stdio_relay` passes on what both say.
"""

import socket
from typing import Final

import structlog
import trio

from acpterm.client.daemon import DaemonError, read_lock
from acpterm.client.daemon_stream import connect, shake_hands
from acpterm.client.handshake import HandshakeError, Welcome, initialize_params
from acpterm.client.stdio_relay import GONE_MESSAGE, Relay, blocking_socket
from acpterm.config import Settings, agent_socket
from acpterm.runtime import exec_context, logs
from acpterm.runtime.exec_context import ExecContext
from acpterm.runtime.send_queue import CLOSE_TIMEOUT_S, SEND_TIMEOUT_S
from acpterm.runtime.shutdown_signals import restore_signal_defaults, shutdown_event

# Seconds that a daemon has to answer at the beginning.
_CONNECT_TIMEOUT_S: Final = 10.0
# Seconds that the end may take: the daemon's own part of it, and a moment for ours.
_CLOSE_TIMEOUT_S: Final = CLOSE_TIMEOUT_S + SEND_TIMEOUT_S + 0.6
_WAY_OUT: Final = "use --embedded, which needs none"

_log = structlog.get_logger("acpterm.stdio")


async def relay_stdio(reads: int, writes: int, settings: Settings, config: str | None) -> None:
    """Pass on what the agent at these descriptors and the daemon say, until one of them is gone.

    The daemon is started if it is not running; `config` is the file that settings were read from,
    if one was named. The descriptors stay open: a thread may still wait at them. Raises
    `DaemonError` when there is no daemon, or it goes before the agent does.
    """
    context = exec_context.current()
    restore_signal_defaults()
    path = agent_socket(settings)
    async with shutdown_event(logs.log_shutdown) as told, trio.open_nursery() as nursery:
        starting = trio.CancelScope()
        nursery.start_soon(_cancel_when, told, starting)
        relay: Relay | None = None
        with starting:
            sock, welcome, received = await _reach(path, settings, config, context)
            relay = Relay(
                sock,
                welcome,
                received,
                settings,
                reads=reads,
                writes=writes,
                close_timeout=_CLOSE_TIMEOUT_S,
            )
        if relay is not None:
            _log.info("connected", socket=path)
            if fate := await relay.run(told):
                raise DaemonError(f"the daemon at {path} {GONE_MESSAGE}: {fate}")
        nursery.cancel_scope.cancel()


async def _cancel_when(told: trio.Event, scope: trio.CancelScope) -> None:
    await told.wait()
    scope.cancel()


async def _reach(
    path: str, settings: Settings, config: str | None, context: ExecContext
) -> tuple[socket.socket, Welcome, bytes]:
    """Connect to a daemon and initialize: a blocking socket, and what came behind the answer."""
    try:
        stream = await connect(settings, config)
    except DaemonError as error:
        if "--embedded" in str(error):
            raise
        raise DaemonError(f"{error}; put that right, or {_WAY_OUT}") from error
    async with stream:
        try:
            params = initialize_params(context=context, relay=True)
            welcome, received = await shake_hands(stream, params, _CONNECT_TIMEOUT_S)
        except HandshakeError as error:
            message = read_lock(settings).message
            why = f"{error}; end it" if message is None else f"{error}: {message}"
            raise DaemonError(
                f"the daemon at {path} cannot be used: {why}, or {_WAY_OUT}"
            ) from error
        return blocking_socket(stream), welcome, received
