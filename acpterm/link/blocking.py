"""`BlockingEndpoint`: a session on a blocking socket, to the user's socket of the daemon.

It imports neither trio nor anyio. The states are those of `session`, but the session is never
*recovering*: each `reconnect` begins another session.
"""

import math
import os
import select
import socket
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from acpterm.config import Settings, user_socket
from acpterm.jsonrpc import NotificationReceived
from acpterm.link.daemon import DaemonError, open_socket
from acpterm.link.errors import LostError
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
    unusable,
)
from acpterm.link.session import ClientSession
from acpterm.runtime import exec_context

_WAIT_MAX_S: Final = 21 * 86_400.0
_CHUNK: Final = 64 * 1024
_STDOUT: Final = 1


class DeadlineError(Exception):
    """No response has arrived before the time `BlockingEndpoint.deadline`."""


class BlockingEndpoint:
    """A session with the daemon over `sock`. All times are those of `time.monotonic`.

    Raises `DaemonError` if the daemon refuses `initialize`, and `NoAnswerError` if it has not
    answered after `seconds`; None means ten, or three if the daemon's keeper reports that there is
    no worker.
    """

    def __init__(
        self,
        settings: Settings,
        sock: socket.socket,
        seconds: float | None,
        on_notification: Callable[[NotificationReceived], None],
    ) -> None:
        self.settings: Final = settings
        self.name: Final = f"the daemon at {user_socket(settings)}"
        self.deadline = math.inf
        """The time at which `send` and `receive` raise `DeadlineError`."""
        self.watches_stdout = False
        """Whether waiting for the daemon raises `BrokenPipeError` once stdout has no reader, even
        if nothing is written to stdout."""
        self._on_notification: Final = on_notification
        if seconds is None:
            seconds = initialize_timeout(settings)
        try:
            welcome = self._open(sock, time.monotonic() + seconds)
        except TimeoutError as error:
            raise no_answer(self.name, settings, seconds) from error
        except HandshakeError as error:
            raise unusable(self.name, error) from error
        self.questions: Final = welcome.questions
        """How many questions waited for the user's answer when the connection was opened."""

    def _open(self, sock: socket.socket, deadline: float) -> Welcome:
        params = initialize_params("acpterm", exec_context.current())
        welcome, received = _shake_hands(sock, params, deadline)
        self._sock = sock
        self.session = ClientSession(self.name, self._send, on_notification=self._on_notification)
        self._dispatch(received)
        return welcome

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def reconnect(self, lost: LostError) -> None:
        """Connect to the daemon's next worker, after `lost` was raised.

        Raises `DaemonError` if the daemon has ended, or if no worker responds within
        `resume_timeout` seconds (a setting), and `DeadlineError` at the time `self.deadline`.
        """
        limit = self.settings.resume_timeout
        self._sock.close()
        if not limit:
            raise DaemonError(f"{self.name} is gone") from lost
        attempts = ReconnectAttempts(self.settings, limit)
        end = time.monotonic() + limit
        while (now := time.monotonic()) < end:
            self._check_deadline()
            try:
                self._open(open_socket(user_socket(self.settings)), min(end, self.deadline))
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

    def _send(self, line: bytes) -> None:
        self._check_deadline()
        self._sock.settimeout(_remaining(self.deadline))
        try:
            self._sock.sendall(line)
        except TimeoutError as error:
            raise DeadlineError from error
        except ConnectionError:
            pass  # the daemon's last messages can still be read

    def receive(self, until: float = math.inf) -> bool:
        """Wait for messages, and dispatch them; return False if there is none at the time `until`.

        Raises `LostError` if the connection has ended, `RpcError` for an invalid message,
        `DeadlineError` at the time `self.deadline`, and `BrokenPipeError` if `watches_stdout` is
        set and stdout has no reader.
        """
        if not self._wait_readable(min(until, self.deadline)):
            self._check_deadline()
            return False
        try:
            data = self._sock.recv(_CHUNK)
        except ConnectionError:
            data = b""
        if not data:
            raise LostError(f"{self.name} is gone")
        self._dispatch(data)
        return True

    def _dispatch(self, data: bytes) -> None:
        for event in self.session.receive(data):
            self.session.dispatch(event)
            if self.session.closed is not None:
                raise self.session.closed

    def _check_deadline(self) -> None:
        if time.monotonic() >= self.deadline:
            raise DeadlineError

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


def _shake_hands(
    sock: socket.socket, params: dict[str, Any], deadline: float
) -> tuple[Welcome, bytes]:
    """Send `initialize`; return the response and what was received after it.

    Closes the socket on failure. Raises `HandshakeError`, and `TimeoutError` at `deadline`.
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
                return answer
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
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
