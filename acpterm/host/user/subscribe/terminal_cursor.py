"""A terminal as one subscriber is told of it: up to where, and what comes next."""

import math
from collections.abc import Iterable
from typing import Final

import trio

from acpterm.acp.terminal_updates import ExitInfo  # noqa: TC001  the type of an attribute
from acpterm.host.user.subscribe.encoders import Update, UpdateEncoder
from acpterm.host.user.subscribe.sources import Source

# Bytes of output in one message.
CHUNK_BYTES: Final = 32 * 1024


class TerminalCursor:
    """One terminal. `source` is None when it is finished, `call` is the one that told of it."""

    def __init__(self, source: Source) -> None:
        self.source: Source | None = source
        self.call: str | None = None
        # What is told of it: up to where, of which output, and which end.
        self.position = 0
        self._generation = 0
        self._end: ExitInfo | None = None
        self.next = -math.inf
        """When it may be told of again."""
        self.delivered = trio.Event()
        """Set when its news were told."""

    def begin(self, call: str, source: Source) -> None:
        """Learn that a call is being told that shows it."""
        self.call, self._generation = call, source.generation

    def replace(self, source: Source) -> None:
        """Take another source, whose output takes the place of what was told."""
        self.source, self._generation, self.position = source, -1, 0

    def has_news(self, source: Source) -> bool:
        """Whether there is something to tell."""
        told = self.position, self._generation, self._end
        return told != (source.length, source.generation, source.end)

    def step(self, form: UpdateEncoder) -> tuple[Iterable[Update], bool]:
        """Give what tells of some output, or of the end after it; and whether there is more."""
        source, call = self.source, self.call
        if source is None or call is None:
            return (), False
        terminal = source.info.terminal
        anew = source.generation != self._generation
        if anew:
            self._generation, self.position = source.generation, 0
        updates = []
        part = source.read(self.position, CHUNK_BYTES)
        self.position = part.position + len(part.data)
        if part.data or part.lost or anew:
            updates += form.output(call, terminal, part.data, lost=part.lost, anew=anew)
        if self.position < source.length:
            return updates, True
        if source.end != self._end:
            self._end = source.end
            updates += form.ended(call, terminal, source.end)
        if source.is_over:
            self.source = None
            form.forget(terminal)
        return updates, False
