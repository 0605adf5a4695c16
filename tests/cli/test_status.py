"""`acpterm status` and `acpterm shutdown`."""

import json
import re

import pytest

from acpterm import __version__
from acpterm.keeper.process.supervisor import DEATHS_MAX
from tests.support.agent import agent_at
from tests.support.commands import run
from tests.support.daemon import daemon, listens, user_socket
from tests.support.polling import poll
from tests.support.processes import alive


async def test_status_and_shutdown_report_not_running_without_a_daemon(tmp_path):
    path = str(tmp_path / "run" / "agent.sock")
    assert await run(path, "status") == (1, "not running\n", "")
    assert await run(path, "status", "--json") == (1, "null\n", "")
    assert await run(path, "shutdown") == (0, "not running\n", "")
    assert not (tmp_path / "run").exists()


async def test_status_starts_a_daemon_on_request(tmp_path):
    path = str(tmp_path / "run" / "agent.sock")
    status, out, err = await run(path, "status", "--start", "--json")
    assert (status, err) == (0, "")
    try:
        assert json.loads(out)["userSocket"] == user_socket(path)
        pid = json.loads((await run(path, "status", "--start", "--json")).out)["keeperPid"]
        assert pid == json.loads(out)["keeperPid"]
        assert "\nsettings" not in (await run(path, "status")).out
    finally:
        assert (await run(path, "shutdown")).status == 0


async def test_status_shows_the_state_of_the_daemon(tmp_path):
    async with daemon(tmp_path) as (process, path), agent_at(path) as agent:
        await agent.create("sleep 1000")
        await agent.wait(await agent.create("exit 0"))
        status, out, err = await run(path, "status")
        assert (status, err) == (0, "")
        fields = dict(re.split(r" {2,}", line, maxsplit=1) for line in out.splitlines())
        assert fields.pop("daemon").startswith(
            f"acpterm {__version__}, pid {process.pid}, runs for "
        )
        assert re.fullmatch(r"\d+\.\d MiB, output held: .*", fields.pop("memory"))
        assert re.fullmatch("known by (cgroup|subreaper)", fields.pop("processes"))
        assert fields.pop("keeper") == f"pid {process.pid}"
        assert re.fullmatch(r"pid \d+, 0 takeovers", fields.pop("worker"))
        assert fields.pop("audit log").endswith("/acpterm/audit")
        assert fields == {
            "ends": "by acpterm shutdown",
            "agents' socket": path,
            "your socket": user_socket(path),
            "page": "not served: acpterm open starts it",
            "terminals": "1 running, 1 exited, 0 kept",
            "connections": "0 of yours, 1 agent",
            "provider": "local, by default",
            "profile": "guarded, by default",
        }
        found = json.loads((await run(path, "status", "--json")).out)
        assert (found["pid"], found["running"], found["agents"]) == (process.pid, 1, 1)


@pytest.mark.long
async def test_shutdown_returns_after_the_daemon_and_its_terminals_have_ended(tmp_path):
    async with daemon(tmp_path) as (process, path), agent_at(path) as agent:
        one = await agent.create("trap '' TERM; echo $$; sleep 1000")
        await agent.create("sleep 1000")
        pid = int(await agent.until_output(one, "\n"))
        status, out, err = await run(path, "shutdown")
        ended = f"ended the daemon (pid {process.pid}) and 2 terminals that ran\n"
        assert (status, out, err) == (0, ended, "")
        assert process.process.poll() == 0
        assert not alive(pid)
        assert not listens(path)


@pytest.mark.long
async def test_shutdown_ends_a_daemon_whose_worker_was_given_up(tmp_path):
    async with daemon(tmp_path) as started:
        async with started.agent() as (agent, _):
            one = await agent.create("trap '' TERM; echo $$; sleep 1000")
            pid = int(await agent.until_output(one, "\n"))
        for _ in range(DEATHS_MAX):
            await started.kill_worker()
        await poll(lambda: "given up" in started.process.logged())
        assert alive(pid)
        status, out, err = await run(started.path, "shutdown")
        ended = f"ended the daemon (pid {started.process.pid}), whose worker did not answer\n"
        assert (status, out, err) == (0, ended, "")
        assert not alive(pid)
