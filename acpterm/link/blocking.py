"""A blocking connection to the user's socket: handshake, reconnection, messages, deadline.

It does not import trio. `blocking_client` builds requests and streams of notifications on it.
"""

import math
import os
import select
import socket
import stat
import time
from collections import deque
from contextlib import suppress
from typing import Any, Final, TypeAlias

from msgspec import Raw

from acpterm.config import Settings, user_socket
from acpterm.jsonrpc import (
    INTERNAL_ERROR,
    ErrorReceived,
    Event,
    InvalidReceived,
    Peer,
    ResponseReceived,
    RpcError,
)
from acpterm.link.daemon import DaemonError, open_socket
from acpterm.link.errors import LostError
from acpterm.link.handshake import (
    RETRY_PAUSE_S,
    Handshake,
    HandshakeError,
    HungUpError,
    ReconnectAttempts,
    initialize_params,
    initialize_timeout,
    no_answer,
    read_welcome,
)
from acpterm.runtime import exec_context

_WAIT_MAX_S: Final = 21 * 86_400.0
_CHUNK: Final = 64 * 1024
_STDOUT: Final = 1

Answer: TypeAlias = Raw | RpcError


class DeadlineError(Exception):
    """No response has arrived before the time `BlockingConnection.deadline`."""


class BlockingConnection:
    """A connection to the daemon over `sock`. All times are those of `time.monotonic`."""

    def __init__(self, settings: Settings, sock: socket.socket) -> None:
        self.settings: Final = settings
        self.name: Final = f"the daemon at {user_socket(settings)}"
        self.deadline = math.inf
        """The time at which requests and streams raise `DeadlineError`."""
        self.questions = 0
        """How many questions waited for the user's answer when the connection was opened."""
        self.watches_stdout = False
        """Whether waiting for the daemon raises `BrokenPipeError` once stdout has no reader, even
        if nothing is written to stdout."""
        self._open(sock, b"")

    def _open(self, sock: socket.socket, received: bytes) -> None:
        self._sock = sock
        self._peer = Peer()
        self._events: deque[Event] = deque(self._peer.receive_data(received))

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def initialize(self, seconds: float | None) -> None:
        """Send `initialize` and wait for the response.

        Raises `DaemonError` if the daemon refuses, and `NoAnswerError` if it has not responded
        after `seconds`; None means ten seconds, or three if the daemon's keeper reports that there
        is no worker.
        """
        if seconds is None:
            seconds = initialize_timeout(self.settings)
        before, self.deadline = self.deadline, min(self.deadline, time.monotonic() + seconds)
        try:
            self._send("initialize", initialize_params("acpterm", exec_context.current()))
            self._initialized(self._answer(self.deadline))
        except DeadlineError as error:
            raise no_answer(self.name, self.settings, seconds) from error
        except RpcError as error:
            raise DaemonError(f"{self.name} cannot be used: {error.message}") from error
        finally:
            self.deadline = before

    def _initialized(self, answer: tuple[int, Answer] | None) -> None:
        if answer is None:
            raise DeadlineError
        if isinstance(answer[1], RpcError):
            raise answer[1]
        self.questions = read_welcome(answer[1]).questions

    def reconnect(self, lost: LostError) -> None:
        """Connect to the daemon's next worker, after this connection ended.

        `lost` is the error that reported the end; it may become the cause of a `DaemonError`.
        Raises `DaemonError` if the daemon has ended, or if no worker responds within
        `resume_timeout` seconds (a setting), and `DeadlineError` at the time `self.deadline`.
        """
        limit = self.settings.resume_timeout
        self._sock.close()
        if not limit:
            raise DaemonError(f"{self.name} is gone") from lost
        attempts = ReconnectAttempts(self.settings, limit)
        end = time.monotonic() + limit
        params = initialize_params("acpterm", exec_context.current())
        while (now := time.monotonic()) < end:
            self._check_deadline()
            try:
                sock = open_socket(user_socket(self.settings))
                self._open(sock, _shake_hands(sock, params, min(end, self.deadline)))
            except TimeoutError:
                continue
            except DaemonError as error:
                raise DaemonError(f"{self.name} is gone: {error}") from error
            except (OSError, HandshakeError) as error:
                try:
                    attempts.failed(error, now)
                except DaemonError as gone:
                    raise DaemonError(f"{self.name} is gone: {gone}") from error
            else:
                return
            time.sleep(RETRY_PAUSE_S)
        raise DaemonError(f"{self.name} is gone: {attempts.final_error()}")

    def _send(self, method: str, params: Any) -> int:
        id_, line = self._peer.request(method, params)
        self._send_line(line)
        return id_

    def _send_line(self, line: bytes) -> None:
        self._check_deadline()
        self._sock.settimeout(_remaining(self.deadline))
        try:
            self._sock.sendall(line)
        except TimeoutError as error:
            raise DeadlineError from error
        except ConnectionError:
            pass  # the daemon's last messages can still be read

    def _check_deadline(self) -> None:
        if time.monotonic() >= self.deadline:
            raise DeadlineError

    def _answer(self, until: float) -> tuple[int, Answer] | None:
        """Wait for the next response; return its id, and its result or error. Drop notifications.

        Return None if no response has arrived at the time `until`. Raises the errors of
        `_next_event`.
        """
        while (event := self._next_event(until)) is not None:
            match event:
                case ResponseReceived(id_, result):
                    return id_, result
                case ErrorReceived(id_, error):
                    return id_, RpcError(error.code, error.message, error.data)
        return None

    def _next_event(self, until: float) -> Event | None:
        """Wait for the next message; return None if no message has arrived at the time `until`.

        Raises `LostError` if the connection has ended, `RpcError` for an invalid message, and
        `BrokenPipeError` if `watches_stdout` is set and stdout has no reader.
        """
        while not self._events:
            if not self._wait_readable(until):
                return None
            try:
                data = self._sock.recv(_CHUNK)
            except ConnectionError:
                data = b""
            if not data:
                raise LostError(f"{self.name} is gone")
            self._events.extend(self._peer.receive_data(data))
        event = self._events.popleft()
        if isinstance(event, InvalidReceived):
            what = f"{self.name} sent an invalid message: {event.error.message}"
            raise RpcError(INTERNAL_ERROR, what)
        return event

    def _wait_readable(self, until: float) -> bool:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        if self.watches_stdout and _is_pipe(_STDOUT):
            poll.register(_STDOUT, 0)
        remaining = _remaining(until)
        found = poll.poll(None if remaining is None else math.ceil(1000 * remaining))
        if any(fd == _STDOUT for fd, _ in found):
            raise BrokenPipeError
        return bool(found)


