"""The user's connection to the daemon for commands that make requests one after the other.

It uses a blocking socket, which needs no import of trio: a short command spends most of its time
on imports. Commands that do several things at once use `client.UserClient`.

The connection is lost when the daemon's worker dies; see `requests` for what is done then.
"""

import math
import os
import select
import socket
import stat
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Raw

from acpterm.acp.base import Wire
from acpterm.acp.user_api import GetRequest, NoParams, TerminalInfo, UserTerminalRequest
from acpterm.client.daemon import (
    DaemonError,
    NotRunningError,
    connect,
    connect_running,
    open_socket,
)
from acpterm.client.errors import LostError
from acpterm.client.handshake import (
    RETRY_PAUSE_S,
    ClosedError,
    Handshake,
    HandshakeError,
    ReconnectAttempts,
    initialize_params,
    initialize_timeout,
    no_answer,
)
from acpterm.client.user.requests import (
    ONGOING,
    REPEATABLE,
    TypedNames,
    W,
    decode_answer,
    unknown_outcome,
)
from acpterm.config import Settings, user_socket
from acpterm.jsonrpc import (
    INTERNAL_ERROR,
    REQUEST_CANCELLED,
    ErrorReceived,
    Event,
    InvalidReceived,
    NotificationReceived,
    Peer,
    ResponseReceived,
    RpcError,
)
from acpterm.runtime import exec_context

_CHUNK: Final = 64 * 1024
_STDOUT: Final = 1

Answer: TypeAlias = Raw | RpcError


class DeadlineError(Exception):
    """The client's deadline has passed before an answer came."""


class Slow(NamedTuple):
    """What to do when answers take long."""

    after_s: float
    report: Callable[[int], None]
    """Called with the index of each request that has no answer by then."""


