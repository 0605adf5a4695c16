"""Recognises `terminal/create` requests that a client repeats, so that none is executed twice.

A client whose connection was resumed on another transport repeats the requests to which it has no
response. A repeated request has the same JSON-RPC id as before. States of an id:

- *in flight*: the terminal is being created.
- *unconfirmed*: the terminal exists, and its record contains the id. This ends when a later request
  names the terminal, since that proves that the client has received the response.
- *repeatable*: the id was in flight or unconfirmed when the connection was resumed (`resumed`), and
  the request has not been repeated since.

If the id of a request is not repeatable, the request is new, even if an earlier request had the
same id.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from acpterm.host.entry import TerminalEntry
from acpterm.host.state.records import RequestId
from acpterm.jsonrpc import Id

_ID_MAX: Final = 256
"""The maximum length of a string id that can be recognised, in characters."""


def recognisable_id(request: Id) -> RequestId | None:
    """Return the request's id, or None if the id is null or a string too long to be recognised."""
    return None if isinstance(request, str) and len(request) > _ID_MAX else request


class Creates:
    """The `terminal/create` requests of one agent's connection, by their ids."""

    def __init__(self) -> None:
        self._entries: dict[RequestId, TerminalEntry] = {}
        self._in_flight: dict[RequestId, trio.Event] = {}
        self._repeatable: set[RequestId] = set()

    def add(self, entry: TerminalEntry) -> None:
        """Record that the request whose id is in the terminal's record has created the terminal."""
        if entry.record.request is not None:
            self._entries[entry.record.request] = entry

    def confirm(self, entry: TerminalEntry) -> None:
        """Record that a later request has named the terminal, so its id is known to the client."""
        request = entry.record.request
        if request is not None:
            if self._entries.get(request) is entry:
                del self._entries[request]
            entry.record_answer()

    def resumed(self) -> None:
        """Record that the connection was resumed: the client may now repeat requests."""
        self._repeatable = self._entries.keys() | self._in_flight.keys()

    def repeated(self, request: RequestId | None) -> TerminalEntry | None:
        """Return the terminal that exists already if this request is a repetition; else None.

        If an earlier request had the same id but this one is new, the client has reused the id, so
        it has the response to the earlier request: the earlier terminal is confirmed.
        """
        entry = None if request is None else self._entries.get(request)
        if entry is None:
            return None
        if request in self._repeatable:
            self._repeatable.remove(request)
            return entry
        self.confirm(entry)
        return None

    async def wait_in_flight(self, request: RequestId | None) -> None:
        """Wait until no create request with this id is in flight."""
        while request is not None and (done := self._in_flight.get(request)) is not None:
            await done.wait()

    @contextmanager
    def in_flight(self, request: RequestId | None) -> Iterator[None]:
        """Mark a create request as in flight during the block."""
        if request is None:
            yield
            return
        done = self._in_flight[request] = trio.Event()
        try:
            yield
        finally:
            del self._in_flight[request]
            done.set()
