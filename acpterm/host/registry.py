"""Every terminal that the person may see: whose it is, where it came from, and how long it is kept.

An entry's states:

    running ──its program ends──▶ exited ──released──▶ released
       └───────────released──────────────────────────────▲

- *running*, *exited*: somebody holds it: the agent's session that made it, or the person.
- *released*: it is kept if a tool call has shown it, so that what it printed can still be read
  (ACP v1, "Releasing"); others are forgotten at once.

Its owner is the agent, until the person takes it over (`promote`), which has no way back, or the
person. What is the person's outlives every connection; the agent that made it may still look at it,
and does nothing else to it (`session`).

Bounded: of those released, and of the person's that have exited, the oldest are forgotten when they
are too many, hold too much together, or are too old.
"""

import re
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from acpterm.config import Settings
from acpterm.host.retention import Share, surplus
from acpterm.host.state.records import LaunchRecord, RecordingRecord, TerminalRecord, unpack_text
from acpterm.host.state.store import launch_key, terminal_key
from acpterm.host.state.writer import StateWriter
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, quote
from acpterm.pty.processes import now as boot_time
from acpterm.terminal.pool import Pool
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal

LAST_NAME: Final = "@last"
# Of those that a message names.
_NAMED_MAX: Final = 5
# Of a name: it is to fit into a list, and not to be what a list shows of another terminal.
_NAME_MAX: Final = 64
# Of the tool calls that show a terminal, the newest are named, and none by a longer id.
TOOL_CALLS_MAX: Final = 64
TOOL_CALL_ID_MAX: Final = 512
_ID: Final = re.compile("[0-9a-f]{8,}")
# What joins characters to one, or says which flag it is: not printable by itself.
_JOINED: Final = re.compile(
    r"(?<=[^\x00-\x7f\u200c\u200d])[\u200c\u200d](?=[^\x00-\x7f\u200c\u200d])"
    r"|(?<=\U0001f3f4)[\U000e0020-\U000e007e]{1,8}\U000e007f"
)


