"""All terminals that the user can see: their states, and how long each is retained.

An entry's states:

    running ──its program exits──▶ exited ──released──▶ left ──its background ends──▶ released
       └────────────────────────released──────────────────────────────────────────────▲

- *running*, *exited*: the terminal is held, by the agent's session that created it or by the user.
- *left*: the agent has released the terminal's id, and what the program has left running in the
  background continues. It ends by itself, with the agent's connection, with a cancelled turn, by a
  kill or by the limit `idle`. If the user takes the terminal over, it is like any other of the
  user's. If there is no background, this state is skipped.
- *released*: the terminal is retained if a tool call has shown it, so that its output can still be
  read (ACP v1, "Releasing"). Other terminals are forgotten at once.

A terminal is owned by its creator: an agent or the user. The user can become the owner of an
agent's terminal (`promote`), which cannot be undone. A terminal that the user owns outlives every
connection. If an agent created it, that agent can only read its output and release its id (see
`sessions.session`).

Memory is bounded. A terminal is *over* when it is released, or when the user owns it and its
program has exited. Terminals that are over are forgotten, the oldest first, when there are too
many, when they take too many bytes together, or when they are too old (`surplus`).

The limits apply to the user's terminals, and separately to those of all agents together, so
terminals of agents never displace terminals of the user. A terminal that an agent has given to the
user counts as the agent's. Among the agents' connections, the one with the most terminals or bytes
loses its oldest terminals first, so an agent with many terminals does not displace those of other
agents.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from acpterm.config import Settings
from acpterm.host import names
from acpterm.host.entry import InputWait, TerminalEntry
from acpterm.host.events import EventBus
from acpterm.jsonrpc import INVALID_PARAMS, RpcError, quote
from acpterm.pty.background import NO_BACKGROUND, Background
from acpterm.pty.processes import now as boot_time
from acpterm.terminal.pool import Pool
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal


class RetentionLimits(NamedTuple):
    """For the user's terminals, and for those of all agents; `age` in seconds."""

    number: int
    size: int
    age: float


def surplus(
    entries: Iterable[TerminalEntry], limits: RetentionLimits, now: float
) -> list[TerminalEntry]:
    """Return those of `entries`, which are over, that must be forgotten to stay within `limits`."""
    entries = sorted(entries, key=lambda entry: entry.over_since)
    found = [entry for entry in entries if entry.over_since < now - limits.age]
    left = entries[len(found) :]
    users: dict[str | None, list[TerminalEntry]] = {
        None: [entry for entry in left if entry.is_trusted]
    }
    agents: defaultdict[str | None, list[TerminalEntry]] = defaultdict(list)
    for entry in left:
        if not entry.is_trusted:
            agents[entry.record.connection].append(entry)
    return [*found, *_above(users, limits), *_above(agents, limits)]


def _above(
    queues: dict[str | None, list[TerminalEntry]], limits: RetentionLimits
) -> list[TerminalEntry]:
    """Remove entries, oldest of the largest owner first, until all are within limits."""
    found: list[TerminalEntry] = []
    numbers = {owner: len(queue) for owner, queue in queues.items()}
    sizes = {
        owner: sum(entry.terminal.retained_bytes for entry in queue)
        for owner, queue in queues.items()
    }
    while sum(numbers.values()) > limits.number or sum(sizes.values()) > limits.size:
        most = numbers if sum(numbers.values()) > limits.number else sizes
        owner = max(most, key=most.__getitem__)
        entry = queues[owner].pop(0)
        numbers[owner] -= 1
        sizes[owner] -= entry.terminal.retained_bytes
        found.append(entry)
    return found


