"""A restored connection has the rights that it had: its profile, its approver, its workspaces."""

import pytest
from msgspec.structs import replace

from acpterm.config.profiles import ProfileFor, ProfileTable
from acpterm.host.state.records import AgentSessionRecord, ConnectionRecord, RightsRecord
from acpterm.jsonrpc import INTERNAL_ERROR, RpcError
from tests.host.state.test_restore import CONTEXT, SECRET, leave, record, spawn, successor
from tests.keeper.daemon import daemon
from tests.support.agent import agent_of

STRICT = {"strict": ProfileTable(safe_commands=["true"], unknown="deny")}
SETTINGS = {"profiles": STRICT, "rules": "/dev/null"}
RIGHTS = RightsRecord(
    programs=["claude"],
    directory=b"/srv/work",
    approver="editor",
    profile="strict",
    workspace=b"/srv/work/project",
)


def connection_record(**more):
    return ConnectionRecord(secret=SECRET, context=CONTEXT, **more)


def restored(host):
    (connection,) = (one for one in host.resumption.connections if one.id == "c7")
    return connection


async def refused(agent, command="date"):
    with pytest.raises(RpcError) as error:
        await agent.create(command)
    return error.value


async def test_rights_of_a_stored_connection_are_restored(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        stored = {
            "c/c7": connection_record(
                programs=["claude"], directory=b"/srv/work", approver="editor", profile="strict"
            ),
            "s/c7/0": AgentSessionRecord(id="session-1", workspace=b"/srv/work/project"),
        }
        await leave(worker, **stored)
        async with successor(started, **SETTINGS) as host, agent_of(host) as agent:
            assert (await agent.initialize(SECRET))["resumed"] is True
            assert "in the profile 'strict'" in (await refused(agent)).message
            await agent.create("true")
            connection = restored(host)
            assert connection.approver.kind == "editor"
            assert (connection.programs, connection.directory) == (["claude"], "/srv/work")
            assert connection.workspace(connection.session("session-1")) == "/srv/work/project"


async def test_chosen_profile_that_does_not_exist_any_more_refuses_all_commands(tmp_path):
    """The next worker may have other settings: no other profile may replace the chosen one."""
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        gone = connection_record(programs=["claude"], approver="editor", profile="gone")
        await leave(worker, **{"c/c7": gone})
        async with successor(started, **SETTINGS) as host, agent_of(host) as agent:
            await agent.initialize(SECRET)
            error = await refused(agent, "true")
            assert error.code == INTERNAL_ERROR
            assert "profile 'gone'" in error.message
            assert "there are confirm, guarded, open, pool, strict" in error.message


async def test_connection_keeps_its_rights_when_the_keeper_has_died(tmp_path):
    """Only the terminals' records survive the keeper."""
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        terminal = record(secret=SECRET, rights=RIGHTS).encode()
        await spawn(worker.keeper, "sleep 60; :", record=terminal)
        await worker.keeper.flushed()
        worker.kill()
        async with successor(started, **SETTINGS) as host, agent_of(host) as agent:
            assert (await agent.initialize(SECRET))["resumed"] is True
            connection = restored(host)
            assert connection.approver.kind == "editor"
            assert (connection.programs, connection.directory) == (["claude"], "/srv/work")
            session = connection.session("session-1")
            assert connection.workspace(session) == "/srv/work/project"
            assert connection.workspace(connection.session("another")) is None
            assert "in the profile 'strict'" in (await refused(agent)).message
            # They are stored for the worker after this one, too.
            again = ConnectionRecord.decode(connection._record())
            assert (again.approver, again.profile) == ("editor", "strict")
            assert session._record().workspace == b"/srv/work/project"


async def test_selected_profile_is_the_same_when_the_keeper_has_died(tmp_path):
    selector = ProfileFor(profile="strict", agent="claude", directory="/srv/*")
    rights = replace(RIGHTS, approver=None, profile=None)
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        terminal = record(secret=SECRET, rights=rights).encode()
        await spawn(worker.keeper, "sleep 60; :", record=terminal)
        await worker.keeper.flushed()
        worker.kill()
        settings = {**SETTINGS, "profile_for": [selector]}
        async with successor(started, **settings) as host, agent_of(host) as agent:
            await agent.initialize(SECRET)
            assert restored(host).approver is None
            assert "in the profile 'strict'" in (await refused(agent)).message


async def test_terminals_record_has_the_rights_of_its_connection(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        stored = connection_record(
            programs=["claude"], directory=b"/srv/work", approver="editor", profile="strict"
        )
        session = AgentSessionRecord(id="session-1", workspace=b"/srv/work/project")
        await leave(worker, **{"c/c7": stored, "s/c7/0": session})
        async with successor(started, **SETTINGS) as host, agent_of(host) as agent:
            await agent.initialize(SECRET)
            terminal = await agent.create("true", cwd="/")
            assert host.terminals.registry.get(terminal).record.rights == RIGHTS


@pytest.mark.costly
@pytest.mark.parametrize("keeper_dies", [False, True])
async def test_requested_profiles_are_restored(tmp_path, keeper_dies):
    requested = {"requested_profiles": ["strict"]}
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        if keeper_dies:
            rights = RightsRecord(directory=b"/srv", **requested)
            terminal = record(secret=SECRET, rights=rights).encode()
            await spawn(worker.keeper, "sleep 60; :", record=terminal)
            await worker.keeper.flushed()
            worker.kill()
        else:
            await leave(worker, **{"c/c7": connection_record(directory=b"/srv", **requested)})
        async with successor(started, **SETTINGS) as host, agent_of(host) as agent:
            assert (await agent.initialize(SECRET))["resumed"] is True
            assert "in the profile 'strict'" in (await refused(agent)).message
            await agent.create("true")
            again = ConnectionRecord.decode(restored(host)._record())
            assert again.requested_profiles == ["strict"]


async def test_requested_profile_that_does_not_exist_any_more_refuses_all_commands(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        await leave(worker, **{"c/c7": connection_record(requested_profiles=["gone"])})
        async with successor(started, **SETTINGS) as host, agent_of(host) as agent:
            await agent.initialize(SECRET)
            error = await refused(agent, "true")
            assert error.code == INTERNAL_ERROR
            assert "profile 'gone', which was requested" in error.message
