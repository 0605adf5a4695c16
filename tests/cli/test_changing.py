"""`acpterm rename`, `resize`, `inspect` and `restart TERMINAL`."""

import json
import os

import pytest

from acpterm.jsonrpc import RpcError
from tests.support.agent import agent_at
from tests.support.commands import run
from tests.support.polling import poll
from tests.support.user import user_at


async def printed(person, terminal, text):
    """Wait until a terminal has printed a text."""

    async def has_printed():
        return text in (await person.terminal_request("output", terminal))["text"]

    while not await has_printed():
        await person.terminal_request("read", terminal, waitMs=1000)


async def test_rename_gives_another_name(person, path):
    for name in "one", "two":
        await person.request("terminal/create", {"command": "sleep 1000", "name": name})
    _, token = await person.open("events")
    assert await run(path, "rename", "one", "web") == (0, "", "")
    assert (await person.terminal_request("get", "web"))["name"] == "web"
    await person.until(lambda: person.by_token[token])
    event = person.by_token[token][0]["params"]
    assert (event["event"], event["terminal"]["name"]) == ("renamed", "web")
    # The name that it has is no other terminal's.
    assert await run(path, "rename", "web", "web") == (0, "", "")
    for name, why in ("two", "of the name 'two' runs"), ("@x", "name '@x'"), ("", "name ''"):
        done = await run(path, "rename", "web", name)
        assert (done.status, done.out) == (1, "")
        assert why in done.err
    done = await run(path, "rename", "one", "other")
    assert (done.status, done.out) == (1, "")
    assert "there is no terminal 'one'" in done.err


async def test_resize_gives_another_size(person, path):
    info = await person.request("terminal/create", {"command": "sleep 1000", "name": "web"})
    assert await run(path, "resize", "web", "100x30") == (0, "", "")
    now = await person.terminal_request("get", "web")
    assert (now["cols"], now["rows"]) == (100, 30)
    for size in "100", "0x5", "x", "100x30x2", "99999x1":
        done = await run(path, "resize", "web", size)
        assert done.status == 2
        assert f"'{size}' is not a size: give COLSxROWS" in done.err
    await person.terminal_request("kill", info["terminalId"])
    done = await run(path, "resize", "web", "80x24")
    assert done.status == 1
    assert "has ended" in done.err


async def test_inspect_shows_all_that_is_known(person, path, tmp_path):
    env = [{"name": "COLOUR", "value": "blå"}]
    order = {"command": "echo", "args": ["a b"], "env": env, "cwd": str(tmp_path), "name": "web"}
    info = await person.request("terminal/create", order)
    await person.terminal_request("wait", info["terminalId"])
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
    assert values["state"].startswith("exited 0 after 0s (by exited)")
    assert values["command"] == "echo 'a b'"
    assert values["directory"] == str(tmp_path)
    assert values["output"].startswith("5 bytes, readable from 0 on")


async def test_inspect_shows_windows_and_the_agent(person, path):
    async with agent_at(path) as agent:
        terminal = await agent.create("printf hi; read x")
        await agent.until_output(terminal, "hi")
        window = {"cols": 60, "rows": 20, "readOnly": True}
        _, token = await person.open("terminal/attach", terminalId=terminal, **window)
        await person.until(lambda: person.by_token[token])
        found = json.loads((await run(path, "inspect", terminal, "--json")).out)
        assert found["launch"] is None
        assert found["windows"] == [window]
        out = (await run(path, "inspect", terminal)).out
        assert "windows         60x20 read-only\n" in out
        assert "owner           agent\n" in out


async def test_restart_starts_the_same_again(person, path, tmp_path):
    command = 'echo $$ $COLOUR "$1" $(stty size) $PWD; exec sleep 1000'
    order = {
        "command": "sh",
        "args": ["-c", command, "sh", "an argument"],
        "env": [{"name": "COLOUR", "value": "blue"}],
        "cwd": str(tmp_path),
        "name": "web",
        "cols": 90,
        "rows": 20,
    }
    old = await person.request("terminal/create", order)
    await printed(person, "web", str(tmp_path))
    status, out, err = await run(path, "restart", "web")
    assert (status, err) == (0, "")
    new = await person.terminal_request("get", "web")
    assert new["terminalId"] == out.strip() != old["terminalId"]
    assert new["state"] == "running"
    await printed(person, "web", str(tmp_path))
    text = (await person.terminal_request("output", "web"))["text"]
    pid, *rest = text.split()
    assert (int(pid), rest) == (new["pid"], ["blue", "an", "argument", "20", "90", str(tmp_path)])
    # The old one is gone, with its program.
    assert [info["terminalId"] for info in await person.list(all=True)] == [new["terminalId"]]
    await poll(lambda: not os.path.exists(f"/proc/{old['pid']}"))
    # One that has ended is started again as well.
    await person.terminal_request("kill", "web")
    found = json.loads((await run(path, "restart", "web", "--json")).out)
    assert (found["name"], found["state"]) == ("web", "running")


