"""The objects that all connections of one host share, such as settings, registry and events."""

import math
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

import structlog
import trio

from acpterm.acp.user_api import TerminalInfo
from acpterm.config import Settings, default_audit_dir, default_file, default_record_dir
from acpterm.host.approvals import ApprovalRecords, ApproverTokens
from acpterm.host.audit_trail import AuditTrail, open_audit_log
from acpterm.host.background import BackgroundMonitor
from acpterm.host.entry import TerminalEntry
from acpterm.host.events import EventBus
from acpterm.host.hooks import Hooks
from acpterm.host.input_monitor import InputMonitor, input_wait
from acpterm.host.launch.placement import CLEAN_UP_TIMEOUT_S
from acpterm.host.limit_monitor import IdleTerminal, LimitMonitor
from acpterm.host.memory import SessionMemory
from acpterm.host.policy import HostPolicy
from acpterm.host.quotas import Quotas
from acpterm.host.registry import TerminalRegistry
from acpterm.host.state.records import AuditRecord, HostRecord
from acpterm.host.state.store import HOST_KEY
from acpterm.host.state.writer import StateWriter
from acpterm.host.terminal_info import terminal_info
from acpterm.host.web_interface import WebInterface
from acpterm.host.windows import Windows
from acpterm.keeper.client import KeeperClient
from acpterm.policy.approvals import Approvals
from acpterm.pty.processes import now as boot_time
from acpterm.pty.tracking.trees import Trees
from acpterm.recording.recorder import Recorder
from acpterm.terminal.pool import Pool
from acpterm.terminal.terminal import Terminal

# How long providers may still clean up after the deadline for closing the host.
_CLEAN_UP_RESERVE_S: Final = 0.4

_log = structlog.get_logger("acpterm.host")


def _nothing() -> None:
    pass


def _own_paths(settings: Settings, daemon_info: "DaemonInfo") -> list[str]:
    sockets = (daemon_info.agent_socket, daemon_info.user_socket)
    return [
        *(path for path in sockets if path is not None),
        *((f"{daemon_info.agent_socket}.log",) if daemon_info.agent_socket else ()),
        *((settings.rules,) if settings.rules else ()),
        settings.record_dir or default_record_dir(),
        settings.audit_dir or default_audit_dir(),
        *(daemon_info.web.private_paths if daemon_info.web is not None else ()),
        os.path.dirname(default_file()),
    ]


async def _run_guarded(
    work: Callable[..., Awaitable[object]], arguments: tuple[object, ...]
) -> None:
    try:
        await work(*arguments)
    except Exception as error:  # noqa: BLE001  a task about one terminal must not end the others
        _log.error("a background task failed", exc_info=error)


class DaemonInfo(NamedTuple):
    """What a host knows about its daemon; the defaults are for a host that is not in a daemon."""

    agent_socket: str | None = None
    user_socket: str | None = None
    idle_exit_s: float | None = None
    end: Callable[[], None] = _nothing
    reaches_user: bool = True
    """Whether a user may come and answer; if not, unattended questions are refused."""
    web: WebInterface | None = None
    sources: Mapping[str, str] = MappingProxyType({})
    """Where the settings come from, by name; settings with their default value are absent."""


