"""The connection to the host that runs an agent's terminals: the daemon, or a host in this process.

Both hosts are reached over a socket, so no other module needs to distinguish them. `initialize`
sends the host this process's execution context (environment, directory, umask and limits), with
which terminals start.

A connection to the daemon survives the death of the daemon's worker (`link.daemon_stream`): the
agent only notices a slow response. If the daemon has ended or does not know the connection, the
agent's terminals no longer exist, and every request fails from then on. A host in this process has
no worker to be replaced.
"""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import trio
from anyio import aclose_forcefully
from anyio.abc import UNIXSocketStream

from acpterm.agents.questions import PendingQuestions, request_token
from acpterm.config import Settings
from acpterm.config.profiles import BUILTIN
from acpterm.host.open_host import ALONE, open_host
from acpterm.jsonrpc import NotificationReceived
from acpterm.link.daemon import DaemonError
from acpterm.link.daemon_stream import DaemonRecovery, connect, introduce
from acpterm.link.endpoint import Endpoint
from acpterm.link.handshake import Welcome, initialize_params
from acpterm.runtime.exec_context import ExecContext

# The host takes at most three seconds to close a connection.
_CLOSE_TIMEOUT_S: Final = 4.0

ConnectUser: TypeAlias = Callable[[], Awaitable[UNIXSocketStream]]
OnNotification: TypeAlias = Callable[[NotificationReceived], None]
"""Called with each notification of the host, including those about questions."""


class DaemonConnection(NamedTuple):
    """A connection to the daemon on which `initialize` has not been sent yet."""

    stream: UNIXSocketStream
    token: str | None = None
    """The token that makes the connection an approver; None if it will not be an approver."""


async def connect_daemon(
    settings: Settings, config: str | None, questions: PendingQuestions | None = None
) -> DaemonConnection:
    """Connect to the agents' socket of the daemon, and start the daemon if it is not running.

    `config` is the path of the settings file given on the command line, if any. With `questions`,
    also request the token that makes the connection an approver. Call this before this process
    becomes a subreaper (see `daemon.connect`).

    Raises `DaemonError` if the daemon cannot be started or used, or if it grants no token and the
    user has chosen a profile, which the daemon uses only for an approver.
    """
    stream = await connect(settings, config)
    token = None
    if questions is not None:
        # Before `initialize`: the daemon refuses a token to a process with an agent's connection.
        try:
            token = await request_token(settings, questions.request)
        except BaseException:
            await aclose_forcefully(stream)
            raise
    return DaemonConnection(stream, token)


class HostConnection(NamedTuple):
    """A connection to the host, on which the host has responded to `initialize`."""

    endpoint: Endpoint
    connect_user: ConnectUser | None = None
    """Opens another connection to the host, for the user's API. None if the host is the daemon,
    which has the user's socket for that."""


@asynccontextmanager
async def open_host_connection(
    daemon: DaemonConnection | None,
    settings: Settings,
    context: ExecContext,
    agent: str,
    questions: PendingQuestions | None = None,
    *,
    on_notification: OnNotification | None = None,
) -> AsyncIterator[HostConnection]:
    """Connect to the host and send `initialize`; close the connection at the end of the block.

    The host is `daemon`, which `connect_daemon` has returned for `questions`, or a host started in
    this process. Terminals start with `context`. `agent` is the name that the user sees as the
    owner of the terminals. `questions` receives the questions that the host asks the user, and
    `on_notification` receives all notifications. Raises `DaemonError` if the host cannot be used.
    """
    async with AsyncExitStack() as stack:
        connect_user: ConnectUser | None = None
        if daemon is None:
            _check_profile(settings, questions)
            opened = open_host(settings, context, daemon_info=ALONE)
            host = await stack.enter_async_context(opened)
            nursery = await stack.enter_async_context(trio.open_nursery())

            async def connect_here(serve: Callable[..., Awaitable[None]]) -> UNIXSocketStream:
                client_end, host_end = socket.socketpair()
                host_stream = trio.SocketStream(trio.socket.from_stdlib_socket(host_end))
                nursery.start_soon(serve, host_stream, context)
                return await UNIXSocketStream.from_socket(client_end)

            approver = None if questions is None else questions.request
            stream = await connect_here(partial(host.serve, approver=approver))
            connect_user = partial(connect_here, host.serve_user)
            name, recovery, token = "the host", None, None
        else:
            nursery = await stack.enter_async_context(trio.open_nursery())
            stream, token = daemon
            recovery = DaemonRecovery(settings)
            name = recovery.name
        running = trio.CancelScope()
        try:
            params = initialize_params(agent, context, approver=token)
            connected, welcome = await introduce(stream, name, params, settings)
            endpoint = Endpoint(
                connected,
                name,
                recovery=recovery,
                on_notification=_receiver(questions, on_notification),
            )
            nursery.start_soon(_run, endpoint, running)
            if recovery is not None:
                recovery.welcomed(welcome)
                _check_approver(welcome, questions)
            yield HostConnection(endpoint, connect_user)
        finally:
            running.cancel()
            nursery.cancel_scope.deadline = trio.current_time() + _CLOSE_TIMEOUT_S


def _receiver(questions: PendingQuestions | None, other: OnNotification | None) -> OnNotification:
    first = None if questions is None else questions.on_notification
    receivers = [receiver for receiver in (first, other) if receiver is not None]

    def on_notification(notification: NotificationReceived) -> None:
        for receiver in receivers:
            receiver(notification)

    return on_notification


def _check_profile(settings: Settings, questions: PendingQuestions | None) -> None:
    """Raise `DaemonError` if the user has chosen a profile that does not exist."""
    chosen = None if questions is None else questions.request.profile
    known = {*BUILTIN, *settings.profiles}
    if chosen is not None and chosen not in known:
        raise DaemonError(f"there is no profile {chosen!r}; there are {', '.join(sorted(known))}")


def _check_approver(welcome: Welcome, questions: PendingQuestions | None) -> None:
    """Raise `DaemonError` if the user has chosen a profile, which only an approver can use."""
    chosen = None if questions is None else questions.request.profile
    if chosen is not None and not welcome.is_approver:
        raise DaemonError(
            f"the profile {chosen!r} cannot be used: the daemon has not accepted the token of this "
            "command, which is valid for a minute; run the command again"
        )


async def _run(endpoint: Endpoint, scope: trio.CancelScope) -> None:
    with scope:
        await endpoint.run()
