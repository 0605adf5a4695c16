"""What an agent's command has to pass before it runs, such as the limits on agents' terminals.

A terminal counts from the request that starts it until its program and its background have ended,
even if it is released before, unless the user takes it over (promote). One that the agent has given
to the user still counts; otherwise an agent could start any number of terminals.

`terminals` applies to all agents together, `session_terminals` to one session, and the other limits
to one agent. All connections of one process count as one agent; if the process is not known, each
connection counts as one. An agent can evade `session_terminals` by using more sessions.

`check` is called before the user is asked, so that the user is not asked about a terminal that a
limit forbids. The terminal is started within `starting`, which checks again, because other
terminals may have been started before the user answered.

The times at which an agent has started terminals over a connection are stored with the connection
(`ConnectionRecord.starts`), so these times survive a take-over. They are lost if the keeper dies.
Running terminals are counted again when they are restored. If an agent gives a terminal to the
user, then the agent's connection ends, and then a new worker takes over, the terminal counts from
then on only for `terminals`, the limit for all agents together.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol, TypeAlias

from acpterm.config.profiles import Profile
from acpterm.host.approvals import ApprovalRecords, ApproverTokens
from acpterm.host.audit_trail import AuditTrail
from acpterm.host.entry import AgentInfo, TerminalEntry
from acpterm.host.policy import HostPolicy
from acpterm.host.registry import TerminalRegistry
from acpterm.host.snapshots import Snapshots
from acpterm.host.state.writer import StateWriter
from acpterm.jsonrpc import INTERNAL_ERROR, RpcError
from acpterm.policy.approvals import Approvals
from acpterm.pty.processes import now as boot_time

WINDOW_S: Final = 60.0

Identity: TypeAlias = tuple[int, float] | str


class Key(NamedTuple):
    identity: Identity
    connection: str
    session: str


class Starter(Protocol):
    @property
    def agent(self) -> AgentInfo: ...

    @property
    def starts(self) -> list[float]:
        """When the agent's latest terminals were started; `Quotas.starting` changes it."""

    def mark_changed(self) -> None: ...


class Quotas:
    """Checks the limits on agents' terminals; `clock` is the boot clock."""

    def __init__(self, registry: TerminalRegistry, clock: Callable[[], float] = boot_time) -> None:
        self._registry: Final = registry
        self._clock: Final = clock
        # How many terminals are being started.
        self._starting: Counter[Key] = Counter()
        # When each agent has started terminals, over all its connections.
        self._starts: Final[dict[Identity, list[float]]] = {}

    def check(self, profile: Profile, connection: Starter, session_id: str) -> None:
        """Raise `RpcError` (-32603) if a limit does not allow one more terminal now."""
        self._check_rate(profile, connection)
        limits = profile.limits
        limited = limits.terminals, limits.session_terminals, limits.agent_terminals
        if all(limit is None for limit in limited):
            return
        own = _key(connection.agent, session_id)
        keys = [*self._running(), *self._starting.elements()]
        for name, what, limit, count in (
            ("terminals", "terminals of all agents", limits.terminals, len(keys)),
            (
                "agent_terminals",
                "agent terminals",
                limits.agent_terminals,
                sum(key.identity == own.identity for key in keys),
            ),
            ("session_terminals", "session terminals", limits.session_terminals, keys.count(own)),
        ):
            if limit is not None and count >= limit:
                sentence = f"Maximum concurrent {what} reached ({limit})"
                raise _refusal(profile, sentence, "release one", name)

    @contextmanager
    def starting(
        self, profiles: Sequence[Profile], connection: Starter, session_id: str
    ) -> Iterator[None]:
        """Check the limits of all `profiles`, and count a terminal that the block starts."""
        for profile in profiles:
            self.check(profile, connection, session_id)
        key = _key(connection.agent, session_id)
        rates = [profile.limits.starts_per_minute for profile in profiles]
        limit = max((rate for rate in rates if rate is not None), default=None)
        started_at = self._clock()
        if limit is not None:
            connection.starts.append(started_at)
            # `_check_rate` needs only as many starts as the limit.
            del connection.starts[:-limit]
            self._forget_old(started_at - WINDOW_S)
            self._starts.setdefault(key.identity, []).append(started_at)
        self._starting[key] += 1
        try:
            yield
        except BaseException:
            for starts in (connection.starts, self._starts.get(key.identity, [])):
                if started_at in starts:
                    starts.remove(started_at)
            raise
        finally:
            self._starting[key] -= 1
            if not self._starting[key]:
                del self._starting[key]
        if limit is not None:
            connection.mark_changed()

    def _check_rate(self, profile: Profile, connection: Starter) -> None:
        limit = profile.limits.starts_per_minute
        if limit is None:
            return
        # `connection.starts` may have starts from before a take-over, which are not in `_starts`.
        starts = sorted({*connection.starts, *self._starts.get(connection.agent.identity, ())})
        if len(starts) < limit:
            return
        left = starts[-limit] + WINDOW_S - self._clock()
        if left > 0:
            sentence = f"Spawn rate limit exceeded (max {limit}/minute)"
            raise _refusal(profile, sentence, f"wait {math.ceil(left)} s", "starts_per_minute")

    def _running(self) -> Iterator[Key]:
        for entry in filter(_is_counted, self._registry.occupied):
            session_id, identifier = entry.record.session or "", entry.record.connection or ""
            if entry.session is None:
                yield Key(identifier, identifier, session_id)
            else:
                yield _key(entry.session.agent, session_id)

    def _forget_old(self, end: float) -> None:
        """Forget all starts of terminals before `end`, a time in seconds of the boot clock."""
        for identity, starts in list(self._starts.items()):
            starts[:] = [start for start in starts if start >= end]
            if not starts:
                del self._starts[identity]


def _is_counted(entry: TerminalEntry) -> bool:
    return entry.record.connection is not None and not entry.is_trusted


def _key(agent: AgentInfo, session_id: str) -> Key:
    return Key(agent.identity, agent.connection_id, session_id)


def _refusal(profile: Profile, sentence: str, advice: str, limit: str) -> RpcError:
    if profile.short_messages:
        return RpcError(INTERNAL_ERROR, sentence)
    return RpcError(
        INTERNAL_ERROR, f"{sentence}: {advice} (limit {limit} of the profile {profile.name!r})"
    )


class Guard:
    """A host's policy, questions to the user, quotas, audit log and snapshots."""

    def __init__(
        self,
        policy: HostPolicy,
        trail: AuditTrail,
        registry: TerminalRegistry,
        writer: StateWriter,
        *,
        snapshots: Snapshots,
        reaches_user: bool,
    ) -> None:
        self.policy: Final = policy
        self.trail: Final = trail
        self.approvals: Final = Approvals()
        self.approval_records: Final = ApprovalRecords(writer)
        self.approvals.add(self.approval_records)
        self.approver_tokens: Final = ApproverTokens()
        self.quotas: Final = Quotas(registry)
        self.snapshots: Final = snapshots
        self.reaches_user: Final = reaches_user
