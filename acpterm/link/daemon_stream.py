"""Connects to the daemon as `daemon` does, but with trio streams; reconnects lost connections.

Commands that send one request or read one stream of output use `user.blocking_client` instead,
which does not import trio, and so starts faster.
"""

import math
import socket
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import trio

from acpterm.config import Settings, agent_socket, user_socket
from acpterm.jsonrpc import RpcError
from acpterm.link import daemon
from acpterm.link.daemon import DaemonError
from acpterm.link.endpoint import Endpoint
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
    read_welcome,
)
from acpterm.runtime.exec_context import ExecContext
from acpterm.runtime.threads import run_blocking

_CHUNK: Final = 64 * 1024


class Reconnected(NamedTuple):
    """A new connection to the daemon, on which the daemon has responded to `initialize`."""

    stream: trio.SocketStream
    welcome: Welcome
    received: bytes
    """Bytes received after the response to `initialize`."""


async def connect(
    settings: Settings, config: str | None = None, *, user: bool = False
) -> trio.SocketStream:
    """Call `daemon.connect` in a thread; return the connection as a stream.

    The parameters, and the `DaemonError`s that are raised, are those of `daemon.connect`. If
    `connect` is cancelled while a daemon is being started, the daemon continues to start.
    """
    connecting = partial(daemon.connect, settings, config, user=user)
    return _stream(await run_blocking(connecting, abandon_on_cancel=True))


async def connect_running(settings: Settings) -> trio.SocketStream | None:
    """Connect to the user's socket of a running daemon; return None if no daemon is running.

    Raises `DaemonError` as `daemon.connect_running` does.
    """
    await trio.lowlevel.checkpoint()
    sock = daemon.connect_running(settings)
    return None if sock is None else _stream(sock)


def _stream(sock: socket.socket) -> trio.SocketStream:
    return trio.SocketStream(trio.socket.from_stdlib_socket(sock))


async def shake_hands(
    stream: trio.SocketStream, params: dict[str, Any], seconds: float
) -> tuple[Welcome, bytes]:
    """Send `initialize` with `params`; return the parsed response and the bytes received after it.

    Raises `HandshakeError` if there is no valid response within `seconds`.
    """
    handshake = Handshake(params)
    with trio.move_on_after(seconds):
        with suppress(trio.BrokenResourceError):  # a response may have arrived before the break
            await stream.send_all(handshake.line)
        while True:
            try:
                data = await stream.receive_some(_CHUNK)
            except trio.BrokenResourceError as error:
                raise HungUpError("it closes the connection") from error
            if answer := handshake.feed(data):
                return answer
    raise HandshakeError(f"it does not answer within {seconds:g} s")


async def reconnect(
    settings: Settings, params: dict[str, Any], seconds: float, *, user: bool = False
) -> Reconnected:
    """Connect to the daemon again, send `initialize` with `params`, and wait for the response.

    Connect to the agents' socket, or to the user's socket if `user` is true. If an attempt fails,
    try again. Raises `DaemonError` if the daemon has ended, refuses `initialize`, or has not
    responded after `seconds`; callers put "the daemon is gone: " before the error's message.
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
    raise attempts.final_error()


async def _connect(path: str, params: dict[str, Any]) -> Reconnected:
    await trio.lowlevel.checkpoint()
    stream = _stream(daemon.open_socket(path))
    try:
        welcome, received = await shake_hands(stream, params, math.inf)
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return Reconnected(stream, welcome, received)


async def initialize(
    host: Endpoint,
    name: str,
    context: ExecContext | None,
    settings: Settings,
    *,
    approver: str | None = None,
) -> Welcome:
    """Send `initialize` to `host`, and return the parsed response.

    `name` is the client's name. Terminals start with the execution context `context`; if it is
    None, the host determines a context itself. `approver` is the token that makes the connection an
    approver. Raises `DaemonError` if the host refuses, and `NoAnswerError` if the host has not
    responded after ten seconds, or after three if the daemon's keeper reports that there is no
    worker.
    """
    seconds = initialize_timeout(settings)
    with trio.move_on_after(seconds):
        try:
            params = initialize_params(name, context, approver=approver)
            return read_welcome(await host.request("initialize", params))
        except RpcError as error:
            raise DaemonError(f"{host.name} cannot be used: {error.message}") from error
    raise no_answer(host.name, settings, seconds)
