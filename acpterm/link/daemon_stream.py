"""Connects to the daemon for async code, as `daemon` does; reconnects lost connections.

Commands that send one request or read one stream of output use `blocking` instead, which imports
neither trio nor anyio, and so starts faster.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import anyio
import anyio.to_thread
from anyio.abc import ByteStream, SocketAttribute, UNIXSocketStream

from acpterm.config import Settings, agent_socket, user_socket
from acpterm.link import daemon
from acpterm.link.daemon import DaemonError
from acpterm.link.errors import LostError
from acpterm.link.handshake import (
    RETRY_PAUSE_S,
    Handshake,
    HandshakeError,
    HungUpError,
    ReconnectAttempts,
    Welcome,
    initialize_params,
    initialize_timeout,
    no_answer,
    unusable,
)
from acpterm.link.unanswered import AGENT, Unanswered, user_policy

_CHUNK: Final = 64 * 1024


class Connected(NamedTuple):
    """An open stream, and what was received on it after the response to `initialize`."""

    stream: ByteStream
    received: bytes = b""


class Answered(NamedTuple):
    """A stream on which `initialize` was answered, and what the answer says."""

    connected: Connected
    welcome: Welcome


def raw_socket(stream: ByteStream) -> socket.socket | None:
    """Return the socket of a Unix stream; None for others, which may wrap one (TLS)."""
    if not isinstance(stream, UNIXSocketStream):
        return None
    return stream.extra(SocketAttribute.raw_socket)  # noqa: S610  not Django


async def connect(
    settings: Settings, config: str | None = None, *, user: bool = False
) -> UNIXSocketStream:
    """Call `daemon.connect` in a thread; return the connection as a stream.

    If this is cancelled while a daemon is being started, the daemon continues to start.
    """
    connecting = partial(daemon.connect, settings, config, user=user)
    try:
        sock = await anyio.to_thread.run_sync(connecting, abandon_on_cancel=True)
    except RuntimeError:  # no thread can be started: the user's process limit is reached
        sock = connecting()
    return await UNIXSocketStream.from_socket(sock)


async def connect_running(settings: Settings) -> UNIXSocketStream | None:
    """Connect to the user's socket of a running daemon; return None if no daemon is running."""
    sock = daemon.connect_running(settings)
    return None if sock is None else await UNIXSocketStream.from_socket(sock)


async def open_path(path: str) -> UNIXSocketStream:
    """Connect to the socket at `path`, as `daemon.open_socket` does."""
    return await UNIXSocketStream.from_socket(daemon.open_socket(path))


async def shake_hands(stream: ByteStream, params: dict[str, Any]) -> Answered:
    """Send `initialize`, and wait for the response; close the stream if there is no valid one."""
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
                return Answered(Connected(stream, answer[1]), answer[0])
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise


async def introduce(
    stream: ByteStream, name: str, params: dict[str, Any], settings: Settings
) -> Answered:
    """Send `initialize` to the host `name`, and wait for the response.

    Raises `DaemonError` if the host refuses, and `NoAnswerError` if it has not responded after ten
    seconds, or after three if the daemon's keeper reports that there is no worker.
    """
    seconds = initialize_timeout(settings)
    with anyio.move_on_after(seconds):
        try:
            return await shake_hands(stream, params)
        except HandshakeError as error:
            raise unusable(name, error) from error
    raise no_answer(name, settings, seconds)


async def reconnect(
    settings: Settings, params: dict[str, Any], seconds: float, *, user: bool = False
) -> Answered:
    """Connect to the daemon again, and send `initialize`; if an attempt fails, try again.

    Raises `DaemonError` if the daemon has ended, refuses `initialize`, or has not responded after
    `seconds`; callers put "the daemon is gone: " before the error's message.
    """
    path = user_socket(settings) if user else agent_socket(settings)
    attempts = ReconnectAttempts(settings, seconds)
    with anyio.move_on_after(seconds):
        while True:
            try:
                return await _attempt(path, params)
            except (OSError, HandshakeError) as error:
                attempts.failed(error, anyio.current_time())
            await anyio.sleep(RETRY_PAUSE_S)
    raise attempts.final_error()


async def _attempt(path: str, params: dict[str, Any]) -> Answered:
    return await shake_hands(await open_path(path), params)


class DaemonRecovery:
    """Replaces the lost connection of an endpoint to the daemon `name`.

    An agent's connection is resumed with the secret in `welcome`, the response to `initialize`. The
    user's has no secret, since terminals do not belong to it. `params` returns the params of
    `initialize`, for a secret or None; `unanswered` has the messages to send again.
    """

    def __init__(
        self,
        settings: Settings,
        params: Callable[[str | None], dict[str, Any]] | None = None,
        *,
        user: bool = False,
    ) -> None:
        self._settings: Final = settings
        self._params: Final = params or (lambda secret: initialize_params(secret=secret))
        self._is_user: Final = user
        self.name: Final = f"the daemon at {(user_socket if user else agent_socket)(settings)}"
        self.unanswered: Final = Unanswered(user_policy(self.name) if user else AGENT)
        self._secret: str | None = None

    def welcomed(self, welcome: Welcome) -> None:
        """Record the secret for resuming, if the response to `initialize` has one."""
        self._secret = welcome.secret or self._secret

    async def reconnect(self) -> Connected:
        """Return another connection to the daemon; raise `LostError` if there is none.

        There is none if the daemon has ended, does not respond within `resume_timeout` (a setting),
        or no longer has the agent's terminals.
        """
        seconds = self._settings.resume_timeout
        if not seconds or (self._secret is None and not self._is_user):
            raise LostError(f"{self.name} is gone")
        params = self._params(None if self._is_user else self._secret)
        try:
            connected, welcome = await reconnect(
                self._settings, params, seconds, user=self._is_user
            )
        except DaemonError as error:
            raise LostError(f"{self.name} is gone: {error}") from error
        if not (self._is_user or welcome.resumed):
            await anyio.aclose_forcefully(connected.stream)
            raise LostError(
                f"{self.name} is gone: another one is there, which has none of its terminals"
            )
        self.welcomed(welcome)
        return connected
