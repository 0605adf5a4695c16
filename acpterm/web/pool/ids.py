"""The ids of terminals on one WebSocket of a PTY pool.

A terminal is called by its name, or by its id if it has no name. Names change, and are used again;
ids on a socket do neither: a terminal that was sent to the client keeps its id as long as it runs,
so that what the user types cannot reach another terminal that has got its name.
"""

from typing import Final

import msgspec

from acpterm.acp.pool import PoolTerminal, pool_terminal
from acpterm.acp.user_api import TerminalInfo
from acpterm.host import names
from acpterm.host.entry import TerminalEntry
from acpterm.host.registry import TerminalRegistry


class PoolIds:
    """The terminals that one client was sent, and what they are called there."""

    def __init__(self, registry: TerminalRegistry) -> None:
        self._registry: Final = registry
        self._ids: dict[str, str] = {}
        self._terminals: dict[str, str] = {}

    def describe(self, info: TerminalInfo) -> PoolTerminal:
        """Return a terminal with its id on this socket, which it gets if it has none yet."""
        found = pool_terminal(info)
        identifier = self._ids.get(info.terminal_id)
        if identifier is None:
            identifier = info.terminal_id if found.id in self._terminals else found.id
            self._ids[info.terminal_id] = identifier
            self._terminals[identifier] = info.terminal_id
        return msgspec.structs.replace(found, id=identifier)

    def forget(self, terminal_id: str) -> None:
        """Make the id of a terminal that has ended free for another terminal. Idempotent."""
        identifier = self._ids.pop(terminal_id, None)
        if identifier is not None:
            del self._terminals[identifier]

    def find(self, identifier: str) -> TerminalEntry | None:
        """Return the terminal with this id, or of this name or id on the host; None without one."""
        if identifier in self._terminals:
            return self._registry.get(self._terminals[identifier])
        return self._registry.get(identifier) or names.named(self._registry, identifier)
