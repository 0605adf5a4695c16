"""Terminals on a cluster, as agents and the user have them from a daemon."""

import json
import tempfile
from pathlib import Path

import pytest
import trio

from acpterm.jsonrpc import RpcError
from tests.support import slurm as slurm_support
from tests.support.commands import command_environment, run_with, running
from tests.support.daemon import daemon
from tests.support.polling import poll
from tests.support.processes import environment
from tests.support.starting import ACPTERM
from tests.support.tmux import needs_tmux, tmux_server

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

TIMEOUT_S = 60
# Within which a request that waits for nothing is answered.
ANSWER_S = 10
# How often a command of Slurm is run in order to wait.
COMMAND_S = 0.1


@pytest.fixture
def settings(idle_cluster, tmp_path):
    """Return the path of a settings file with places of the cluster."""
    file = tmp_path / "config.toml"
    file.write_text(
        f'[slurm.box]\nconfig = "{idle_cluster.config}"\ncpus = 1\nrequests = ["cpus"]\n'
        f'[slurm.one]\nconfig = "{idle_cluster.config}"\ncpus = 1\nsession = true\n'
        f'[slurm.gone]\nconfig = "{idle_cluster.config}"\npartition = "nope"\n'
        '[profiles.far]\nbase = "open"\nplaces = ["slurm:*"]\n'
        '[profiles.near]\nbase = "open"\n'
        '[profiles.tight]\nbase = "open"\nplaces = ["slurm:*"]\ndangerous = "deny"\n'
        "limits = { wall = 6.0, session_terminals = 1 }\n"
    )
    return file


@pytest.fixture
def far(settings, runtime_directory, tmp_path):
    """Return a function that runs a daemon with these settings, and a profile for agents."""

    def run(profile="far"):
        env = environment(
            XDG_RUNTIME_DIR=runtime_directory,
            XDG_STATE_HOME=str(tmp_path / "state"),
            ACPTERM_CONFIG=str(settings),
            ACPTERM_PROFILE=profile,
        )
        return daemon(tmp_path, env=env, terminate=True)

    return run


async def create(agent, line, cwd, provider="slurm:box", **meta):
    """Create a terminal; return its id, and `_meta.acpterm` of the response."""
    params = {"sessionId": agent.session, "command": line, "cwd": str(cwd)}
    params["_meta"] = {"acpterm": {"provider": provider, **meta}}
    response = await agent.request("terminal/create", params)
    return response["terminalId"], response["_meta"]["acpterm"]


async def acpterm(started, settings, *words):
    """Run a command of the user; return its output, once it has succeeded."""
    env = command_environment(started.path, ACPTERM_CONFIG=str(settings))
    status, out, err = await run_with(list(words), env=env)
    assert status == 0, err
    return out


async def infos(started, settings):
    return json.loads(await acpterm(started, settings, "ls", "--json"))


async def test_queued_program_is_shown_as_queued_until_it_starts(
    far, settings, idle_cluster, workspace
):
    full = idle_cluster.fill()
    async with far() as started, started.agent() as (agent, _):
        terminal, meta = await create(agent, "echo ran; read x; exit 3", workspace)
        assert (meta["provider"], meta["queued"], "host" in meta) == ("slurm:box", True, False)
        output = await agent.output(terminal)
        assert output["_meta"]["acpterm"] == {"queued": True}
        (info,) = await infos(started, settings)
        assert (info["state"], "host" in info) == ("queued", False)
        assert "queued" in await acpterm(started, settings, "ls")
        idle_cluster.cancel(full)
        with trio.fail_after(TIMEOUT_S):
            await agent.until_output(terminal, "ran")
        (info,) = await infos(started, settings)
        assert (info["state"], info["host"][0]) == ("running", "n")
        assert f"slurm:box ({info['host']})" in await acpterm(started, settings, "ls")
        await agent.type(terminal, "\r")
        status = await agent.wait(terminal)
        assert (status["exitCode"], status["_meta"]["acpterm"]["host"]) == (3, info["host"])


async def test_input_and_signal_are_answered_at_once_while_a_program_is_queued(
    far, settings, idle_cluster, workspace
):
    full = idle_cluster.fill()
    async with far() as started, started.agent() as (agent, _):
        terminal, _ = await create(agent, "read x; read y; echo got $x $y", workspace)
        with trio.fail_after(ANSWER_S):
            await agent.type(terminal, "one\r")
        assert await acpterm(started, settings, "send", terminal, "two", "--enter") == ""
        with pytest.raises(RpcError, match=f"'{terminal}' is queued: it has not started"):
            await agent.request("_acpterm/terminal/signal", agent.of(terminal, signal="SIGINT"))
        assert (await infos(started, settings))[0]["state"] == "queued"
        idle_cluster.cancel(full)
        with trio.fail_after(TIMEOUT_S):
            await agent.until_output(terminal, "got one two")