class TerminalEntry:
    """One terminal, and its record, which is stored again by `changed`."""

    def __init__(
        self,
        terminal: Terminal,
        record: TerminalRecord,
        state: StateWriter,
        session: "Session | None" = None,
        launch: LaunchRecord | None = None,
    ) -> None:
        self.terminal: Final = terminal
        self.record: Final = record
        self.session: Final = session
        self.cwd: Final = unpack_text(record.cwd)
        self.exited_at: float | None = None
        """When its program ended, in seconds since 1970."""
        self.waiting: bool | None = None
        self.launch: Final = launch
        """What it was created with; None for an agent's."""
        self.is_restarting = False
        """Whether it is being ended to be created again: it is not removed at its end then."""
        self._state: Final = state
        self._key: Final = terminal_key(terminal.id)
        self._is_forgotten = False

    @property
    def id(self) -> str:
        """The terminal's id."""
        return self.terminal.id

    @property
    def command(self) -> str:
        """What runs in it, as it is shown in lists."""
        return self.record.command

    @property
    def name(self) -> str | None:
        """The name that the user gave it."""
        return self.record.name

    @property
    def is_users(self) -> bool:
        """Whether the user owns it."""
        return self.record.is_users

    @property
    def is_created_by_user(self) -> bool:
        """Whether the user created it; one that was taken over is the agent's work all the same."""
        return self.connection_id is None

    @property
    def connection_id(self) -> str | None:
        """The agent's connection that created it; None if the user did."""
        return self.record.connection

    @property
    def retained_bytes(self) -> int:
        """Bytes of output that it has in memory."""
        return self.terminal.retained_bytes

    @property
    def created_at(self) -> float:
        """When it was created, in seconds since 1970."""
        return self.record.created_time

    @property
    def released_at(self) -> float | None:
        """When it was released, in seconds since 1970."""
        return self.record.released_time

    @property
    def is_ending(self) -> bool:
        """Whether its program is to end, and has not ended yet."""
        return self.record.killed_at is not None and self.terminal.exit is None

    @property
    def recording(self) -> str | None:
        """The path of its recording."""
        return self.record.recording

    @property
    def tool_calls(self) -> list[str]:
        """The ids of the tool calls that show it, or did when it was released."""
        if self.session is None or self.record.released_time is not None:
            return self.record.tool_calls
        return self.session.calls_showing(self.id) or self.record.tool_calls

    @property
    def is_over(self) -> bool:
        """Whether nothing but its output is left to look at, by the person's leave."""
        return self.released_at is not None or (self.is_users and self.terminal.exit is not None)

    @property
    def over_since(self) -> float:
        """When it was released, or else exited, or else began: on the boot clock.

        Nobody sets that clock: a terminal is not older because the time of day was put right.
        """
        if self.record.released_at is not None:
            return self.record.released_at
        exit_ = self.terminal.exit
        return self.record.started_at + (0 if exit_ is None else exit_.wall)

    def mark_changed(self) -> None:
        """Have the record stored, before the next answer at the latest."""
        if not self._is_forgotten:
            self._state.changed(self._key, self.record.encode)

    def forget(self) -> None:
        """Store the record no more: the keeper deletes it with the terminal.

        Until a killed tree has ended a successor has to know that it was released.
        """
        if self.launch is not None:
            self._state.removed(launch_key(self.id))
        if self.terminal.is_closed:
            self._state.discard(self._key)
        else:
            self._state.flush()
        self._is_forgotten = True

    def set_recording(self, path: str | None) -> None:
        """Note where its recording is; None if there is none any more."""
        self.record.recording = path
        self.mark_changed()

    def set_recorded(self, progress: RecordingRecord | None) -> None:
        """Note how far its recording is; None if nothing more is written to it."""
        self.record.recorded = progress
        self.mark_changed()

    def store_launch(self) -> None:
        """Have stored what it was created with, if that is known."""
        if self.launch is not None:
            self._state.changed(launch_key(self.id), self.launch.encode)

    def record_size(self, cols: int, rows: int) -> None:
        """Note the size that it has while no window is attached."""
        self.record.cols, self.record.rows = cols, rows
        self.mark_changed()

    def record_kill(self, by: EndedBy) -> None:
        """Note who ends the program, or what it has left, unless that was requested before."""
        if self.record.killed_by is None:
            self.record.killed_by, self.record.killed_at = by.value, boot_time()
            self.mark_changed()

    def record_answer(self) -> None:
        """Note that its agent has named it, so that the answer to its create has arrived.

        From now on another request may have that one's id.
        """
        if self.record.request is not None:
            self.record.request = None
            self.mark_changed()

    def record_id_release(self) -> None:
        """Note that the session that created it no longer names it."""
        self._store_tool_calls()
        self.record.is_held = False
        self.mark_changed()

    def release(self, by: EndedBy) -> None:
        """Note that it was released, and which tool calls show it."""
        self.record_kill(by)
        self._store_tool_calls()
        self.record.released_by = by.value
        self.record.released_time, self.record.released_at = time.time(), boot_time()
        self.mark_changed()

    def _store_tool_calls(self) -> None:
        # Those that are described: the newest, and none by a longer id.
        self.record.tool_calls = [
            call[: TOOL_CALL_ID_MAX + 1] for call in self.tool_calls[-TOOL_CALLS_MAX:]
        ]


class AgentInfo:
    """Who is at the other end of an agent's connection, as far as that was said."""

    def __init__(self, connection: str) -> None:
        self.connection_id: Final = connection
        self.name: str | None = None


class Session(Protocol):
    """The agent's side of a terminal: the session that made it. See `session.Session`."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def agent(self) -> AgentInfo:
        """Whose it is."""

    def calls_showing(self, identifier: str) -> list[str]:
        """Give the ids of the tool calls that show a terminal."""

    def release(self, identifier: str) -> "TerminalEntry | None":
        """Make the id of a terminal invalid."""


class Origin:
    """A session whose connection is gone: what a terminal that outlives it still says of it."""

    def __init__(self, identifier: str, agent: AgentInfo) -> None:
        self.id: Final = identifier
        self.agent: Final = agent

    def calls_showing(self, identifier: str) -> list[str]:
        """Return nothing: the terminal's record has the ids."""
        del identifier
        return []

    def release(self, identifier: str) -> None:
        """Do nothing: nobody may name the terminal."""