class BlockingClient:
    """A connection to the daemon. A deadline is a time of `time.monotonic`."""

    def __init__(self, settings: Settings, sock: socket.socket) -> None:
        self.settings: Final = settings
        self.name: Final = f"the daemon at {user_socket(settings)}"
        self.deadline = math.inf
        """When requests and streams raise `DeadlineError`."""
        self.watches_stdout = False
        """Whether `BrokenPipeError` is raised once no one reads stdout, even if nothing is written
        to it."""
        self._names = TypedNames()
        self._tokens = 0
        self._open(sock, b"")

    def _open(self, sock: socket.socket, received: bytes) -> None:
        self._sock = sock
        self._peer = Peer()
        self._events: deque[Event] = deque(self._peer.receive_data(received))

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def initialize(self, seconds: float | None) -> None:
        """Send `initialize` and wait for its answer.

        Raises `DaemonError`, with the reason, if the daemon cannot be used, and `NoAnswerError`
        after `seconds`: by default ten, or three if the daemon's keeper says there is no worker.
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

    def call(self, method: str, params: Wire, into: type[W], slow: Slow | None = None) -> W:
        """Send a request and wait for its answer.

        Raises `RpcError`, `LostError` among them, and `DaemonError` for an answer of another
        version of the daemon's.
        """
        for _, answer in self.call_each(method, [params], into, slow):
            if isinstance(answer, RpcError):
                raise answer
            return answer
        raise AssertionError(method)

    def call_each(
        self, method: str, params: Sequence[Wire], into: type[W], slow: Slow | None = None
    ) -> Iterator[tuple[int, W | RpcError]]:
        """Send requests at once; yield the index and the answer of each, as the answers come.

        No other request may be sent until all are answered. Raises `DaemonError`.
        """
        repeats = REPEATABLE.get(method, 0)
        waiting = set(range(len(params)))
        while waiting:
            try:
                sent = {self._send(f"_acpterm/{method}", params[at]): at for at in sorted(waiting)}
                for id_, answer in self._answers(sent, slow):
                    at = sent.pop(id_)
                    waiting.discard(at)
                    yield at, self._result(method, params[at], answer, into)
            except LostError as error:
                if method in ONGOING:
                    raise
                if repeats <= 0:
                    for at in sorted(waiting):
                        yield at, unknown_outcome(self.name, method)
                    return
                repeats -= 1
                self.reconnect(error)

    def _answers(self, sent: Mapping[int, int], slow: Slow | None) -> Iterator[tuple[int, Answer]]:
        """Yield the answers to requests with the ids `sent`, until the caller has removed all."""
        slow_at = math.inf if slow is None else time.monotonic() + slow.after_s
        while sent:
            if found := self._answer(min(slow_at, self.deadline)):
                if found[0] in sent:
                    yield found
                continue
            self._check_deadline()
            slow_at = math.inf
            if slow is not None:
                for at in sent.values():
                    slow.report(at)

    def _result(self, method: str, params: Wire, answer: Answer, into: type[W]) -> W | RpcError:
        if isinstance(answer, RpcError):
            return self._failure(answer, params)
        result = decode_answer(self.name, method, answer, into)
        if isinstance(params, UserTerminalRequest):
            self._names.note(result, params.terminal_id)
        return result

    def _failure(self, error: RpcError, params: Wire) -> RpcError:
        if error.code == REQUEST_CANCELLED:
            # Nothing here has cancelled it: the daemon does so when it ends.
            raise DaemonError(f"{self.name} is gone") from error
        return self._names.rename(error, params)

    def terminal_request(self, method: str, terminal: str, into: type[W]) -> W:
        """Send a request about one terminal that takes no other params, as `call` does."""
        return self.call(f"terminal/{method}", UserTerminalRequest(terminal), into)

    def own(self, terminal: str) -> TerminalInfo:
        """Ask for a terminal to type into; ``@last`` is the user's own."""
        return self.call("terminal/get", GetRequest(terminal, own=True), TerminalInfo)

    def request_no_params(self, method: str, into: type[W]) -> W:
        """Send a request that takes no params, as `call` does."""
        return self.call(method, NoParams(), into)

    def token(self) -> str:
        """Make a token for a request that goes on."""
        self._tokens += 1
        return f"t{self._tokens}"

    def stream(self, method: str, params: Wire, notification: str) -> Generator[Raw, None, Raw]:
        """Send a request; yield the params of each `notification`, and return the result.

        Leaving it early cancels the request. Raises as `call` does.
        """
        id_, is_over = self._send(f"_acpterm/{method}", params), False
        try:
            while True:
                match self._next_event(self.deadline):
                    case None:
                        self._check_deadline()
                    case NotificationReceived(name, Raw() as told):
                        if name == f"_acpterm/{notification}":
                            yield told
                    case ResponseReceived(found, result) if found == id_:
                        is_over = True
                        return result
                    case ErrorReceived(found, error) if found == id_:
                        is_over = True
                        raise self._failure(RpcError(error.code, error.message, error.data), params)
        except LostError:
            is_over = True
            raise
        finally:
            if not is_over:
                with suppress(OSError, DeadlineError):  # the connection may be closed
                    self._send_line(self._peer.cancel(id_))

    def reconnect(self, lost: LostError) -> None:
        """Replace the connection. Raises `DaemonError` if that takes over `resume_timeout`."""
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
        raise DaemonError(f"{self.name} is gone: {attempts.give_up()}")

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
            pass  # what the daemon has sent last is still to be read

    def _check_deadline(self) -> None:
        if time.monotonic() >= self.deadline:
            raise DeadlineError

    def _answer(self, until: float) -> tuple[int, Answer] | None:
        """Wait for the next answer; None at `until`. Notifications before it are dropped."""
        while (event := self._next_event(until)) is not None:
            match event:
                case ResponseReceived(id_, result):
                    return id_, result
                case ErrorReceived(id_, error):
                    return id_, RpcError(error.code, error.message, error.data)
        return None

    def _next_event(self, until: float) -> Event | None:
        """Wait for the next message; None at `until`. Raises `LostError`, `BrokenPipeError`."""
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
            what = f"{self.name} said what is no message: {event.error.message}"
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
    """Send `initialize` and wait for the answer; return what came behind it.

    Closes the socket if that fails. Raises `TimeoutError`, `HandshakeError`.
    """
    handshake = Handshake(params)
    try:
        with suppress(ConnectionError):  # an answer may have come all the same
            sock.settimeout(_remaining(deadline))
            sock.sendall(handshake.line)
        while True:
            sock.settimeout(_remaining(deadline))
            try:
                data = sock.recv(_CHUNK)
            except ConnectionError as error:
                raise ClosedError("it closes the connection") from error
            if answer := handshake.feed(data):
                return answer[1]
    except BaseException:
        sock.close()
        raise


def _remaining(deadline: float) -> float | None:
    """Return the seconds until `deadline`, at least one millisecond; None for no deadline."""
    return None if deadline == math.inf else max(0.001, deadline - time.monotonic())


def _is_pipe(fd: int) -> bool:
    """Return whether `fd` has another end that can be closed."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@contextmanager
def open_blocking_client(
    settings: Settings,
    config: str | None = None,
    *,
    start: bool = True,
    patience: float | None = None,
) -> Iterator[BlockingClient]:
    """Be connected to the daemon for as long as the block lasts.

    A daemon that is not running is started, if `start`. Raises `DaemonError` when there is none
    (`NotRunningError`), or it cannot be used: so if it does not answer in `patience` seconds, by
    default ten.
    """
    sock = connect(settings, config, user=True) if start else connect_running(settings)
    if sock is None:
        raise NotRunningError(
            f"no daemon listens at {user_socket(settings)}: there are no terminals"
        )
    client = BlockingClient(settings, sock)
    try:
        client.initialize(patience)
        yield client
    finally:
        client.close()