async def test_restart_of_a_terminal_works_after_a_restart_of_the_worker(person, path):
    await person.request("terminal/create", {"command": "sleep 1000", "name": "web"})
    assert (await run(path, "restart")).status == 0
    status, out, err = await run(path, "restart", "web")
    assert (status, err) == (0, "")
    assert out.startswith("term_")


async def test_restart_leaves_a_terminal_that_cannot_be_started_again(person, path, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    order = {"command": "sleep 1000", "name": "web", "cwd": str(place)}
    await person.request("terminal/create", order)
    place.rmdir()
    done = await run(path, "restart", "web")
    assert (done.status, done.out) == (1, "")
    assert str(place) in done.err
    assert (await person.terminal_request("get", "web"))["state"] == "running"
    async with agent_at(path) as agent:
        terminal = await agent.create("sleep 1000")
        done = await run(path, "restart", terminal)
        assert (done.status, done.out) == (1, "")
        assert "was not created by acpterm run" in done.err


async def test_restart_gives_the_variables_that_the_daemon_would_set_otherwise(person, path):
    values = {"TERM": "vt100", "COLUMNS": "99"}
    order = {
        "command": "sh",
        "args": ["-c", "echo $TERM $COLUMNS; exec sleep 1000"],
        "env": [{"name": name, "value": value} for name, value in values.items()],
        "name": "web",
    }
    await person.request("terminal/create", order)
    await printed(person, "web", "vt100 99")
    # What is stored is used as well.
    assert (await run(path, "restart")).status == 0
    async with user_at(path.replace("agent.sock", "user.sock")) as after:
        assert (await run(path, "restart", "web")).status == 0
        await printed(after, "web", "\n")
        assert (await after.terminal_request("output", "web"))["text"] == "vt100 99\n"
        env = json.loads((await run(path, "inspect", "web", "--json")).out)["launch"]["env"]
        assert env.items() >= values.items()


async def test_two_restarts_of_a_terminal_at_once_create_one(person):
    # It is killed only after its grace: the second restart comes before its end.
    order = {"command": "sh", "args": ["-c", "trap '' TERM; echo ready; while :; do sleep 1; done"]}
    terminal = (await person.request("terminal/create", order))["terminalId"]
    await printed(person, terminal, "ready")
    asked = [await person.start("terminal/restart", {"terminalId": terminal}) for _ in range(2)]
    with pytest.raises(RpcError, match="is being restarted already"):
        await person.result(asked[1])
    new = (await person.result(asked[0]))["terminalId"]
    assert [info["terminalId"] for info in await person.list(all=True)] == [new]


async def test_restart_of_a_terminal_that_is_removed_at_its_end_is_removed_at_its_end(person):
    order = {"command": "sleep 1000", "name": "web", "remove": True}
    old = (await person.request("terminal/create", order))["terminalId"]
    _, token = await person.open("events")
    new = (await person.terminal_request("restart", "web"))["terminalId"]
    assert [info["terminalId"] for info in await person.list(all=True)] == [new]
    await person.terminal_request("kill", "web")

    def released():
        events = [one["params"] for one in person.by_token[token]]
        return [one["terminal"]["terminalId"] for one in events if one["event"] == "released"]

    await person.until(lambda: new in released())
    assert released() == [old, new]
    assert await person.list(all=True) == []


@pytest.mark.parametrize("command", ["rename web other", "resize web 80x24", "inspect web"])
async def test_without_a_daemon_it_fails(tmp_path, command):
    status, out, err = await run(str(tmp_path / "agent.sock"), *command.split())
    assert (status, out) == (1, "")
    assert "no daemon listens at" in err
