"""The person, at one connection of a front end: sees every terminal, and has the last word on each.

What a front end has open (attached windows, what it listens to) ends with its connection. Terminals
do not: the person's are theirs wherever they look from.
"""

from typing import Final

import trio

from acpterm.host.asker import Asker
from acpterm.host.caller import Room, Say
from acpterm.host.checks import Folders
from acpterm.host.roster import Entry
from acpterm.host.shared import Shared
from acpterm.host.windows import Window
from acpterm.jsonrpc import INVALID_PARAMS, RpcError, quoted


class Person:
    """One connection's person. See `connection.Served`."""

    room: Room
    say: Say

    def __init__(self, asker: Asker, shared: Shared) -> None:
        self.asker = asker
        self.shared: Final = shared
        self.settings: Final = shared.settings
        self.folders: Final = Folders()
        self.room = trio.lowlevel.checkpoint
        self.say = lambda *_: None
        self._tokens: dict[str, tuple[Entry, Window] | None] = {}

    def asks(self) -> None:
        """Learn that the person asks for something: they are not to wait for floods."""
        self.shared.pool.floods.asked()

    def leave(self) -> None:
        """Do nothing: what is open is ended with its request."""

    def entry(self, name: str) -> Entry:
        """Give the terminal that is meant. Raises `RpcError`."""
        return self.shared.roster.find(name)

    def claim(self, token: str, shown: tuple[Entry, Window] | None = None) -> None:
        """Take a token for a request that goes on. Raises `RpcError` (-32602) if it is in use."""
        if token in self._tokens:
            raise RpcError(INVALID_PARAMS, f"token {quoted(token)} is in use: choose another")
        self._tokens[token] = shown

    def free(self, token: str) -> None:
        """Give a token back."""
        del self._tokens[token]

    def window(self, token: str) -> tuple[Entry, Window]:
        """Give the attached window of a token, and its terminal. Raises `RpcError` (-32602)."""
        shown = self._tokens.get(token)
        if shown is None:
            raise RpcError(INVALID_PARAMS, f"no window is attached by the token {quoted(token)}")
        return shown
