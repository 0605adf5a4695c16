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
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, quoted
from acpterm.pty.processes import now as boot_time
from acpterm.terminal.pool import Pool
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal

LAST: Final = "@last"
# Of those that a message names.
_NAMED: Final = 5
# Of a name: it is to fit into a list, and not to be what a list shows of another terminal.
_LONGEST: Final = 64
# Of the tool calls that show a terminal, the newest are named, and none by a longer id.
CALLS: Final = 64
CALL_ID: Final = 512
_ID: Final = re.compile("[0-9a-f]{8,}")
# What joins characters to one, or says which flag it is: not printable by itself.
_JOINED: Final = re.compile(
    r"(?<=[^\x00-\x7f\u200c\u200d])[\u200c\u200d](?=[^\x00-\x7f\u200c\u200d])"
    r"|(?<=\U0001f3f4)[\U000e0020-\U000e007e]{1,8}\U000e007f"
)


class Entry:
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
        self.exited: float | None = None
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
    def is_made_by_user(self) -> bool:
        """Whether the user created it; one that was taken over is the agent's work all the same."""
        return self.connection is None

    @property
    def connection(self) -> str | None:
        """The agent's connection that created it; None if the user did."""
        return self.record.connection

    @property
    def held(self) -> int:
        """Bytes of output that it has in memory."""
        return self.terminal.held

    @property
    def made(self) -> float:
        """When it was created, in seconds since 1970."""
        return self.record.created_time

    @property
    def released(self) -> float | None:
        """When it was released, in seconds since 1970."""
        return self.record.released_time

    @property
    def ending(self) -> bool:
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
    def over(self) -> bool:
        """Whether nothing but its output is left to look at, by the person's leave."""
        return self.released is not None or (self.is_users and self.terminal.exit is not None)

    @property
    def over_since(self) -> float:
        """When it was released, or else exited, or else began: on the boot clock.

        Nobody sets that clock: a terminal is not older because the time of day was put right.
        """
        if self.record.released_at is not None:
            return self.record.released_at
        exit_ = self.terminal.exit
        return self.record.started_at + (0 if exit_ is None else exit_.wall)

    def changed(self) -> None:
        """Have the record stored, before the next answer at the latest."""
        if not self._is_forgotten:
            self._state.changed(self._key, self.record.encode)

    def forget(self) -> None:
        """Store the record no more: the keeper deletes it with the terminal.

        Until a killed tree has ended a successor has to know that it was released.
        """
        if self.launch is not None:
            self._state.removed(launch_key(self.id))
        if self.terminal.gone:
            self._state.discard(self._key)
        else:
            self._state.flush()
        self._is_forgotten = True

    def set_recording(self, path: str | None) -> None:
        """Note where its recording is; None if there is none any more."""
        self.record.recording = path
        self.changed()

    def set_recorded(self, progress: RecordingRecord | None) -> None:
        """Note how far its recording is; None if nothing more is written to it."""
        self.record.recorded = progress
        self.changed()

    def store_launch(self) -> None:
        """Have stored what it was created with, if that is known."""
        if self.launch is not None:
            self._state.changed(launch_key(self.id), self.launch.encode)

    def resized(self, cols: int, rows: int) -> None:
        """Note the size that it has while no window is attached."""
        self.record.cols, self.record.rows = cols, rows
        self.changed()

    def kill_requested(self, by: EndedBy) -> None:
        """Note who ends the program, or what it has left, unless that was requested before."""
        if self.record.killed_by is None:
            self.record.killed_by, self.record.killed_at = by.value, boot_time()
            self.changed()

    def answer_arrived(self) -> None:
        """Note that its agent has named it, so that the answer to its create has arrived.

        From now on another request may have that one's id.
        """
        if self.record.request is not None:
            self.record.request = None
            self.changed()

    def id_released(self) -> None:
        """Note that the session that created it no longer names it."""
        self._store_tool_calls()
        self.record.is_held = False
        self.changed()

    def release(self, by: EndedBy) -> None:
        """Note that it was released, and which tool calls show it."""
        self.kill_requested(by)
        self._store_tool_calls()
        self.record.released_by = by.value
        self.record.released_time, self.record.released_at = time.time(), boot_time()
        self.changed()

    def _store_tool_calls(self) -> None:
        # Those that are described: the newest, and none by a longer id.
        self.record.tool_calls = [call[: CALL_ID + 1] for call in self.tool_calls[-CALLS:]]


