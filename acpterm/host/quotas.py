"""The limits on the number of agents' terminals, and on how many are started in a minute.

A terminal counts from its start until its program has exited, whether or not it was released. A
terminal that the user has promoted counts no more. A terminal that is being started counts as well,
so that requests that run at the same time cannot exceed a limit together.

`check` before the user is asked, so that no question is asked in vain; `starting` around the start,
which checks again, because the answer may have taken long.

The times of a connection's starts are stored with the connection (`ConnectionRecord.starts`), so
they survive a take-over; the numbers are those of the restored terminals. If the keeper dies too,
connections are restored from their terminals, and the times are lost.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from acpterm.config.profiles import Profile
from acpterm.host.entry import TerminalEntry
from acpterm.host.registry import TerminalRegistry
from acpterm.jsonrpc import INTERNAL_ERROR, RpcError
from acpterm.pty.processes import now as boot_time

WINDOW_S: Final = 60.0
"""The period in which starts are counted."""


class Starter(Protocol):
    """An agent's connection. `agent.connection.AgentConnection` implements it."""

    @property
    def id(self) -> str:
        """The connection's id."""

    @property
    def starts(self) -> list[float]:
        """When the connection has started terminals, on the boot clock, oldest first."""

    def mark_changed(self) -> None:
        """Schedule the connection's record to be stored."""


class Quotas:
    """The numbers of running terminals of agents. `clock` is the clock of `Starter.starts`."""

    def __init__(self, registry: TerminalRegistry, clock: Callable[[], float] = boot_time) -> None:
        self._registry: Final = registry
        self._clock: Final = clock
        # Terminals that are being started, by the connection's and the session's id.
        self._starting: Counter[tuple[str, str]] = Counter()

    def check(self, profile: Profile, connection: Starter, session_id: str) -> None:
        """Raise `RpcError` (-32603) if a limit does not allow one more terminal now.

        The terminal is for the session `session_id` of `connection`.
        """
        self._check_rate(profile, connection)
        limits = profile.limits
        limited = limits.terminals, limits.session_terminals, limits.agent_terminals
        if all(limit is None for limit in limited):
            return
        own = connection.id, session_id
        keys = [*map(_key, filter(_is_counted, self._registry.running)), *self._starting.elements()]
        for name, what, limit, count in (
            ("terminals", "terminals of all agents", limits.terminals, len(keys)),
            (
                "agent_terminals",
                "agent terminals",
                limits.agent_terminals,
                sum(connection_id == own[0] for connection_id, _ in keys),
            ),
            ("session_terminals", "session terminals", limits.session_terminals, keys.count(own)),
        ):
            if limit is not None and count >= limit:
                sentence = f"Maximum concurrent {what} reached ({limit})"
                raise _refusal(profile, sentence, "release one", name)

    @contextmanager
    def starting(self, profile: Profile, connection: Starter, session_id: str) -> Iterator[None]:
        """Start a terminal in the block, which counts from now on.

        The arguments are as in `check`, and the same error is raised. The start is not counted if
        the block raises. The caller adds the terminal to the registry in the block.
        """
        self.check(profile, connection, session_id)
        key = connection.id, session_id
        limit = profile.limits.starts_per_minute
        started_at = self._clock()
        if limit is not None:
            connection.starts.append(started_at)
            # More than the limit are never needed.
            del connection.starts[:-limit]
        self._starting[key] += 1
        try:
            yield
        except BaseException:
            if started_at in connection.starts:
                connection.starts.remove(started_at)
            raise
        finally:
            self._starting[key] -= 1
            if not self._starting[key]:
                del self._starting[key]
        if limit is not None:
            connection.mark_changed()

    def _check_rate(self, profile: Profile, connection: Starter) -> None:
        limit = profile.limits.starts_per_minute
        if limit is None or len(connection.starts) < limit:
            return
        left = connection.starts[-limit] + WINDOW_S - self._clock()
        if left > 0:
            sentence = f"Spawn rate limit exceeded (max {limit}/minute)"
            raise _refusal(profile, sentence, f"wait {math.ceil(left)} s", "starts_per_minute")


def _is_counted(entry: TerminalEntry) -> bool:
    return entry.connection_id is not None and not entry.is_users


def _key(entry: TerminalEntry) -> tuple[str, str]:
    return entry.connection_id or "", entry.record.session or ""


def _refusal(profile: Profile, sentence: str, advice: str, limit: str) -> RpcError:
    if profile.short_messages:
        return RpcError(INTERNAL_ERROR, sentence)
    return RpcError(
        INTERNAL_ERROR, f"{sentence}: {advice} (limit {limit} of the profile {profile.name!r})"
    )
