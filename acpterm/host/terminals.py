"""The terminals of one host, and what follows each from its start until it is cleaned up."""

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import structlog
import trio

from acpterm.config import Settings
from acpterm.host.background import BackgroundMonitor
from acpterm.host.daemon_state import DaemonState
from acpterm.host.entry import TerminalEntry
from acpterm.host.events import EventBus
from acpterm.host.input_monitor import InputMonitor
from acpterm.host.launch.placement import CLEAN_UP_TIMEOUT_S
from acpterm.host.limit_monitor import IdleTerminal, LimitMonitor
from acpterm.host.policy import HostPolicy
from acpterm.host.registry import TerminalRegistry
from acpterm.host.state.writer import StateWriter
from acpterm.host.windows import Windows
from acpterm.pty.tracking.trees import Trees
from acpterm.recording.recorder import Recorder
from acpterm.terminal.pool import Pool
from acpterm.terminal.terminal import Terminal

# How long providers may still clean up after the deadline for closing the host.
_CLEAN_UP_RESERVE_S: Final = 0.4

_log = structlog.get_logger("acpterm.host")


async def _run_guarded(
    work: Callable[..., Awaitable[object]], arguments: tuple[object, ...]
) -> None:
    try:
        await work(*arguments)
    except Exception as error:  # noqa: BLE001  a task about one terminal must not end the others
        _log.error("a background task failed", exc_info=error)


class Terminals:
    def __init__(
        self,
        *,
        settings: Settings,
        writer: StateWriter,
        trees: Trees,
        nursery: trio.Nursery,
        events: EventBus,
        policy: HostPolicy,
        daemon: DaemonState,
    ) -> None:
        self.settings: Final = settings
        self.writer: Final = writer
        self.events: Final = events
        self._nursery: Final = nursery
        self._policy: Final = policy
        self._recorder: Final = Recorder(settings)
        self.end_by = math.inf
        """The deadline for closing the host, on trio's clock; infinite until it is closed."""
        self._clean_ups: Final[set[trio.CancelScope]] = set()
        self.pool: Final = Pool(
            daemon.keeper, trees, grace=settings.kill_grace, on_exit=self._record_exit
        )
        self.registry: Final = TerminalRegistry(
            self.pool, settings, events, daemon.changed.unpark_all, daemon.forgotten
        )
        self.windows: Final = Windows(events)
        self.input_monitor: Final = InputMonitor(self.registry, events)
        self.limit_monitor: Final = LimitMonitor()
        self.background: Final = BackgroundMonitor(self.registry)

    def _record_exit(self, terminal: Terminal) -> None:
        self.registry.record_exit(terminal)
        if (entry := self.registry.get(terminal.id)) is not None:
            self.background.watch(entry)

    def add(self, entry: TerminalEntry, env: Mapping[str, str]) -> None:
        """Register a terminal that was just created, and start its recording if enabled."""
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
                nursery=self._nursery,
                on_progress=entry.set_recorded,
            )
        self.registry.restore(entry)
        self._watch(entry)

    def clean_up_later(self, entry: TerminalEntry) -> None:
        if entry.record.clean_up_token is not None:
            self.start_task(self._clean_up, entry)

    def start_task(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start a task that outlives connections; an error of it is only logged."""
        self._nursery.start_soon(_run_guarded, work, arguments)

    async def _clean_up(self, entry: TerminalEntry) -> None:
        # If the removal fails, the record keeps the token, with which the next worker tries again.
        token = entry.record.clean_up_token
        try:
            # On another host, more may run than this daemon sees.
            terminal = entry.terminal
            is_local = terminal.remote is None
            while not (terminal.is_closed or (is_local and entry.background_end is not None)):
                await terminal.wait_changed()
        finally:
            end = min(trio.current_time() + CLEAN_UP_TIMEOUT_S, self.end_by + _CLEAN_UP_RESERVE_S)
            with trio.CancelScope(shield=True, deadline=end) as scope:
                self._clean_ups.add(scope)
                if await self._policy.clean_up(entry.record.provider, token or ""):
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
