"""What a command leaves in the background: how it is told, how long it runs, what ends it."""

import json
import os
import signal
import sys
from contextlib import asynccontextmanager

import pytest
import trio

from acpterm.config.profiles import Limits, ProfileTable
from acpterm.host import background as background_module
from acpterm.jsonrpc import RpcError
from tests.host.test_killing import skip_without
from tests.support.agent import agent_of
from tests.support.cases import each_case
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_here, host_here
from tests.support.polling import poll
from tests.support.processes import alive
from tests.support.user import user_of

SERVER = (
    "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
    "print(s.getsockname()[1], flush=True); time.sleep(600)"
)
FORMS = {
    "ampersand": "sleep 600 & echo $!",
    "nohup": "nohup sleep 600 >/dev/null 2>&1 & echo $!",
    "setsid": "setsid sleep 600 & echo $!",
    "subshell": "(sleep 600 & echo $!)",
}


@pytest.fixture(params=["cgroup", "subreaper"])
async def host(request):
    skip_without(request.param)
    async with host_here(tracking=request.param, audit=False) as host:
        yield host


@asynccontextmanager
async def agent_and_user(host):
    async with user_of(host) as user, agent_of(host) as agent:
        yield agent, user


def told(status):
    return status["_meta"]["acpterm"].get("background", [])


async def leave(agent, command=FORMS["ampersand"], **more):
    """Run a command that prints the pid of what it leaves; return terminal, pid and exit status."""
    terminal = await agent.create(command, **more)
    status = await agent.wait(terminal)
    return terminal, int((await agent.output(terminal))["output"].split()[0]), status


async def gone(pid):
    await poll(lambda: not alive(pid))


@each_case("form", FORMS)
async def test_background_is_told_with_the_exit(host, form):
    async with agent_of(host) as agent:
        terminal, pid, status = await leave(agent, FORMS[form])
        assert [each["pid"] for each in told(status)] == [pid]
        # It may just be starting.
        while (
            told((output := await agent.output(terminal))["exitStatus"])[0]["command"]
            != "sleep 600"
        ):
            await trio.sleep(0.01)
        assert output["_meta"]["acpterm"]["background"] == told(output["exitStatus"])


async def test_command_without_background_says_nothing_of_it(host):
    async with agent_and_user(host) as (agent, user):
        terminal = await agent.create("sleep 0.01; true")
        status = await agent.wait(terminal)
        assert "background" not in status["_meta"]["acpterm"]
        assert "background" not in (await user.terminal_request("get", terminal))
        await agent.release(terminal)
        assert not await user.list()


async def test_what_ends_right_after_the_command_is_no_background(host, monkeypatch):
    for bound in "_SETTLING_S", "_CHECK_TIMEOUT_S":
        monkeypatch.setattr(background_module, bound, DEADLINE_S)
    async with agent_of(host) as agent:
        output, status = await agent.run("echo text > >(sleep 0.1; cat)")
        assert output == "text\n"
        assert "background" not in status["_meta"]["acpterm"]


async def test_server_is_told_with_its_port_as_soon_as_it_listens(host):
    async with agent_and_user(host) as (agent, user):
        command = f'{sys.executable} -c "{SERVER}" & sleep 600 & echo started'
        terminal = await agent.create(command)
        assert (await agent.wait(terminal))["exitCode"] == 0
        output = await agent.until_output(terminal, "\n", count=2)
        port = next(int(word) for word in output.split() if word.isdigit())
        first, second = told((await agent.output(terminal))["exitStatus"])
        assert (first["ports"], second["ports"]) == ([port], [])
        (info,) = await user.list()
        assert info["background"] == [first, second]


@each_case("form", FORMS)
async def test_background_outlives_the_release_and_ends_with_the_connection(host, form):
    async with user_of(host) as user:
        async with agent_of(host) as agent:
            terminal, pid, _ = await leave(agent, FORMS[form])
            await agent.release(terminal)
            with pytest.raises(RpcError, match="has been released"):
                await agent.output(terminal)
            (info,) = await user.list()
            assert info["state"] == "exited"
            assert alive(pid)
        await gone(pid)
        await poll(lambda: not [*host.terminals.registry])


async def test_kill_after_the_exit_ends_the_background(host):
    async with agent_of(host) as agent:
        terminal, pid, _ = await leave(agent)
        await agent.kill(terminal)
        assert not alive(pid)
        assert not told((await agent.output(terminal))["exitStatus"])
        assert (await agent.wait(terminal))["_meta"]["acpterm"]["endedBy"] == "exited"


