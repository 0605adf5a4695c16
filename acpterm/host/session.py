"""One session of one connection: its terminals, and the tool calls that they are shown in.

A terminal's states here: *held* (the agent may use it), then *released* (its id is known, for a
second release and for errors that say so, and every other use is refused). A terminal that a tool
call shows when it is released goes to the `Keepsakes`, where the person can still
read it; the others are forgotten.

A session is made by its first use: ACP creates sessions between client and agent, out of sight of
a host. Its folder is told by `_acpterm/session/set`, if at all.
"""

from collections import OrderedDict
from typing import Final

from acpterm.host.keepsakes import Keepsakes
from acpterm.jsonrpc import RESOURCE_NOT_FOUND, RpcError, quoted
from acpterm.terminal import Terminal

# Of released ids; the oldest are forgotten, and then answered as ids that never were.
_REMEMBERED: Final = 10_000
_TOOL_CALLS: Final = 1_000
# Of the terminals that one tool call shows: the first ones.
_SHOWN: Final = 1_000


class Session:
    """A session."""

    def __init__(self, identifier: str, keepsakes: Keepsakes) -> None:
        self.id: Final = identifier
        self.cwd: str | None = None
        self.cancelled = 0
        """How many times its turn was cancelled."""
        self.terminals: Final[dict[str, Terminal]] = {}
        self.tool_calls: Final[OrderedDict[str, list[str]]] = OrderedDict()
        """The ids of the terminals that each of them shows."""
        self._released: OrderedDict[str, None] = OrderedDict()
        self._keepsakes = keepsakes

    def add(self, terminal: Terminal) -> None:
        """Hold a terminal."""
        self.terminals[terminal.id] = terminal

    def get(self, identifier: str) -> Terminal:
        """Give the terminal that is held under this id; raises `RpcError` (-32002) if none is."""
        try:
            return self.terminals[identifier]
        except KeyError:
            raise self._no_such(identifier) from None

    def release(self, identifier: str) -> Terminal | None:
        """Stop holding a terminal: give it, or None when that has been done before.

        Raises `RpcError` (-32002) for an id that never was this session's.
        """
        terminal = self.terminals.pop(identifier, None)
        if terminal is None:
            if identifier in self._released:
                return None
            raise self._no_such(identifier)
        self._released[identifier] = None
        while len(self._released) > _REMEMBERED:
            self._released.popitem(last=False)
        if any(identifier in shown for shown in self.tool_calls.values()):
            self._keepsakes.keep(terminal)
        return terminal

    def show(self, call: str, terminals: list[str]) -> None:
        """Take the content of a `tool_call` or `tool_call_update`.

        It replaces the whole list of what the call shows (ACP v1, "Tool Calls").
        """
        if not terminals and call not in self.tool_calls:
            return
        self.tool_calls[call] = terminals[:_SHOWN]
        while len(self.tool_calls) > _TOOL_CALLS:
            self.tool_calls.popitem(last=False)

    def _no_such(self, identifier: str) -> RpcError:
        if identifier in self._released:
            what = f"terminal {quoted(identifier)} has been released: its id is no longer valid"
        else:
            what = (
                f"there is no terminal {quoted(identifier)} in session {quoted(self.id)}: "
                "use an id that terminal/create answered for this session"
            )
        return RpcError(RESOURCE_NOT_FOUND, what)
