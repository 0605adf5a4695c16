"""A terminal's entry in the registry: its owner, the session that created it, and its record."""

import time
from typing import Final, Protocol

from acpterm.host.state.records import LaunchRecord, RecordingRecord, TerminalRecord, unpack_text
from acpterm.host.state.store import launch_key, terminal_key
from acpterm.host.state.writer import StateWriter
from acpterm.pty.processes import now as boot_time
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal

TOOL_CALLS_MAX: Final = 64
"""Tool calls that a terminal's record and description name: the newest."""
TOOL_CALL_ID_MAX: Final = 512
"""Characters of a tool call's id; tool calls with longer ids are not named."""


class AgentInfo:
    """The agent at the other end of a connection."""

    def __init__(self, connection: str) -> None:
        self.connection_id: Final = connection
        self.name: str | None = None
        """The name that the agent sent in `initialize`."""


class Session(Protocol):
    """The session that created a terminal. See `agent.session.Session`."""

    @property
    def id(self) -> str:
        """The session's id."""

    @property
    def agent(self) -> AgentInfo:
        """The agent that the session belongs to."""

    def calls_showing(self, identifier: str) -> list[str]:
        """Return the ids of the tool calls that show a terminal."""

    def release(self, identifier: str) -> "TerminalEntry | None":
        """Make the id of a terminal invalid."""


class Origin:
    """Stands in for a session whose connection has ended, on terminals that outlive it."""

    def __init__(self, identifier: str, agent: AgentInfo) -> None:
        self.id: Final = identifier
        self.agent: Final = agent

    def calls_showing(self, identifier: str) -> list[str]:
        """Return nothing: the terminal's record has the ids."""
        del identifier
        return []

    def release(self, identifier: str) -> None:
        """Do nothing: no agent can name the terminal."""


class TerminalEntry:
    """One terminal and its record.

    Methods that change the record also mark it as changed, so that `StateWriter` stores it before
    the next response is sent.
    """

    def __init__(
        self,
        terminal: Terminal,
        record: TerminalRecord,
        writer: StateWriter,
        session: Session | None = None,
        launch: LaunchRecord | None = None,
    ) -> None:
        self.terminal: Final = terminal
        self.record: Final = record
        self.session: Final = session
        """The session that created the terminal; None if the user did."""
        self.cwd: Final = unpack_text(record.cwd)
        self.exited_at: float | None = None
        """When the program exited, in seconds since 1970."""
        self.waiting: bool | None = None
        """Whether the program waited for input at the input monitor's last check."""
        self.window_count = 0
        """How many windows are attached; `Windows` keeps it."""
        self.launch: Final = launch
        """What the terminal was created with; None for an agent's."""
        self.is_restarting = False
        """Whether the program is being ended to be started again: exit must not remove it then."""
        self._writer: Final = writer
        self._key: Final = terminal_key(terminal.id)
        self._is_forgotten = False

    @property
    def id(self) -> str:
        """The terminal's id."""
        return self.terminal.id

    @property
    def command(self) -> str:
        """The command, as lists show it."""
        return self.record.command

    @property
    def name(self) -> str | None:
        """The name that the user gave to the terminal."""
        return self.record.name

    @property
    def is_users(self) -> bool:
        """Whether the user owns the terminal."""
        return self.record.is_users

    @property
    def is_created_by_user(self) -> bool:
        """Whether the user created the terminal; False for an agent's that the user took over."""
        return self.connection_id is None

    @property
    def connection_id(self) -> str | None:
        """The id of the agent's connection that created the terminal; None if the user did."""
        return self.record.connection

    @property
    def retained_bytes(self) -> int:
        """Bytes of output in memory."""
        return self.terminal.retained_bytes

    @property
    def created_at(self) -> float:
        """When the terminal was created, in seconds since 1970."""
        return self.record.created_time

    @property
    def released_at(self) -> float | None:
        """When the terminal was released, in seconds since 1970."""
        return self.record.released_time

    @property
    def is_ending(self) -> bool:
        """Whether the program has been killed and has not exited yet."""
        return self.record.killed_at is not None and self.terminal.exit is None

    @property
    def recording(self) -> str | None:
        """The path of the terminal's recording."""
        return self.record.recording

    @property
    def tool_calls(self) -> list[str]:
        """The ids of the tool calls that show the terminal, or did when it was released."""
        if self.session is None or self.record.released_time is not None:
            return self.record.tool_calls
        return self.session.calls_showing(self.id) or self.record.tool_calls

    @property
    def is_over(self) -> bool:
        """Whether only the output is left: released, or the user's and exited."""
        return self.released_at is not None or (self.is_users and self.terminal.exit is not None)

    @property
    def over_since(self) -> float:
        """When the terminal was released, or else exited, or else started, on the boot clock.

        The boot clock cannot be set: correcting the time of day must not age a terminal.
        """
        if self.record.released_at is not None:
            return self.record.released_at
        exit_ = self.terminal.exit
        return self.record.started_at + (0 if exit_ is None else exit_.wall)

    def mark_changed(self) -> None:
        """Schedule the record to be stored, before the next response at the latest."""
        if not self._is_forgotten:
            self._writer.changed(self._key, self.record.encode)

    def forget(self) -> None:
        """Stop storing the record: the keeper deletes it together with the terminal.

        While a killed tree still runs, the stored record must say that the terminal was released:
        a successor of this worker relies on it.
        """
        if self.launch is not None:
            self._writer.removed(launch_key(self.id))
        if self.terminal.is_closed:
            self._writer.discard(self._key)
        else:
            self._writer.flush()
        self._is_forgotten = True

    def set_recording(self, path: str | None) -> None:
        """Record the path of the recording; None if there is none any more."""
        self.record.recording = path
        self.mark_changed()

    def set_recorded(self, progress: RecordingRecord | None) -> None:
        """Record how far the recording is; None if nothing more is written to it."""
        self.record.recorded = progress
        self.mark_changed()

    def store_launch(self) -> None:
        """Schedule the launch record to be stored, if there is one."""
        if self.launch is not None:
            self._writer.changed(launch_key(self.id), self.launch.encode)

    def record_size(self, cols: int, rows: int) -> None:
        """Record the size that the terminal has while no window is attached."""
        self.record.cols, self.record.rows = cols, rows
        self.mark_changed()

    def record_kill(self, by: EndedBy) -> None:
        """Record who killed the program or what it left running; the first kill counts."""
        if self.record.killed_by is None:
            self.record.killed_by, self.record.killed_at = by.value, boot_time()
            self.mark_changed()

    def record_answer(self) -> None:
        """Record that the agent used the terminal's id, so the create response has arrived.

        From now on another request may have the id of that create request.
        """
        if self.record.request is not None:
            self.record.request = None
            self.mark_changed()

    def record_id_release(self) -> None:
        """Record that the session which created the terminal can no longer name it."""
        self._store_tool_calls()
        self.record.is_held = False
        self.mark_changed()

    def release(self, by: EndedBy) -> None:
        """Record that the terminal was released, and which tool calls show it."""
        self.record_kill(by)
        self._store_tool_calls()
        self.record.released_by = by.value
        self.record.released_time, self.record.released_at = time.time(), boot_time()
        self.mark_changed()

    def _store_tool_calls(self) -> None:
        # One character more than the maximum still tells that an id was too long.
        self.record.tool_calls = [
            call[: TOOL_CALL_ID_MAX + 1] for call in self.tool_calls[-TOOL_CALLS_MAX:]
        ]
