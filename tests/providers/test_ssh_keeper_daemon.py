"""Terminals that the other host's daemon keeps, as agents and the user have them from a daemon."""

import json
import signal

import pytest
import trio

from tests.support.commands import command_environment, run_with
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.processes import alive, environment
from tests.support.sshd import ACPTERM, remote_daemon, running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture
def server(tmp_path):
    """Return a server of the test's own, with a daemon on its host."""
    (tmp_path / "sshd").mkdir()
    with running(tmp_path / "sshd") as found, remote_daemon(found):
        yield found


@pytest.fixture
def far(server, runtime_directory, tmp_path):
    """Return a function that runs a daemon whose terminals are kept on that host."""
    file = tmp_path / "config.toml"
    place = f'config = "{server.config}"\nkeeper = "{ACPTERM}"\nconnect_timeout = 5\n'
    file.write_text(f'provider = "ssh:box"\n[ssh.box]\n{place}')
    env = environment(
        XDG_RUNTIME_DIR=runtime_directory,
        XDG_STATE_HOME=str(tmp_path / "state"),
        ACPTERM_CONFIG=str(file),
    )
    return lambda: daemon(tmp_path, env=env, terminate=True)


async def create(agent, line, cwd):
    params = {"sessionId": agent.session, "command": line, "cwd": str(cwd)}
    return (await agent.request("terminal/create", params))["terminalId"]


async def test_connection_and_worker_are_lost_together(far, server, workspace):
    async with far() as started:
        async with started.agent() as (agent, meta):
            line = "i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); sleep 0.01; done"
            terminal = await create(agent, f"{line}; read x; echo got $x; exit 5", workspace)
            stubborn = await create(
                agent,
                "trap '' TERM HUP; echo $$ >pid; echo ready; while :; do sleep 0.1; done",
                workspace,
            )
            await agent.until_output(terminal, "50")
            await agent.until_output(stubborn, "ready")
            server.go_away()
            await started.kill_worker()
        async with started.agent(meta["resume"]) as (agent, again):
            assert again["resumed"]
            await agent.type(terminal, "it\r")
            server.start()
            with trio.fail_after(40):
                status = await agent.wait(terminal)
            assert (status["exitCode"], status["_meta"]["acpterm"]["endedBy"]) == (5, "exited")
            words = (await agent.output(terminal))["output"].split()
            assert [int(word) for word in words if word.isdigit()] == list(range(300))
            assert words[-2:] == ["got", "it"]
            pid = int((workspace / "pid").read_text())
            await agent.kill(stubborn)
            status = await agent.wait(stubborn)
            assert (status["signal"], status["_meta"]["acpterm"]["endedBy"]) == ("SIGKILL", "agent")
            await poll(lambda: not alive(pid))


async def test_programs_end_with_a_daemon_that_is_killed(far, workspace):
    async with far() as started, started.agent() as (agent, _):
        line = "trap '' TERM HUP; echo $$ >pid; echo ready; while :; do sleep 0.1; done"
        terminal = await create(agent, line, workspace)
        await agent.until_output(terminal, "ready")
        pid = int((workspace / "pid").read_text())
        status = await started.status()
        started.process.process.send_signal(signal.SIGKILL)
        await poll(lambda: not alive(status["workerPid"]))
        with trio.fail_after(DEADLINE_S):
            while alive(pid):
                await trio.sleep(0.05)


async def test_program_that_is_released_without_a_connection_ends_with_the_next_daemon(
    far, server, workspace
):
    async with far() as started, started.agent() as (agent, _):
        line = "trap '' TERM HUP; echo $$ >pid; echo ready; while :; do sleep 0.1; done"
        terminal = await create(agent, line, workspace)
        await agent.until_output(terminal, "ready")
        server.go_away()
    pid = int((workspace / "pid").read_text())
    server.start()
    assert alive(pid)
    async with far():
        await poll(lambda: not alive(pid))


async def test_doctor_and_list_say_that_terminals_are_kept(far, server, tmp_path):
    async with far() as started:
        env = command_environment(started.path, ACPTERM_CONFIG=str(tmp_path / "config.toml"))
        for words, name in ((["provider", "list"], "name"), (["doctor"], "check")):
            _, out, _ = await run_with([*words, "--json"], env=env)
            (row,) = [row for row in json.loads(out) if row[name] == "ssh:box"]
            assert "terminals are kept there by acpterm" in row["found"]
