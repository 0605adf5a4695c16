"""A terminal's entry in the registry: its owner, the session that created it, and its record."""

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from acpterm.host.state.records import LaunchRecord, TerminalRecord, unpack_text
from acpterm.host.state.store import launch_key, terminal_key
from acpterm.host.state.writer import StateWriter
from acpterm.pty.background import NO_BACKGROUND
from acpterm.pty.processes import now as boot_time
from acpterm.recording.recorder import RecordingRecord
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal

if TYPE_CHECKING:
    import trio

    from acpterm.pty.input_wait.detect import StoppedProcess

TOOL_CALLS_MAX: Final = 64
"""How many tool calls a terminal's record and description name: the newest ones."""
TOOL_CALL_ID_MAX: Final = 512
"""Characters of a tool call's id."""


class AgentInfo:
    def __init__(self, connection: str) -> None:
        self.connection_id: Final = connection
        self.name: str | None = None
        self.process: tuple[int, float] | None = None

    @property
    def identity(self) -> tuple[int, float] | str:
        """What identifies the agent: all connections of a process are of one agent."""
        return self.process or self.connection_id


class SessionOrigin:
    """The session that created a terminal; this base class stands in for one that has ended."""

    def __init__(self, identifier: str, agent: AgentInfo) -> None:
        self.id: Final = identifier
        self.agent: Final = agent

    def calls_showing(self, identifier: str) -> list[str]:
        """Return the ids of the tool calls that show a terminal: those in its record, if none."""
        del identifier
        return []

    def release(self, identifier: str) -> "TerminalEntry | None":
        del identifier
        return None


class InputWait(NamedTuple):
    """Whether a program waits for input, and which; None if unknown. `is_idle`: it asks nothing."""

    is_waiting: bool | None = None
    program: str | None = None
    stopped: "StoppedProcess | None" = None
    is_idle: bool = False

    @property
    def asks(self) -> bool | None:
        """Whether the program asks the user something; None if unknown."""
        return False if self.is_idle else self.is_waiting

    @property
    def is_blocked(self) -> bool:
        """Whether the program continues only if the user or the agent does something."""
        return bool(self.is_waiting or self.stopped)

    @property
    def needs_user(self) -> bool:
        """Whether the program asks something, or is stopped."""
        return bool(self.asks or self.stopped)


class TerminalEntry:
    """One terminal: its owner, its session, and the record that the next worker gets."""

    def __init__(
        self,
        terminal: Terminal,
        record: TerminalRecord,
        writer: StateWriter,
        session: SessionOrigin | None = None,
        launch: LaunchRecord | None = None,
    ) -> None:
        self.terminal: Final = terminal
        self.id: Final = terminal.id
        self.record: Final = record
        self.session: Final = session
        self.cwd: Final = unpack_text(record.cwd)
        self.exited_at: float | None = None
        """When the program exited, in seconds since 1970; None while it runs."""
        self.waiting = InputWait()
        self.asked_at = 0.0
        """When the last event `waiting` was published, on the clock `time.monotonic`."""
        self.background = NO_BACKGROUND
        """What the exited program has left running, as of the last check."""
        self.background_end: float | None = None
        """When the program and its background had ended, on the boot clock; else None."""
        self.window_count = 0
        self.launch: Final = launch
        """What the user created the terminal with; None for an agent's, or if too large."""
        self.holders: Final[dict[str, trio.CancelScope]] = {}
        """The `follow` request of each named reader, which its next request cancels."""
        self.is_restarting = False
        """Whether the program ends only to start again: its end removes nothing then."""
        self._writer: Final = writer
        self._key: Final = terminal_key(terminal.id)
        self._is_forgotten = False

    @property
    def command(self) -> str:
        return self.record.command

    @property
    def name(self) -> str | None:
        return self.record.name

    @property
    def is_users(self) -> bool:
        return self.record.is_users

    @property
    def is_trusted(self) -> bool:
        """Whether the user created it or took it over; False for what an agent gave."""
        return self.is_users and not self.record.is_given

    @property
    def is_created_by_user(self) -> bool:
        return self.record.connection is None

    @property
    def released_at(self) -> float | None:
        return self.record.released_time

    @property
    def may_have_background(self) -> bool:
        """Whether the program has exited, and something that it has started may run on."""
        return self.terminal.exit is not None and self.background_end is None

    @property
    def tool_calls(self) -> list[str]:
        """The ids of the tool calls that show the terminal, or that showed it at its release."""
        if self.session is None or self.record.released_time is not None:
            return self.record.tool_calls
        return self.session.calls_showing(self.id) or self.record.tool_calls

    @property
    def is_over(self) -> bool:
        """Whether only the output is left: released, or the user's and nothing runs on."""
        # While it is restarted, no other terminal can get its name.
        has_exited = self.terminal.exit is not None and not self.is_restarting
        has_ended = has_exited and not self.background.number
        return self.released_at is not None or (self.is_users and has_ended)

    @property
    def over_since(self) -> float:
        """Since when the terminal is over, on the boot clock; the start while its program runs."""
        # The boot clock cannot be set: correcting the time of day does not change a terminal's age.
        if self.record.released_at is not None:
            return self.record.released_at
        if self.background_end is not None:
            return self.background_end
        exit_ = self.terminal.exit
        return self.record.started_at + (0 if exit_ is None else exit_.wall)

    def mark_changed(self) -> None:
        if not self._is_forgotten:
            self._writer.changed(self._key, self.record.encode)

    def forget(self) -> None:
        """Stop storing the record, since the keeper deletes it together with the terminal."""
        if self.launch is not None:
            self._writer.removed(launch_key(self.id))
        if self.terminal.is_closed:
            self._writer.discard(self._key)
        else:
            self._writer.flush()
        self._is_forgotten = True

    def set_recording(self, path: str | None) -> None:
        self.record.recording = path
        self.mark_changed()

    def set_recorded(self, progress: RecordingRecord | None) -> None:
        self.record.recorded = progress
        self.mark_changed()

    def store_launch(self) -> None:
        if self.launch is not None:
            self._writer.changed(launch_key(self.id), self.launch.encode)

    def record_size(self, cols: int, rows: int) -> None:
        self.record.cols, self.record.rows = cols, rows
        self.mark_changed()

    def record_kill(self, by: EndedBy) -> None:
        """Record when and why the processes are killed; only the first kill counts."""
        if self.record.killed_by is None:
            self.record.killed_by, self.record.killed_at = by, boot_time()
            self.mark_changed()

    def record_answer(self) -> None:
        """Record that the agent has the response to its create request (`agent.creates`)."""
        if self.record.request is not None:
            self.record.request = None
            self.mark_changed()

    def record_id_release(self) -> None:
        """Record that the agent has released the id, and which tool calls show the terminal."""
        self._store_tool_calls()
        self.record.is_held = False
        self.mark_changed()

    def record_leaving(self) -> None:
        """Record that the terminal is released as soon as nothing runs on in the background."""
        self.record.is_left = True
        self.mark_changed()

    def record_release(self, by: EndedBy) -> None:
        self.record_kill(by)
        self._store_tool_calls()
        self.record.released_by = by
        self.record.released_time, self.record.released_at = time.time(), boot_time()
        self.mark_changed()

    def _store_tool_calls(self) -> None:
        # Keep one character more than the maximum: then a reader still sees that an id is too long.
        self.record.tool_calls = [
            call[: TOOL_CALL_ID_MAX + 1] for call in self.tool_calls[-TOOL_CALLS_MAX:]
        ]