def _shake_hands(sock: socket.socket, params: dict[str, Any], deadline: float) -> bytes:
    """Send `initialize` with `params`; return the bytes received after the response to it.

    Closes the socket on failure. Raises `HandshakeError` if the response is an error or invalid, or
    if the connection is closed before the response, and `TimeoutError` at the time `deadline`.
    """
    handshake = Handshake(params)
    try:
        with suppress(ConnectionError):  # a response may have arrived before the connection broke
            sock.settimeout(_remaining(deadline))
            sock.sendall(handshake.line)
        while True:
            sock.settimeout(_remaining(deadline))
            try:
                data = sock.recv(_CHUNK)
            except ConnectionError as error:
                raise HungUpError("it closes the connection") from error
            if answer := handshake.feed(data):
                return answer[1]
    except BaseException:
        sock.close()
        raise


def _remaining(deadline: float) -> float | None:
    """Return the seconds until `deadline`, at least one millisecond; None if it is infinite.

    At most three weeks are returned, since poll(2) takes milliseconds as an int.
    """
    if deadline == math.inf:
        return None
    return min(max(0.001, deadline - time.monotonic()), _WAIT_MAX_S)


def _is_pipe(fd: int) -> bool:
    """Return whether `fd` is a pipe or a socket, whose other end can be closed."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
