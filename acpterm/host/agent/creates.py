"""Recognises `terminal/create` requests that a client repeats, so that none is executed twice.

The client is the process at the other end of the connection: the agent, or a relay such as `acpterm
stdio`. After its connection was resumed on another transport, it repeats the requests to which it
has no response. A repeated request has the same JSON-RPC id as before. States of an id:

- *in flight*: the terminal is being created.
- *unconfirmed*: the terminal exists, and its record contains the id. The state ends when a later
  request names the terminal, which proves that the client has received the response.
- *repeatable*: the id was in flight or unconfirmed when the connection was resumed (`resumed`), and
  the request has not been repeated since.

If the id of a request is not repeatable, the request is new, even if an earlier request had the
same id. The id of an `_acpterm/command/check` request is *in flight* while the user is asked, and
becomes *repeatable* in the same way.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from acpterm.host.entry import TerminalEntry
from acpterm.host.state.records import RequestId
from acpterm.jsonrpc import REQUEST_CANCELLED, Id, RpcError

_ID_MAX: Final = 256
"""The maximum length of a string id that can be recognised, in characters."""


def recognisable_id(request: Id) -> RequestId | None:
    """Return a request's JSON-RPC id; None if it is null, or a string too long to be stored."""
    return None if isinstance(request, str) and len(request) > _ID_MAX else request


class Creates:
    """Recognises repeated requests of one agent's connection, by their JSON-RPC ids."""

    # `on_end` gets the id of each request that the client will not repeat: its question can be
    # removed.

    def __init__(self, on_end: Callable[[RequestId], None] = lambda _: None) -> None:
        self._on_end: Final = on_end
        self._entries: dict[RequestId, TerminalEntry] = {}
        self._in_flight: dict[RequestId, trio.Event] = {}
        self._repeatable: set[RequestId] = set()
        self._resumptions = 0

    def add(self, entry: TerminalEntry) -> None:
        if entry.record.request is not None:
            self._entries[entry.record.request] = entry

    def confirm(self, entry: TerminalEntry) -> None:
        """Record that the client has the response: a later request named the terminal."""
        request = entry.record.request
        if request is not None:
            if self._entries.get(request) is entry:
                del self._entries[request]
            entry.record_answer()

    def resumed(self) -> None:
        self._repeatable = self._entries.keys() | self._in_flight.keys()
        self._resumptions += 1

    def repeated(self, request: RequestId | None) -> TerminalEntry | None:
        """Return the terminal that a repeated request has created already; None if it is new."""
        entry = None if request is None else self._entries.get(request)
        if entry is None:
            return None
        if request is not None and request in self._repeatable:
            self._repeatable.remove(request)
            self._on_end(request)
            return entry
        self.confirm(entry)
        return None

    def is_repeatable(self, request: RequestId | None) -> bool:
        return request in self._repeatable

    async def wait_in_flight(self, request: RequestId | None) -> None:
        """Wait until no earlier request with this id is in flight."""
        # Raises `RpcError` (-32800) if the connection was resumed meanwhile: the client repeats the
        # request on the new transport.
        resumptions = self._resumptions
        while request is not None and (done := self._in_flight.get(request)) is not None:
            await done.wait()
        if self._resumptions != resumptions:
            raise RpcError(REQUEST_CANCELLED, "the connection was resumed on another transport")

    @contextmanager
    def in_flight(self, request: RequestId | None) -> Iterator[None]:
        """Treat the request as in flight during the block, which may ask the user."""
        if request is None:
            yield
            return
        # Otherwise the next request with this id would get the terminal of this one.
        self._repeatable.discard(request)
        done = self._in_flight[request] = trio.Event()
        try:
            yield
        finally:
            del self._in_flight[request]
            if request not in self._repeatable:
                self._on_end(request)
            done.set()
