"""The client of the user's socket for commands that send one request after another.

It uses a blocking socket, which needs no import of trio: a short command spends most of its time
on imports. Commands that do several things at once use `client.UserClient` instead.
"""

import math
import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, NamedTuple

from msgspec import Raw

from acpterm.acp.base import Wire
from acpterm.acp.user_api import GetRequest, NoParams, TerminalInfo, UserTerminalRequest
from acpterm.commands.requests import TypedNames, not_running
from acpterm.config import Settings
from acpterm.jsonrpc import NotificationReceived, RpcError
from acpterm.link.blocking import BlockingEndpoint, DeadlineError
from acpterm.link.daemon import DaemonError, connect, connect_running
from acpterm.link.errors import LostError
from acpterm.link.session import Response, StreamRequest, W, decode_answer, token_of
from acpterm.link.unanswered import unknown_outcome, user_repeats

# Maximum number of requests without a response. The daemon stops reading requests while no response
# is read, so sending more of them at once might block forever.
_PENDING_MAX: Final = 100


class Slow(NamedTuple):
    """When and how to report a request that has no response yet."""

    after_s: float
    report: Callable[[int], None]
    """Called for each request that has no response after `after_s` seconds, with its index: its
    position in the `params` of `call_each`, or 0 for `call`."""


class BlockingClient(BlockingEndpoint):
    """A client that sends requests over one connection, which `reconnect` may replace.

    Methods lack the prefix `_acpterm/`. Everything that sends raises `RpcError` if the response is
    an error, `LostError` (a subclass) if the connection is lost and the request is not repeated,
    `DaemonError` if the daemon has ended or is of another version, and `DeadlineError` at the time
    `self.deadline`.
    """

    def __init__(
        self, settings: Settings, sock: socket.socket, answer_timeout_s: float | None = None
    ) -> None:
        self._names = TypedNames()
        self._tokens = 0
        # The params of unread notifications, by the token of their stream.
        self._streams: dict[str, deque[Raw]] = {}
        super().__init__(settings, sock, answer_timeout_s, self._notified)

    def _notified(self, notification: NotificationReceived) -> None:
        unread = self._streams.get(token_of(notification.params) or "")
        if unread is not None and isinstance(notification.params, Raw):
            unread.append(notification.params)

    def call(self, method: str, params: Wire, into: type[W], slow: Slow | None = None) -> W:
        """Send a request and return its result, decoded as `into`."""
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
        responses. The caller must send no other request before all responses were yielded.
        """
        losses = 0
        waiting = set(range(len(params)))
        while waiting:
            try:
                now = sorted(waiting)[:_PENDING_MAX]
                for at, answer in self._answers(method, {at: params[at] for at in now}, slow):
                    waiting.discard(at)
                    yield at, self._result(method, params[at], answer, into)
            except LostError as error:
                losses += 1
                if losses > user_repeats(method):
                    for at in sorted(waiting):
                        yield at, unknown_outcome(self.name, method)
                    return
                self.reconnect(error)

    def _answers(
        self, method: str, requests: dict[int, Wire], slow: Slow | None
    ) -> Iterator[tuple[int, Response]]:
        """Send `requests`; yield the index and the response of each, in the order of arrival."""
        answers: deque[tuple[int, Response]] = deque()

        def on_response(at: int, response: Response) -> None:
            answers.append((at, response))

        for at, params in requests.items():
            self.session.call(f"_acpterm/{method}", params, partial(on_response, at))
        unanswered = list(requests)
        slow_at = math.inf if slow is None else time.monotonic() + slow.after_s
        while unanswered:
            if answers:
                unanswered.remove(answers[0][0])
                yield answers.popleft()
            elif not self.receive(slow_at):
                slow_at = math.inf
                if slow is not None:
                    for at in unanswered:
                        slow.report(at)

    def _result(self, method: str, params: Wire, answer: Response, into: type[W]) -> W | RpcError:
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
        """Send `terminal/METHOD` about the terminal with this name or id; return the result."""
        return self.call(f"terminal/{method}", UserTerminalRequest(terminal), into)

    def get_for_input(self, terminal: str) -> TerminalInfo:
        """Return the terminal with this name or id, for a command that types into it.

        ``@last`` means the newest of the user's terminals. A name that an agent's terminal has too
        means the user's, so that nothing is typed into an agent's terminal by mistake.
        """
        return self.call("terminal/get", GetRequest(terminal, own=True), TerminalInfo)

    def request_no_params(self, method: str, into: type[W]) -> W:
        """Send a request without params; return the result, decoded as `into`."""
        return self.call(method, NoParams(), into)

    def token(self) -> str:
        """Return a new token for `stream`, which assigns notifications to their request."""
        self._tokens += 1
        return f"t{self._tokens}"

    def stream(self, method: str, params: StreamRequest) -> Generator[Raw, None, Raw]:
        """Send a request; yield the params of notifications that it causes, and return its result.

        Closing the generator early cancels the request. After a `LostError` the caller may
        `reconnect` and open another stream.
        """
        unread = self._streams[params.token] = deque()
        answers: list[Response] = []
        session = self.session
        id_ = session.call(f"_acpterm/{method}", params, answers.append)
        try:
            while unread or not answers:
                if unread:
                    yield unread.popleft()
                else:
                    self.receive()
        finally:
            del self._streams[params.token]
            if id_ is not None:
                with suppress(OSError, DeadlineError):  # the connection may be closed
                    session.cancel(id_)
        if isinstance(answers[0], RpcError):
            raise self._failure(answers[0], params)
        return answers[0]


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
    daemon that is started reads the settings file `config`, if given. `answer_timeout_s` is the
    `seconds` of `BlockingEndpoint`.
    """
    sock = connect(settings, config, user=True) if start else connect_running(settings)
    if sock is None:
        raise not_running(settings)
    client = BlockingClient(settings, sock, answer_timeout_s)
    try:
        yield client
    finally:
        client.close()
