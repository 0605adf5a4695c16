"""The client of the user's socket for commands that send one request after another.

It uses a blocking socket, which needs no import of trio: a short command spends most of its time
on imports. Commands that do several things at once use `client.UserClient` instead.

The connection is lost when the daemon's worker dies. `requests` describes which requests are then
repeated.
"""

import math
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from msgspec import Raw

from acpterm.acp.base import Wire
from acpterm.acp.user_api import GetRequest, NoParams, TerminalInfo, UserTerminalRequest
from acpterm.client.user.requests import (
    REPEATABLE,
    StreamRequest,
    TypedNames,
    W,
    decode_answer,
    not_running,
    token_of,
    unknown_outcome,
)
from acpterm.config import Settings
from acpterm.jsonrpc import (
    ErrorReceived,
    NotificationReceived,
    ResponseReceived,
    RpcError,
)
from acpterm.link.blocking import Answer, BlockingConnection, DeadlineError
from acpterm.link.daemon import DaemonError, connect, connect_running
from acpterm.link.errors import LostError

# Maximum number of requests without a response. The daemon stops reading requests while no response
# is read, so sending more of them at once might block forever.
_PENDING_MAX: Final = 100


class Slow(NamedTuple):
    """When and how to report a request that has no response yet."""

    after_s: float
    report: Callable[[int], None]
    """Called for each request that has no response after `after_s` seconds, with its index: its
    position in the `params` of `call_each`, or 0 for `call`."""


class BlockingClient(BlockingConnection):
    """A client that sends requests over one connection, which `reconnect` may replace."""

    def __init__(self, settings: Settings, sock: socket.socket) -> None:
        super().__init__(settings, sock)
        self._names = TypedNames()
        self._tokens = 0

    def call(self, method: str, params: Wire, into: type[W], slow: Slow | None = None) -> W:
        """Send a request and return its result, decoded as `into`.

        `method` lacks the prefix `_acpterm/`. `slow` says when and how to report that there is no
        response yet. Raises `RpcError` if the response is an error, `LostError` (a subclass) if the
        connection is lost and the request is not repeated, `DaemonError` if the daemon has ended or
        is of another version, and `DeadlineError` at the time `self.deadline`.
        """
        for _, answer in self.call_each(method, [params], into, slow):
            if isinstance(answer, RpcError):
                raise answer
            return answer
        raise AssertionError(method)

    def call_each(
        self, method: str, params: Sequence[Wire], into: type[W], slow: Slow | None = None
    ) -> Iterator[tuple[int, W | RpcError]]:
        """Send one request for each of `params`, up to `_PENDING_MAX` at once.

        Yield the index in `params` and the result or error of each request, in the order of the
        responses. The caller must send no other request before all responses were yielded. `method`
        lacks the prefix `_acpterm/`; results are decoded as `into`; `slow` says when and how to
        report that there is no response yet. Raises `DaemonError` if the daemon has ended or is of
        another version, and `DeadlineError` at the time `self.deadline`.
        """
        repeats = REPEATABLE.get(method, 0)
        waiting = set(range(len(params)))
        while waiting:
            try:
                now = sorted(waiting)[:_PENDING_MAX]
                sent = {self._send(f"_acpterm/{method}", params[at]): at for at in now}
                for id_, answer in self._answers(sent, slow):
                    at = sent.pop(id_)
                    waiting.discard(at)
                    yield at, self._result(method, params[at], answer, into)
            except LostError as error:
                if repeats <= 0:
                    for at in sorted(waiting):
                        yield at, unknown_outcome(self.name, method)
                    return
                repeats -= 1
                self.reconnect(error)

    def _answers(self, sent: Mapping[int, int], slow: Slow | None) -> Iterator[tuple[int, Answer]]:
        """Yield the id and the response of each request in `sent`, in the order of arrival.

        `sent` maps the ids of requests to the indices of their params (see `call_each`). The caller
        must remove each yielded id from `sent`; the iteration ends when `sent` is empty. After
        `slow.after_s` seconds, calls `slow.report` with the index of each request that has no
        response yet. Raises the errors of `_next_event`, and `DeadlineError` at the time
        `self.deadline`.
        """
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
        result = decode_answer(self.name, f"_acpterm/{method}", answer, into)
        if isinstance(params, UserTerminalRequest):
            self._names.note(result, params.terminal_id)
        return result

    def _failure(self, error: RpcError, params: object) -> RpcError:
        failure = self._names.failure(self.name, error, params)
        if isinstance(failure, DaemonError):
            raise failure from error
        return failure

    def terminal_request(self, method: str, terminal: str, into: type[W]) -> W:
        """Send a request about the terminal with the name or id `terminal`; return the result.

        `method` lacks the prefix `_acpterm/terminal/`. The result is decoded as `into`. Raises the
        errors of `call`.
        """
        return self.call(f"terminal/{method}", UserTerminalRequest(terminal), into)

    def get_for_input(self, terminal: str) -> TerminalInfo:
        """Return the terminal with this name or id, for a command that types into it.

        ``@last`` means the newest of the user's terminals. If the user and an agent have terminals
        of the same name, the name means the user's terminal. So nothing is typed into an agent's
        terminal by mistake. Raises the errors of `call`, including `RpcError` for an unknown name.
        """
        return self.call("terminal/get", GetRequest(terminal, own=True), TerminalInfo)

    def request_no_params(self, method: str, into: type[W]) -> W:
        """Send a request without params; return the result, decoded as `into`.

        `method` lacks the prefix `_acpterm/`. Raises the errors of `call`.
        """
        return self.call(method, NoParams(), into)

    def token(self) -> str:
        """Return a new token for the params of a request that is sent by the method `stream`.

        The daemon puts the token into each notification that this request causes. So a client can
        assign the notifications to its requests.
        """
        self._tokens += 1
        return f"t{self._tokens}"

    def stream(self, method: str, params: StreamRequest) -> Generator[Raw, None, Raw]:
        """Send a request; yield the params of notifications that it causes, and return its result.

        `method` lacks the prefix `_acpterm/`. Closing the generator early cancels the request.
        Raises `RpcError` if the response is an error, `DaemonError` if the daemon is ending, and
        `DeadlineError` at the time `self.deadline`. Raises `LostError` if the connection is lost;
        the caller may then `reconnect` and open another stream.
        """
        id_, is_over = self._send(f"_acpterm/{method}", params), False
        try:
            while True:
                match self._next_event(self.deadline):
                    case None:
                        self._check_deadline()
                    case NotificationReceived(_, Raw() as notified):
                        if token_of(notified) == params.token:
                            yield notified
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


@contextmanager
def open_blocking_client(
    settings: Settings,
    config: str | None = None,
    *,
    start: bool = True,
    answer_timeout_s: float | None = None,
) -> Iterator[BlockingClient]:
    """Connect to the daemon, and yield a client for the duration of the block.

    If no daemon is running, start one if `start` is true, otherwise raise `NotRunningError`. A
    daemon that is started reads the settings file `config`, if given. Raises `DaemonError` if the
    daemon cannot be used, for example because it does not respond to `initialize` within
    `answer_timeout_s` seconds; None means ten, or three if the daemon's keeper reports that there
    is no worker.
    """
    sock = connect(settings, config, user=True) if start else connect_running(settings)
    if sock is None:
        raise not_running(settings)
    client = BlockingClient(settings, sock)
    try:
        client.initialize(answer_timeout_s)
        yield client
    finally:
        client.close()
