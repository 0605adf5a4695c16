"""Connections to the daemon as trio streams, and reconnection after a loss.

For commands with one request or one stream of output see `user.blocking_client`.
"""

import math
import socket
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import trio

from acpterm.client import daemon
from acpterm.client.handshake import (
    RETRY_PAUSE_S,
    ClosedError,
    Handshake,
    HandshakeError,
    ReconnectAttempts,
    Welcome,
)
from acpterm.config import Settings, agent_socket, user_socket
from acpterm.runtime.threads import run_blocking

_CHUNK: Final = 64 * 1024


class Reconnected(NamedTuple):
    """A new connection, on which `initialize` was answered."""

    stream: trio.SocketStream
    welcome: Welcome
    received: bytes
    """Bytes received after the answer to `initialize`."""


async def connect(
    settings: Settings, config: str | None = None, *, user: bool = False
) -> trio.SocketStream:
    """Connect to the daemon as `daemon.connect` does, in a thread. Raises `DaemonError`.

    Cancellation does not stop a daemon that is being started.
    """
    connecting = partial(daemon.connect, settings, config, user=user)
    return _stream(await run_blocking(connecting, abandon_on_cancel=True))


async def connect_running(settings: Settings) -> trio.SocketStream | None:
    """Connect to the user's socket as `daemon.connect_running` does. Raises `DaemonError`."""
    await trio.lowlevel.checkpoint()
    sock = daemon.connect_running(settings)
    return None if sock is None else _stream(sock)


def _stream(sock: socket.socket) -> trio.SocketStream:
    return trio.SocketStream(trio.socket.from_stdlib_socket(sock))


async def shake_hands(
    stream: trio.SocketStream, params: dict[str, Any], seconds: float
) -> tuple[Welcome, bytes]:
    """Send `initialize`; return the parsed answer and the bytes received after it.

    Raises `HandshakeError` if there is no valid answer within `seconds`.
    """
    handshake = Handshake(params)
    with trio.move_on_after(seconds):
        with suppress(trio.BrokenResourceError):  # an answer may have arrived before the break
            await stream.send_all(handshake.line)
        while True:
            try:
                data = await stream.receive_some(_CHUNK)
            except trio.BrokenResourceError as error:
                raise ClosedError("it closes the connection") from error
            if answer := handshake.feed(data):
                return answer
    raise HandshakeError(f"it does not answer within {seconds:g} s")


async def reconnect(
    settings: Settings, params: dict[str, Any], seconds: float, *, user: bool = False
) -> Reconnected:
    """Connect to the daemon again, and wait until a worker answers `initialize`.

    Connects to the agents' socket, or with `user` to the user's. Raises `DaemonError` if the daemon
    has ended or refuses, or after `seconds`. Callers put "the daemon is gone: " before its message.
    """
    path = user_socket(settings) if user else agent_socket(settings)
    attempts = ReconnectAttempts(settings, seconds)
    with trio.move_on_after(seconds):
        while True:
            try:
                return await _connect(path, params)
            except (OSError, HandshakeError) as error:
                attempts.failed(error, trio.current_time())
            await trio.sleep(RETRY_PAUSE_S)
    raise attempts.give_up()


async def _connect(path: str, params: dict[str, Any]) -> Reconnected:
    await trio.lowlevel.checkpoint()
    stream = _stream(daemon.open_socket(path))
    try:
        welcome, received = await shake_hands(stream, params, math.inf)
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return Reconnected(stream, welcome, received)
