"""Opens the stream of a connection, sends `initialize`, and opens another stream after a loss.

`open_agent`, `open_user`, `open_path` and `open_stream` return a stream and its recovery:

- An agent's connection is resumed with a secret. `Unanswered` selects the requests that are sent
  again. If the reconnection finds another daemon, `ClosedError` is raised, because the terminals
  are gone.
- The user's connection has no secret, since terminals do not belong to it. `UserRepeats` selects
  the requests that are sent again.
- A given path or stream has no recovery.

`DaemonError` is raised if the daemon ends while the connection is opened, if it refuses
`initialize`, or if it belongs to another user.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import anyio
import anyio.to_thread
from anyio.abc import ByteStream, UNIXSocketStream

from acpterm.api.errors import ClosedError, DaemonError
from acpterm.client.user.requests import REPEATABLE, unknown_outcome
from acpterm.config import Settings, agent_socket, user_socket
from acpterm.jsonrpc import Id
from acpterm.link import daemon
from acpterm.link.handshake import (
    RETRY_PAUSE_S,
    Handshake,
    HandshakeError,
    HungUpError,
    ReconnectAttempts,
    RefusedError,
    Welcome,
    initialize_params,
    initialize_timeout,
    no_answer,
)
from acpterm.link.unanswered import Lost, Unanswered
from acpterm.runtime import exec_context

_CHUNK: Final = 64 * 1024


class Repeats(Protocol):
    """Keeps the requests that have no response yet, to send them again if the stream is lost.

    `Unanswered` implements this for agents, `UserRepeats` for the user.
    """

    def request(self, id_: Id, method: str, line: bytes) -> None:
        """Record the request `id_`, which is about to be sent as `line`."""

    def cancel(self, id_: Id, line: bytes) -> None:
        """Record that the request `id_` was cancelled by the message in `line`."""

    def answered(self, id_: Id) -> object:
        """Remove the request `id_`, whose response was received. The returned value is ignored."""

    def lost(self) -> Lost:
        """Return the lines to send on the next connection, after the stream was lost."""


class Connected(NamedTuple):
    """A stream on which the daemon has answered `initialize`."""

    stream: ByteStream
    received: bytes
    """Bytes received after the response to `initialize`."""


class Opened(NamedTuple):
    """An open connection, whose stream is in `connected`.

    `recovery` replaces the stream after a loss; None if it cannot be replaced. `name` is the name
    of the daemon in error messages.
    """

    connected: Connected
    recovery: "StreamRecovery | None"
    name: str


class Introduction(NamedTuple):
    """What an agent sends in `initialize`.

    `agent` is its name. `profile` is the name of a policy profile that applies in addition to the
    one that the host selects; None if no other profile applies. `elicits` says whether the agent's
    client can ask its user (`connect(asks=…)`).
    """

    agent: str
    profile: str | None = None
    elicits: bool = False


class StreamRecovery:
    """Replaces a stream that has ended or broken by another connection to the daemon.

    `name` is the name of the daemon in error messages. `repeats` has the requests to send again.
    `params` returns the params of `initialize`; its argument is the secret of the connection, or
    None for the user. `is_user` selects the user's socket, not that of the agents.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        repeats: Repeats,
        params: Callable[[str | None], dict[str, Any]],
        *,
        is_user: bool,
    ) -> None:
        self.repeats: Final = repeats
        self._settings = settings
        self._name = name
        self._params = params
        self._is_user = is_user
        self._secret: str | None = None

    def welcomed(self, welcome: Welcome) -> None:
        """Record the secret for resuming, from the daemon's response to `initialize`."""
        self._secret = welcome.secret or self._secret

    async def reconnect(self) -> Connected:
        """Connect to the daemon's next worker, and resume the connection."""
        seconds = self._settings.resume_timeout
        if not seconds or (self._secret is None and not self._is_user):
            raise ClosedError(f"{self._name} is gone")
        attempts = ReconnectAttempts(self._settings, seconds)
        try:
            with anyio.move_on_after(seconds):
                while True:
                    try:
                        return await self._connect()
                    except (OSError, HandshakeError) as error:
                        attempts.failed(error, anyio.current_time())
                    await anyio.sleep(RETRY_PAUSE_S)
            raise attempts.final_error()
        except DaemonError as error:
            raise ClosedError(f"{self._name} is gone: {error}") from error

    async def _connect(self) -> Connected:
        settings = self._settings
        path = user_socket(settings) if self._is_user else agent_socket(settings)
        stream = await _stream(daemon.open_socket(path))
        secret = None if self._is_user else self._secret
        welcome, received = await _shake_hands(stream, self._params(secret))
        if secret is not None and not welcome.resumed:
            await anyio.aclose_forcefully(stream)
            raise ClosedError(
                f"{self._name} is gone: another one is there, which has none of its terminals"
            )
        self.welcomed(welcome)
        return Connected(stream, received)


async def open_user(settings: Settings) -> Opened:
    """Return a connection to the user's socket; start the daemon if needed.

    Raises `DaemonError` if the daemon cannot be started or used.
    """
    name = f"the daemon at {user_socket(settings)}"

    def params(secret: str | None) -> dict[str, Any]:
        del secret
        return initialize_params("acpterm", exec_context.current())

    recovery = StreamRecovery(settings, name, UserRepeats(name), params, is_user=True)
    return await _open_daemon(settings, name, recovery, params(None), is_user=True)


