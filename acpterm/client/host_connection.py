"""The connection to the host that runs an agent's terminals: the daemon, or a host in this process.

Both hosts are reached over a socket, so no other module needs to distinguish them. `initialize`
sends the host this process's execution context (environment, directory, umask and limits), with
which terminals start.

A connection to the daemon survives the death of the daemon's worker: another connection is opened
and resumed, and unanswered messages are sent again (`unanswered`). The agent only notices a slow
response. If the daemon has ended or does not know the connection, the agent's terminals no longer
exist, and every request fails from then on. A host in this process has no worker to be replaced.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import trio

from acpterm.client.questions import Questions, request_token
from acpterm.config import Settings, agent_socket
from acpterm.config.profiles import BUILTIN
from acpterm.host.open_host import ALONE, open_host
from acpterm.jsonrpc import NotificationReceived
from acpterm.link.daemon import DaemonError
from acpterm.link.daemon_stream import connect, initialize, reconnect
from acpterm.link.endpoint import Endpoint
from acpterm.link.errors import LostError
from acpterm.link.handshake import (
    Welcome,
    initialize_params,
)
from acpterm.link.unanswered import Unanswered
from acpterm.runtime.exec_context import ExecContext

# The host takes at most three seconds to close a connection.
_CLOSE_TIMEOUT_S: Final = 4.0


class DaemonRecovery:
    """Resumes the connection to the daemon after a loss. Implements `endpoint.Recovery`."""

    def __init__(self, settings: Settings) -> None:
        self.unanswered: Final = Unanswered()
        self._settings = settings
        self._name = f"the daemon at {agent_socket(settings)}"
        self._secret: str | None = None

    def welcomed(self, welcome: Welcome) -> None:
        """Record the secret for resuming, if the daemon's response to `initialize` has one."""
        self._secret = welcome.secret or self._secret

    async def reconnect(self) -> tuple[trio.abc.Stream, bytes]:
        """Connect to the daemon again, and resume the agent's sessions and terminals.

        Return the new stream, and the bytes received on it after the response to `initialize`.
        Raises `LostError` if the daemon has ended, refuses, does not respond in time, or no longer
        has the agent's terminals. Also raises `LostError` if resuming is disabled (`resume_timeout`
        is 0), or if the daemon has sent no secret for resuming.
        """
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
    """A connection to the daemon on which `initialize` has not been sent yet."""

    endpoint: Endpoint
    recovery: DaemonRecovery
    token: str | None = None
    """The token that makes the connection an approver; None if it will not be an approver."""


OnNotification: TypeAlias = Callable[[NotificationReceived], None]
"""Called with each notification of the host, including those about questions."""


async def connect_daemon(
    settings: Settings,
    config: str | None,
    questions: Questions | None = None,
    on_notification: OnNotification | None = None,
) -> DaemonConnection:
    """Connect to the agents' socket of the daemon, and start the daemon if it is not running.

    `config` is the path of the settings file given on the command line, if any. `questions`
    receives the questions that the daemon asks the user, and `on_notification` receives all
    notifications. With `questions`, also request the token that makes the connection an approver.
    This must be done here: the daemon grants no token to a process that has already sent
    `initialize` on the agents' socket.

    Call this function before this process becomes a subreaper (see `daemon.connect`). Raises
    `DaemonError` if the daemon cannot be started or used. If the daemon grants no token, the result
    has none; but if the user has chosen a profile (`questions.request.profile`), `DaemonError` is
    raised, since the daemon uses a chosen profile only for an approver.
    """
    stream = await connect(settings, config)
    recovery = DaemonRecovery(settings)
    endpoint = Endpoint(
        stream,
        f"the daemon at {agent_socket(settings)}",
        recovery=recovery,
        on_notification=_receiver(questions, on_notification),
    )
    token = None
    if questions is not None:
        # Before `initialize`: the daemon refuses a token to a process with an agent's connection.
        token = await request_token(settings, questions.request)
    return DaemonConnection(endpoint, recovery, token)


