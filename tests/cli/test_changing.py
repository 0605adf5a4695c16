"""`acpterm rename`, `resize`, `inspect` and `restart TERMINAL`."""

import json
import os
import re

import pytest

from acpterm.jsonrpc import RpcError
from tests.support.commands import command_environment, report_status, run
from tests.support.daemon import user_socket
from tests.support.polling import poll
from tests.support.starting import ACPTERM
from tests.support.tmux import needs_tmux, tmux_server
from tests.support.user import user_at


@pytest.mark.long
async def test_rename_changes_the_name_and_publishes_an_event(user, path):
    for name in "one", "two":
        await user.request("terminal/create", {"command": "sleep 1000", "name": name})
    _, token = await user.open("events")
    assert await run(path, "rename", "one", "web") == (0, "", "")
    assert (await user.terminal_request("get", "web"))["name"] == "web"
    await user.until(lambda: user.by_token[token])
    event = user.by_token[token][0]["params"]
    assert (event["event"], event["terminal"]["name"]) == ("renamed", "web")
    # A terminal can be renamed to its own name.
    assert await run(path, "rename", "web", "web") == (0, "", "")
    for name, why in ("two", "of the name 'two' runs"), ("@x", "name '@x'"), ("", "name ''"):
        done = await run(path, "rename", "web", name)
        assert (done.status, done.out) == (1, "")
        assert why in done.err
    done = await run(path, "rename", "one", "other")
    assert (done.status, done.out) == (1, "")
    assert "there is no terminal 'one'" in done.err


async def test_resize_changes_the_size(user, path):
    info = await user.request("terminal/create", {"command": "sleep 1000", "name": "web"})
    assert await run(path, "resize", "web", "100x30") == (0, "", "")
    now = await user.terminal_request("get", "web")
    assert (now["cols"], now["rows"]) == (100, 30)
    for size in "100", "0x5", "x", "100x30x2", "99999x1":
        done = await run(path, "resize", "web", size)
        assert done.status == 2
        assert f"'{size}' is not a size: give COLSxROWS" in done.err
    await user.terminal_request("kill", info["terminalId"])
    done = await run(path, "resize", "web", "80x24")
    assert done.status == 1
    assert "has ended" in done.err


async def test_inspect_shows_the_terminal_its_launch_and_its_output(user, path, tmp_path):
    env = [{"name": "COLOUR", "value": "blå"}]
    params = {"command": "echo", "args": ["a b"], "env": env, "cwd": str(tmp_path), "name": "web"}
    info = await user.request("terminal/create", params)
    await user.terminal_request("wait", info["terminalId"])
    found = json.loads((await run(path, "inspect", "web", "--json")).out)
    assert found["terminal"]["terminalId"] == info["terminalId"]
    assert found["terminal"]["exitStatus"]["exitCode"] == 0
    launch = found["launch"]
    assert (launch["command"], launch["args"]) == ("echo", ["a b"])
    assert launch["env"]["COLOUR"] == "blå"
    assert (found["windows"], found["oldest"]) == ([], 0)
    assert found["retainedBytes"] > 0
    lines = (await run(path, "inspect", "web")).out.splitlines()
    values = {line[:16].rstrip(): line[16:] for line in lines}
    assert values["id"] == info["terminalId"]
    assert re.fullmatch(r"exited 0 after \d+s", values["state"])
    assert values["command"] == "echo 'a b'"
    assert values["directory"] == str(tmp_path)
    assert values["output"].startswith("5 bytes, readable from 0 on")


async def test_inspect_shows_windows_and_the_agent(user, agent, path):
    terminal = await agent.create_until("hi", "printf hi; read x")
    window = {"cols": 60, "rows": 20, "readOnly": True}
    _, token = await user.open("terminal/attach", terminalId=terminal, **window)
    await user.until(lambda: user.by_token[token])
    found = json.loads((await run(path, "inspect", terminal, "--json")).out)
    assert found["launch"] is None
    assert found["windows"] == [window]
    out = (await run(path, "inspect", terminal)).out
    assert "windows         60x20 read-only\n" in out
    assert "owner           agent\n" in out


@pytest.mark.long
async def test_restart_starts_the_same_program_again(user, path, tmp_path):
    command = 'echo $$ $COLOUR "$1" $(stty size) $PWD; exec sleep 1000'
    params = {
        "command": "sh",
        "args": ["-c", command, "sh", "an argument"],
        "env": [{"name": "COLOUR", "value": "blue"}],
        "cwd": str(tmp_path),
        "name": "web",
        "cols": 90,
        "rows": 20,
    }
    old = await user.request("terminal/create", params)
    await user.until_output("web", str(tmp_path))
    status, out, err = await run(path, "restart", "web")
    assert (status, err) == (0, "")
    new = await user.terminal_request("get", "web")
    assert new["terminalId"] == out.strip() != old["terminalId"]
    assert new["state"] == "running"
    await user.until_output("web", str(tmp_path))
    text = (await user.terminal_request("output", "web"))["text"]
    pid, *rest = text.split()
    assert (int(pid), rest) == (new["pid"], ["blue", "an", "argument", "20", "90", str(tmp_path)])
    # The old terminal and its program are gone.
    assert [info["terminalId"] for info in await user.list(all=True)] == [new["terminalId"]]
    await poll(lambda: not os.path.exists(f"/proc/{old['pid']}"))
    # A program that has ended is started again, too.
    await user.terminal_request("kill", "web")
    found = json.loads((await run(path, "restart", "web", "--json")).out)
    assert (found["name"], found["state"]) == ("web", "running")


