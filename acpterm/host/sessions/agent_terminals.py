"""The terminals that an agent has itself, and tells of for show: what it has said of those so far.

One session's. They are told in `_meta` or in updates of ACP v2 (`acp.notes`), and kept so that who
comes late sees them as well.

Bounded: each in the output that is kept of it, all of a session in number and in bytes; the oldest
are forgotten first, and one that is told of again then begins anew.
"""

from collections import OrderedDict
from collections.abc import Iterable
from sys import getsizeof
from typing import Final

from acpterm.acp.terminal_updates import Exit, ExitInfo, Info, Output, TerminalUpdate
from acpterm.terminal.ring import Ring

TERMINALS_MAX: Final = 200
ID_MAX: Final = 512
# Characters of a directory, and of a command, which is cut there.
CWD_MAX: Final = 4096
COMMAND_MAX: Final = 4096
# Bytes that one takes besides its output and its text.
_EACH_BYTES: Final = 1024
_SIGNAL_MAX: Final = 64
# Bytes of output of one, and of all of a session together with their text.
RETAINED_BYTES: Final = 256 * 1024
TOTAL_BYTES_MAX: Final = 2 * 1024 * 1024


class AgentTerminal:
    """One of them. `anew` counts how often its output was replaced as a whole."""

    def __init__(self, identifier: str) -> None:
        self.id: Final = identifier
        self.cwd: str | None = None
        self.command: str | None = None
        self.ring = Ring(RETAINED_BYTES)
        self.end: ExitInfo | None = None
        self.generation = 0
        self.forgotten = False

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        text = sum(getsizeof(text) for text in (self.id, self.cwd, self.command) if text)
        return _EACH_BYTES + text + self.ring.end - self.ring.start

    def apply(self, note: TerminalUpdate) -> None:
        """Take what is said of it."""
        match note:
            case Info(_, cwd, command):
                if cwd and len(cwd) <= CWD_MAX:
                    self.cwd = cwd
                self.command = command[:COMMAND_MAX] if command else self.command
            case Output(_, data, whole):
                if whole:
                    self.ring, self.generation = Ring(RETAINED_BYTES), self.generation + 1
                self.ring.write(data)
            case Exit(_, end):
                self.end = end and end._replace(signal=end.signal and end.signal[:_SIGNAL_MAX])


class AgentTerminals:
    """Those of one session."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, AgentTerminal] = OrderedDict()
        self.size = 0
        """Bytes of memory that they take, about."""

    def get(self, identifier: str) -> AgentTerminal | None:
        """Give one, if it is remembered."""
        return self._found.get(identifier)

    def apply(self, notes: Iterable[TerminalUpdate]) -> list[str]:
        """Take what is said of some: the ids of those."""
        ids: dict[str, None] = {}
        for note in notes:
            if len(note.terminal) > ID_MAX:
                continue
            found = self._found.get(note.terminal)
            if found is None:
                found = self._found[note.terminal] = AgentTerminal(note.terminal)
            found.apply(note)
            ids[found.id] = None
        if ids:
            self._remove_surplus()
        return list(ids)

    def _remove_surplus(self) -> None:
        self.size = sum(found.size for found in self._found.values())
        while len(self._found) > TERMINALS_MAX or (
            self.size > TOTAL_BYTES_MAX and len(self._found) > 1
        ):
            _, gone = self._found.popitem(last=False)
            gone.forgotten = True
            self.size -= gone.size

    def forget(self) -> None:
        """Forget all of them."""
        for found in self._found.values():
            found.forgotten = True
        self._found.clear()
        self.size = 0
