"""The limits on the number and the rate of agents' terminals."""

import pytest
import trio

from acpterm.config.profiles import BUILTIN, Limits, Profile
from acpterm.host.entry import AgentInfo
from acpterm.host.guard import Quotas
from acpterm.host.state.records import ConnectionRecord
from acpterm.jsonrpc import RpcError
from tests.support.agent import agent_of
from tests.support.depth import DEADLINE_S
from tests.support.hosts import host_here
from tests.support.user import user_of


class Connection:
    """What the quotas need of a connection, without terminals."""

    def __init__(self, identifier="c9", process=None):
        self.agent = AgentInfo(identifier)
        self.agent.process = process
        self.starts = []
        self.changes = 0

    def mark_changed(self):
        self.changes += 1


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def profile(*, short=False, **limits):
    return Profile(name="own", short_messages=short, limits=Limits(**limits))


def start(quotas, profile, connection, session="s"):
    with quotas.starting([profile], connection, session):
        pass


@pytest.fixture
async def host():
    async with host_here() as host:
        yield host


async def test_starts_are_limited_to_a_number_in_any_sixty_seconds(host):
    clock, connection = Clock(), Connection()
    quotas = Quotas(host.terminals.registry, clock)
    limited = profile(starts_per_minute=3)
    for _ in range(3):
        start(quotas, limited, connection)
        clock.now += 10
    with pytest.raises(RpcError) as raised:
        quotas.check(limited, connection, "s")
    assert raised.value.message == (
        "Spawn rate limit exceeded (max 3/minute): wait 30 s "
        "(limit starts_per_minute of the profile 'own')"
    )
    clock.now += 29.9
    with pytest.raises(RpcError, match="wait 1 s"):
        start(quotas, limited, connection)
    clock.now += 0.1
    start(quotas, limited, connection)
    assert len(connection.starts) == 3
    with pytest.raises(RpcError, match="wait 10 s"):
        start(quotas, limited, connection)
    start(quotas, limited, Connection("other"))


async def test_messages_of_the_profile_pool_are_those_of_its_origin(host):
    quotas, connection, pool = Quotas(host.terminals.registry), Connection(), BUILTIN["pool"]
    for _ in range(3):
        start(quotas, pool, connection)
    with pytest.raises(RpcError) as rate:
        start(quotas, pool, connection)
    assert rate.value.message == "Spawn rate limit exceeded (max 3/minute)"
    connection.starts.clear()
    with pytest.raises(RpcError) as number:
        nest(quotas, profile(short=True, agent_terminals=5), connection, 6)
    assert number.value.message == "Maximum concurrent agent terminals reached (5)"


def nest(quotas, profile, connection, depth, session="s"):
    """Nest `depth` blocks of `quotas.starting`, as for terminals that start at the same time."""
    with quotas.starting([profile], connection, session):
        if depth > 1:
            nest(quotas, profile, connection, depth - 1, session)


async def test_failed_start_is_not_counted(host):
    quotas, connection = Quotas(host.terminals.registry), Connection()
    limited = profile(starts_per_minute=1, agent_terminals=1)
    with pytest.raises(OSError, match="failed"), quotas.starting([limited], connection, "s"):
        raise OSError("failed")
    assert (connection.starts, connection.changes) == ([], 0)
    start(quotas, limited, connection)
    assert connection.changes == 1


