"""Recognises `terminal/create` requests that a client repeats, so that none is executed twice.

States of a request's id:

- *in flight*: the terminal is being created.
- *unconfirmed*: the terminal exists, and its record has the id, until a later request names the
  terminal, which shows that the response has arrived.
- *repeatable*: the id was in flight or unconfirmed when the connection got another transport
  (`resumed`), and has not been repeated since.

A request whose id is not repeatable is a new one, even if an earlier request had the same id.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from acpterm.host.entry import TerminalEntry
from acpterm.host.state.records import RequestId
from acpterm.jsonrpc import Id

_ID_MAX: Final = 256
"""Characters of an id that can be recognised."""


def recognisable_id(request: Id) -> RequestId | None:
    """Return the id if it can be recognised when repeated; None for null and for long ids."""
    return None if isinstance(request, str) and len(request) > _ID_MAX else request


class Creates:
    """The `terminal/create` requests of one connection."""

    def __init__(self) -> None:
        self._entries: dict[RequestId, TerminalEntry] = {}
        self._in_flight: dict[RequestId, trio.Event] = {}
        self._repeatable: set[RequestId] = set()

    def add(self, entry: TerminalEntry) -> None:
        """Record which terminal a request has created; the terminal's record names the request."""
        if entry.record.request is not None:
            self._entries[entry.record.request] = entry

    def confirm(self, entry: TerminalEntry) -> None:
        """Record that a later request has named a terminal."""
        request = entry.record.request
        if request is not None:
            if self._entries.get(request) is entry:
                del self._entries[request]
            entry.record_answer()

    def resumed(self) -> None:
        """Record that the client has another transport, on which it may repeat its requests."""
        self._repeatable = self._entries.keys() | self._in_flight.keys()

    def repeated(self, request: RequestId | None) -> TerminalEntry | None:
        """Return the terminal that this request created when it was sent before, if it was.

        If it is a new request, the terminal of the earlier request with this id is confirmed.
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
