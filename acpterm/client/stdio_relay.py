"""What an agent on stdin and stdout and the daemon say to each other, passed on.

Bytes pass as they are, with two exceptions: a line of the daemon's is passed on when it is whole,
so that half a line of a daemon that dies never reaches the agent; and what is unanswered is sent
again when the connection was lost. For that the ids and methods of messages are looked at.

Each way has a thread that reads and writes in turn, and both block: so a reader that is slow holds
up the writer at the other end, no more than `_CHUNK` bytes and one line are here at a time, and a
byte waits for no event loop on its way.

States:

- *open*.
- *resuming*, when the connection is lost: the daemon's worker has died. Nothing is read from the
  agent until there is a connection to the next worker and the daemon has presented the sessions
  again for the secret that `initialize` gave us (`handshake`). Then what is unanswered is sent
  again (`unanswered` says what is), and the connection is *open* or *ending*, as before. Requests
  that cannot be repeated are answered with an error.
- *ending*, when the agent has said its last or a signal came: the daemon is told that nothing more
  comes, so that it releases the terminals and answers what is pending, and what it says is passed
  on until it closes or `close_timeout` has gone by. A connection that is lost before all is
  answered is resumed in this state too.
- *over*. An agent that reads no more is gone: the connection is closed at once. A daemon that
  closes while it is open and cannot be resumed has ended: what is pending gets an error.

Who owns what: `_down`'s thread owns the end of the connection: it alone finds it lost and writes to
the agent. `_up`'s thread, and `_repeat`'s after a loss, send to the daemon, never both at a time:
`_sending` is true while one of them does. What they share is guarded by `_changed`.
"""

import contextlib
import socket
import threading
from functools import partial
from typing import Final

import structlog
import trio

from acpterm.client.daemon import DaemonError
from acpterm.client.daemon_stream import Reconnected, reconnect
from acpterm.client.handshake import Welcome, initialize_params
from acpterm.client.request_log import RequestLog
from acpterm.config import Settings
from acpterm.jsonrpc import INTERNAL_ERROR, RpcError
from acpterm.runtime import blocking_io

_CHUNK: Final = 64 * 1024
# Bytes of requests without an answer above which nothing more is read from the agent.
UNANSWERED_BYTES_MAX: Final = 16 * 1024 * 1024
GONE_MESSAGE: Final = "is gone, and the terminals with it"

_in_thread: Final = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
_log = structlog.get_logger("acpterm.stdio")


def blocking_socket(stream: trio.SocketStream) -> socket.socket:
    """Take the socket out of a stream."""
    sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(True)
    return sock


