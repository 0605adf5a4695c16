"""The terminals that a subscriber reads output from.

- `LocalSource`: a terminal of this host.
- `AgentSource`: a terminal that the agent runs itself and describes in session updates.
- `Tombstone`: what is left of a forgotten terminal of either kind.

A source is read by position. `generation` is how many times all of the output was replaced;
positions begin at 0 each time. `is_over`: there will be no more output, and no change of `end`.
`survives_session`: the terminal may run on after the agent's connection has closed. `is_retained`:
the host still retains the terminal, and not only this source refers to it.
"""

from typing import Final, TypeAlias

from acpterm.acp.terminal_updates import Info, ProgramExit
from acpterm.host.entry import TerminalEntry
from acpterm.host.registry import TerminalRegistry
from acpterm.host.sessions.agent_terminals import AgentTerminal
from acpterm.host.sessions.session import Session
from acpterm.jsonrpc import is_utf8_encodable
from acpterm.terminal.private_ring import Slice


class LocalSource:
    generation: Final = 0

    def __init__(self, entry: TerminalEntry, registry: TerminalRegistry) -> None:
        self.entry: Final = entry
        self._registry = registry

    @property
    def info(self) -> Info:
        command, cwd = self.entry.command, self.entry.cwd
        return Info(
            self.entry.id,
            cwd if is_utf8_encodable(cwd) else None,
            command if is_utf8_encodable(command) else None,
        )

    @property
    def length(self) -> int:
        return self.entry.terminal.ring.end

    @property
    def end(self) -> ProgramExit | None:
        status = self.entry.terminal.exit
        return None if status is None else ProgramExit(status.code, status.signal)

    @property
    def is_over(self) -> bool:
        return self.entry.terminal.is_closed

    @property
    def survives_session(self) -> bool:
        return self.entry.is_users

    @property
    def is_retained(self) -> bool:
        return self._registry.get(self.entry.id) is self.entry

    def read(self, since: int, max_bytes: int) -> Slice:
        return self.entry.terminal.ring.read(since, max_bytes)


class AgentSource:
    is_over: Final = False
    survives_session: Final = True

    def __init__(self, terminal: AgentTerminal) -> None:
        self.terminal: Final = terminal

    @property
    def info(self) -> Info:
        return Info(self.terminal.id, self.terminal.cwd, self.terminal.command)

    @property
    def generation(self) -> int:
        return self.terminal.generation

    @property
    def length(self) -> int:
        return self.terminal.ring.end

    @property
    def end(self) -> ProgramExit | None:
        return self.terminal.end

    @property
    def is_retained(self) -> bool:
        return not self.terminal.forgotten

    def read(self, since: int, max_bytes: int) -> Slice:
        return self.terminal.ring.read(since, max_bytes)


class Tombstone:
    """Replaces the source of a terminal that the host no longer retains: has no output."""

    # `is_retained` is True, so that no other tombstone replaces this one.

    is_over: Final = True
    survives_session: Final = True
    is_retained: Final = True

    def __init__(self, source: "Source") -> None:
        self.info: Final[Info] = source.info
        self.generation: Final[int] = source.generation
        self.length: Final[int] = source.length
        self.end: Final[ProgramExit | None] = source.end

    def read(self, since: int, max_bytes: int) -> Slice:
        del max_bytes
        return Slice(b"", self.length, self.length - since)


Source: TypeAlias = LocalSource | AgentSource | Tombstone


def source_of(terminal: str, session: Session, registry: TerminalRegistry) -> Source | None:
    """Return a source for a terminal of `session`; None if the session has no such terminal."""
    entry = registry.get(terminal)
    if entry is not None:
        return LocalSource(entry, registry) if entry.session is session else None
    displayed = session.agent_terminals.get(terminal)
    return None if displayed is None else AgentSource(displayed)