async def test_times_of_starts_are_stored_only_if_they_are_limited(host):
    quotas, connection = Quotas(host.terminals.registry), Connection()
    start(quotas, profile(agent_terminals=5), connection)
    assert (connection.starts, connection.changes) == ([], 0)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"agent_terminals": 2},
            "Maximum concurrent agent terminals reached (2)",
        ),
        (
            {"session_terminals": 2},
            "Maximum concurrent session terminals reached (2)",
        ),
        (
            {"terminals": 2},
            "Maximum concurrent terminals of all agents reached (2)",
        ),
    ],
)
async def test_terminals_count_until_their_program_has_exited(host, limits, message):
    async with agent_of(host) as agent:
        quotas, limited = host.guard.quotas, profile(**limits)
        first = await agent.create("exec sleep 60")
        await agent.create("exec sleep 60")
        ended = await agent.create("exit 0")
        await agent.wait(ended)
        (connection,) = host.resumption.connections
        (session,) = connection.sessions
        with pytest.raises(RpcError) as raised:
            quotas.check(limited, connection, session)
        advice = f"release one (limit {next(iter(limits))} of the profile 'own')"
        assert raised.value.message == f"{message}: {advice}"
        if "session_terminals" in limits:
            quotas.check(limited, connection, "another")
        if "agent_terminals" in limits:
            quotas.check(limited, Connection(), session)
        if "terminals" in limits:
            with pytest.raises(RpcError):
                quotas.check(limited, Connection(), "another")
        await agent.release(first)
        with trio.fail_after(DEADLINE_S):
            while any(entry.id == first for entry in host.terminals.registry.running):
                await trio.sleep(0.005)
        quotas.check(limited, connection, session)


async def test_promoted_terminal_does_not_count(host):
    async with agent_of(host) as agent:
        await agent.create("exec sleep 60")
        (connection,) = host.resumption.connections
        limited = profile(agent_terminals=1)
        with pytest.raises(RpcError):
            host.guard.quotas.check(limited, connection, "s")
        (entry,) = host.terminals.registry
        host.terminals.registry.promote(entry)
        host.guard.quotas.check(limited, connection, "s")


async def test_terminal_that_the_agent_promotes_counts_until_the_user_takes_it_over(host):
    async with agent_of(host) as agent, user_of(host) as user:
        terminal = await agent.create("exec sleep 60")
        await agent.request("_acpterm/terminal/promote", agent.of(terminal))
        await agent.request("_acpterm/terminal/promote", agent.of(terminal))
        (connection,) = host.resumption.connections
        limited = profile(agent_terminals=1)
        with pytest.raises(RpcError, match="agent terminals"):
            host.guard.quotas.check(limited, connection, "s")
        await agent.release(terminal)
        with pytest.raises(RpcError, match="agent terminals"):
            host.guard.quotas.check(limited, connection, "s")
        await user.terminal_request("promote", terminal)
        host.guard.quotas.check(limited, connection, "s")
        assert not host.terminals.registry.get(terminal).record.is_given


async def test_times_of_starts_are_in_the_record_of_the_connection(host):
    async with agent_of(host) as agent:
        await agent.create("exit 0")
        (connection,) = host.resumption.connections
        start(host.guard.quotas, profile(starts_per_minute=2), connection)
        assert ConnectionRecord.decode(connection._record()).starts == connection.starts
        assert len(connection.starts) == 1


async def test_connections_of_one_process_count_together(host):
    quotas = Quotas(host.terminals.registry)
    one, two = (Connection(name, (7, 1.0)) for name in ("c1", "c2"))
    other = Connection("c3", (7, 2.0))
    limited = profile(starts_per_minute=2, agent_terminals=2)
    with quotas.starting([limited], one, "s"), quotas.starting([limited], two, "t"):
        with pytest.raises(RpcError, match="Spawn rate"):
            quotas.check(limited, Connection("c4", (7, 1.0)), "u")
        with pytest.raises(RpcError, match=r"agent terminals reached \(2\)"):
            quotas.check(profile(agent_terminals=2), two, "u")
        quotas.check(limited, other, "s")


async def test_running_terminals_of_one_process_count_together(host):
    async with agent_of(host) as agent:
        await agent.create("exec sleep 60")
        (connection,) = host.resumption.connections
        connection.holders = [(6, 1.0), (7, 1.0)]
        limited = profile(agent_terminals=1)
        with pytest.raises(RpcError):
            host.guard.quotas.check(limited, Connection("c8", (7, 1.0)), "s")
        host.guard.quotas.check(limited, Connection("c8", (6, 1.0)), "s")


async def test_old_starts_of_agents_are_forgotten(host):
    clock = Clock()
    quotas, limited = Quotas(host.terminals.registry, clock), profile(starts_per_minute=1)
    for number in range(3):
        start(quotas, limited, Connection(f"c{number}"))
        clock.now += 61
    assert len(quotas._starts) == 1
