"""The terminals that an agent runs itself, as its session updates describe them.

Agents describe such terminals in `_meta`, or in updates of ACP v2 (see `acp.terminal_updates`). A
session retains the terminals, so that a client that subscribes later gets them as well.

Memory is bounded: the output of each terminal, and the number and bytes of all terminals of a
session. The oldest terminals are forgotten first. A forgotten terminal that the agent describes
again begins with empty output.
"""

from collections import OrderedDict
from collections.abc import Iterable
from sys import getsizeof
from typing import Final

from acpterm.acp.terminal_updates import ExitUpdate, Info, OutputUpdate, ProgramExit, TerminalUpdate
from acpterm.terminal.private_ring import PrivateRing

TERMINALS_MAX: Final = 200
ID_MAX: Final = 512
# Maximum characters of a directory, which is ignored if longer, and of a command, which is cut.
CWD_MAX: Final = 4096
COMMAND_MAX: Final = 4096
# Bytes that a terminal takes in addition to its output, id, directory and command.
_EACH_BYTES: Final = 1024
_SIGNAL_MAX: Final = 64
# Maximum bytes: of the output of one terminal, and of all terminals of a session.
RETAINED_BYTES: Final = 256 * 1024
TOTAL_BYTES_MAX: Final = 2 * 1024 * 1024


class AgentTerminal:
    """A terminal that an agent runs itself, as its updates describe it."""

    def __init__(self, identifier: str) -> None:
        self.id: Final = identifier
        self.cwd: str | None = None
        self.command: str | None = None
        self.ring = PrivateRing(RETAINED_BYTES)
        self.end: ProgramExit | None = None
        self.generation = 0
        self.forgotten = False

    @property
    def size(self) -> int:
        text = sum(getsizeof(text) for text in (self.id, self.cwd, self.command) if text)
        return _EACH_BYTES + text + self.ring.end - self.ring.start

    def apply(self, update: TerminalUpdate) -> None:
        match update:
            case Info(_, cwd, command):
                if cwd and len(cwd) <= CWD_MAX:
                    self.cwd = cwd
                self.command = command[:COMMAND_MAX] if command else self.command
            case OutputUpdate(_, data, whole):
                if whole:
                    self.ring, self.generation = PrivateRing(RETAINED_BYTES), self.generation + 1
                self.ring.write(data)
            case ExitUpdate(_, end):
                self.end = end and end._replace(signal=end.signal and end.signal[:_SIGNAL_MAX])


class AgentTerminals:
    def __init__(self) -> None:
        self._terminals: OrderedDict[str, AgentTerminal] = OrderedDict()
        self.size = 0

    def get(self, identifier: str) -> AgentTerminal | None:
        return self._terminals.get(identifier)

    def apply(self, updates: Iterable[TerminalUpdate]) -> list[str]:
        """Apply updates, and return the ids of their terminals, each once."""
        ids: dict[str, None] = {}
        for update in updates:
            if len(update.terminal) > ID_MAX:
                continue
            found = self._terminals.get(update.terminal)
            if found is None:
                found = self._terminals[update.terminal] = AgentTerminal(update.terminal)
            found.apply(update)
            ids[found.id] = None
        if ids:
            self._remove_surplus()
        return list(ids)

    def _remove_surplus(self) -> None:
        self.size = sum(found.size for found in self._terminals.values())
        while len(self._terminals) > TERMINALS_MAX or (
            self.size > TOTAL_BYTES_MAX and len(self._terminals) > 1
        ):
            _, gone = self._terminals.popitem(last=False)
            gone.forgotten = True
            self.size -= gone.size

    def forget(self) -> None:
        for found in self._terminals.values():
            found.forgotten = True
        self._terminals.clear()
        self.size = 0
