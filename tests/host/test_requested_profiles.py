"""Profiles that a client requests for its own connection: they only make things stricter."""

import pytest

from acpterm.acp.terminal import CreateTerminalRequest
from acpterm.config import Settings
from acpterm.config.profiles import Limits, ProfileTable, lowest
from acpterm.host.agent.gate import judge
from acpterm.host.open_host import open_host
from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.runtime.exec_context import current
from tests.support.agent import agent_of

BLOCKED = "Command blocked for security reasons"


def settings(profile="guarded", **profiles):
    tables = {name: ProfileTable(**table) for name, table in profiles.items()}
    return Settings(rules="/dev/null", profile=profile, profiles=tables)


async def request_profile(agent, name, **own):
    meta = {"acpterm": {"profile": name, **own}}
    return await agent.request("initialize", {"protocolVersion": 1, "_meta": meta})


async def refused(agent, command, **own):
    with pytest.raises(RpcError) as raised:
        await agent.create(command, own=own or None)
    return raised.value.message


async def test_requested_pool_profile_refuses_in_its_words():
    async with open_host(settings(), current()) as host, agent_of(host) as agent:
        await request_profile(agent, "pool")
        for command in ("sudo true", "echo `id`", "kill 1"):
            assert await refused(agent, command) == BLOCKED
        for _ in range(3):
            await agent.create("read x")
        assert await refused(agent, "true") == "Spawn rate limit exceeded (max 3/minute)"


async def test_number_of_terminals_is_limited_by_both():
    few = {"limits": Limits(agent_terminals=1), "short_messages": True}
    one = settings("loose", loose={"limits": Limits(agent_terminals=2)}, few=few)
    async with open_host(one, current()) as host, agent_of(host) as agent:
        await agent.create("read x")
        await request_profile(agent, "few")
        message = "Maximum concurrent agent terminals reached (1)"
        assert await refused(agent, "true") == message


async def test_requested_profile_cannot_allow_what_the_selected_one_refuses():
    strict = {"unknown": "deny", "dangerous": "deny", "safe_commands": ["true"]}
    async with (
        open_host(settings("strict", strict=strict), current()) as host,
        agent_of(host) as agent,
    ):
        await request_profile(agent, "open")
        assert "in the profile 'strict'" in await refused(agent, "date")
        await agent.create("true")


async def test_each_requested_profile_adds_to_those_before():
    """Another `initialize` on the connection, such as a relayed one, cannot take a profile back."""
    async with open_host(settings(), current()) as host, agent_of(host) as agent:
        await request_profile(agent, "pool")
        await request_profile(agent, "open")
        await agent.initialize()
        assert await refused(agent, "sudo true") == BLOCKED


async def test_requested_profile_is_for_its_connection_only():
    async with (
        open_host(settings(), current()) as host,
        agent_of(host) as agent,
        agent_of(host) as other,
    ):
        await request_profile(agent, "pool")
        await other.create("echo `id`")


async def test_profile_that_does_not_exist_is_refused_with_those_that_do():
    async with open_host(settings(mine={}), current()) as host, agent_of(host) as agent:
        with pytest.raises(RpcError) as raised:
            await request_profile(agent, "nonsense")
        assert raised.value.code == INVALID_PARAMS
        assert "'nonsense'; there are confirm, guarded, mine, open, pool" in raised.value.message
        assert host.resumption.connections[0].requested_profiles == []


@pytest.mark.parametrize("requested", [(), ("loose",)])
async def test_line_runs_as_the_shell_text_that_one_of_the_profiles_has_allowed(requested):
    """It must not run as the name of a program: the profile `strict` has judged only the text."""
    strict = {"unknown": "deny"}
    loose = {"safe_commands": [], "unknown": "allow"}
    one = settings("strict", strict=strict, loose=loose)
    async with open_host(one, current()) as host, agent_of(host) as agent:
        await agent.initialize()
        for name in requested:
            await request_profile(agent, name)
        connection = host.resumption.connections[0]
        params = CreateTerminalRequest("s", "ls foo")
        judgement = judge(connection, connection.session("s"), params, "/")
        assert judgement.verdict.decision == "allow"
        assert judgement.level == ("unknown" if requested else "safe")
        assert judgement.must_use_shell


@pytest.mark.parametrize(
    ("selected", "requested", "expected"),
    [
        ("bubblewrap", "landlock", "bubblewrap"),
        # Stricter only without the network, which the requested profile does not allow.
        ("landlock", "bubblewrap", "bubblewrap"),
        ("landlock", None, "landlock"),
    ],
)
async def test_strictest_provider_and_network_of_both_apply(selected, requested, expected):
    tables = {
        "boxed": {"provider": selected, "network": True},
        "offline": {"network": False, **({"provider": requested} if requested else {})},
    }
    async with open_host(settings("boxed", **tables), current()) as host, agent_of(host) as agent:
        await request_profile(agent, "offline")
        connection = host.resumption.connections[0]
        params = CreateTerminalRequest("s", "true")
        judgement = judge(connection, connection.session("s"), params, "/")
        assert (judgement.provider, judgement.has_network) == (expected, False)
        message = await refused(agent, "true", provider="local")
        assert f"'local' is not stricter than '{expected}'" in message


async def test_no_question_is_asked_if_a_limit_of_a_requested_profile_is_reached():
    few = {"limits": Limits(agent_terminals=1)}
    async with open_host(settings(few=few), current()) as host, agent_of(host) as agent:
        await request_profile(agent, "few")
        await agent.create("read x")
        message = await refused(agent, "rm -rf x")
        assert "Maximum concurrent agent terminals reached (1)" in message


def test_lowest_limits_are_those_of_all():
    found = lowest([Limits(idle=5.0, terminals=3), Limits(idle=9.0, memory=100), Limits()])
    assert found == Limits(idle=5.0, terminals=3, memory=100)
    assert lowest([]) == Limits()


async def test_limits_of_a_requested_profile_end_a_terminal():
    brief = {"limits": Limits(wall=0.2)}
    async with open_host(settings(brief=brief), current()) as host, agent_of(host) as agent:
        await request_profile(agent, "brief")
        terminal = await agent.create("exec sleep 60")
        status = await agent.wait(terminal)
        assert status["_meta"]["acpterm"]["limit"] == "wall"


async def test_requested_profile_survives_a_resumption():
    async with open_host(settings(), current()) as host, agent_of(host) as lost:
        secret = (await request_profile(lost, "pool"))["_meta"]["acpterm"]["resume"]
        async with agent_of(host) as agent:
            assert (await agent.initialize(secret))["resumed"] is True
            assert await refused(agent, "echo `id`") == BLOCKED
