"""One request of a connection, from its sending to its response."""

from collections.abc import Callable
from typing import Final

import anyio
from msgspec import Raw

from acpterm.api.errors import ClosedError, request_error
from acpterm.jsonrpc import RpcError


class Call:
    """A request that was sent. `done` is set once `result` can be called.

    `on_done` is called at the same time. If the call was abandoned (`is_abandoned`), because no
    task waits for it any more, `on_late` is called with a result that arrives afterwards.
    """

    def __init__(
        self, on_late: Callable[[Raw], None] | None, on_done: Callable[[], None] | None
    ) -> None:
        self.done: Final = anyio.Event()
        self.is_abandoned = False
        self._on_late = on_late
        self._on_done = on_done
        self._answer: Raw | RpcError | None = None
        self._closed = ""

    def result(self) -> Raw:
        """Return the result.

        Raises `RequestError` if the response is an error, and `ClosedError` if the connection was
        closed before the response.
        """
        if self._answer is None:
            raise ClosedError(self._closed)
        if isinstance(self._answer, RpcError):
            raise request_error(self._answer)
        return self._answer

    def answer(self, answer: Raw | RpcError) -> None:
        """End the call with its response: a result or an error."""
        self._answer = answer
        self._end()
        if self.is_abandoned:
            self.late()

    def late(self) -> None:
        """Pass the result to `on_late`, since no task waits for the result any more.

        If the request has failed, do nothing.
        """
        if self._on_late is not None and isinstance(self._answer, Raw):
            self._on_late(self._answer)

    def close(self, why: str) -> None:
        """End the call without a response; `why` becomes the message of `ClosedError`."""
        self._closed = why
        self._end()

    def _end(self) -> None:
        self.done.set()
        if self._on_done is not None:
            self._on_done()
