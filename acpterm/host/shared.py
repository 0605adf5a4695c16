"""What all connections of one host share."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

import trio

from acpterm.acp.person import TerminalInfo
from acpterm.config import Settings
from acpterm.host.attention import Attention
from acpterm.host.described import describe
from acpterm.host.events import Bus, Happening
from acpterm.host.recording import Recorder
from acpterm.host.roster import Entry, Roster
from acpterm.host.windows import Windows
from acpterm.terminal.pool import Pool


def _nothing() -> None:
    pass


class Place(NamedTuple):
    """Where a host is to be found, and how it ends. `patience`: seconds that it stays unneeded."""

    agent_socket: str | None = None
    user_socket: str | None = None
    patience: float | None = None
    tracking: str = ""
    end: Callable[[], None] = _nothing


class Shared:
    """What all connections of one host share; the pool is run by whoever made it."""

    def __init__(self, settings: Settings, pool: Pool, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._recorder = Recorder(settings) if settings.record else None
        self.place = Place()
        self.agents = 0
        self.people = 0
        self.settings: Final = settings
        self.pool: Final = pool
        self.bus: Final = Bus()
        self.roster: Final = Roster(pool, settings)
        self.windows: Final = Windows(self._tell)
        self.attention: Final = Attention(self.roster, self._tell)
        self.began: Final = time.monotonic()
        self.roster.told = self._tell

    def add(self, entry: Entry, env: Mapping[str, str]) -> None:
        """Take a terminal that was just made; `env` is its program's environment."""
        if self._recorder is not None:
            entry.recording = self._recorder.start(
                entry.terminal,
                command=entry.command,
                nursery=self._nursery,
                env=env,
                gave_up=partial(setattr, entry, "recording", None),
            )
        if entry.terminal.exit is None:
            entry.terminal.when_exited = partial(self.roster.exited, entry)
        self.roster.add(entry)
        if entry.terminal.exit is not None:
            self.roster.exited(entry)

    def describe(self, entry: Entry) -> TerminalInfo:
        """Say how a terminal is now, for the person. Looks whether it waits: some 100 µs."""
        return describe(entry, self.windows, waiting=self.attention.look(entry))

    def _tell(self, event: str, entry: Entry, by: str | None = None) -> None:
        if self.bus.heard:
            # As it is now: who listens may come to it much later. Whether it waits is as it was
            # seen last: to look now would be to tell of that first.
            info = describe(entry, self.windows, waiting=entry.waiting)
            self.bus.publish(Happening(event, terminal=info, by=by))
