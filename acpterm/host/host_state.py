"""What all connections of one host share."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

import trio

from acpterm.acp.user_api import TerminalInfo
from acpterm.config import Settings
from acpterm.host.events import Event, EventBus
from acpterm.host.input_monitor import InputMonitor
from acpterm.host.memory import SessionMemory
from acpterm.host.recording.recorder import Recorder
from acpterm.host.registry import TerminalEntry, TerminalRegistry
from acpterm.host.state.records import HostRecord
from acpterm.host.state.store import HOST_KEY
from acpterm.host.state.writer import StateWriter
from acpterm.host.terminal_info import terminal_info
from acpterm.host.windows import Windows
from acpterm.keeper.client import KeeperClient
from acpterm.pty.processes import now as boot_time
from acpterm.terminal.pool import Pool


def _nothing() -> None:
    pass


class DaemonInfo(NamedTuple):
    """Where a host is to be found, and how it ends. `patience`: seconds that it stays unneeded."""

    agent_socket: str | None = None
    user_socket: str | None = None
    idle_exit_s: float | None = None
    tracking: str = ""
    end: Callable[[], None] = _nothing


class HostState:
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
        self.daemon_info = DaemonInfo()
        self.agents = 0
        self.users = 0
        self.settings: Final = settings
        self.pool: Final = pool
        self.session_memory: Final = SessionMemory()
        self.events: Final = EventBus()
        self.registry: Final = TerminalRegistry(pool, settings)
        self.windows: Final = Windows(self._publish)
        self.input_monitor: Final = InputMonitor(self.registry, self._publish)
        self.registry.on_event = self._publish

    @property
    def uptime(self) -> float:
        """Seconds since the daemon's first worker started."""
        return boot_time() - self._record.started_at

    def new_connection_name(self) -> str:
        """Return the name of a new connection of an agent: none before had it."""
        self._record.connections += 1
        self.state.changed(HOST_KEY, self._record.encode)
        return f"c{self._record.connections}"

    def reserve_connection(self, name: str) -> None:
        """Give the name of a restored connection to no other."""
        number = name.removeprefix("c")
        if number.isdigit():
            self._record.connections = max(self._record.connections, int(number))

    def add(self, entry: TerminalEntry, env: Mapping[str, str]) -> None:
        """Take a terminal that was just made; `env` is its program's environment."""
        if self.settings.record:
            path = self._recorder.start(
                entry.terminal,
                command=entry.command,
                is_agents=not entry.is_created_by_user,
                nursery=self._nursery,
                env=env,
                on_failure=partial(entry.set_recording, None),
                on_progress=entry.set_recorded,
            )
            entry.set_recording(path)
        entry.store_launch()
        self.registry.add(entry)
        self._watch_exit(entry)

    def restore(self, entry: TerminalEntry) -> None:
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
        self.registry.restore(entry)
        self._watch_exit(entry)

    def _watch_exit(self, entry: TerminalEntry) -> None:
        if entry.terminal.exit is None:
            entry.terminal.when_exited = partial(self.registry.record_exit, entry)
        else:
            self.registry.record_exit(entry)

    def terminal_info(self, entry: TerminalEntry) -> TerminalInfo:
        """Say how a terminal is now, for the person. Looks whether it waits: some 100 µs."""
        return terminal_info(entry, self.windows, waiting=self.input_monitor.check(entry))

    def _publish(self, event: str, entry: TerminalEntry, by: str | None = None) -> None:
        if self.events.has_subscribers:
            # As it is now: who listens may come to it much later. Whether it waits is as it was
            # seen last: to look now would be to tell of that first.
            info = terminal_info(entry, self.windows, waiting=entry.waiting)
            self.events.publish(Event(event, terminal=info, by=by))