class Agent:
    """Who is at the other end of an agent's connection, as far as that was said."""

    def __init__(self, connection: str) -> None:
        self.connection: Final = connection
        self.name: str | None = None


class Session(Protocol):
    """The agent's side of a terminal: the session that made it. See `session.Session`."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def agent(self) -> Agent:
        """Whose it is."""

    def calls_showing(self, identifier: str) -> list[str]:
        """Give the ids of the tool calls that show a terminal."""

    def release(self, identifier: str) -> "Entry | None":
        """Make the id of a terminal invalid."""


class Origin:
    """A session whose connection is gone: what a terminal that outlives it still says of it."""

    def __init__(self, identifier: str, agent: Agent) -> None:
        self.id: Final = identifier
        self.agent: Final = agent

    def calls_showing(self, identifier: str) -> list[str]:
        """Return nothing: the terminal's record has the ids."""
        del identifier
        return []

    def release(self, identifier: str) -> None:
        """Do nothing: nobody may name the terminal."""


class Roster:
    """The entries of one host. `told` is called with what happens to one: `(event, entry, by)`."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self._pool = pool
        self._share: Final = Share(
            settings.keep_released, settings.keep_released_bytes, settings.keep_released_age
        )
        self._entries: dict[str, Entry] = {}
        # Names of terminals that are being made.
        self._taken: set[str] = set()
        self.told: Callable[[str, Entry, str | None], None] = lambda *_: None
        self.changed: Callable[[], None] = lambda: None
        """Called when there may be no terminal left that keeps the host going, or one again."""

    def __iter__(self) -> Iterator[Entry]:
        """Give the entries, in the order in which they were made."""
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def busy(self) -> bool:
        """Whether somebody holds a terminal: it runs, or the person has not removed it."""
        return any(entry.released is None for entry in self._entries.values())

    def get(self, identifier: str) -> Entry | None:
        """Give the entry of that id, if there is one."""
        return self._entries.get(identifier)

    def find(self, name: str, *, own: bool = False) -> Entry:
        """Return the entry that the user names: by its id, its name, an id's beginning, or @last.

        With `own`, @last is the newest of the user's: an agent could create a terminal just before
        the user types a password into @last. Raises `RpcError`: -32002 if there is none such,
        -32602 if several begin so.
        """
        if entry := self._entries.get(name):
            return entry
        if name == LAST:
            for entry in reversed(self._entries.values()):
                if entry.is_users or not own:
                    return entry
            if self._entries:
                raise RpcError(
                    RESOURCE_NOT_FOUND,
                    f"none of the terminals is yours, and {LAST} is no agent's here: name an "
                    "agent's by its id or its name; see acpterm ls",
                )
            raise RpcError(RESOURCE_NOT_FOUND, "there is no terminal yet")
        # A name may be used again: then it means the one that still runs, or else the newest.
        named = [entry for entry in self if entry.name == name]
        if named:
            return max(named, key=lambda entry: (not entry.over, entry.made))
        begins = name if name.startswith("term_") else f"term_{name}"
        found = [entry for entry in self if entry.id.startswith(begins)] if name else []
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(entry.id for entry in found[:_NAMED])
            more = ", …" if len(found) > _NAMED else ""
            raise RpcError(
                INVALID_PARAMS, f"{len(found)} terminals begin with {quoted(name)}: {ids}{more}"
            )
        raise RpcError(
            RESOURCE_NOT_FOUND,
            f"there is no terminal {quoted(name)}: name one by its id, the beginning of its id, "
            f"its name, or {LAST}; see acpterm ls --all",
        )

    @contextmanager
    def naming(self, name: str | None) -> Iterator[None]:
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
        if not name or odd or len(name) > _LONGEST:
            raise RpcError(
                INVALID_PARAMS,
                f"name {quoted(name)}: a name is not empty, is printable, has at most {_LONGEST} "
                "characters, does not begin with '@', '-' or 'term_', and is no beginning of an id "
                "(8 hexadecimal digits or more)",
            )
        runs = any(entry.name == name and not entry.over for entry in self)
        if runs or name in self._taken:
            raise RpcError(
                INVALID_PARAMS, f"a terminal of the name {quoted(name)} runs: choose another"
            )

    def add(self, entry: Entry) -> None:
        """Take a terminal that was just made."""
        self._entries[entry.id] = entry
        self.told("created", entry, None)
        self.changed()

    def restore(self, entry: Entry) -> None:
        """Take a terminal over from the worker before, which has published that it was created."""
        self._entries[entry.id] = entry

    def exited(self, entry: Entry) -> None:
        """Learn that a terminal's program has ended."""
        assert entry.terminal.exit is not None  # noqa: S101  set before, for the type checker
        # It may have ended while no worker was there to see it.
        entry.exited = min(time.time(), entry.made + entry.terminal.exit.wall)
        entry.waiting = False
        if entry.id in self._entries:
            self.told("exited", entry, None)
            if entry.record.is_removed_at_end and not entry.is_restarting:
                self.remove(entry)
                return
            if entry.over:
                self._tidy()
            self.changed()

    def kill(self, entry: Entry, by: EndedBy) -> None:
        """Begin to end a terminal's program and all that it has started."""
        if entry.terminal.exit is None:
            self.told("killed", entry, by.value)
        entry.kill_requested(by)
        entry.terminal.kill(by)

    def release(self, entry: Entry, by: EndedBy) -> None:
        """Begin to end what is left of a terminal; keep what it printed, if a tool call shows it.

        Can be repeated.
        """
        if entry.released is not None:
            self._pool.release(entry.terminal, by)
            return
        entry.release(by)
        if entry.tool_calls:
            entry.terminal.retained = True
            self._pool.release(entry.terminal, by)
        else:
            self._forget(entry, by)
        self.told("released", entry, by.value)
        if entry.tool_calls:
            # What the agent read of it last would be held a second time, and not be counted.
            entry.terminal.text.forget()
            self._tidy()
        self.changed()

    def remove(self, entry: Entry) -> None:
        """Release a terminal for the person, and forget it."""
        if entry.released is None:
            entry.release(EndedBy.USER)
            self.told("released", entry, EndedBy.USER.value)
        if entry.session is not None:
            with suppress(RpcError):
                entry.session.release(entry.id)
        self._forget(entry, EndedBy.USER)
        self.changed()

    def promote(self, entry: Entry) -> None:
        """Make a terminal the person's; one that is already stays so.

        Raises `RpcError` (-32602) for one that was released.
        """
        if entry.released is not None:
            raise RpcError(
                INVALID_PARAMS,
                f"terminal {entry.id!r} has been released: there is nothing left to take over",
            )
        if entry.is_users:
            return
        entry.record.is_users = True
        entry.record.lifetime_end = entry.record.release_at = None
        entry.changed()
        entry.terminal.keep()
        self.told("promoted", entry, EndedBy.USER.value)
        self._tidy()

    def rename(self, entry: Entry, name: str) -> None:
        """Give a terminal another name.

        Raises `RpcError` (-32602) for a name that could mean another terminal.
        """
        if entry.name == name:
            return
        self._check_name(name)
        entry.record.name = name
        entry.changed()
        self.told("renamed", entry, EndedBy.USER.value)

    def expire(self) -> None:
        """Forget those that are too old."""
        if self._tidy():
            self.changed()

    def _tidy(self) -> bool:
        """Forget those that are over and that there is no more room for; see `retention`."""
        over = (entry for entry in self._entries.values() if entry.over)
        found = surplus(over, self._share, boot_time())
        for entry in found:
            self._forget(entry, EndedBy.USER)
        return bool(found)

    def _forget(self, entry: Entry, by: EndedBy) -> None:
        self._entries.pop(entry.id, None)
        entry.forget()
        self._pool.release(entry.terminal, by)
        self._pool.forget(entry.terminal)


def _is_printable(name: str) -> bool:
    """Return whether a name consists of printable grapheme clusters: one begins with no mark."""
    return not unicodedata.category(name[:1] or " ").startswith("M") and (
        _JOINED.sub("", name).isprintable()
    )