async def test_release_of_a_running_command_ends_what_it_has_started(host):
    async with agent_of(host) as agent:
        terminal = await agent.create(f"{FORMS['setsid']}; exec sleep 600")
        pid = int(await agent.until_output(terminal, "\n"))
        await agent.release(terminal)
        await gone(pid)


@pytest.mark.costly
async def test_release_just_as_the_command_exits_leaves_or_ends_all(host):
    async with agent_and_user(host) as (agent, user):
        for _ in range(20):
            terminal = await agent.create("sleep 600 & echo $!; exit")
            pid = int(await agent.until_output(terminal, "\n"))
            await agent.release(terminal)
            if any(info["terminalId"] == terminal for info in await user.list()):
                assert alive(pid)
                await user.terminal_request("kill", terminal)
            await gone(pid)


async def test_kill_then_release_ends_the_background(host):
    async with agent_and_user(host) as (agent, user):
        terminal, pid, _ = await leave(agent)
        await agent.start("terminal/kill", agent.of(terminal))
        await agent.release(terminal)
        await gone(pid)
        assert not await user.list()


async def test_user_kills_what_a_released_terminal_has_left(host):
    async with agent_and_user(host) as (agent, user):
        terminal, pid, _ = await leave(agent)
        await agent.release(terminal)
        await user.terminal_request("kill", terminal)
        assert not alive(pid)
        assert not await user.list()


async def test_promoted_background_outlives_the_connection(host):
    async with user_of(host) as user:
        async with agent_of(host) as agent:
            terminal, pid, _ = await leave(agent)
            await agent.release(terminal)
            assert (await user.terminal_request("promote", terminal))["owner"] == "user"
        await poll(lambda: not host.resumption.connections)
        assert alive(pid)
        await user.terminal_request("kill", terminal)
        assert not alive(pid)
        (info,) = await user.list()
        assert info["owner"] == "user"


async def test_terminal_is_forgotten_when_the_background_ends_by_itself(host):
    async with agent_and_user(host) as (agent, user):
        terminal, pid, _ = await leave(agent)
        await agent.release(terminal)
        assert await user.list()
        os.kill(pid, signal.SIGTERM)
        await poll(lambda: not [*host.terminals.registry])


async def test_output_of_the_background_is_read_by_position(host, tmp_path):
    fifo = tmp_path / "fifo"
    async with agent_of(host) as agent:
        terminal = await agent.create(
            f"mkfifo {fifo}; (read x <{fifo}; echo late) & echo now", cwd=str(tmp_path)
        )
        await agent.wait(terminal)
        first = await agent.read_from(terminal)
        assert first["data"] == "now\n"
        assert told(first["exitStatus"])
        await trio.to_thread.run_sync(fifo.write_text, "go\n")
        await agent.until_output(terminal, "late")
        second = await agent.read_from(terminal, since=first["position"])
        assert second["data"] == "late\n"


async def test_events_tell_the_background_and_its_end(host):
    async with agent_of(host) as agent:
        with host.terminals.events.subscribe() as events:
            terminal, pid, _ = await leave(agent)
            await agent.kill(terminal)
            found = []
            while not found or found[-1][0] != "killed":
                event = await events.next()
                found.append((event.event, event.terminal and event.terminal.background))
            event = await events.next()
    assert [name for name, _ in found[-3:]] == ["exited", "background", "killed"]
    assert [each.pid for each in found[-2][1]] == [pid]
    assert event.event == "background"
    assert not event.terminal.background


async def test_background_that_nobody_asks_for_is_found(host):
    async with agent_of(host) as agent:
        with host.terminals.events.subscribe(lambda event: event.event == "background") as events:
            await agent.create(FORMS["setsid"])
            event = await events.next()
    assert event.terminal.background[0].command == "sleep 600"


@pytest.mark.parametrize("where", ["setting", "request"])
async def test_background_ends_with_the_release_if_asked_for(where):
    settings, own = ({}, {"background": "terminal"})
    if where == "setting":
        settings, own = {"background": "terminal"}, {"background": "session"}
    async with host_here(**settings) as host, agent_of(host) as agent:
        terminal, pid, status = await leave(agent, own=own)
        assert told(status)
        await agent.release(terminal)
        await gone(pid)


