"""Runs `acpterm stdio` with a daemon: relays between an agent, on stdin and stdout, and the daemon.

First our own `initialize` is sent, whose response the agent does not see. It has the execution
context of this process, which is that of the agent; terminals start with it.

Bytes pass unchanged, with two exceptions. A line from the daemon is passed on only once it is
complete, so that half a line of a worker that dies never reaches the agent. And after the
connection to the daemon was lost, unanswered messages are sent again; to know which, the ids and
methods of all messages are parsed (`RequestLog`).

Each direction has a thread that alternates blocking reads and writes. So a slow reader slows the
writer at the other end, at most `_CHUNK` bytes and one line are in memory per direction, and no
byte waits for an event loop.

States:

- *open*.
- *resuming*, once the connection is lost because the daemon's worker has died. Nothing is read from
  the agent until there is a connection to the next worker, and the daemon has resumed the sessions
  for the secret from `initialize` (`handshake`). Then unanswered messages are sent again
  (`unanswered` says which), and the state is *open* or *ending* as before. Requests that cannot be
  repeated get an error response.
- *ending*, once stdin has ended or a signal was received. The sending side of the connection is
  shut down, so that the daemon releases the terminals and responds to pending requests. Messages
  from the daemon are passed on until it closes the connection, or for `close_timeout_s` seconds. A
  connection that is lost while requests are pending is resumed in this state too.
- *closed*. If writing to the agent fails, the agent has exited, and the connection is closed at
  once. If the connection is lost and cannot be resumed, the daemon has exited, and pending requests
  get an error response. Requests that the agent sends in the next `_REFUSE_S` seconds get an error
  response too, since the agent may have sent them before it could see the first errors.

Threads: only `_pump_to_agent` detects that the connection is lost, and closes it. It also writes to
the agent; once there is no daemon any more, only `_refuse` does. `_pump_to_daemon` sends to the
daemon, and so does `_repeat` after a loss, but never at the same time: `_sending` is true while one
of them sends. `_changed` guards the shared state.
"""

import contextlib
import socket
import threading
from collections import deque
from functools import partial
from typing import Final

import structlog
import trio
from msgspec import UNSET, Raw

from acpterm.agents.envelope import cancelled_id, parse_envelope
from acpterm.config import Settings, agent_socket
from acpterm.jsonrpc import INTERNAL_ERROR, LineSplitter, Oversized, RpcError, encode_error
from acpterm.link.daemon import DaemonError, read_lock
from acpterm.link.daemon_stream import (
    Answered,
    Connected,
    connect,
    raw_socket,
    reconnect,
    shake_hands,
)
from acpterm.link.handshake import HandshakeError, initialize_params, read_welcome
from acpterm.link.unanswered import Unanswered
from acpterm.runtime import blocking_io, exec_context, logs
from acpterm.runtime.exec_context import ExecContext
from acpterm.runtime.send_queue import CLOSE_TIMEOUT_S, SEND_TIMEOUT_S
from acpterm.runtime.shutdown_signals import restore_signal_defaults, shutdown_event