class HostState:
    def __init__(
        self,
        settings: Settings,
        keeper: KeeperClient,
        trees: Trees,
        nursery: trio.Nursery,
        record: HostRecord,
        *,
        audit: AuditRecord | None,
        daemon_info: DaemonInfo,
    ) -> None:
        self.settings: Final = settings
        self.keeper: Final = keeper
        self.state_writer: Final = StateWriter(keeper)
        self._record: Final = record
        self.state_writer.changed(HOST_KEY, record.encode)
        self.nursery: Final = nursery
        self._recorder = Recorder(settings)
        self.daemon_info: Final = daemon_info
        self.end_by = math.inf
        """The deadline for closing the host, on trio's clock; infinite until it is closed."""
        self._clean_ups: Final[set[trio.CancelScope]] = set()
        self.tracking: Final = trees.tracking
        self.agents = 0
        self.users = 0
        self.session_memory: Final = SessionMemory()
        self.approvals: Final = Approvals()
        self.approval_records: Final = ApprovalRecords(self.state_writer)
        self.approvals.add(self.approval_records)
        self.approver_tokens: Final = ApproverTokens()
        self.changed: Final = trio.lowlevel.ParkingLot()
        """Unparked whenever the result of `Host.is_needed` may have changed."""
        self.audit_log: Final = open_audit_log(settings, self.state_writer, audit)
        self.trail: Final = AuditTrail(self.audit_log)
        self.events: Final = EventBus(self.trail)
        self.pool: Final = Pool(keeper, trees, grace=settings.kill_grace, on_exit=self._record_exit)
        self.registry: Final = TerminalRegistry(
            self.pool, settings, self.events, self.changed.unpark_all, self._record_forgotten
        )
        self.windows: Final = Windows(self.events)
        self.hooks: Final = Hooks(settings, self.approvals, self.events, self.windows)
        self.policy: Final = HostPolicy(settings, _own_paths(settings, daemon_info), trees.daemon)
        self.input_monitor: Final = InputMonitor(self.registry, self.events)
        self.limit_monitor: Final = LimitMonitor()
        self.background: Final = BackgroundMonitor(self.registry)
        self.quotas: Final = Quotas(self.registry)

    def _record_exit(self, terminal: Terminal) -> None:
        self.registry.record_exit(terminal)
        if (entry := self.registry.get(terminal.id)) is not None:
            self.background.watch(entry)

    def _record_forgotten(self, terminal_id: str) -> None:
        if self.daemon_info.web is not None:
            self.daemon_info.web.end_shares_of(terminal_id)

    @property
    def uptime(self) -> float:
        return boot_time() - self._record.started_at

    def new_connection_name(self) -> str:
        """Return the id of an agent's new connection; no id is ever used twice."""
        self._record.connections += 1
        self.state_writer.changed(HOST_KEY, self._record.encode)
        return f"c{self._record.connections}"

    def reserve_connection(self, name: str) -> None:
        number = name.removeprefix("c")
        if number.isdigit():
            self._record.connections = max(self._record.connections, int(number))

    def add(self, entry: TerminalEntry, env: Mapping[str, str]) -> None:
        """Register a terminal that was just created, and start its recording if enabled."""
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
        self._watch(entry)
        if entry.record.limits is not None and entry.record.limits.unenforced:
            entry.mark_changed()

    def restore(self, entry: TerminalEntry) -> None:
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
        self._watch(entry)

    def clean_up_later(self, entry: TerminalEntry) -> None:
        if entry.record.clean_up_token is not None:
            self.start_task(self._clean_up, entry)

    def start_task(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start a task that outlives connections; an error of it is only logged."""
        self.nursery.start_soon(_run_guarded, work, arguments)

    async def _clean_up(self, entry: TerminalEntry) -> None:
        # If the removal fails, the record keeps the token, with which the next worker tries again.
        token = entry.record.clean_up_token
        try:
            await entry.terminal.wait_closed()
        finally:
            end = min(trio.current_time() + CLEAN_UP_TIMEOUT_S, self.end_by + _CLEAN_UP_RESERVE_S)
            with trio.CancelScope(shield=True, deadline=end) as scope:
                self._clean_ups.add(scope)
                if await self.policy.clean_up(entry.record.provider, token or ""):
                    entry.record.clean_up_token = None
                    entry.mark_changed()
            self._clean_ups.discard(scope)

    async def _await_start(self, entry: TerminalEntry) -> None:
        # On a cluster, the program may be queued first.
        terminal = entry.terminal
        while terminal.is_queued:
            await terminal.wait_changed()
        if terminal.remote is not None and terminal.remote.host is not None:
            entry.record.host = terminal.remote.host
            entry.mark_changed()
            if terminal.exit is None:
                self.events.publish_terminal("started", entry)

    def close_by(self, deadline: float) -> None:
        """Set the deadline for closing the host, on trio's clock; clean-ups get a little more."""
        self.end_by = deadline
        for scope in self._clean_ups:
            scope.deadline = min(scope.deadline, deadline + _CLEAN_UP_RESERVE_S)

    def _watch(self, entry: TerminalEntry) -> None:
        self.clean_up_later(entry)
        if entry.terminal.remote is not None and entry.record.host is None:
            self.start_task(self._await_start, entry)
        if entry.terminal.exit is not None:
            self.background.watch(entry)
        limits = entry.record.limits
        if limits is not None and limits.idle is not None and not entry.is_users:
            self.limit_monitor.watch(IdleTerminal(entry, self.registry, limits.idle))

    def terminal_info(self, entry: TerminalEntry) -> TerminalInfo:
        """Describe a terminal for the wire. Takes some 100 µs, to check for an input wait."""
        return terminal_info(entry, waiting=input_wait(entry))