async def open_agent(settings: Settings, agent: Introduction) -> Opened:
    """Return a connection to the agents' socket; start the daemon if needed.

    Raises `DaemonError` if the daemon cannot be started or used.
    """
    name = f"the daemon at {agent_socket(settings)}"

    def resuming(secret: str | None) -> dict[str, Any]:
        return _with_elicits(initialize_params(secret=secret), agent)

    recovery = StreamRecovery(settings, name, Unanswered(), resuming, is_user=False)
    params = _agent_params(agent)
    return await _open_daemon(settings, name, recovery, params, is_user=False)


async def open_path(path: str, settings: Settings, agent: Introduction) -> Opened:
    """Return an agent's connection to the host that listens on the Unix socket `path`.

    `agent` describes the agent to the host. Raises `DaemonError` if the host cannot be used.
    """
    name = f"the host at {path}"
    try:
        stream = await _stream(daemon.open_socket(path))
    except (OSError, DaemonError) as error:
        raise DaemonError(f"{name} cannot be used: {error}") from error
    _, received = await _introduce(stream, settings, name, _agent_params(agent))
    return Opened(Connected(stream, received), None, name)


async def open_stream(stream: ByteStream, settings: Settings, agent: Introduction) -> Opened:
    """Return an agent's connection to the host at the other end of `stream`.

    `agent` describes the agent to the host. The host already has the execution context of the
    agent's terminals, so none is sent. Raises `DaemonError` if the host cannot be used.
    """
    name = "the host"
    params = _with_profile(initialize_params(agent.agent), agent)
    _, received = await _introduce(stream, settings, name, params)
    return Opened(Connected(stream, received), None, name)


def _agent_params(agent: Introduction) -> dict[str, Any]:
    return _with_profile(initialize_params(agent.agent, exec_context.current()), agent)


def _with_profile(params: dict[str, Any], agent: Introduction) -> dict[str, Any]:
    if agent.profile is not None:
        params["_meta"]["acpterm"]["profile"] = agent.profile
    return _with_elicits(params, agent)


def _with_elicits(params: dict[str, Any], agent: Introduction) -> dict[str, Any]:
    if agent.elicits:
        params["_meta"]["acpterm"]["elicits"] = True
    return params


async def _open_daemon(
    settings: Settings,
    name: str,
    recovery: StreamRecovery,
    params: dict[str, Any],
    *,
    is_user: bool,
) -> Opened:
    connecting = partial(daemon.connect, settings, user=is_user)
    stream = await _stream(await anyio.to_thread.run_sync(connecting, abandon_on_cancel=True))
    welcome, received = await _introduce(stream, settings, name, params)
    recovery.welcomed(welcome)
    return Opened(Connected(stream, received), recovery, name)


async def _introduce(
    stream: ByteStream, settings: Settings, name: str, params: dict[str, Any]
) -> tuple[Welcome, bytes]:
    """Send `initialize`; return the response, and the bytes received after it."""
    seconds = initialize_timeout(settings)
    with anyio.move_on_after(seconds):
        try:
            return await _shake_hands(stream, params)
        except RefusedError as error:
            raise DaemonError(f"{name} cannot be used: {error.message}") from error
        except HandshakeError as error:
            raise DaemonError(f"{name} cannot be used: {error}") from error
    raise no_answer(name, settings, seconds)


async def _shake_hands(stream: ByteStream, params: dict[str, Any]) -> tuple[Welcome, bytes]:
    """Send `initialize`; return the response, and the bytes received after it."""
    handshake = Handshake(params)
    try:
        with suppress(anyio.BrokenResourceError):  # a response may have arrived before the break
            await stream.send(handshake.line)
        while True:
            try:
                data = await stream.receive(_CHUNK)
            except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
                raise HungUpError("it closes the connection") from error
            if answer := handshake.feed(data):
                return answer
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise


async def _stream(sock: socket.socket) -> UNIXSocketStream:
    try:
        return await UNIXSocketStream.from_socket(sock)
    except BaseException:
        sock.close()
        raise


_PREFIX: Final = "_acpterm/"


class UserRepeats:
    """The requests on the user's socket that have no response yet. Implements `Repeats`.

    `name` is the name of the daemon in error messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: dict[Id, _Open] = {}

    def request(self, id_: Id, method: str, line: bytes) -> None:
        """Record the request `id_`, which is about to be sent as `line`."""
        self._open[id_] = _Open(method.removeprefix(_PREFIX), line)

    def cancel(self, id_: Id, line: bytes) -> None:
        """Record that the request `id_` was cancelled by the message in `line`."""
        if (request := self._open.get(id_)) is not None:
            request.lines += line

    def answered(self, id_: Id) -> None:
        """Remove the request `id_`, whose response was received."""
        self._open.pop(id_, None)

    def lost(self) -> Lost:
        """Return the lines to send on the next connection, after the stream was lost."""
        lost = Lost([], [])
        for id_, request in list(self._open.items()):
            request.losses += 1
            if request.losses <= request.repeats:
                lost.lines.append(request.lines)
            else:
                del self._open[id_]
                lost.errors.append((id_, unknown_outcome(self._name, request.method)))
        return lost


class _Open:
    def __init__(self, method: str, line: bytes) -> None:
        self.method = method
        self.lines = line
        self.losses = 0
        self.repeats = float("inf") if method == "events" else REPEATABLE.get(method, 0)