async def test_commands_say_that_the_job_was_cancelled(far, settings, idle_cluster, workspace):
    async with far() as started, started.agent() as (agent, _):
        terminal, _ = await create(agent, "echo ready; sleep 1000", workspace)
        await agent.until_output(terminal, "ready", TIMEOUT_S)
        idle_cluster.cancel_all()
        with trio.fail_after(TIMEOUT_S):
            await agent.wait(terminal)
        assert "(cancelled)" in await acpterm(started, settings, "ls")


async def test_run_says_that_the_program_waits_in_the_queue(far, settings, idle_cluster, tmp_path):
    full = idle_cluster.fill()
    async with far() as started:
        words = ["run", "-n", "--name=far", "--provider=slurm:box", "echo ran"]
        env = command_environment(started.path, ACPTERM_CONFIG=str(settings))
        async with running(tmp_path, started.path, *words, env=env) as command:
            await poll(lambda: command.err == "acpterm: far waits in the queue of slurm:box\n")
            idle_cluster.cancel(full)
            assert await poll(lambda: command.process.poll() is not None, TIMEOUT_S)
            assert (command.process.returncode, command.out) == (0, "ran\n")


@needs_tmux
async def test_window_says_that_the_program_waits_in_the_queue(
    far, settings, idle_cluster, tmp_path
):
    full = idle_cluster.fill()
    async with far() as started:
        env = command_environment(started.path, ACPTERM_CONFIG=str(settings))
        with tmux_server(tmp_path) as tmux:
            words = ["run", "--name=far", "--provider=slurm:box", "echo ran; read x"]
            pane = tmux.pane([*ACPTERM, *words], env=env)
            await trio.to_thread.run_sync(
                pane.until, "[far waits in the queue of slurm:box] [far: "
            )
            idle_cluster.cancel(full)
            await trio.to_thread.run_sync(pane.until, "ran")
            await trio.to_thread.run_sync(pane.until, lambda: "waits in the queue" not in pane.text)


async def test_agent_asks_for_resources_that_the_place_allows(far, workspace):
    async with far() as started, started.agent() as (agent, _):
        line = "echo $SLURM_CPUS_PER_TASK"
        terminal, _ = await create(agent, line, workspace, resources={"cpus": 2})
        await agent.wait(terminal)
        assert (await agent.output(terminal))["output"] == "2\n"
        with pytest.raises(RpcError, match=r"agents may not set 'time'.*they may set cpus"):
            await create(agent, line, workspace, resources={"time": "10"})
        with pytest.raises(RpcError, match="cpus"):
            await create(agent, line, workspace, resources={"cpus": "many"})
        with pytest.raises(RpcError, match="for Slurm's places"):
            await create(agent, line, workspace, "local", resources={"cpus": 2})


async def test_agent_may_not_name_a_cluster_that_its_profile_does_not_list(far, workspace):
    async with far("near") as started, started.agent() as (agent, _):
        with pytest.raises(RpcError, match="is not a place that the user's profile allows"):
            await create(agent, "true", workspace)


async def test_policy_and_limits_apply_to_programs_on_a_cluster(far, idle_cluster, workspace):
    async with far("tight") as started, started.agent() as (agent, _):
        with pytest.raises(RpcError, match="dangerous"):
            await create(agent, "sudo reboot", workspace)
        assert not idle_cluster.jobs()
        terminal, _ = await create(agent, "echo ready; sleep 1000", workspace)
        with pytest.raises(RpcError, match="session_terminals"):
            await create(agent, "true", workspace)
        with trio.fail_after(TIMEOUT_S):
            ended = (await agent.wait(terminal))["_meta"]["acpterm"]
        assert (ended["endedBy"], ended["limit"]) == ("timeout", "wall")
        await poll(lambda: not idle_cluster.jobs(), TIMEOUT_S, COMMAND_S)


async def test_events_say_when_and_on_which_node_a_program_starts(far, idle_cluster, workspace):
    full = idle_cluster.fill()
    async with far() as started, started.agent() as (agent, _), started.user() as user:
        _, token = await user.open("events")
        await user.list()
        terminal, _ = await create(agent, "echo ready; read x; exit 3", workspace)
        await poll(lambda: "PENDING" in idle_cluster.jobs().values(), TIMEOUT_S, COMMAND_S)
        idle_cluster.cancel(full)
        await agent.until_output(terminal, "ready")

        def found():
            events = [message["params"] for message in user.by_token[token]]
            return {
                event["event"]: event["terminal"]
                for event in events
                if event.get("terminal", {}).get("terminalId") == terminal
            }

        await poll(lambda: "started" in found(), TIMEOUT_S)
        await agent.type(terminal, "\r")
        await poll(lambda: "exited" in found(), TIMEOUT_S)
        events = found()
        assert (events["created"]["state"], "host" in events["created"]) == ("queued", False)
        assert events["started"]["state"] == "running"
        assert events["started"]["host"] in idle_cluster.nodes
        assert events["exited"]["host"] == events["started"]["host"]


