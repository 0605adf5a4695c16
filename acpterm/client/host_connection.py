"""The connection to the host of an agent's terminals: the daemon, or a host in this process.

Both are reached over a socket with the same protocol, so the rest of the client does not depend on
which it is. The host is sent the environment, directory, umask and limits of this process;
terminals start with them.

A connection to the daemon outlives the daemon's worker: when it is lost, another connection is made
and resumed, and unanswered messages are sent again (`unanswered`). The agent only sees a slow
response. If the daemon has exited or does not know the connection, every pending and later request
gets an error: the agent's terminals are gone. A host in this process has no worker to replace.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, NamedTuple

import trio

from acpterm.client.daemon import DaemonError, connect, read_lock
from acpterm.client.endpoint import Endpoint, LostError
from acpterm.client.handshake import Welcome, initialize_params, read_welcome, reconnect
from acpterm.client.unanswered import Unanswered
from acpterm.config import Settings, agent_socket
from acpterm.host.host import open_host
from acpterm.host.launch.exec_context import ExecContext
from acpterm.jsonrpc import RpcError

_INITIALIZE_TIMEOUT_S: Final = 10.0
_NO_WORKER_TIMEOUT_S: Final = 3.0
# The host closes a connection within at most three seconds.
_CLOSE_TIMEOUT_S: Final = 4.0


class NoAnswerError(DaemonError):
    """The host has not responded to `initialize` in time: a daemon may have no worker."""


class DaemonRecovery:
    """Resumes an agent's connection to the daemon. See `endpoint.Recovery`."""

    def __init__(self, settings: Settings) -> None:
        self.unanswered: Final = Unanswered()
        self._settings = settings
        self._name = f"the daemon at {agent_socket(settings)}"
        self._secret: str | None = None

    def welcomed(self, welcome: Welcome) -> None:
        """Store the secret from the daemon's response."""
        self._secret = welcome.secret or self._secret

    async def reconnect(self) -> tuple[trio.abc.Stream, bytes]:
        """Connect again and resume. Raises `LostError` if the terminals are gone."""
        timeout = self._settings.resume_timeout
        if self._secret is None or not timeout:
            raise LostError(f"{self._name} is gone")
        try:
            params = initialize_params(secret=self._secret)
            stream, welcome, received = await reconnect(self._settings, params, timeout)
        except DaemonError as error:
            raise LostError(f"{self._name} is gone: {error}") from error
        if not welcome.resumed:
            await trio.aclose_forcefully(stream)
            raise LostError(
                f"{self._name} is gone: another one is there, which has none of its terminals"
            )
        self.welcomed(welcome)
        return stream, received


class DaemonConnection(NamedTuple):
    """A connection to the daemon that is not initialized yet."""

    endpoint: Endpoint
    recovery: DaemonRecovery


async def connect_daemon(settings: Settings, config: str | None) -> DaemonConnection:
    """Connect to the daemon, and start it first if it is not running. Raises `DaemonError`."""
    stream = await connect(settings, config)
    recovery = DaemonRecovery(settings)
    endpoint = Endpoint(stream, f"the daemon at {agent_socket(settings)}", recovery=recovery)
    return DaemonConnection(endpoint, recovery)


@asynccontextmanager
async def open_host_connection(
    daemon: DaemonConnection | None, settings: Settings, context: ExecContext, agent: str
) -> AsyncIterator[Endpoint]:
    """Yield an initialized endpoint to `daemon`, or to a host in this process if it is None.

    `agent` is the name that the user sees as the owner of the terminals. Raises `DaemonError` if
    the host does not respond.
    """
    async with AsyncExitStack() as stack:
        if daemon is None:
            host = await stack.enter_async_context(open_host(settings, context))
            ours, theirs = trio.socket.socketpair()
            endpoint = Endpoint(trio.SocketStream(ours), "the host")
        else:
            host, theirs, endpoint = None, None, daemon.endpoint
        nursery = await stack.enter_async_context(trio.open_nursery())
        if host is not None and theirs is not None:
            nursery.start_soon(host.serve, trio.SocketStream(theirs), context)
        running = trio.CancelScope()
        nursery.start_soon(_run, endpoint, running)
        try:
            welcome = await initialize(endpoint, agent, context, settings)
            if daemon is not None:
                daemon.recovery.welcomed(welcome)
            yield endpoint
        finally:
            running.cancel()
            nursery.cancel_scope.deadline = trio.current_time() + _CLOSE_TIMEOUT_S


async def initialize(
    host: Endpoint,
    name: str,
    context: ExecContext,
    settings: Settings,
    seconds: float | None = None,
) -> Welcome:
    """Send `initialize`; return what the response says about resuming.

    Raises `DaemonError`, with the reason, if the host cannot be used, and `NoAnswerError` after
    `seconds`: by default ten, or three if the daemon's lock file says that it has no worker.
    """
    if seconds is None:
        has_worker = read_lock(settings).message is None
        seconds = _INITIALIZE_TIMEOUT_S if has_worker else _NO_WORKER_TIMEOUT_S
    with trio.move_on_after(seconds):
        try:
            return read_welcome(await host.request("initialize", initialize_params(name, context)))
        except RpcError as error:
            raise DaemonError(f"{host.name} cannot be used: {error.message}") from error
    why = f"it does not answer within {seconds:g} s"
    if message := read_lock(settings).message:
        why = f"{why}: {message}"
    raise NoAnswerError(f"{host.name} cannot be used: {why}")


async def _run(endpoint: Endpoint, scope: trio.CancelScope) -> None:
    with scope:
        await endpoint.run()
