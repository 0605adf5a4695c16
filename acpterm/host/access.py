"""Who may do what with a terminal: an agent, the user, a visitor of a share, a client of the pool.

Each has its own way to find a terminal (`Access.resolve`). What is then done is the same for all of
them (`host.verbs`). What each may do:

| need | agent | user, pool | visitor of a share |
| --- | --- | --- | --- |
| READ | its session's; the user's by `agents_read_user_terminals` | all | the shared one |
| HOLD | its session's | all | - |
| CONTROL | its session's, unless the user owns it | all | - |
| TYPE | as CONTROL | all; of the pool, the user's | the user's, if the share allows typing |
"""

import enum
from contextlib import AbstractContextManager
from typing import Any, Protocol

from acpterm.acp.user_api import TerminalInfo
from acpterm.host.entry import TerminalEntry
from acpterm.host.host_state import HostState
from acpterm.host.server.dispatch import Sender
from acpterm.terminal.status import EndedBy


class Need(enum.Enum):
    """What a request needs to do with its terminal."""

    READ = enum.auto()
    HOLD = enum.auto()
    CONTROL = enum.auto()
    TYPE = enum.auto()


class Access(Protocol):
    """What one peer may do with terminals: an agent's connection, or one of the user's."""

    @property
    def by(self) -> EndedBy:
        """Who the peer is, as the cause of what it does: `AGENT` or `USER`."""

    @property
    def host(self) -> HostState: ...

    @property
    def sender(self) -> Sender: ...

    @property
    def signal_code(self) -> bool:
        """Whether an end by signal n is sent as 128 + n (`terminal_info.gives_signal_code`)."""

    def resolve(self, params: Any, need: Need, done: str = "") -> TerminalEntry:
        """Return the terminal that a request names in its params, if the peer may do what it needs.

        `done` says what is done to the terminal, such as "killed". Raises `RpcError`: -32002 if
        the peer sees no such terminal; -32602 if it may only read it, or if the name is ambiguous.
        """

    def release_terminal(self, params: Any) -> TerminalEntry | None:
        """Begin to release the terminal; return None if there is no exit to wait for."""

    def info(self, entry: TerminalEntry) -> TerminalInfo:
        """Describe a terminal as the peer may see it."""

    def cancel_on_close(self) -> AbstractContextManager[None]: ...
