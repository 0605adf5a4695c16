"""The state that all connections of one host share: registry, windows, events, settings."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

import trio

from acpterm.acp.user_api import TerminalInfo
from acpterm.config import Settings
from acpterm.host.approvals import ApprovalRecords, ApproverTokens
from acpterm.host.entry import TerminalEntry
from acpterm.host.events import EventBus
from acpterm.host.input_monitor import InputMonitor, is_waiting
from acpterm.host.judge import Judge
from acpterm.host.memory import SessionMemory
from acpterm.host.recording.recorder import Recorder
from acpterm.host.registry import TerminalRegistry
from acpterm.host.state.records import HostRecord
from acpterm.host.state.store import HOST_KEY
from acpterm.host.state.writer import StateWriter
from acpterm.host.terminal_info import terminal_info
from acpterm.host.windows import Windows
from acpterm.keeper.client import KeeperClient
from acpterm.policy.approvals import Approvals
from acpterm.pty.processes import now as boot_time
from acpterm.pty.tracking.trees import Trees
from acpterm.terminal.pool import Pool
from acpterm.terminal.terminal import Terminal


def _nothing() -> None:
    pass


class DaemonInfo(NamedTuple):
    """Facts about a daemon for `_acpterm/status`, and `end`, a function that ends the daemon."""

    agent_socket: str | None = None
    user_socket: str | None = None
    idle_exit_s: float | None = None
    """After how many idle seconds the daemon ends; None means never."""
    end: Callable[[], None] = _nothing


class HostState:
    """The state that all connections of one host share.

    The code that creates a `HostState` must also run its `pool`. Tasks that outlive a connection,
    such as recordings, run in `nursery`. `record` is the host's own record, new or from the
    previous worker. `daemon_info` describes the daemon that the host is in, if any. `judge` decides
    which commands of agents may run; without it, all may.
    """

    def __init__(
        self,
        settings: Settings,
        keeper: KeeperClient,
        trees: Trees,
        nursery: trio.Nursery,
        record: HostRecord,
        *,
        daemon_info: DaemonInfo,
        judge: Judge | None = None,
    ) -> None:
        self.settings: Final = settings
        self.keeper: Final = keeper
        self.state_writer: Final = StateWriter(keeper)
        self._record: Final = record
        self.state_writer.changed(HOST_KEY, record.encode)
        self.nursery: Final = nursery
        self._recorder = Recorder(settings)
        self.daemon_info: Final = daemon_info
        self.judge: Final = judge
        self.tracking: Final = trees.tracking
        """How the processes of terminals are tracked: `cgroup` or `subreaper`."""
        self.agents = 0
        """The number of open connections of agents."""
        self.users = 0
        """The number of open connections of the user's clients."""
        self.session_memory: Final = SessionMemory()
        self.approvals: Final = Approvals()
        self.approval_records: Final = ApprovalRecords(self.state_writer)
        self.approvals.add(self.approval_records)
        self.approver_tokens: Final = ApproverTokens()
        self.changed: Final = trio.lowlevel.ParkingLot()
        """Unparked whenever the result of `Host.is_needed` may have changed."""
        self.events: Final = EventBus()
        self.pool: Final = Pool(keeper, trees, grace=settings.kill_grace, on_exit=self._record_exit)
        self.registry: Final = TerminalRegistry(
            self.pool, settings, self.events, self.changed.unpark_all
        )
        self.windows: Final = Windows(self.events)
        self.input_monitor: Final = InputMonitor(self.registry, self.events)

    def _record_exit(self, terminal: Terminal) -> None:
        self.registry.record_exit(terminal)

    @property
    def uptime(self) -> float:
        """Seconds since the daemon's first worker started."""
        return boot_time() - self._record.started_at

    def new_connection_name(self) -> str:
        """Return the id of an agent's new connection; no id is ever used twice."""
        self._record.connections += 1
        self.state_writer.changed(HOST_KEY, self._record.encode)
        return f"c{self._record.connections}"

    def reserve_connection(self, name: str) -> None:
        """Prevent `name`, the id of a restored connection, from being used again."""
        number = name.removeprefix("c")
        if number.isdigit():
            self._record.connections = max(self._record.connections, int(number))

    def add(self, entry: TerminalEntry, env: Mapping[str, str]) -> None:
        """Register a terminal that was just created, and start its recording if enabled.

        `env` is the environment of the terminal's program.
        """
        if self.settings.record:
            path = self._recorder.start(
                entry.terminal,
                command=entry.command,
                is_agents=not entry.is_created_by_user,
                nursery=self.nursery,
                env=env,
                on_failure=partial(entry.set_recording, None),
                on_progress=entry.set_recorded,
            )
            entry.set_recording(path)
        entry.store_launch()
        self.registry.add(entry)

    def restore(self, entry: TerminalEntry) -> None:
        """Register a terminal of the previous worker, and resume its recording."""
        record = entry.record
        if record.recorded is not None and record.recording is not None:
            self._recorder.resume(
                entry.terminal,
                record.recording,
                record.recorded,
                nursery=self.nursery,
                on_progress=entry.set_recorded,
            )
        self.registry.restore(entry)

    def terminal_info(self, entry: TerminalEntry) -> TerminalInfo:
        """Describe a terminal for the wire.

        Checks whether the terminal's program waits for input, which takes some 100 µs.
        """
        return terminal_info(entry, waiting=is_waiting(entry))
