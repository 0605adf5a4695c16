"""The terminals that an agent has itself, and tells of for show: what it has said of those so far.

One session's. They are told in `_meta` or in updates of ACP v2 (`acp.notes`), and kept so that who
comes late sees them as well.

Bounded: each in the output that is kept of it, all of a session in number and in bytes; the oldest
are forgotten first, and one that is told of again then begins anew.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from acpterm.acp.notes import End, Exit, Info, Note, Output
from acpterm.terminal.ring import Ring

MOST: Final = 200
# Bytes of output: of one, and of all of a session together.
KEPT: Final = 256 * 1024
ALL: Final = 2 * 1024 * 1024


class Displayed:
    """One of them. `anew` counts how often its output was replaced as a whole."""

    def __init__(self, identifier: str) -> None:
        self.id: Final = identifier
        self.cwd: str | None = None
        self.command: str | None = None
        self.ring = Ring(KEPT)
        self.end: End | None = None
        self.anew = 0
        self.forgotten = False

    @property
    def held(self) -> int:
        """Bytes of output in memory."""
        return self.ring.end - self.ring.start

    def take(self, note: Note) -> None:
        """Take what is said of it."""
        match note:
            case Info(_, cwd, command):
                self.cwd, self.command = cwd or self.cwd, command or self.command
            case Output(_, data, whole):
                if whole:
                    self.ring, self.anew = Ring(KEPT), self.anew + 1
                self.ring.write(data)
            case Exit(_, end):
                self.end = end


class AllDisplayed:
    """Those of one session."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, Displayed] = OrderedDict()

    def get(self, identifier: str) -> Displayed | None:
        """Give one, if it is remembered."""
        return self._found.get(identifier)

    def take(self, notes: Iterable[Note]) -> list[str]:
        """Take what is said of some: the ids of those."""
        ids: dict[str, None] = {}
        for note in notes:
            found = self._found.get(note.terminal)
            if found is None:
                found = self._found[note.terminal] = Displayed(note.terminal)
            found.take(note)
            ids[found.id] = None
        if ids:
            self._tidy()
        return list(ids)

    def _tidy(self) -> None:
        held = sum(found.held for found in self._found.values())
        while len(self._found) > MOST or (held > ALL and len(self._found) > 1):
            _, gone = self._found.popitem(last=False)
            gone.forgotten = True
            held -= gone.held
