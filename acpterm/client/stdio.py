"""`acpterm stdio` with a daemon: what the agent on stdin and stdout says, and what it is answered.

Bytes pass as they are, and nobody looks at them. Before the first of them the daemon is told whose
environment, folder, umask and limits the terminals get: those of this process, which are its
agent's. That takes a line of our own, whose answer the agent does not see.

Each way has a thread that reads and writes in turn, and both block: so a reader that is slow holds
up the writer at the other end, no more than `_CHUNK` bytes are here at a time, and a byte waits for
no event loop on its way.

States: *open*; *ending*, when the agent has said its last or a signal came: the daemon is told that
nothing more comes, so that it releases the terminals and answers what is pending, and what it says
is passed on until it closes or `_FAREWELL` has gone by; *over*. An agent that reads no more is
gone: the connection is closed at once. A daemon that closes while it is open has ended, or died.
"""

import contextlib
import socket
from typing import Final

import structlog
import trio

from acpterm.acp import PROTOCOL_VERSION, InitializeMeta
from acpterm.acp.extensions import OWN
from acpterm.client.daemon import DaemonError, connect
from acpterm.config import Settings, agent_socket
from acpterm.host import asker as askers
from acpterm.host import logs, stdio
from acpterm.host.asker import Asker, to_send
from acpterm.host.connection import CLOSING, SENDING
from acpterm.host.ending import hear, told_to_end
from acpterm.jsonrpc import ErrorReceived, ErrorResponse, Event, Peer, ResponseReceived, Stray

_CHUNK: Final = 64 * 1024
# Seconds that a daemon has to answer at the beginning.
_PATIENCE: Final = 10.0
# Seconds that the end may take: the daemon's own part of it, and a moment for ours.
_FAREWELL: Final = CLOSING + SENDING + 0.6
_WAY_OUT: Final = "use --embedded, which needs none"

_log = structlog.get_logger("acpterm.stdio")


async def relay_stdio(reads: int, writes: int, settings: Settings, config: str | None) -> None:
    """Pass on what the agent at these descriptors and the daemon say, until one of them is gone.

    The daemon is started if it is not running; `config` is the file that settings were read from,
    if one was named. The descriptors stay open: a thread may still wait at them. Raises
    `DaemonError` when there is no daemon, or it goes before the agent does.
    """
    asker = askers.own()
    hear()
    path = agent_socket(settings)
    async with told_to_end(logs.ending) as told, trio.open_nursery() as nursery:
        starting = trio.CancelScope()
        nursery.start_soon(_cancel_when, told, starting)
        relay: _Relay | None = None
        with starting:
            sock, said = await _reach(path, settings, config, asker)
            relay = _Relay(sock, said, reads, writes)
        if relay is not None:
            _log.info("connected", socket=path)
            if fate := await relay.run(told):
                what = "is gone, and the terminals with it"
                raise DaemonError(f"the daemon at {path} {what}: {fate}")
        nursery.cancel_scope.cancel()


async def _cancel_when(told: trio.Event, scope: trio.CancelScope) -> None:
    await told.wait()
    scope.cancel()


async def _reach(
    path: str, settings: Settings, config: str | None, asker: Asker
) -> tuple[socket.socket, bytes]:
    """Connect to a daemon, and tell it for whom: a blocking socket, and what it has said beyond."""
    try:
        stream = await connect(settings, config)
    except DaemonError as error:
        if "--embedded" in str(error):
            raise
        raise DaemonError(f"{error}; put that right, or {_WAY_OUT}") from error
    async with stream:
        wrong, said = await _introduce(stream, asker)
        if wrong:
            raise DaemonError(
                f"the daemon at {path} cannot be used: {wrong}; end it, or {_WAY_OUT}"
            )
        sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(True)
    return sock, said


async def _introduce(stream: trio.SocketStream, asker: Asker) -> tuple[str | None, bytes]:
    """Tell the daemon for whom the terminals are: what is wrong with its answer, and the rest."""
    peer = Peer()
    wish = InitializeMeta(asker=to_send(asker))
    params = {"protocolVersion": PROTOCOL_VERSION, "_meta": {OWN: wish}}
    _, line = peer.request("initialize", params)
    said = b""
    with trio.move_on_after(_PATIENCE) as patience, contextlib.suppress(trio.BrokenResourceError):
        await stream.send_all(line)
        while b"\n" not in said and (data := await stream.receive_some(_CHUNK)):
            said += data
    answer, whole, rest = said.partition(b"\n")
    if whole:
        return _what_is_wrong(peer.receive_data(answer + whole)), rest
    if patience.cancelled_caught:
        return f"it does not answer within {_PATIENCE:g} s", rest
    return "it closes the connection", rest


def _what_is_wrong(answer: list[Event]) -> str | None:
    match answer:
        case [ResponseReceived()]:
            return None
        # One that it could not read, since it is too long for it, has no id in its answer.
        case [ErrorReceived(error=error) | Stray(message=ErrorResponse(error=error))]:
            return f"it may be of another version, as it refuses our initialize: {error.message}"
        case _:
            return "what listens there answers something else"


class _Relay:
    """One agent, one connection to the daemon: two threads, and a task that watches over them."""

    def __init__(self, sock: socket.socket, said: bytes, reads: int, writes: int) -> None:
        self._sock = sock
        self._said = said
        self._reads = reads
        self._writes = writes
        # Set before the daemon is told, so that it is known by when the daemon closes.
        self._ending = False

    async def run(self, told: trio.Event) -> str | None:
        """Go through the states: how the daemon went, if it was too early.

        `told` is set by a signal to end.
        """
        fate = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_when_told, told, nursery.cancel_scope)
            nursery.start_soon(self._end_with_input, nursery.cancel_scope)
            fate = await trio.to_thread.run_sync(self._down, abandon_on_cancel=True)
            nursery.cancel_scope.cancel()
        # A thread that was abandoned would hold the connection open for as long as it waits.
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        return fate

    async def _end_when_told(self, told: trio.Event, relay: trio.CancelScope) -> None:
        await told.wait()
        self._say_last()
        relay.deadline = trio.current_time() + _FAREWELL

    async def _end_with_input(self, relay: trio.CancelScope) -> None:
        if await trio.to_thread.run_sync(self._up, abandon_on_cancel=True):
            relay.deadline = trio.current_time() + _FAREWELL

    def _say_last(self) -> None:
        self._ending = True
        with contextlib.suppress(OSError):  # the daemon is gone, as `_down` is about to find
            self._sock.shutdown(socket.SHUT_WR)

    def _up(self) -> bool:
        """Pass on what the agent says: whether it has said its last. In a thread."""
        while True:
            try:
                data = stdio.read_some(self._reads, _CHUNK)
            except OSError:  # as the hang-up of a terminal: nothing more comes
                data = b""
            if not data:
                self._say_last()
                return True
            try:
                self._sock.sendall(data)
            except OSError:
                return False

    def _down(self) -> str | None:
        """Pass on what the daemon says until it closes: why too early, if so. In a thread."""
        data = self._said
        while True:
            try:
                stdio.write_fully(self._writes, data)
            except OSError:  # the agent is gone
                return None
            try:
                data = self._sock.recv(_CHUNK)
            except OSError as error:
                return error.strerror or str(error)
            if not data:
                return None if self._ending else "it has closed the connection"
