"""One connection to the user's socket of acpterm's daemon on another host, over a forward of ssh.

`remote_keeper` opens the connection, to notice when the daemon cannot be reached any more, and to
release terminals whose bridges have ended. The connection carries no terminals: the bridge of each
terminal has a connection of its own. Before the forward is made, `read_status` checks the daemon's
version, and returns the path of its socket.

States: *open*, once the daemon has accepted `initialize`; *closed*, once the daemon, its worker or
the connection to the host has ended.
"""

import json
import re
import socket
from typing import Final

import trio

from acpterm import __version__
from acpterm.acp.initialize import PROTOCOL_VERSION
from acpterm.jsonrpc import ErrorReceived, Peer, ResponseReceived
from acpterm.providers.provider import ProviderError

_CHUNK: Final = 65536
_UNREACHABLE: Final = (
    "the daemon there cannot be reached through the connection: the server must allow it "
    "(AllowStreamLocalForwarding in sshd_config)"
)
_TEXT_MAX: Final = 200
# The paths that ssh can forward to: it replaces `%` and `${NAME}` in them, and a colon ends them.
_FORWARDABLE: Final = re.compile("/[A-Za-z0-9/_.@+,-]+")


class UnusableError(Exception):
    """The host has no acpterm that can be used; the message says why."""


def terminal_name(identifier: str) -> str:
    """Return the name of the other host's terminal that runs the job with the id `identifier`."""
    return f"kept-{identifier}"


class KeeperLink:
    """An open connection to the daemon on the other host. `open_link` creates the object.

    The task `run` must run. `closed` is set when the connection has ended. `peer` creates and
    parses the messages on `stream`.
    """

    def __init__(self, stream: trio.SocketStream, peer: Peer) -> None:
        self.closed: Final = trio.Event()
        self._stream: Final = stream
        self._peer: Final = peer
        self._sending: Final = trio.Lock()

    async def run(self) -> None:
        """Receive and drop messages until the connection has ended; then close it."""
        try:
            async with self._stream:
                while data := await self._stream.receive_some(_CHUNK):
                    self._peer.receive_data(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.closed.set()

    async def release(self, identifier: str) -> bool:
        """Send a request to release a job's terminal; return whether the request was sent.

        `identifier` is the id of the job. Does not wait for the response.
        """
        params = {"terminalId": terminal_name(identifier)}
        async with self._sending:
            _, line = self._peer.request("_acpterm/terminal/release", params)
            try:
                await self._stream.send_all(line)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return False
        return not self.closed.is_set()


async def open_link(path: str, timeout_s: float) -> KeeperLink:
    """Connect through the forwarded local socket `path`; return the connection once it is open.

    Raises `ProviderError` if the daemon does not answer within `timeout_s`, or if the daemon
    refuses `initialize`.
    """
    with trio.move_on_after(timeout_s):
        try:
            stream = trio.SocketStream(trio.socket.socket(socket.AF_UNIX))
        except OSError as error:
            raise ProviderError(f"no socket can be opened: {error}") from error
        try:
            await stream.socket.connect(path)
            link = await _initialize(stream)
        except (OSError, trio.BrokenResourceError) as error:
            await trio.aclose_forcefully(stream)
            raise ProviderError(_UNREACHABLE) from error
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return link
    raise ProviderError(f"the daemon there did not answer within {timeout_s:g} s")


async def _initialize(stream: trio.SocketStream) -> KeeperLink:
    peer = Peer()
    _, line = peer.request("initialize", {"protocolVersion": PROTOCOL_VERSION})
    await stream.send_all(line)
    while data := await stream.receive_some(_CHUNK):
        for event in peer.receive_data(data):
            match event:
                case ResponseReceived():
                    return KeeperLink(stream, peer)
                case ErrorReceived(_, error):
                    raise ProviderError(f"the daemon there refuses us: {error.message}")
    raise ProviderError(_UNREACHABLE)


def read_status(reply: str) -> tuple[str, str]:
    """Return acpterm's version and the path of the user's socket on the host.

    `reply` is the output of `acpterm status --json` on the host. Raises `UnusableError` if `reply`
    is not valid, if acpterm's version there does not work together with the version here, or if
    ssh cannot forward to the socket.
    """
    try:
        status = json.loads(reply)
        version, path = status["version"], status["userSocket"]
    except (ValueError, TypeError, KeyError, RecursionError):
        text = " ".join(reply.split())[-_TEXT_MAX:]
        raise UnusableError(f"acpterm cannot be used there: {text}") from None
    if not isinstance(version, str) or _generation(version) != _generation(__version__):
        raise UnusableError(f"acpterm {version} is there, and {__version__} here")
    if not isinstance(path, str) or not path.startswith("/"):
        raise UnusableError("the daemon there has no socket for the user")
    if not _FORWARDABLE.fullmatch(path):
        raise UnusableError(f"ssh cannot forward to the socket there: {path[:_TEXT_MAX]!r}")
    return version, path


def _generation(version: str) -> list[str]:
    """Return the numbers of a version that must be equal for two versions to work together.

    This is the major number; if that is 0, the first two numbers.
    """
    numbers = re.findall(r"\d+", version)
    return numbers[:2] if numbers[:1] == ["0"] else numbers[:1]
