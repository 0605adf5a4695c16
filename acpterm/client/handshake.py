"""`initialize` as clients of the daemon send it, and reconnecting after a connection is lost.

The daemon's response has a secret (`_meta.acpterm.resume`). A client that has lost its connection
connects again and presents the secret; `resumed` in the response says whether the daemon still has
the client's sessions. The newest secret is valid.

A connection is lost when the daemon's worker dies. The keeper goes on listening, so connecting
again succeeds at once, and the response comes when the next worker is ready. If no process listens,
the daemon itself has exited; it only comes back, within seconds, if a service manager restarts it.
"""

import math
from contextlib import suppress
from typing import Any, Final, NamedTuple

import trio
from msgspec import Raw

from acpterm import __version__
from acpterm.acp import PROTOCOL_VERSION, Implementation, InitializeMeta
from acpterm.acp.agent_api import OWN
from acpterm.acp.raw_json import members, text
from acpterm.client.daemon import DaemonError, open_socket, read_lock
from acpterm.config import Settings, agent_socket, user_socket
from acpterm.host.launch.exec_context import ExecContext, to_wire
from acpterm.jsonrpc import (
    ErrorReceived,
    ErrorResponse,
    Event,
    Peer,
    ResponseReceived,
    UnexpectedResponse,
    is_utf8_encodable,
)

_CHUNK: Final = 64 * 1024
_RETRY_PAUSE_S: Final = 0.05
# A daemon that exits removes its socket, one that is killed leaves it. Wait this long for a service
# manager to start another one.
_NO_SOCKET_TIMEOUT_S: Final = 0.5
_NO_LISTENER_TIMEOUT_S: Final = 3.0


class Welcome(NamedTuple):
    """What the response to `initialize` says about resuming."""

    secret: str | None = None
    """Presented after a loss; None from a daemon that cannot resume connections."""
    resumed: bool = False


class HandshakeError(Exception):
    """`initialize` has no valid response; the message says what happened instead."""


class ClosedError(HandshakeError):
    """The connection was closed before the response."""


class Reconnected(NamedTuple):
    """A new connection that is initialized."""

    stream: trio.SocketStream
    welcome: Welcome
    received: bytes
    """The bytes received after the response to `initialize`."""


def initialize_params(
    name: str | None = None,
    context: ExecContext | None = None,
    secret: str | None = None,
    *,
    relay: bool = False,
) -> dict[str, Any]:
    """Return the params of `initialize`.

    `context` has the environment, directory, umask and limits for terminals. Leave it out when
    resuming with `secret`: the daemon has it, and the agent may have changed it since. `relay`: the
    agent is the parent of this process.
    """
    own: dict[str, Any] = {"relay": True} if relay else {}
    if context is not None:
        own["context"] = InitializeMeta(context=to_wire(context)).context
    if secret is not None:
        own["resume"] = secret
    params: dict[str, Any] = {"protocolVersion": PROTOCOL_VERSION, "_meta": {OWN: own}}
    if name is not None:
        encodable = name if is_utf8_encodable(name) else ascii(name)
        params["clientInfo"] = Implementation(name=encodable, version=__version__)
    return params


def read_welcome(result: Raw) -> Welcome:
    """Parse what a result of `initialize` says about resuming."""
    own = members(members(members(result).get("_meta")).get(OWN))
    resumed = own.get("resumed")
    return Welcome(text(own.get("resume")), resumed is not None and bytes(resumed) == b"true")


async def shake_hands(
    stream: trio.SocketStream, params: dict[str, Any], seconds: float
) -> tuple[Welcome, bytes]:
    """Send `initialize`; return the parsed response and the bytes received after it.

    Raises `HandshakeError`, after `seconds` at the latest.
    """
    peer = Peer()
    _, line = peer.request("initialize", params)
    received = b""
    with trio.move_on_after(seconds) as waiting:
        with suppress(trio.BrokenResourceError):  # a response may have arrived all the same
            await stream.send_all(line)
        with suppress(trio.BrokenResourceError):
            while b"\n" not in received and (data := await stream.receive_some(_CHUNK)):
                received += data
    response, newline, rest = received.partition(b"\n")
    if newline:
        return _welcome(peer.receive_data(response + newline)), rest
    if waiting.cancelled_caught:
        raise HandshakeError(f"it does not answer within {seconds:g} s")
    raise ClosedError("it closes the connection")


def _welcome(response: list[Event]) -> Welcome:
    match response:
        case [ResponseReceived(result=result)]:
            return read_welcome(result)
        # The error for a request that is too long for the daemon to read has no id.
        case [ErrorReceived(error=error) | UnexpectedResponse(message=ErrorResponse(error=error))]:
            raise HandshakeError(
                f"it may be of another version, as it refuses our initialize: {error.message}"
            )
        case _:
            raise HandshakeError("what listens there answers something else")


async def reconnect(
    settings: Settings, params: dict[str, Any], seconds: float, *, user: bool = False
) -> Reconnected:
    """Connect to the daemon again, and wait until a worker responds to `initialize`.

    Connect to the agents' socket, or with `user` to the user's. Raises `DaemonError` if the daemon
    has exited or refuses, or after `seconds`; the message is to follow "the daemon is gone: ".
    """
    path = user_socket(settings) if user else agent_socket(settings)
    why = f"no worker answers within {seconds:g} s"
    with trio.move_on_after(seconds):
        failure, since = (math.inf, ""), trio.current_time()
        while True:
            previous = failure
            try:
                return await _connect(path, params)
            except FileNotFoundError:
                failure = _NO_SOCKET_TIMEOUT_S, "it has ended"
            except ConnectionRefusedError:
                failure = _NO_LISTENER_TIMEOUT_S, "it was killed"
            except (OSError, ClosedError):
                # The listen queue is full, or another worker has died.
                failure = math.inf, ""
            except HandshakeError as error:
                raise DaemonError(str(error)) from error
            if failure != previous:
                since = trio.current_time()
            limit, reason = failure
            if trio.current_time() - since >= limit:
                why = reason
                break
            await trio.sleep(_RETRY_PAUSE_S)
    if message := read_lock(settings).message:
        why = f"{why}: {message}"
    raise DaemonError(why)


async def _connect(path: str, params: dict[str, Any]) -> Reconnected:
    stream = await open_socket(path)
    try:
        welcome, received = await shake_hands(stream, params, math.inf)
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return Reconnected(stream, welcome, received)
