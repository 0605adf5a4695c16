"""Terminals on another host, as agents and the user have them from a daemon."""

import json
import signal

import pytest
import trio

from acpterm.jsonrpc import RpcError
from tests.support.commands import command_environment, run_with
from tests.support.commands import running as running_command
from tests.support.daemon import daemon
from tests.support.polling import poll
from tests.support.processes import alive, environment
from tests.support.sshd import running
from tests.support.starting import ACPTERM
from tests.support.tmux import needs_tmux, tmux_server

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

TIMEOUT_S = 30


@pytest.fixture
def settings(sshd, tmp_path):
    """Return the path of a settings file with the place `ssh:box`, and one that does not answer."""
    file = tmp_path / "config.toml"
    file.write_text(
        f'[ssh.box]\nconfig = "{sshd.config}"\n'
        f'[ssh.gone]\nhost = "127.0.0.1"\nconfig = "{sshd.config}-gone"\n'
        '[profiles.near]\nbase = "open"\n'
        '[profiles.far]\nbase = "open"\nplaces = ["ssh:b*"]\n'
        '[profiles.only]\nbase = "open"\nprovider = "ssh:box"\n'
        'limits = { processes = 10 }\nunenforceable_limits = "warn"\n'
        '[profiles.strict]\nbase = "open"\nprovider = "ssh:box"\nlimits = { processes = 10 }\n'
        '[profiles.tight]\nbase = "open"\nprovider = "ssh:box"\ndangerous = "deny"\n'
        "limits = { idle = 6.0, session_terminals = 1 }\n"
    )
    (sshd.directory / "config-gone").write_text("Host *\nPort 1\n")
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


async def create(agent, line, cwd, provider="ssh:box"):
    """Create a terminal; return its id, and `_meta.acpterm` of the response."""
    params = {"sessionId": agent.session, "command": line, "cwd": str(cwd)}
    if provider is not None:
        params["_meta"] = {"acpterm": {"provider": provider}}
    response = await agent.request("terminal/create", params)
    return response["terminalId"], response["_meta"]["acpterm"]


async def acpterm(started, settings, *words):
    """Run a command of the user; return its output, once it has succeeded."""
    env = command_environment(started.path, ACPTERM_CONFIG=str(settings))
    status, out, err = await run_with(list(words), env=env)
    assert status == 0, err
    return out


async def test_agent_runs_a_command_on_the_host_that_its_profile_allows(far, workspace):
    async with far() as started, started.agent() as (agent, _):
        terminal, meta = await create(agent, "pwd; exit 3", workspace)
        assert (meta["provider"], meta["isolation"], meta["host"]) == ("ssh:box", "none", "box")
        status = await agent.wait(terminal)
        assert (status["exitCode"], status["signal"]) == (3, None)
        assert (status["_meta"]["acpterm"]["endedBy"], status["_meta"]["acpterm"]["host"]) == (
            "exited",
            "box",
        )
        output = await agent.output(terminal)
        assert output["output"] == f"{workspace}\n"


async def test_agent_may_not_name_a_place_that_its_profile_does_not_list(far, workspace):
    async with far("near") as started, started.agent() as (agent, _):
        with pytest.raises(RpcError, match="is not a place that the user's profile allows"):
            await create(agent, "true", workspace)


async def test_host_that_cannot_be_reached_is_an_error_of_the_create(far, settings, workspace):
    text = settings.read_text().replace('"ssh:b*"', '"ssh:*"')
    settings.write_text(text)
    async with far() as started, started.agent() as (agent, _):
        with pytest.raises(RpcError, match=r"provider 'ssh:gone' cannot be used.*refused"):
            await create(agent, "true", workspace, "ssh:gone")


async def test_limits_that_the_host_does_not_enforce_are_named(far, settings, workspace):
    async with far("only") as started, started.agent() as (agent, _):
        await create(agent, "sleep 100", workspace, provider=None)
        (info,) = json.loads(await acpterm(started, settings, "ls", "--json"))
        assert (info["provider"], info["host"]) == ("ssh:box", "box")
        assert info["unenforcedLimits"] == [
            "the limit processes = 10 cannot be enforced here: the program runs on box"
        ]


