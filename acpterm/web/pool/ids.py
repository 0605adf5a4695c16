"""The ids of terminals on one WebSocket of a PTY pool.

The id of a terminal on a socket is its name at the time when the client is first sent the terminal.
A terminal that has no name, or whose name is in use on the socket, has its id on the host instead.

The id on the socket does not change while the terminal runs, even if the terminal is renamed and
another terminal gets the old name. Otherwise the user's input could reach the other terminal.
"""

from typing import Final

import msgspec

from acpterm.acp.pool import PoolTerminal, pool_terminal
from acpterm.acp.user_api import TerminalInfo
from acpterm.host import names
from acpterm.host.entry import TerminalEntry
from acpterm.host.registry import TerminalRegistry


class PoolIds:
    """Assigns ids on one client's socket to terminals, and finds terminals by these ids."""

    def __init__(self, registry: TerminalRegistry) -> None:
        self._registry: Final = registry
        self._ids: dict[str, str] = {}
        self._terminals: dict[str, str] = {}

    def describe(self, info: TerminalInfo) -> PoolTerminal:
        """Return a terminal as the pool describes it, with its id on this socket."""
        found = pool_terminal(info)
        identifier = self._ids.get(info.terminal_id)
        if identifier is None:
            identifier = info.terminal_id if found.id in self._terminals else found.id
            self._ids[info.terminal_id] = identifier
            self._terminals[identifier] = info.terminal_id
        return msgspec.structs.replace(found, id=identifier)

    def forget(self, terminal_id: str) -> None:
        """Release a terminal's id on the socket, so that another terminal can get this id."""
        identifier = self._ids.pop(terminal_id, None)
        if identifier is not None:
            del self._terminals[identifier]

    def find(self, identifier: str) -> TerminalEntry | None:
        """Return the terminal with this id on the socket, or else this id or name on the host."""
        if identifier in self._terminals:
            return self._registry.get(self._terminals[identifier])
        return self._registry.get(identifier) or names.named(self._registry, identifier)