class Relay:
    """One agent and its connection to the daemon: two threads, and a task that supervises them."""

    def __init__(
        self,
        sock: socket.socket,
        welcome: Welcome,
        received: bytes,
        settings: Settings,
        *,
        reads: int,
        writes: int,
        close_timeout: float,
    ) -> None:
        self._settings = settings
        self._close_timeout = close_timeout
        self._reads = reads
        self._writes = writes
        self._changed = threading.Condition()
        # The connection; None while there is none.
        self._sock: socket.socket | None = sock
        self._sending = False
        self._repeating = False
        self._ending = False
        self._over = False
        self._requests = RequestLog(settings.max_message_bytes)
        self._requests.secret = welcome.secret
        # What the agent is sent next, and the beginning of a line of the daemon's.
        self._received = received
        self._begun: list[bytes] = []

    async def run(self, told: trio.Event) -> str | None:
        """Go through the states; return how the daemon went, if it was too early.

        `told` is set by a signal to end.
        """
        fate = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_when_told, told, nursery.cancel_scope)
                nursery.start_soon(self._end_with_input, nursery.cancel_scope)
                while fate is None and (why := await _in_thread(self._down)):
                    fate = await self._resume(why, nursery)
                nursery.cancel_scope.cancel()
        finally:
            # A thread that was abandoned would hold the connection open for as long as it waits.
            self._close()
        return fate

    async def _end_when_told(self, told: trio.Event, relay: trio.CancelScope) -> None:
        await told.wait()
        self._say_last()
        relay.deadline = trio.current_time() + self._close_timeout

    async def _end_with_input(self, relay: trio.CancelScope) -> None:
        if await _in_thread(self._up):
            relay.deadline = trio.current_time() + self._close_timeout

    def _say_last(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            if self._sock is not None and not self._repeating:
                with contextlib.suppress(OSError):  # it is lost, as `_down` is about to find
                    self._sock.shutdown(socket.SHUT_WR)

    def _close(self) -> None:
        with self._changed:
            sock, self._sock = self._sock, None
            self._over = True
            self._changed.notify_all()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    async def _resume(self, why: str, nursery: trio.Nursery) -> str | None:
        """Reconnect and resume; return why that is not possible.

        Then what is unanswered is answered with an error.
        """
        _log.info("connection lost", reason=why)
        if self._resumable:
            params = initialize_params(secret=self._requests.secret, relay=True)
            try:
                found = await reconnect(self._settings, params, self._settings.resume_timeout)
            except DaemonError as error:
                why = str(error)
            else:
                sock = blocking_socket(found.stream)
                if found.welcome.resumed:
                    self._go_on(sock, found, nursery)
                    return None
                sock.close()
                why = "another one is there, which has none of them"
        errors = self._requests.fail(RpcError(INTERNAL_ERROR, f"the daemon {GONE_MESSAGE}: {why}"))
        with contextlib.suppress(OSError):  # the agent is gone
            await _in_thread(blocking_io.write_fully, self._writes, errors)
        return why

    @property
    def _resumable(self) -> bool:
        return self._requests.secret is not None and self._settings.resume_timeout > 0

    def _go_on(self, sock: socket.socket, found: Reconnected, nursery: trio.Nursery) -> None:
        with self._changed:
            lines, answers = self._requests.repeat()
            self._requests.secret = found.welcome.secret or self._requests.secret
            self._sock = sock
            self._sending = self._repeating = True
        self._received = answers + found.received
        # In a thread of its own: the daemon may answer before it has read all of them.
        nursery.start_soon(_in_thread, self._repeat, sock, b"".join(lines))
        _log.info("resumed", requests=len(lines))

    def _repeat(self, sock: socket.socket, data: bytes) -> None:
        """Send again what is unanswered, in a thread."""
        self._send(sock, data)
        with self._changed:
            self._repeating = False
        if self._ending:
            self._say_last()

    # The agent's messages, in a thread

    def _up(self) -> bool:
        """Pass on what the agent says: whether it has said its last."""
        while True:
            try:
                data = blocking_io.read_some(self._reads, _CHUNK)
            except OSError:  # as the hang-up of a terminal: nothing more comes
                data = b""
            if not data:
                self._say_last()
                return True
            if not self._pass_up(data):
                return False

    def _pass_up(self, data: bytes) -> bool:
        """Send to the daemon, when there is a connection; return whether more can be sent."""
        with self._changed:
            while self._sock is None or self._sending:
                if self._over:
                    return False
                self._changed.wait()
            sock = self._sock
            data = self._requests.sent(data)
            self._sending = True
        self._send(sock, data)
        with self._changed:
            while self._requests.unanswered.size > UNANSWERED_BYTES_MAX and not self._over:
                self._changed.wait()
            return not (self._over or self._ending)

    def _send(self, sock: socket.socket, data: bytes) -> None:
        with contextlib.suppress(OSError):  # it is lost, as `_down` is about to find
            sock.sendall(data)
        with self._changed:
            self._requests.settle()
            self._sending = False
            self._changed.notify_all()

    # The daemon's messages, in a thread

    def _down(self) -> str | None:
        """Pass on what the daemon says; return how the connection ended, None if all is over."""
        sock, data = self._sock, self._received
        assert sock is not None  # noqa: S101  it is this thread that finds it lost
        while True:
            try:
                self._pass_down(data)
            except OSError:  # the agent is gone
                return None
            try:
                data = sock.recv(_CHUNK)
            except OSError as error:
                return self._lose(sock, error.strerror or str(error))
            if data:
                continue
            if not self._ending or (self._resumable and self._requests.unanswered):
                return self._lose(sock, "it has closed the connection")
            with contextlib.suppress(OSError):
                blocking_io.write_fully(self._writes, b"".join(self._begun))
            return None

    def _pass_down(self, data: bytes) -> None:
        """Write whole lines to the agent; keep the beginning of one. Raises `OSError`."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._begun.append(data)
            return
        lines = b"".join((*self._begun, data[:end]))
        self._begun = [data[end:]]
        self._requests.received(lines)
        blocking_io.write_fully(self._writes, lines)
        with self._changed:
            self._requests.settle()
            self._changed.notify_all()

    def _lose(self, sock: socket.socket, why: str) -> str:
        """Close a connection that was lost, and return why; half a line of the daemon's is dropped.

        No other thread uses it then.
        """
        with self._changed:
            self._sock = None
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._sending)
        sock.close()
        self._begun = []
        return why