class RequestLog:
    """Finds the agent's pending requests, and the secret for resuming, in the relayed bytes.

    The relay calls `sent` or `received`, each from one thread, before it passes bytes on, so that
    they are queued in the right order even if the agent uses an id again as soon as it has the
    response. `settle` parses them afterwards, so that parsing delays no message. The relay holds a
    lock during all other calls. Lines from the agent of more than `max_line` bytes are not kept.
    """

    def __init__(self, max_line: int) -> None:
        self.unanswered: Final = Unanswered()
        self.secret: str | None = None
        self._lines = LineSplitter(max_line)
        # Whether to drop the rest of the agent's current line: its beginning went to the lost
        # connection, and was too long to keep.
        self._drops_line = False
        # Bytes that are not parsed yet, each with True if they came from the agent.
        self._unparsed: deque[tuple[bool, bytes]] = deque()

    def sent(self, data: bytes) -> bytes:
        """Queue bytes from the agent for parsing; return the bytes to pass on to the daemon."""
        self._unparsed.append((True, data))
        # The rest of a line whose beginning was lost, as it was too long to be kept.
        if self._drops_line:
            _, newline, data = data.partition(b"\n")
            self._drops_line = not newline
        return data

    def received(self, lines: bytes) -> None:
        """Queue complete lines from the daemon for parsing."""
        self._unparsed.append((False, lines))

    def settle(self) -> None:
        """Parse the bytes queued by `sent` and `received`, and update `unanswered` and `secret`."""
        while self._unparsed:
            by_agent, data = self._unparsed.popleft()
            if by_agent:
                self._settle_sent(data)
            elif self.unanswered:
                self._settle_received(data)

    def _settle_sent(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if isinstance(line, Oversized):
                continue
            message = parse_envelope(line)
            if not isinstance(message.method, str):
                continue
            if message.is_request:
                self.unanswered.request(message.key, message.method, line + b"\n")
            elif message.method == "$/cancel_request":
                self.unanswered.cancel(cancelled_id(message.params), line + b"\n")
            else:
                self.unanswered.notification(message.method, line + b"\n")

    def _settle_received(self, lines: bytes) -> None:
        for line in lines.split(b"\n"):
            message = parse_envelope(line)
            if not message.is_response:
                continue
            method = self.unanswered.answered(message.key, failed=message.error is not UNSET)
            if method == "initialize" and isinstance(message.result, Raw):
                self.secret = read_welcome(message.result).secret or self.secret

    def repeat(self) -> tuple[list[bytes], bytes]:
        """Return what to send after a loss: lines to the next worker, errors to the agent."""
        self.settle()
        lines, errors = self.unanswered.lost()
        partial = self._lines.unfinished
        self._drops_line = partial is None
        lines.append(partial or b"")
        return lines, b"".join(encode_error(id_, error) for id_, error in errors)

    def fail(self, error: RpcError) -> bytes:
        """Return the bytes of an error response with `error` for each pending request."""
        self.settle()
        ids = self.unanswered.ids
        for id_ in ids:
            self.unanswered.answered(id_, failed=True)
        return b"".join(encode_error(id_, error) for id_ in ids)


_CHUNK: Final = 64 * 1024
# Bytes of unanswered requests above which nothing more is read from the agent.
_UNANSWERED_BYTES_MAX: Final = 16 * 1024 * 1024
_GONE_MESSAGE: Final = "is gone, and the terminals with it"
# How long the agent's requests get an error response once the daemon has exited.
_REFUSE_S: Final = 0.2

_in_thread: Final = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
_log = structlog.get_logger("acpterm.stdio")


def _blocking_socket(connected: Connected) -> socket.socket:
    """Take the socket out of the stream; return it as a blocking socket."""
    raw = raw_socket(connected.stream)
    assert raw is not None  # noqa: S101  it is the daemon's
    sock = socket.socket(fileno=raw.detach())
    sock.setblocking(True)
    return sock


class StdioRelay:
    """Relays between one agent and the daemon: two threads, and a task that supervises them.

    The agent is at `stdin_fd` and `stdout_fd`. Once stdin has ended or a signal was received, the
    daemon has `close_timeout_s` seconds to respond to pending requests. While requests of more than
    `unanswered_bytes_max` bytes in all have no response, nothing is read from the agent.
    """

    def __init__(
        self,
        daemon: Answered,
        settings: Settings,
        *,
        stdin_fd: int,
        stdout_fd: int,
        close_timeout_s: float,
        unanswered_bytes_max: int,
    ) -> None:
        self._settings = settings
        self._close_timeout_s = close_timeout_s
        self._unanswered_bytes_max = unanswered_bytes_max
        self._stdin_fd = stdin_fd
        self._stdout_fd = stdout_fd
        self._changed = threading.Condition()
        # The connection to the daemon; None while there is none.
        self._sock: socket.socket | None = _blocking_socket(daemon.connected)
        self._sending = False
        self._repeating = False
        self._ending = False
        self._closed = False
        # The error for all further requests, once there is no daemon any more.
        self._gone: RpcError | None = None
        self._requests = RequestLog(settings.max_message_bytes)
        self._requests.secret = daemon.welcome.secret
        # The bytes that `_pump_to_agent` passes on first, before it receives.
        self._unread = daemon.connected.received
        # The beginning of the daemon's last line, until the rest of the line arrives.
        self._partial_line: list[bytes] = []

    async def run(self, shutdown: trio.Event) -> str | None:
        """Relay until the agent or the daemon ends, or until `shutdown` is set (by a signal)."""
        failure = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_on_shutdown, shutdown, nursery.cancel_scope)
                nursery.start_soon(self._end_on_eof, nursery.cancel_scope)
                while failure is None and (why := await _in_thread(self._pump_to_agent)):
                    failure = await self._resume(why, nursery)
                nursery.cancel_scope.cancel()
        finally:
            # An abandoned thread would hold the connection open for as long as it blocks.
            self._close()
        return failure

    async def _end_on_shutdown(self, shutdown: trio.Event, relay: trio.CancelScope) -> None:
        await shutdown.wait()
        self._end_sending()
        relay.deadline = trio.current_time() + self._close_timeout_s

    async def _end_on_eof(self, relay: trio.CancelScope) -> None:
        if await _in_thread(self._pump_to_daemon):
            relay.deadline = trio.current_time() + self._close_timeout_s

    def _end_sending(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            if self._sock is not None and not self._repeating:
                with contextlib.suppress(OSError):  # `_pump_to_agent` detects a lost connection
                    self._sock.shutdown(socket.SHUT_WR)

    def _close(self) -> None:
        with self._changed:
            sock, self._sock = self._sock, None
            self._closed = True
            self._changed.notify_all()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    async def _resume(self, why: str, nursery: trio.Nursery) -> str | None:
        """Reconnect and resume; else fail the pending requests, and return why it is impossible."""
        _log.info("connection lost", reason=why)
        if self._resumable:
            params = initialize_params(secret=self._requests.secret, relay=True)
            try:
                resumed = await reconnect(self._settings, params, self._settings.resume_timeout)
            except DaemonError as error:
                why = str(error)
            else:
                sock = _blocking_socket(resumed.connected)
                if resumed.welcome.resumed:
                    self._use_connection(sock, resumed, nursery)
                    return None
                sock.close()
                why = "another one is there, which has none of them"
        refusal = RpcError(INTERNAL_ERROR, f"the daemon {_GONE_MESSAGE}: {why}")
        await _in_thread(self._refuse, refusal)
        with self._changed:
            self._gone = refusal
            self._changed.notify_all()
        await trio.sleep(_REFUSE_S)
        return why

    def _refuse(self, error: RpcError) -> None:
        with self._changed:
            errors = self._requests.fail(error)
        with contextlib.suppress(OSError):  # the agent has exited
            blocking_io.write_fully(self._stdout_fd, errors)

    @property
    def _resumable(self) -> bool:
        return self._requests.secret is not None and self._settings.resume_timeout > 0

    def _use_connection(
        self, sock: socket.socket, resumed: Answered, nursery: trio.Nursery
    ) -> None:
        with self._changed:
            lines, errors = self._requests.repeat()
            self._requests.secret = resumed.welcome.secret or self._requests.secret
            self._sock = sock
            self._sending = self._repeating = True
        self._unread = errors + resumed.connected.received
        # In a separate thread: the daemon may respond before it has read all lines, and would block
        # if nothing received its responses.
        nursery.start_soon(_in_thread, self._repeat, sock, b"".join(lines))
        _log.info("resumed", requests=len(lines))

    def _repeat(self, sock: socket.socket, data: bytes) -> None:
        self._send(sock, data)
        with self._changed:
            self._repeating = False
        if self._ending:
            self._end_sending()

    # Agent to daemon, in a thread

    def _pump_to_daemon(self) -> bool:
        """Pass bytes on from stdin to the daemon; return True once stdin has ended."""
        while True:
            try:
                data = blocking_io.read_some(self._stdin_fd, _CHUNK)
            except OSError:  # such as EIO when a terminal hangs up: treat it as the end
                data = b""
            if not data:
                self._end_sending()
                return True
            if not self._pass_to_daemon(data):
                return False

    def _pass_to_daemon(self, data: bytes) -> bool:
        with self._changed:
            while (self._sock is None or self._sending) and self._gone is None:
                if self._closed:
                    return False
                self._changed.wait()
            sock, gone = self._sock, self._gone
            data = self._requests.sent(data)
            self._sending = gone is None
        if gone is not None:
            self._refuse(gone)
            return True
        assert sock is not None  # noqa: S101  the loop above has waited for it
        self._send(sock, data)
        with self._changed:
            while self._requests.unanswered.size > self._unanswered_bytes_max and not self._closed:
                self._changed.wait()
            return not (self._closed or self._ending)

    def _send(self, sock: socket.socket, data: bytes) -> None:
        with contextlib.suppress(OSError):  # `_pump_to_agent` detects a lost connection
            sock.sendall(data)
        with self._changed:
            self._requests.settle()
            self._sending = False
            self._changed.notify_all()

    # Daemon to agent, in a thread

    def _pump_to_agent(self) -> str | None:
        """Pass lines on from the daemon to stdout; return why the connection was lost."""
        sock, data = self._sock, self._unread
        assert sock is not None  # noqa: S101  only this thread clears it
        while True:
            try:
                self._pass_to_agent(data)
            except OSError:  # the agent has exited
                return None
            try:
                data = sock.recv(_CHUNK)
            except OSError as error:
                return self._abandon(sock, error.strerror or str(error))
            if data:
                continue
            if not self._ending or (self._resumable and self._requests.unanswered):
                return self._abandon(sock, "it has closed the connection")
            with contextlib.suppress(OSError):
                blocking_io.write_fully(self._stdout_fd, b"".join(self._partial_line))
            return None

    def _pass_to_agent(self, data: bytes) -> None:
        end = data.rfind(b"\n") + 1
        if not end:
            self._partial_line.append(data)
            return
        lines = b"".join((*self._partial_line, data[:end]))
        self._partial_line = [data[end:]]
        self._requests.received(lines)
        blocking_io.write_fully(self._stdout_fd, lines)
        with self._changed:
            self._requests.settle()
            self._changed.notify_all()

    def _abandon(self, sock: socket.socket, why: str) -> str:
        with self._changed:
            self._sock = None
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            # Another thread may still use the socket.
            self._changed.wait_for(lambda: not self._sending)
        sock.close()
        self._partial_line = []
        return why


# Time for the daemon to respond to our `initialize`.
_CONNECT_TIMEOUT_S: Final = 30.0
# The daemon's own limits for closing a connection, and a margin.
_CLOSE_TIMEOUT_S: Final = CLOSE_TIMEOUT_S + SEND_TIMEOUT_S + 0.6
_USE_EMBEDDED: Final = "use --embedded, which needs none"


async def relay_stdio(
    stdin_fd: int,
    stdout_fd: int,
    settings: Settings,
    config: str | None,
    *,
    connect_timeout_s: float = _CONNECT_TIMEOUT_S,
    close_timeout_s: float = _CLOSE_TIMEOUT_S,
    unanswered_bytes_max: int = _UNANSWERED_BYTES_MAX,
) -> None:
    """Relay messages between the agent and the daemon until one of them ends or a signal comes.

    The daemon is started if it is not running; `config` is the path of the settings file given on
    the command line, if any. `connect_timeout_s` is how long the daemon may take to respond to our
    `initialize`. The descriptors of the agent stay open, since a thread may still be reading from
    `stdin_fd`. Raises `DaemonError` if the daemon cannot be started or used, or ends before the
    agent.
    """
    context = exec_context.current()
    restore_signal_defaults()
    path = agent_socket(settings)
    async with shutdown_event(logs.log_shutdown) as shutdown, trio.open_nursery() as nursery:
        starting = trio.CancelScope()
        nursery.start_soon(_cancel_when, shutdown, starting)
        relay: StdioRelay | None = None
        with starting:
            relay = StdioRelay(
                await _connect(path, settings, config, context, connect_timeout_s),
                settings,
                stdin_fd=stdin_fd,
                stdout_fd=stdout_fd,
                close_timeout_s=close_timeout_s,
                unanswered_bytes_max=unanswered_bytes_max,
            )
        if relay is not None:
            _log.info("connected", socket=path)
            if why := await relay.run(shutdown):
                raise DaemonError(f"the daemon at {path} {_GONE_MESSAGE}: {why}")
        nursery.cancel_scope.cancel()


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def _connect(
    path: str, settings: Settings, config: str | None, context: ExecContext, timeout_s: float
) -> Answered:
    try:
        stream = await connect(settings, config)
    except DaemonError as error:
        if "--embedded" in str(error):
            raise
        raise DaemonError(f"{error}; put that right, or {_USE_EMBEDDED}") from error
    params = initialize_params(context=context, relay=True)
    failure = f"it does not answer within {timeout_s:g} s"
    with trio.move_on_after(timeout_s):
        try:
            return await shake_hands(stream, params)
        except HandshakeError as error:
            failure = str(error)
    message = read_lock(settings).message
    why = f"{failure}; end it" if message is None else f"{failure}: {message}"
    raise DaemonError(f"the daemon at {path} cannot be used: {why}, or {_USE_EMBEDDED}")
