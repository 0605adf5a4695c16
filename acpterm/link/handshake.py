"""`initialize`, as clients send it to a daemon, and when to stop trying to reconnect. No I/O.

The daemon's response contains a secret (`_meta.acpterm.resume`). A client that has lost its
connection connects again and presents the secret; `resumed` in the response says whether the daemon
still has the client's sessions. Each response replaces the secret.

A connection is lost when the daemon's worker dies. The keeper continues to listen, so a new
connection succeeds at once, and the next worker responds on it when ready. If no process listens,
the daemon itself has ended. A service manager may be starting it again, so a client retries for a
short time before it stops.
"""

import math
from typing import Any, Final, NamedTuple

from msgspec import Raw

from acpterm import __version__
from acpterm.acp import agent_meta
from acpterm.acp.agent_meta import OWN
from acpterm.acp.initialize import PROTOCOL_VERSION, Implementation
from acpterm.acp.raw_json import members, text
from acpterm.config import Settings
from acpterm.jsonrpc import (
    ErrorReceived,
    ErrorResponse,
    Event,
    Peer,
    ResponseReceived,
    UnexpectedResponse,
    is_utf8_encodable,
)
from acpterm.link.daemon import DaemonError, NoAnswerError, read_lock
from acpterm.runtime.exec_context import RLIMITS, ExecContext

INITIALIZE_TIMEOUT_S: Final = 30.0
"""Seconds to wait for the response to `initialize`."""
RETRY_PAUSE_S: Final = 0.05
"""Seconds between two attempts to reconnect."""
# As `INITIALIZE_TIMEOUT_S`, if the keeper reports that there is no worker.
_NO_WORKER_TIMEOUT_S: Final = 3.0
# How long to retry if there is no socket file (the daemon has ended), and if there is one but no
# process listens there (the daemon was killed): a service manager may start another daemon at once.
_NO_SOCKET_TIMEOUT_S: Final = 0.5
_NO_LISTENER_TIMEOUT_S: Final = 3.0
# What to do about a worker that hangs; the keeper reports of one that is dead.
_RESTART: Final = "acpterm restart starts another worker"


class Welcome(NamedTuple):
    """What the response to `initialize` says about resuming, and about questions to the user."""

    secret: str | None = None
    """The secret to present after a lost connection; None if the daemon cannot resume one."""
    resumed: bool = False
    """Whether the daemon has resumed the lost connection whose secret was presented."""
    is_approver: bool = False
    """Whether this client gets the questions to the user."""
    questions: int = 0
    """The number of questions that wait for the user's answer; 0 for an agent's client."""


class HandshakeError(Exception):
    """There is no valid result for `initialize`; the message says what happened instead."""


class HandshakeRefusedError(HandshakeError):
    """The daemon has answered `initialize` with an error, whose message is `message`."""

    def __init__(self, message: str) -> None:
        super().__init__(f"it may be of another version, as it refuses our initialize: {message}")
        self.message: Final = message


class HungUpError(HandshakeError):
    """The daemon closed the connection before its response to `initialize` was complete."""


def initialize_params(
    name: str | None = None,
    context: ExecContext | None = None,
    secret: str | None = None,
    *,
    relay: bool = False,
    approver: str | None = None,
    profile: str | None = None,
    elicits: bool = False,
) -> dict[str, Any]:
    """Return the params of `initialize`; see `acp.agent_meta` for the members of `_meta`.

    `name` is the client's, and terminals start with `context`. Leave out `context` if `secret`
    resumes a connection: the daemon still has it, and the agent may have changed it. `relay` means
    that this process relays the messages of its parent process, the agent.
    """
    own: dict[str, Any] = {"relay": True} if relay else {}
    if context is not None:
        own["context"] = _to_wire(context)
    if secret is not None:
        own["resume"] = secret
    if approver is not None:
        own["approver"] = approver
    if profile is not None:
        own["profile"] = profile
    if elicits:
        own["elicits"] = True
    params: dict[str, Any] = {"protocolVersion": PROTOCOL_VERSION, "_meta": {OWN: own}}
    if name is not None:
        encodable = name if is_utf8_encodable(name) else ascii(name)
        params["clientInfo"] = Implementation(name=encodable, version=__version__)
    return params


