"""A subscriber's position in the output of one terminal: what was sent, and what is next."""

import math
from collections.abc import Iterable
from typing import Final

import trio

from acpterm.acp.terminal_updates import ProgramExit  # noqa: TC001  the type of an attribute
from acpterm.host.user.subscribe.encoders import Update, UpdateEncoder
from acpterm.host.user.subscribe.sources import Source

# Maximum bytes of output in one message.
CHUNK_BYTES: Final = 32 * 1024


class TerminalCursor:
    """What one subscriber was sent about one terminal: output, and how its program ended."""

    def __init__(self, source: Source) -> None:
        self.source: Source | None = source
        """The terminal to read from; None once everything was sent."""
        self.call: str | None = None
        """The id of the first tool call sent that shows the terminal; None until one is sent."""
        self.position = 0
        self._generation = 0
        self._end: ProgramExit | None = None
        self.next_turn = -math.inf
        self.delivered: Final = trio.lowlevel.ParkingLot()
        """Unparked when the updates for which the terminal was due have been sent."""

    def begin(self, call: str, source: Source) -> None:
        """Let `step` return updates: `call`, which shows the terminal, is about to be sent."""
        self.call, self._generation = call, source.generation

    def replace(self, source: Source) -> None:
        """Start again at the beginning of another source; its output replaces all that was sent."""
        self.source, self._generation, self.position = source, -1, 0

    def has_updates(self, source: Source) -> bool:
        sent = self.position, self._generation, self._end
        return sent != (source.length, source.generation, source.end)

    def step(self, encoder: UpdateEncoder) -> tuple[Iterable[Update], bool]:
        """Encode the next chunk, or the end; return also whether more can be sent now."""
        source, call = self.source, self.call
        if source is None or call is None:
            return (), False
        terminal = source.info.terminal
        replaced = source.generation != self._generation
        if replaced:
            self._generation, self.position = source.generation, 0
        updates = []
        part = source.read(self.position, CHUNK_BYTES)
        self.position = part.position + len(part.data)
        if part.data or part.lost or replaced:
            updates += encoder.output(call, terminal, part.data, lost=part.lost, replace=replaced)
        if self.position < source.length:
            return updates, True
        if source.end != self._end:
            self._end = source.end
            updates += encoder.ended(call, terminal, source.end)
        if source.is_over:
            self.source = None
            encoder.forget(terminal)
        return updates, False