async def test_limit_that_the_host_does_not_enforce_refuses_the_terminal(far, workspace):
    async with far("strict") as started, started.agent() as (agent, _):
        with pytest.raises(RpcError, match="processes = 10 cannot be enforced"):
            await create(agent, "true", workspace, provider=None)


async def test_policy_and_limits_apply_to_programs_on_the_host(far, workspace):
    async with far("tight") as started, started.agent() as (agent, _):
        with pytest.raises(RpcError, match="dangerous"):
            await create(agent, "sudo touch ran", workspace, provider=None)
        terminal, _ = await create(agent, "echo $$ >pid; sleep 1000", workspace, provider=None)
        with pytest.raises(RpcError, match="session_terminals"):
            await create(agent, "true", workspace, provider=None)
        with trio.fail_after(TIMEOUT_S):
            ended = (await agent.wait(terminal))["_meta"]["acpterm"]
        assert (ended["endedBy"], ended["limit"]) == ("idle", "idle")
        await poll(lambda: not alive(int((workspace / "pid").read_text())))
    assert not (workspace / "ran").exists()


async def test_events_say_on_which_host_a_program_runs(far, workspace):
    async with far() as started, started.agent() as (agent, _), started.user() as user:
        _, token = await user.open("events")
        await user.list()
        await agent.wait((await create(agent, "true", workspace))[0])
        await poll(lambda: len(user.by_token[token]) >= 2)
        events = [message["params"] for message in user.by_token[token]]
        assert {event["terminal"]["host"] for event in events if "terminal" in event} == {"box"}


async def test_user_runs_a_command_on_the_host(far, settings):
    async with far() as started:
        out = await acpterm(
            started, settings, "run", "-n", "--provider", "ssh:box", "--", "echo", "there"
        )
        assert "there" in out
        await acpterm(
            started, settings, "run", "-d", "--provider", "ssh:box", "--", "sleep", "1000"
        )
        assert "ssh:box" in await acpterm(started, settings, "ls")
        info = json.loads(await acpterm(started, settings, "ls", "--json"))[0]
        assert info["host"] == "box"
        found = json.loads(
            await acpterm(started, settings, "inspect", "--json", info["terminalId"])
        )
        assert found["terminal"]["host"] == "box"


async def test_places_are_tried_and_timed(far, settings):
    async with far() as started:
        rows = json.loads(await acpterm(started, settings, "provider", "list", "--json"))
        places = {row["name"]: row for row in rows if row["name"].startswith("ssh:")}
        assert places["ssh:box"]["works"]
        assert "connected in" in places["ssh:box"]["found"]
        assert not places["ssh:gone"]["works"]
        assert "Connection refused" in places["ssh:gone"]["found"]
        checks = json.loads(await acpterm(started, settings, "doctor", "--json"))
        found = {check["check"]: check for check in checks}
        assert found["ssh:box"]["state"] == "ok"
        assert "answers in" in found["ssh:box"]["found"]
        assert found["ssh:gone"]["state"] == "problem"


async def test_programs_go_on_while_the_worker_is_killed(far, settings, workspace):
    async with far() as started:
        async with started.agent() as (agent, meta):
            running_id, _ = await create(
                agent, "echo ready; read x; echo got $x; exit 5", workspace
            )
            ended_id, _ = await create(agent, "echo ready; read x <&2; kill -9 $$", workspace)
            stubborn_id, _ = await create(
                agent,
                "trap '' TERM HUP; echo $$ >pid; echo ready; while :; do sleep 0.1; done",
                workspace,
            )
            for terminal in (running_id, ended_id, stubborn_id):
                await agent.until_output(terminal, "ready")
            await agent.type(ended_id, "\r")
            await started.kill_worker()
        async with started.agent(meta["resume"]) as (agent, again):
            assert again["resumed"]
            await agent.type(running_id, "it\r")
            assert (await agent.wait(running_id))["exitCode"] == 5
            assert "got it" in (await agent.output(running_id))["output"]
            assert (await agent.wait(ended_id))["signal"] == "SIGKILL"
            pid = int((workspace / "pid").read_text())
            await agent.kill(stubborn_id)
            status = await agent.wait(stubborn_id)
            assert (status["signal"], status["_meta"]["acpterm"]["endedBy"]) == (
                "SIGKILL",
                "agent",
            )
            await poll(lambda: not alive(pid))


