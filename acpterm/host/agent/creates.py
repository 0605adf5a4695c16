"""Which request created which terminal: a create that a client repeats is not executed twice.

States of a request's id: *in flight* while its terminal is being created; *unconfirmed* once it is
there, for as long as its record has the id: until a later request names the terminal, so that the
answer has arrived; *repeatable* if it was one of both when the connection's transport was replaced
(`resumed`), until it has been repeated on the new one. An id that is not repeatable is a new
request's, whatever had it before.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from acpterm.host.entry import TerminalEntry
from acpterm.host.state.records import RequestId
from acpterm.jsonrpc import Id

_ID_MAX: Final = 256
"""Characters of an id that is recognised."""


def is_repeatable_id(request: Id) -> RequestId | None:
    """Return the id of a request that can be recognised; None for null and for long ones."""
    return None if isinstance(request, str) and len(request) > _ID_MAX else request


class Creates:
    """The `terminal/create` requests of one connection."""

    def __init__(self) -> None:
        self._entries: dict[RequestId, TerminalEntry] = {}
        self._in_flight: dict[RequestId, trio.Event] = {}
        self._repeatable: set[RequestId] = set()

    def add(self, entry: TerminalEntry) -> None:
        """Note which terminal a request has created; its record says which request."""
        if entry.record.request is not None:
            self._entries[entry.record.request] = entry

    def confirm(self, entry: TerminalEntry) -> None:
        """Note that a later request has named a terminal."""
        request = entry.record.request
        if request is not None:
            if self._entries.get(request) is entry:
                del self._entries[request]
            entry.record_answer()

    def resumed(self) -> None:
        """Note that the client has another transport now, on which it repeats what it asked."""
        self._repeatable = self._entries.keys() | self._in_flight.keys()

    def repeated(self, request: RequestId | None) -> TerminalEntry | None:
        """Return the terminal that a request has created when it was sent before, if it has.

        The terminal of another request with that id is confirmed.
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
        """Wait until no create of that id is in flight."""
        while request is not None and (done := self._in_flight.get(request)) is not None:
            await done.wait()

    @contextmanager
    def in_flight(self, request: RequestId | None) -> Iterator[None]:
        """Have a create in flight in the block."""
        if request is None:
            yield
            return
        done = self._in_flight[request] = trio.Event()
        try:
            yield
        finally:
            del self._in_flight[request]
            done.set()
