"""`initialize`, as clients of a daemon send it, and the way back to a daemon after a loss.

The daemon answers with a secret (`_meta.acpterm.resume`). A client that has lost its connection
connects again and presents it; `resumed` in the answer says whether the daemon still has the
client's sessions. The newest secret counts.

A connection is lost when the daemon's worker dies. Its keeper goes on listening, so a new
connection is made at once, and is answered when the next worker is ready. Where nobody listens the
daemon itself has ended: only one that a service manager starts again comes back, and soon.
"""

import math
from contextlib import suppress
from typing import Any, Final, NamedTuple

import trio
from msgspec import Raw

from acpterm import __version__, acp
from acpterm.acp import PROTOCOL_VERSION, Implementation, InitializeMeta
from acpterm.acp.agent_api import OWN
from acpterm.acp.raw_json import members, text
from acpterm.client.daemon import DaemonError, open_socket, read_lock
from acpterm.config import Settings, agent_socket, user_socket
from acpterm.jsonrpc import (
    ErrorReceived,
    ErrorResponse,
    Event,
    Peer,
    ResponseReceived,
    UnexpectedResponse,
    is_utf8_encodable,
)
from acpterm.runtime.exec_context import RLIMITS, ExecContext

_CHUNK: Final = 64 * 1024
_RETRY_PAUSE_S: Final = 0.05
# A daemon that ends removes its socket, one that is killed leaves it. A service manager may start
# another one at once.
_NO_SOCKET_TIMEOUT_S: Final = 0.5
_NO_LISTENER_TIMEOUT_S: Final = 3.0


class Welcome(NamedTuple):
    """What the answer to `initialize` says about resuming."""

    secret: str | None = None
    """What to present after a loss; None from a daemon that cannot be resumed."""
    resumed: bool = False


class HandshakeError(Exception):
    """The answer to `initialize` is none; the message says what came instead."""


class ClosedError(HandshakeError):
    """The connection was closed before the answer."""


class Reconnected(NamedTuple):
    """A new connection, initialized."""

    stream: trio.SocketStream
    welcome: Welcome
    received: bytes
    """What came behind the answer to `initialize`."""


def initialize_params(
    name: str | None = None,
    context: ExecContext | None = None,
    secret: str | None = None,
    *,
    relay: bool = False,
) -> dict[str, Any]:
    """Return the params of `initialize`.

    `context` has the environment, directory, umask and limits for terminals. It is left out when a
    connection is resumed with `secret`: the daemon has it, and an agent may have changed it.
    `relay`: the agent is the parent of this process.
    """
    own: dict[str, Any] = {"relay": True} if relay else {}
    if context is not None:
        own["context"] = InitializeMeta(context=_to_wire(context)).context
    if secret is not None:
        own["resume"] = secret
    params: dict[str, Any] = {"protocolVersion": PROTOCOL_VERSION, "_meta": {OWN: own}}
    if name is not None:
        said = name if is_utf8_encodable(name) else ascii(name)
        params["clientInfo"] = Implementation(name=said, version=__version__)
    return params


def _to_wire(context: ExecContext) -> acp.ExecContext:
    """Return an execution context as `initialize` sends it to a host in another process.

    JSON cannot hold text that is not UTF-8: such variables are left out, and so is such a
    directory, which the host finds out from the system.
    """
    names = {number: name for name, number in RLIMITS.items()}
    limits = {names[number]: (soft, hard) for number, soft, hard in context.rlimits}
    env = {name: value for name, value in context.env.items() if is_utf8_encodable(name + value)}
    cwd = context.cwd if is_utf8_encodable(context.cwd) else None
    return acp.ExecContext(env=env, cwd=cwd, umask=context.umask, rlimits=limits)


def read_welcome(result: Raw) -> Welcome:
    """Return what a result of `initialize` says about resuming."""
    own = members(members(members(result).get("_meta")).get(OWN))
    resumed = own.get("resumed")
    return Welcome(text(own.get("resume")), resumed is not None and bytes(resumed) == b"true")


async def shake_hands(
    stream: trio.SocketStream, params: dict[str, Any], seconds: float
) -> tuple[Welcome, bytes]:
    """Send `initialize`; return what the answer says, and the bytes that came behind it.

    Raises `HandshakeError`, after `seconds` at the latest.
    """
    peer = Peer()
    _, line = peer.request("initialize", params)
    received = b""
    with trio.move_on_after(seconds) as waiting:
        with suppress(trio.BrokenResourceError):  # an answer may have come all the same
            await stream.send_all(line)
        with suppress(trio.BrokenResourceError):
            while b"\n" not in received and (data := await stream.receive_some(_CHUNK)):
                received += data
    answer, end, rest = received.partition(b"\n")
    if end:
        return _welcome(peer.receive_data(answer + end)), rest
    if waiting.cancelled_caught:
        raise HandshakeError(f"it does not answer within {seconds:g} s")
    raise ClosedError("it closes the connection")


def _welcome(answer: list[Event]) -> Welcome:
    match answer:
        case [ResponseReceived(result=result)]:
            return read_welcome(result)
        # One that it could not read, since it is too long for it, has no id in its answer.
        case [ErrorReceived(error=error) | UnexpectedResponse(message=ErrorResponse(error=error))]:
            raise HandshakeError(
                f"it may be of another version, as it refuses our initialize: {error.message}"
            )
        case _:
            raise HandshakeError("what listens there answers something else")


async def reconnect(
    settings: Settings, params: dict[str, Any], seconds: float, *, user: bool = False
) -> Reconnected:
    """Connect to the daemon again, and wait until a worker answers `initialize`.

    It is connected to as an agent, or by the `user`. Raises `DaemonError` when the daemon has ended
    or refuses, or after `seconds`; the message follows "the daemon is gone: ".
    """
    path = user_socket(settings) if user else agent_socket(settings)
    why = f"no worker answers within {seconds:g} s"
    with trio.move_on_after(seconds):
        found, since = (math.inf, ""), trio.current_time()
        while True:
            before = found
            try:
                return await _connect(path, params)
            except FileNotFoundError:
                found = _NO_SOCKET_TIMEOUT_S, "it has ended"
            except ConnectionRefusedError:
                found = _NO_LISTENER_TIMEOUT_S, "it was killed"
            except (OSError, ClosedError):
                # The queue of connections is full, or another worker has died.
                found = math.inf, ""
            except HandshakeError as error:
                raise DaemonError(str(error)) from error
            if found != before:
                since = trio.current_time()
            limit, reason = found
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
