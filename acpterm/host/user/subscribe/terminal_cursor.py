"""A terminal as one subscriber is told of it: up to where, and what comes next."""

import math
from collections.abc import Iterable
from typing import Final

import trio

from acpterm.acp.terminal_updates import End  # noqa: TC001  the type of an attribute
from acpterm.host.user.subscribe.encoders import Form, Update
from acpterm.host.user.subscribe.sources import Source

# Bytes of output in one message.
STEP: Final = 32 * 1024


class Shown:
    """One terminal. `source` is None when it is finished, `call` is the one that told of it."""

    def __init__(self, source: Source) -> None:
        self.source: Source | None = source
        self.call: str | None = None
        # What is told of it: up to where, of which output, and which end.
        self.position = 0
        self._anew = 0
        self._end: End | None = None
        self.next = -math.inf
        """When it may be told of again."""
        self.looked = trio.Event()
        """Set when its news were told."""

    def begin(self, call: str, source: Source) -> None:
        """Learn that a call is being told that shows it."""
        self.call, self._anew = call, source.anew

    def replace(self, source: Source) -> None:
        """Take another source, whose output takes the place of what was told."""
        self.source, self._anew, self.position = source, -1, 0

    def is_stale(self, source: Source) -> bool:
        """Whether there is something to tell."""
        told = self.position, self._anew, self._end
        return told != (source.length, source.anew, source.end)

    def step(self, form: Form) -> tuple[Iterable[Update], bool]:
        """Give what tells of some output, or of the end after it; and whether there is more."""
        source, call = self.source, self.call
        if source is None or call is None:
            return (), False
        terminal = source.info.terminal
        anew = source.anew != self._anew
        if anew:
            self._anew, self.position = source.anew, 0
        updates = []
        part = source.read(self.position, STEP)
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