class TerminalRegistry:
    """All terminals of one host, by id. `on_change`: `is_busy` may have changed."""

    def __init__(
        self,
        pool: Pool,
        settings: Settings,
        bus: EventBus,
        on_change: Callable[[], object],
        on_forget: Callable[[str], object],
    ) -> None:
        self._pool: Final = pool
        self._bus: Final = bus
        self._on_change: Final = on_change
        self._on_forget: Final = on_forget
        self._limits: Final = RetentionLimits(
            settings.keep_released, settings.keep_released_bytes, settings.keep_released_age
        )
        # In order of creation.
        self._entries: dict[str, TerminalEntry] = {}
        # Entries whose program has not exited, including forgotten entries.
        self._running: dict[str, TerminalEntry] = {}
        # Names of terminals that are being created.
        self._reserved_names: set[str] = set()
        self._numbers: Final = names.Numbers()

    def __iter__(self) -> Iterator[TerminalEntry]:
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_busy(self) -> bool:
        return any(entry.released_at is None for entry in self._entries.values())

    @property
    def running(self) -> Iterator[TerminalEntry]:
        """The terminals whose program has not exited, even if the terminal is already forgotten."""
        return iter(self._running.values())

    def get(self, identifier: str) -> TerminalEntry | None:
        return self._entries.get(identifier)

    def find(self, name: str, *, own: bool = False) -> TerminalEntry:
        """Return the entry with the id `name`, or that `name` means (`names.find`)."""
        if entry := self._entries.get(name):
            return entry
        return names.find(list(self._entries.values()), name, own=own)

    @contextmanager
    def reserve_name(self, name: str | None) -> Iterator[str | None]:
        """Reserve a name (see `names.Numbers`) for a terminal created in the block."""
        # Raises `RpcError` (-32602) if it is not allowed, reserved, or of a terminal that is not
        # over.
        if name is None:
            yield None
            return
        taken = {entry.name for entry in self._entries.values() if entry.name}
        name = self._numbers.numbered(name, taken | self._reserved_names)
        self._check_name(name)
        self._reserved_names.add(name)
        try:
            yield name
        finally:
            self._reserved_names.discard(name)

    def _check_name(self, name: str) -> None:
        names.check_name(name)
        is_taken = any(entry.name == name and not entry.is_over for entry in self)
        if is_taken or name in self._reserved_names:
            raise RpcError(
                INVALID_PARAMS, f"a terminal of the name {quote(name)} runs: choose another"
            )

    def add(self, entry: TerminalEntry) -> None:
        self._entries[entry.id] = entry
        self._bus.publish_terminal("created", entry)
        self._on_change()
        self._watch_exit(entry)

    def restore(self, entry: TerminalEntry) -> None:
        self._entries[entry.id] = entry
        self._watch_exit(entry)

    def _watch_exit(self, entry: TerminalEntry) -> None:
        if entry.name is not None:
            self._numbers.record(entry.name)
        self._running[entry.id] = entry
        if entry.terminal.exit is not None:
            self.record_exit(entry.terminal)

    def record_exit(self, terminal: Terminal) -> None:
        """Record that a terminal's program has exited. Idempotent."""
        entry = self._running.pop(terminal.id, None)
        if entry is None or terminal.exit is None:
            return
        # The program may have exited earlier, while no worker was running.
        entry.exited_at = min(time.time(), entry.record.created_time + terminal.exit.wall)
        entry.waiting = InputWait(False)
        if entry.id not in self._entries:
            # Clients do not know a forgotten terminal, but the audit log has each program's end.
            self._bus.record_terminal("exited", entry)
        else:
            self._bus.publish_terminal("exited", entry)
            self._on_change()

    @property
    def occupied(self) -> Iterator[TerminalEntry]:
        yield from self._running.values()
        yield from (entry for entry in self._entries.values() if entry.background.number)

    def record_background(self, entry: TerminalEntry, found: Background) -> None:
        """Record what an exited program has left running, which may be the terminal's end."""
        if entry.released_at is not None or not entry.may_have_background:
            return
        if not found.number:
            entry.background_end = boot_time() if entry.background.number else entry.over_since
        if found != entry.background:
            entry.background = found
            self._bus.publish_terminal("background", entry)
        if not found.number:
            if entry.record.is_left and not entry.is_users:
                self.release(entry, EndedBy.AGENT)
            elif entry.record.is_removed_at_end and not entry.is_restarting:
                self.remove(entry)
            elif entry.is_over:
                self._remove_surplus()
            self._on_change()
            entry.terminal.notify()

    def kill(self, entry: TerminalEntry, by: EndedBy) -> None:
        if entry.terminal.exit is None or entry.may_have_background:
            self._bus.publish_terminal("killed", entry, by.value)
        entry.record_kill(by)
        entry.terminal.kill(by, entry.record.cause_of(by))

    def leave(self, entry: TerminalEntry) -> bool:
        """Let the background run on after the agent's release; False if it cannot."""
        record = entry.record
        if not entry.may_have_background or record.killed_by or record.ends_background:
            return False
        entry.record_leaving()
        return True

    def left_by(self, connection: str, session: str | None = None) -> list[TerminalEntry]:
        return [
            entry
            for entry in self._entries.values()
            if entry.record.is_left
            and entry.record.connection == connection
            and session in (None, entry.record.session)
            and entry.released_at is None
            and not entry.is_users
        ]

    def release(self, entry: TerminalEntry, by: EndedBy) -> None:
        """Begin to end a terminal; retain it if a tool call shows it. Idempotent."""
        if entry.released_at is not None:
            self._pool.release(entry.terminal, by)
            return
        entry.record_release(by)
        if entry.tool_calls:
            entry.terminal.retained = True
            self._pool.release(entry.terminal, by)
        else:
            self._forget(entry, by)
        self._bus.publish_terminal("released", entry, by.value)
        entry.background = NO_BACKGROUND
        if entry.tool_calls:
            # The text view holds the output a second time, and `surplus` does not count it.
            entry.terminal.text.forget()
            self._remove_surplus()
        self._on_change()

    def remove(self, entry: TerminalEntry) -> None:
        """Release a terminal on the user's behalf, and forget it together with its output."""
        if entry.released_at is None:
            entry.record_release(EndedBy.USER)
            self._bus.publish_terminal("released", entry, EndedBy.USER.value)
        if entry.session is not None:
            with suppress(RpcError):
                entry.session.release(entry.id)
        self._forget(entry, EndedBy.USER)
        self._on_change()

    def promote(self, entry: TerminalEntry, by: EndedBy = EndedBy.USER) -> None:
        """Make the user the owner: `USER` takes over, `AGENT` gives away. Idempotent."""
        # Its timeout, and its release after a cancelled turn, no longer apply.
        if entry.released_at is not None:
            raise RpcError(
                INVALID_PARAMS,
                f"terminal {entry.id!r} has been released: there is nothing left to take over",
            )
        if entry.is_trusted or (entry.is_users and by is EndedBy.AGENT):
            return
        entry.record.is_given = by is EndedBy.AGENT
        if entry.is_users:
            entry.mark_changed()
            return
        entry.record.is_users = True
        entry.record.lifetime_end = entry.record.release_at = None
        entry.mark_changed()
        entry.terminal.cancel_lifetime()
        self._bus.publish_terminal("promoted", entry, by.value)
        self._remove_surplus()

    def rename(self, entry: TerminalEntry, name: str) -> None:
        if entry.name == name:
            return
        self._check_name(name)
        entry.record.name = name
        entry.mark_changed()
        self._bus.publish_terminal("renamed", entry, EndedBy.USER.value)

    def expire(self) -> None:
        if self._remove_surplus():
            self._on_change()

    def _remove_surplus(self) -> bool:
        over = [
            entry
            for entry in self._entries.values()
            if entry.is_over and (entry.released_at is not None or not entry.may_have_background)
        ]
        found = surplus(over, self._limits, boot_time())
        for entry in found:
            self._forget(entry, EndedBy.USER)
        return bool(found)

    def _forget(self, entry: TerminalEntry, by: EndedBy) -> None:
        self._entries.pop(entry.id, None)
        entry.forget()
        self._pool.release(entry.terminal, by)
        self._pool.forget(entry.terminal)
        self._on_forget(entry.id)