class HostConnection(NamedTuple):
    """A connection to the host, on which the host has responded to `initialize`."""

    endpoint: Endpoint
    connect_user: Callable[[], trio.abc.Stream] | None = None
    """Opens another connection to the host, for the user's API. None if the host is the daemon,
    which has the user's socket for that."""


@asynccontextmanager
async def open_host_connection(
    daemon: DaemonConnection | None,
    settings: Settings,
    context: ExecContext,
    agent: str,
    questions: Questions | None = None,
    *,
    on_notification: OnNotification | None = None,
) -> AsyncIterator[HostConnection]:
    """Connect to the host and send `initialize`; close the connection at the end of the block.

    The host is `daemon`, or if that is None, a host started in this process. Terminals start with
    `context`. `agent` is the name that the user sees as the owner of the terminals. `questions`
    receives the questions that the host asks the user, and `on_notification` receives all
    notifications. If `daemon` is not None, it must be the result of `connect_daemon` with the
    same `questions` and `on_notification`. Raises `DaemonError` if the host cannot be used.
    """
    async with AsyncExitStack() as stack:
        if daemon is None:
            _check_profile(settings, questions)
            opened = open_host(settings, context, daemon_info=ALONE)
            host = await stack.enter_async_context(opened)
            client_end, host_end = trio.socket.socketpair()
            endpoint = Endpoint(
                trio.SocketStream(client_end),
                "the host",
                on_notification=_receiver(questions, on_notification),
            )
        else:
            host, host_end, endpoint = None, None, daemon.endpoint
        connect_user: Callable[[], trio.abc.Stream] | None = None
        nursery = await stack.enter_async_context(trio.open_nursery())
        if host is not None and host_end is not None:
            approver = None if questions is None else questions.request
            serve = partial(host.serve, approver=approver)
            nursery.start_soon(serve, trio.SocketStream(host_end), context)
            serve_user = host.serve_user

            def connect_user() -> trio.abc.Stream:
                client_end, host_end = trio.socket.socketpair()
                nursery.start_soon(serve_user, trio.SocketStream(host_end), context)
                return trio.SocketStream(client_end)

        running = trio.CancelScope()
        nursery.start_soon(_run, endpoint, running)
        try:
            token = None if daemon is None else daemon.token
            welcome = await initialize(endpoint, agent, context, settings, approver=token)
            if daemon is not None:
                _check_approver(welcome, questions)
                daemon.recovery.welcomed(welcome)
            yield HostConnection(endpoint, connect_user)
        finally:
            running.cancel()
            nursery.cancel_scope.deadline = trio.current_time() + _CLOSE_TIMEOUT_S


def _receiver(questions: Questions | None, other: OnNotification | None) -> OnNotification:
    """Return a function that passes each notification on to `questions` and to `other`.

    If one of them is None, it is left out.
    """
    first = None if questions is None else questions.on_notification
    receivers = [receiver for receiver in (first, other) if receiver is not None]

    def on_notification(notification: NotificationReceived) -> None:
        for receiver in receivers:
            receiver(notification)

    return on_notification


def _check_profile(settings: Settings, questions: Questions | None) -> None:
    """Raise `DaemonError` if the user has chosen a profile that does not exist.

    `questions` has the name of the chosen profile, if any.
    """
    chosen = None if questions is None else questions.request.profile
    known = {*BUILTIN, *settings.profiles}
    if chosen is not None and chosen not in known:
        raise DaemonError(f"there is no profile {chosen!r}; there are {', '.join(sorted(known))}")


def _check_approver(welcome: Welcome, questions: Questions | None) -> None:
    """Raise `DaemonError` if the user has chosen a profile, but this client is not an approver.

    The daemon uses the chosen profile only for an approver. `questions` has the name of the chosen
    profile, if any.
    """
    chosen = None if questions is None else questions.request.profile
    if chosen is not None and not welcome.is_approver:
        raise DaemonError(
            f"the profile {chosen!r} cannot be used: the daemon has not accepted the token of this "
            "command, which is valid for a minute; run the command again"
        )


async def _run(endpoint: Endpoint, scope: trio.CancelScope) -> None:
    with scope:
        await endpoint.run()