async def test_programs_end_with_a_daemon_that_is_killed(far, settings, workspace):
    async with far() as started, started.agent() as (agent, _):
        line = "trap '' TERM; echo $$ >pid; echo ready; while :; do sleep 0.1; done"
        terminal, _ = await create(agent, line, workspace)
        await agent.until_output(terminal, "ready")
        pid = int((workspace / "pid").read_text())
        status = await started.status()
        started.process.process.send_signal(signal.SIGKILL)
        await poll(lambda: not alive(status["workerPid"]))
        await poll(lambda: not alive(pid))


async def test_lost_connection_is_in_the_exit_status(tmp_path, runtime_directory, workspace):
    (tmp_path / "sshd").mkdir()
    with running(tmp_path / "sshd") as server:
        file = tmp_path / "config.toml"
        file.write_text(f'provider = "ssh:box"\n[ssh.box]\nconfig = "{server.config}"\n')
        env = environment(XDG_RUNTIME_DIR=runtime_directory, ACPTERM_CONFIG=str(file))
        async with (
            daemon(tmp_path, env=env, terminate=True) as started,
            started.agent() as (agent, _),
        ):
            terminal, _ = await create(agent, "echo ready; sleep 1000", workspace, provider=None)
            await agent.until_output(terminal, "ready")
            server.cut()
            with trio.fail_after(TIMEOUT_S):
                status = await agent.wait(terminal)
            assert (status["exitCode"], status["signal"]) == (255, None)
            assert status["_meta"]["acpterm"]["endedBy"] == "lost"
            assert status["_meta"]["acpterm"]["host"] == "box"


async def test_commands_say_that_the_connection_was_lost(tmp_path, runtime_directory):
    (tmp_path / "sshd").mkdir()
    with running(tmp_path / "sshd") as server:
        file = tmp_path / "config.toml"
        file.write_text(f'[ssh.box]\nconfig = "{server.config}"\n')
        env = environment(XDG_RUNTIME_DIR=runtime_directory, ACPTERM_CONFIG=str(file))
        async with daemon(tmp_path, env=env, terminate=True) as started:
            words = ["run", "-n", "--name=far", "--provider=ssh:box", "echo ready; sleep 1000"]
            env = command_environment(started.path, ACPTERM_CONFIG=str(file))
            async with running_command(tmp_path, started.path, *words, env=env) as command:
                await poll(lambda: command.out == "ready\n", TIMEOUT_S)
                server.cut()
                assert await poll(command.process.poll, TIMEOUT_S) == 255
                assert command.err == "[far exited with 255: the connection to its host is lost]\n"
            assert "exited 255 (lost)" in await acpterm(started, file, "ls")


@needs_tmux
async def test_window_says_that_the_connection_was_lost(tmp_path, runtime_directory):
    (tmp_path / "sshd").mkdir()
    with running(tmp_path / "sshd") as server, tmux_server(tmp_path) as tmux:
        file = tmp_path / "config.toml"
        file.write_text(f'[ssh.box]\nconfig = "{server.config}"\n')
        env = environment(XDG_RUNTIME_DIR=runtime_directory, ACPTERM_CONFIG=str(file))
        async with daemon(tmp_path, env=env, terminate=True) as started:
            env = command_environment(started.path, ACPTERM_CONFIG=str(file))
            words = ["run", "--name=far", "--provider=ssh:box", "echo ready; sleep 1000"]
            one = tmux.pane([*ACPTERM, *words], env=env)
            await trio.to_thread.run_sync(one.until, "ready")
            other = tmux.pane([*ACPTERM, "attach", "far"], env=env)
            await trio.to_thread.run_sync(other.until, "ready")
            server.cut()
            for pane in (one, other):
                await trio.to_thread.run_sync(
                    pane.until, "[far exited with 255: the connection to its host is lost]"
                )
