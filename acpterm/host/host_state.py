"""What all connections of one host share."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

import trio

from acpterm.acp.user_api import TerminalInfo
from acpterm.config import Settings
from acpterm.host.events import Bus, Happening
from acpterm.host.input_monitor import Attention
from acpterm.host.memory import SessionMemory
from acpterm.host.recording.recorder import Recorder
from acpterm.host.registry import Entry, Roster
from acpterm.host.state.records import HostRecord
from acpterm.host.state.store import HOST_KEY
from acpterm.host.state.writer import StateWriter
from acpterm.host.terminal_info import describe
from acpterm.host.windows import Windows
from acpterm.keeper.client import KeeperClient
from acpterm.pty.processes import now as boot_time
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

    def __init__(
        self,
        settings: Settings,
        pool: Pool,
        nursery: trio.Nursery,
        keeper: KeeperClient,
        record: HostRecord,
    ) -> None:
        self.keeper: Final = keeper
        self.state: Final = StateWriter(keeper)
        self._record: Final = record
        self.state.changed(HOST_KEY, record.encode)
        self._nursery = nursery
        self._recorder = Recorder(settings)
        self.place = Place()
        self.agents = 0
        self.people = 0
        self.settings: Final = settings
        self.pool: Final = pool
        self.session_memory: Final = SessionMemory()
        self.bus: Final = Bus()
        self.roster: Final = Roster(pool, settings)
        self.windows: Final = Windows(self._tell)
        self.attention: Final = Attention(self.roster, self._tell)
        self.roster.told = self._tell

    @property
    def uptime(self) -> float:
        """Seconds since the daemon's first worker started."""
        return boot_time() - self._record.started_at

    def name_connection(self) -> str:
        """Return the name of a new connection of an agent: none before had it."""
        self._record.connections += 1
        self.state.changed(HOST_KEY, self._record.encode)
        return f"c{self._record.connections}"

    def reserve_connection(self, name: str) -> None:
        """Give the name of a restored connection to no other."""
        number = name.removeprefix("c")
        if number.isdigit():
            self._record.connections = max(self._record.connections, int(number))

    def add(self, entry: Entry, env: Mapping[str, str]) -> None:
        """Take a terminal that was just made; `env` is its program's environment."""
        if self.settings.record:
            path = self._recorder.start(
                entry.terminal,
                command=entry.command,
                is_agents=not entry.is_made_by_user,
                nursery=self._nursery,
                env=env,
                gave_up=partial(entry.set_recording, None),
                on_progress=entry.set_recorded,
            )
            entry.set_recording(path)
        entry.store_launch()
        self.roster.add(entry)
        self._watch_exit(entry)

    def restore(self, entry: Entry) -> None:
        """Take a terminal over from the worker before, and go on with its recording."""
        record = entry.record
        if record.recorded is not None and record.recording is not None:
            self._recorder.resume(
                entry.terminal,
                record.recording,
                record.recorded,
                nursery=self._nursery,
                on_progress=entry.set_recorded,
            )
        self.roster.restore(entry)
        self._watch_exit(entry)

    def _watch_exit(self, entry: Entry) -> None:
        if entry.terminal.exit is None:
            entry.terminal.when_exited = partial(self.roster.exited, entry)
        else:
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
