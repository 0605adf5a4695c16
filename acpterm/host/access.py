"""Who may do what with a terminal: an agent, the user, a visitor of a share, a client of the pool.

Each has its own way to find a terminal: agents and the user `Access.resolve`, a visitor
`user.shared_terminal`, and a client of the pool the ids of its socket (`web.pool`). What is then
done is the same for all of them (`host.verbs`). What each may do:

| need | agent | user, pool | visitor of a share |
| --- | --- | --- | --- |
| READ | its session's; the user's by `agents_read_user_terminals` | all | the shared one |
| HOLD | its session's | all | - |
| CONTROL | its session's, unless the user owns it | all | - |
| TYPE | as CONTROL | all; of the pool, the user's | the user's, if the share allows typing |
"""

import enum
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from acpterm.acp.user_api import TerminalInfo
from acpterm.host.entry import TerminalEntry
from acpterm.host.guard import Guard
from acpterm.host.input_monitor import input_wait
from acpterm.host.launch.validation import DirectoryCache
from acpterm.host.server.dispatch import Sender
from acpterm.host.terminal_info import gives_signal_code, terminal_info
from acpterm.host.terminals import Terminals
from acpterm.runtime.exec_context import ExecContext
from acpterm.terminal.status import EndedBy


class Need(enum.Enum):
    """What a request needs to do with its terminal."""

    READ = enum.auto()
    HOLD = enum.auto()
    CONTROL = enum.auto()
    TYPE = enum.auto()


class Access:
    """What one peer may do with terminals, and what its handlers need of the host."""

    by: EndedBy
    """Who the peer is, as the cause of what it does: `AGENT` or `USER`."""

    def __init__(self, terminals: Terminals, guard: Guard, context: ExecContext) -> None:
        self.context = context
        """The execution context of the peer's terminals."""
        self.terminals: Final = terminals
        self.guard: Final = guard
        self.settings: Final = terminals.settings
        self.writer: Final = terminals.writer
        self.registry: Final = terminals.registry
        self.windows: Final = terminals.windows
        self.background: Final = terminals.background
        self.events: Final = terminals.events
        self.trail: Final = guard.trail
        self.policy: Final = guard.policy
        self.approvals: Final = guard.approvals
        self.directories: Final = DirectoryCache()
        self.sender: Final = Sender()

    @property
    def signal_code(self) -> bool:
        """Whether an end by signal n is sent as 128 + n (`terminal_info.gives_signal_code`)."""
        return gives_signal_code(self.settings)

    def flush_state(self) -> None:
        self.writer.flush()

    def resolve(self, params: Any, need: Need, done: str = "") -> TerminalEntry:
        """Return the terminal that a request names, if the peer may do what it needs.

        `done` says what is done to the terminal, such as "killed". Raises `RpcError`: -32002 if
        the peer sees no such terminal; -32602 if it may only read it, or if the name is ambiguous.
        """
        raise NotImplementedError

    def release_terminal(self, params: Any) -> TerminalEntry | None:
        """Begin to release the terminal; return None if there is no exit to wait for."""
        raise NotImplementedError

    def info(self, entry: TerminalEntry) -> TerminalInfo:
        """Describe a terminal as the peer may see it. Takes some 100 µs, for the input wait."""
        return terminal_info(entry, waiting=input_wait(entry))

    def cancel_on_close(self) -> AbstractContextManager[None]:
        """Cancel the block when the connection closes, if nothing else ends it then."""
        return nullcontext()