async def test_cancelled_turn_ends_the_background(host):
    async with agent_of(host) as agent:
        (held, first, _), (left, second, _) = [await leave(agent) for _ in range(2)]
        _, third, _ = await leave(agent)
        await agent.release(left)
        meta = {"acpterm": {"terminals": [held, left]}}
        await agent.notify("session/cancel", {"sessionId": agent.session, "_meta": meta})
        await gone(first)
        await gone(second)
        assert alive(third)
        assert not told((await agent.output(held))["exitStatus"])


async def test_idle_background_is_ended():
    profiles = {"brief": ProfileTable(limits=Limits(idle=0.3))}
    async with agent_here(profile="brief", profiles=profiles) as agent:
        terminal, pid, _ = await leave(agent)
        await agent.release(terminal)
        await gone(pid)


async def test_background_counts_for_the_limit_of_terminals():
    profiles = {"one": ProfileTable(limits=Limits(agent_terminals=1))}
    async with host_here(profile="one", profiles=profiles) as host, agent_of(host) as agent:
        terminal, _, _ = await leave(agent)
        await agent.release(terminal)
        with pytest.raises(RpcError, match="Maximum concurrent agent terminals"):
            await agent.create("true")
        async with user_of(host) as user:
            await user.terminal_request("kill", terminal)
        await agent.run("true")


async def test_audit_names_what_ended_with_the_connection(tmp_path):
    async with host_here(audit_dir=str(tmp_path)) as host:
        async with agent_of(host) as agent:
            terminal, pid, _ = await leave(agent)
            await agent.release(terminal)
        await gone(pid)
    entries = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    (entry,) = (each for each in entries if each["event"] == "release")
    assert (entry["by"], entry["background"]) == ("disconnect", [f"sleep ({pid})"])


async def test_background_of_the_user_lives_until_it_is_killed(host):
    async with user_of(host) as user:
        params = {"command": "sh", "args": ["-c", FORMS["nohup"]]}
        terminal = (await user.request("terminal/create", params))["terminalId"]
        info = await user.terminal_request("wait", terminal)
        (process,) = info["background"]
        await user.terminal_request("kill", terminal)
        assert not alive(process["pid"])
        assert [each["terminalId"] for each in await user.list()] == [terminal]


@pytest.mark.costly
@pytest.mark.parametrize("held", [True, False])
async def test_next_worker_adopts_the_background(tmp_path, held):
    async with daemon(tmp_path, terminate=True) as running:
        async with running.agent() as (agent, own):
            terminal, pid, _ = await leave(agent)
            if not held:
                await agent.release(terminal)
            await running.kill_worker()
        async with running.agent(own["resume"]) as (agent, _), running.user() as user:
            (info,) = await user.list()
            assert (info["state"], info["background"][0]["pid"]) == ("exited", pid)
            if held:
                assert told((await agent.output(terminal))["exitStatus"])
            assert alive(pid)
        await gone(pid)


@pytest.mark.long
async def test_background_of_a_lost_agent_ends_when_the_connection_expires(tmp_path):
    settings = {"resume_timeout": 0.2}
    async with daemon(tmp_path, terminate=True, settings=settings) as running:
        async with running.agent() as (agent, _):
            terminal, pid, _ = await leave(agent)
            await agent.release(terminal)
            await running.kill_worker()
        await gone(pid)


async def test_forking_background_ends_with_the_connection(host):
    async with agent_of(host) as agent:
        terminal = await agent.create(
            "(while :; do sh -c 'sleep 0.01; sleep 600' & sleep 0.02; done) & echo $!"
        )
        await agent.wait(terminal)
        await agent.release(terminal)
        tree = next(iter(host.terminals.registry)).terminal._tree
    await poll(lambda: not [*host.terminals.registry])
    with trio.fail_after(DEADLINE_S):
        while await tree.members():
            await trio.sleep(0.01)


MANY = {
    **FORMS,
    "double fork": "(sh -c 'sleep 600 >/dev/null 2>&1 & echo $!' &) | cat",
    "disown": "sleep 600 & echo $!; disown",
    "silent": "sleep 600 </dev/null >/dev/null 2>&1 & echo $!",
}


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("form", MANY)
async def test_none_of_200_backgrounds_dies_before_its_agent_or_outlives_it(host, form):
    killed, released = [], []
    async with agent_of(host) as agent:
        for pids, end in ((killed, agent.kill), (released, agent.release)):
            for _ in range(100):
                terminal, pid, _ = await leave(agent, MANY[form])
                assert alive(pid)
                await end(terminal)
                pids.append(pid)
        assert all(map(alive, released))
        await poll(lambda: not any(map(alive, killed)))
    await poll(lambda: not any(map(alive, released)))