class TerminalRegistry:
    """The entries of one host. `told` is called with what happens to one: `(event, entry, by)`."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self._pool = pool
        self._share: Final = Share(
            settings.keep_released, settings.keep_released_bytes, settings.keep_released_age
        )
        self._entries: dict[str, TerminalEntry] = {}
        # Names of terminals that are being made.
        self._taken: set[str] = set()
        self.on_event: Callable[[str, TerminalEntry, str | None], None] = lambda *_: None
        self.on_change: Callable[[], None] = lambda: None
        """Called when there may be no terminal left that keeps the host going, or one again."""

    def __iter__(self) -> Iterator[TerminalEntry]:
        """Give the entries, in the order in which they were made."""
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_busy(self) -> bool:
        """Whether somebody holds a terminal: it runs, or the person has not removed it."""
        return any(entry.released_at is None for entry in self._entries.values())

    def get(self, identifier: str) -> TerminalEntry | None:
        """Give the entry of that id, if there is one."""
        return self._entries.get(identifier)

    def find(self, name: str, *, own: bool = False) -> TerminalEntry:
        """Return the entry that the user names: by its id, its name, an id's beginning, or @last.

        With `own`, @last is the newest of the user's: an agent could create a terminal just before
        the user types a password into @last. Raises `RpcError`: -32002 if there is none such,
        -32602 if several begin so.
        """
        if entry := self._entries.get(name):
            return entry
        if name == LAST_NAME:
            for entry in reversed(self._entries.values()):
                if entry.is_users or not own:
                    return entry
            if self._entries:
                raise RpcError(
                    RESOURCE_NOT_FOUND,
                    f"none of the terminals is yours, and {LAST_NAME} is no agent's here: name an "
                    "agent's by its id or its name; see acpterm ls",
                )
            raise RpcError(RESOURCE_NOT_FOUND, "there is no terminal yet")
        # A name may be used again: then it means the one that still runs, or else the newest.
        named = [entry for entry in self if entry.name == name]
        if named:
            return max(named, key=lambda entry: (not entry.is_over, entry.created_at))
        begins = name if name.startswith("term_") else f"term_{name}"
        found = [entry for entry in self if entry.id.startswith(begins)] if name else []
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(entry.id for entry in found[:_NAMED_MAX])
            more = ", …" if len(found) > _NAMED_MAX else ""
            raise RpcError(
                INVALID_PARAMS, f"{len(found)} terminals begin with {quote(name)}: {ids}{more}"
            )
        raise RpcError(
            RESOURCE_NOT_FOUND,
            f"there is no terminal {quote(name)}: name one by its id, the beginning of its id, "
            f"its name, or {LAST_NAME}; see acpterm ls --all",
        )

    @contextmanager
    def reserve_name(self, name: str | None) -> Iterator[None]:
        """Keep a name, while a terminal is made, for that; None is no name.

        Raises `RpcError` (-32602) for one that could mean another terminal.
        """
        if name is None:
            yield
            return
        self._check_name(name)
        self._taken.add(name)
        try:
            yield
        finally:
            self._taken.discard(name)

    def _check_name(self, name: str) -> None:
        odd = name.startswith(("@", "-", "term_")) or not _is_printable(name) or _ID.fullmatch(name)
        if not name or odd or len(name) > _NAME_MAX:
            raise RpcError(
                INVALID_PARAMS,
                f"name {quote(name)}: a name is not empty, is printable, has at most {_NAME_MAX} "
                "characters, does not begin with '@', '-' or 'term_', and is no beginning of an id "
                "(8 hexadecimal digits or more)",
            )
        runs = any(entry.name == name and not entry.is_over for entry in self)
        if runs or name in self._taken:
            raise RpcError(
                INVALID_PARAMS, f"a terminal of the name {quote(name)} runs: choose another"
            )

    def add(self, entry: TerminalEntry) -> None:
        """Take a terminal that was just made."""
        self._entries[entry.id] = entry
        self.on_event("created", entry, None)
        self.on_change()

    def restore(self, entry: TerminalEntry) -> None:
        """Take a terminal over from the worker before, which has published that it was created."""
        self._entries[entry.id] = entry

    def record_exit(self, entry: TerminalEntry) -> None:
        """Learn that a terminal's program has ended."""
        assert entry.terminal.exit is not None  # noqa: S101  set before, for the type checker
        # It may have ended while no worker was there to see it.
        entry.exited_at = min(time.time(), entry.created_at + entry.terminal.exit.wall)
        entry.waiting = False
        if entry.id in self._entries:
            self.on_event("exited", entry, None)
            if entry.record.is_removed_at_end and not entry.is_restarting:
                self.remove(entry)
                return
            if entry.is_over:
                self._remove_surplus()
            self.on_change()

    def kill(self, entry: TerminalEntry, by: EndedBy) -> None:
        """Begin to end a terminal's program and all that it has started."""
        if entry.terminal.exit is None:
            self.on_event("killed", entry, by.value)
        entry.record_kill(by)
        entry.terminal.kill(by)

    def release(self, entry: TerminalEntry, by: EndedBy) -> None:
        """Begin to end what is left of a terminal; keep what it printed, if a tool call shows it.

        Can be repeated.
        """
        if entry.released_at is not None:
            self._pool.release(entry.terminal, by)
            return
        entry.release(by)
        if entry.tool_calls:
            entry.terminal.retained = True
            self._pool.release(entry.terminal, by)
        else:
            self._forget(entry, by)
        self.on_event("released", entry, by.value)
        if entry.tool_calls:
            # What the agent read of it last would be held a second time, and not be counted.
            entry.terminal.text.forget()
            self._remove_surplus()
        self.on_change()

    def remove(self, entry: TerminalEntry) -> None:
        """Release a terminal for the person, and forget it."""
        if entry.released_at is None:
            entry.release(EndedBy.USER)
            self.on_event("released", entry, EndedBy.USER.value)
        if entry.session is not None:
            with suppress(RpcError):
                entry.session.release(entry.id)
        self._forget(entry, EndedBy.USER)
        self.on_change()

    def promote(self, entry: TerminalEntry) -> None:
        """Make a terminal the person's; one that is already stays so.

        Raises `RpcError` (-32602) for one that was released.
        """
        if entry.released_at is not None:
            raise RpcError(
                INVALID_PARAMS,
                f"terminal {entry.id!r} has been released: there is nothing left to take over",
            )
        if entry.is_users:
            return
        entry.record.is_users = True
        entry.record.lifetime_end = entry.record.release_at = None
        entry.mark_changed()
        entry.terminal.cancel_lifetime()
        self.on_event("promoted", entry, EndedBy.USER.value)
        self._remove_surplus()

    def rename(self, entry: TerminalEntry, name: str) -> None:
        """Give a terminal another name.

        Raises `RpcError` (-32602) for a name that could mean another terminal.
        """
        if entry.name == name:
            return
        self._check_name(name)
        entry.record.name = name
        entry.mark_changed()
        self.on_event("renamed", entry, EndedBy.USER.value)

    def expire(self) -> None:
        """Forget those that are too old."""
        if self._remove_surplus():
            self.on_change()

    def _remove_surplus(self) -> bool:
        """Forget those that are over and that there is no more room for; see `retention`."""
        over = (entry for entry in self._entries.values() if entry.is_over)
        found = surplus(over, self._share, boot_time())
        for entry in found:
            self._forget(entry, EndedBy.USER)
        return bool(found)

    def _forget(self, entry: TerminalEntry, by: EndedBy) -> None:
        self._entries.pop(entry.id, None)
        entry.forget()
        self._pool.release(entry.terminal, by)
        self._pool.forget(entry.terminal)


def _is_printable(name: str) -> bool:
    """Return whether a name consists of printable grapheme clusters: one begins with no mark."""
    return not unicodedata.category(name[:1] or " ").startswith("M") and (
        _JOINED.sub("", name).isprintable()
    )