def _to_wire(context: ExecContext) -> agent_meta.ExecContextParams:
    # JSON cannot hold text that is not UTF-8. Without a directory, the host asks the operating
    # system for that of this process.
    names = {number: name for name, number in RLIMITS.items()}
    limits = {names[number]: (soft, hard) for number, soft, hard in context.rlimits}
    env = {name: value for name, value in context.env.items() if is_utf8_encodable(name + value)}
    cwd = context.cwd if is_utf8_encodable(context.cwd) else None
    return agent_meta.ExecContextParams(env=env, cwd=cwd, umask=context.umask, rlimits=limits)


def read_welcome(result: Raw) -> Welcome:
    """Return what the result of `initialize` says; members that are invalid are ignored."""
    own = members(members(members(result).get("_meta")).get(OWN))
    resumed, approver = (bytes(own.get(name) or b"") == b"true" for name in ("resumed", "approver"))
    offered = members(members(members(result).get("clientCapabilities")).get("_meta"))
    questions = members(offered.get(OWN)).get("questions")
    count = bytes(questions or b"0")
    return Welcome(text(own.get("resume")), resumed, approver, int(count) if count.isdigit() else 0)


class Handshake:
    """The request `initialize`, to send as `line`, and its response, to pass to `feed`."""

    def __init__(self, params: dict[str, Any]) -> None:
        self._peer = Peer()
        _, self.line = self._peer.request("initialize", params)
        self._received = b""

    def feed(self, data: bytes) -> tuple[Welcome, bytes] | None:
        """Return the response and the bytes after it; None while the response is incomplete.

        Empty `data` means the end of the stream. Raises `HandshakeError`.
        """
        if not data:
            raise HungUpError("it closes the connection")
        self._received += data
        answer, end, rest = self._received.partition(b"\n")
        return (_welcome(self._peer.receive_data(answer + end)), rest) if end else None


def _welcome(answer: list[Event]) -> Welcome:
    match answer:
        case [ResponseReceived(result=result)]:
            return read_welcome(result)
        # If the request was too long for the host to parse, the error response has a null id.
        case [ErrorReceived(error=error) | UnexpectedResponse(message=ErrorResponse(error=error))]:
            raise HandshakeRefusedError(error.message)
        case _:
            raise HandshakeError("what listens there answers something else")


def initialize_timeout(settings: Settings) -> float:
    """Return how many seconds to wait for the response to `initialize`."""
    has_worker = read_lock(settings).message is None
    return INITIALIZE_TIMEOUT_S if has_worker else _NO_WORKER_TIMEOUT_S


def no_answer(name: str, settings: Settings, seconds: float) -> NoAnswerError:
    """Return the error for the host `name`, which has not answered `initialize` in time."""
    advice = read_lock(settings).message or _RESTART
    why = f"it does not answer within {seconds:g} s: {advice}"
    return NoAnswerError(f"{name} cannot be used: {why}")


def unusable(name: str, error: HandshakeError) -> DaemonError:
    """Return the error for the host `name`, which has not answered `initialize` as it should."""
    why = error.message if isinstance(error, HandshakeRefusedError) else str(error)
    return DaemonError(f"{name} cannot be used: {why}")


class ReconnectAttempts:
    """Decides after each failed attempt to reconnect to a daemon whether to try again.

    The caller tries for at most `seconds`, which are only named in an error message here.
    """

    def __init__(self, settings: Settings, seconds: float) -> None:
        self._settings = settings
        self._seconds = seconds
        self._limit: tuple[float, str] = (math.inf, "")
        self._since = 0.0

    def failed(self, error: OSError | HandshakeError, now: float) -> None:
        """Record a failed attempt at the time `now`, of any clock.

        Raises `DaemonError` if more attempts are useless: no process has listened for some time, or
        the daemon's response to `initialize` is an error or invalid.
        """
        match error:
            case FileNotFoundError():
                limit = _NO_SOCKET_TIMEOUT_S, "it has ended"
            case ConnectionRefusedError():
                limit = _NO_LISTENER_TIMEOUT_S, "it was killed"
            case OSError() | HungUpError():
                # The queue of connections is full, or another worker has died.
                limit = math.inf, ""
            case _:
                raise DaemonError(str(error)) from error
        if limit != self._limit:
            self._limit, self._since = limit, now
        if now - self._since >= limit[0]:
            raise self.final_error(limit[1])

    def final_error(self, why: str | None = None) -> DaemonError:
        """Return the error to raise instead of trying again."""
        message = read_lock(self._settings).message
        if why is None:
            why = f"no worker answers within {self._seconds:g} s"
            message = message or _RESTART
        return DaemonError(f"{why}: {message}" if message else why)