@pytest.mark.long
async def test_restart_of_a_terminal_works_after_a_restart_of_the_worker(user, path):
    await user.request("terminal/create", {"command": "sleep 1000", "name": "web"})
    assert (await run(path, "restart")).status == 0
    status, out, err = await run(path, "restart", "web")
    assert (status, err) == (0, "")
    assert out.startswith("term_")


async def test_restart_leaves_a_terminal_that_cannot_be_started_again(user, agent, path, tmp_path):
    directory = tmp_path / "directory"
    directory.mkdir()
    started = tmp_path / "started"
    command = f"touch {started}; exec sleep 1000"
    params = {"command": command, "name": "web", "cwd": str(directory)}
    await user.request("terminal/create", params)
    await poll(started.exists)
    directory.rmdir()
    done = await run(path, "restart", "web")
    assert (done.status, done.out) == (1, "")
    assert str(directory) in done.err
    assert (await user.terminal_request("get", "web"))["state"] == "running"
    terminal = await agent.create("sleep 1000")
    done = await run(path, "restart", terminal)
    assert (done.status, done.out) == (1, "")
    assert "was not created by acpterm run" in done.err


@pytest.mark.long
async def test_restart_keeps_variables_that_the_daemon_sets_by_default(user, path):
    values = {"TERM": "vt100", "COLUMNS": "99"}
    params = {
        "command": "sh",
        "args": ["-c", "echo $TERM $COLUMNS; exec sleep 1000"],
        "env": [{"name": name, "value": value} for name, value in values.items()],
        "name": "web",
    }
    await user.request("terminal/create", params)
    await user.until_output("web", "vt100 99")
    # The variables are stored, too, and used by the next worker.
    assert (await run(path, "restart")).status == 0
    async with user_at(user_socket(path)) as after:
        assert (await run(path, "restart", "web")).status == 0
        await after.until_output("web", "\n")
        assert (await after.terminal_request("output", "web"))["text"] == "vt100 99\n"
        env = json.loads((await run(path, "inspect", "web", "--json")).out)["launch"]["env"]
        assert env.items() >= values.items()


@pytest.mark.long
async def test_second_concurrent_restart_of_a_terminal_is_refused(user):
    # The program ignores SIGTERM, so the second restart is requested before the program ends.
    params = {
        "command": "sh",
        "args": ["-c", "trap '' TERM; echo ready; while :; do sleep 1; done"],
    }
    terminal = (await user.request("terminal/create", params))["terminalId"]
    await user.until_output(terminal, "ready")
    requests = [await user.start("terminal/restart", {"terminalId": terminal}) for _ in range(2)]
    with pytest.raises(RpcError, match="is being restarted already"):
        await user.result(requests[1])
    new = (await user.result(requests[0]))["terminalId"]
    assert [info["terminalId"] for info in await user.list(all=True)] == [new]


async def test_restart_keeps_the_remove_flag_of_a_terminal(user):
    params = {"command": "sleep 1000", "name": "web", "remove": True}
    old = (await user.request("terminal/create", params))["terminalId"]
    _, token = await user.open("events")
    new = (await user.terminal_request("restart", "web"))["terminalId"]
    assert [info["terminalId"] for info in await user.list(all=True)] == [new]
    await user.terminal_request("kill", "web")

    def released():
        events = [one["params"] for one in user.by_token[token]]
        return [one["terminal"]["terminalId"] for one in events if one["event"] == "released"]

    await user.until(lambda: new in released())
    assert released() == [old, new]
    assert await user.list(all=True) == []


@pytest.mark.parametrize("command", ["rename web other", "resize web 80x24", "inspect web"])
async def test_command_fails_without_a_daemon(tmp_path, command):
    status, out, err = await run(str(tmp_path / "agent.sock"), *command.split())
    assert (status, out) == (1, "")
    assert "no daemon listens at" in err


@needs_tmux
@pytest.mark.long
async def test_inspect_indents_its_json_on_a_terminal(user, path, tmp_path):
    await user.request("terminal/create", {"command": "sleep 1000", "name": "web"})
    with tmux_server(tmp_path / "tmux") as tmux:
        words = report_status([*ACPTERM, "inspect", "web", "--json"])
        pane = tmux.pane(words, env=command_environment(path), size=(100, 500))
        pane.until("ended 0")
        shown = pane.text.removesuffix("ended 0")
    assert shown.startswith('{\n  "terminal": {\n    "terminalId": ')