async def test_allocation_is_released_when_the_agent_disconnects(far, idle_cluster, workspace):
    async with far() as started:
        async with started.agent() as (agent, _):
            found = set()
            for _ in range(2):
                terminal, _ = await create(agent, "echo $SLURM_JOB_ID", workspace, "slurm:one")
                await agent.wait(terminal)
                found.add((await agent.output(terminal))["output"].strip())
            assert set(idle_cluster.jobs()) == found
            assert len(found) == 1
        await poll(lambda: not idle_cluster.jobs(), TIMEOUT_S, COMMAND_S)


async def test_programs_go_on_while_the_worker_is_killed(far, idle_cluster, workspace):
    async with far() as started:
        async with started.agent() as (agent, meta):
            line = "echo ready; read x; echo got $x; exit 5"
            goes_on, _ = await create(agent, line, workspace)
            signalled, _ = await create(agent, "echo ready; read x; kill -9 $$", workspace)
            stubborn, _ = await create(
                agent, "trap '' TERM; echo ready; while :; do sleep 1; done", workspace, "slurm:one"
            )
            for terminal in (goes_on, signalled, stubborn):
                await agent.until_output(terminal, "ready")
            await agent.type(signalled, "\r")
            await started.kill_worker()
        async with started.agent(meta["resume"]) as (agent, again):
            assert again["resumed"]
            await agent.type(goes_on, "it\r")
            assert (await agent.wait(goes_on))["exitCode"] == 5
            assert "got it" in (await agent.output(goes_on))["output"]
            assert (await agent.wait(signalled))["signal"] == "SIGKILL"
            await agent.kill(stubborn)
            status = await agent.wait(stubborn)
            assert (status["signal"], status["_meta"]["acpterm"]["endedBy"]) == (
                "SIGKILL",
                "agent",
            )
            assert len(idle_cluster.jobs()) == 1
        await poll(lambda: not idle_cluster.jobs(), TIMEOUT_S, COMMAND_S)


async def test_queued_program_survives_the_worker(far, settings, idle_cluster, workspace):
    full = idle_cluster.fill()
    async with far() as started:
        async with started.agent() as (agent, meta):
            terminal, _ = await create(agent, "echo ran; exit 7", workspace, "slurm:one")
            await started.kill_worker()
        async with started.agent(meta["resume"]) as (agent, _):
            assert (await infos(started, settings))[0]["state"] == "queued"
            idle_cluster.cancel(full)
            with trio.fail_after(TIMEOUT_S):
                assert (await agent.wait(terminal))["exitCode"] == 7


def directories(runtime_directory):
    """Return the directories of daemons, each for one place."""
    return list(Path(runtime_directory).glob("acpterm/slurm/*/*"))


async def test_end_of_the_daemon_leaves_no_directory(far, runtime_directory, workspace):
    async with far() as started, started.agent() as (agent, _):
        for provider in ("slurm:box", "slurm:one"):
            terminal, _ = await create(agent, "echo ready; sleep 1000", workspace, provider)
            await agent.until_output(terminal, "ready")
        assert directories(runtime_directory)
    assert not directories(runtime_directory)


async def test_clusters_are_tried_and_timed(far, settings):
    async with far() as started:
        rows = json.loads(await acpterm(started, settings, "provider", "list", "--json"))
        places = {row["name"]: row for row in rows if row["name"].startswith("slurm:")}
        assert places["slurm:box"]["works"]
        assert "3 nodes up" in places["slurm:box"]["found"]
        assert not places["slurm:gone"]["works"]
        checks = json.loads(await acpterm(started, settings, "doctor", "--json"))
        found = {check["check"]: check for check in checks}
        assert found["slurm:box"]["state"] == "ok"
        assert "the controller answers in" in found["slurm:box"]["found"]
        assert found["slurm:gone"]["state"] == "problem"


@pytest.mark.exhaustive
@pytest.mark.timeout(400)
async def test_end_of_the_daemon_leaves_none_of_many_jobs(far, settings, workspace):
    count = 150
    with (
        tempfile.TemporaryDirectory(prefix="acpterm-slurm-") as directory,
        slurm_support.running(Path(directory), 2, cpus=count) as cluster,
    ):
        settings.write_text(
            f'[slurm.box]\nconfig = "{cluster.config}"\ncpus = 1\n'
            '[profiles.far]\nbase = "open"\nplaces = ["slurm:*"]\n'
        )
        async with far() as started, started.agent() as (agent, _):
            for _ in range(count):
                await create(agent, "sleep 1000", workspace)
            await poll(
                lambda: list(cluster.jobs().values()).count("RUNNING") == count,
                3 * TIMEOUT_S,
                COMMAND_S,
            )
        await poll(lambda: not cluster.jobs(), 3 * TIMEOUT_S, COMMAND_S)
