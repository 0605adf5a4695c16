"""`acpterm events`: prints a line for each event until its reader or the daemon is gone."""

import json
import os
import re
import subprocess

import pytest
import trio

from tests.support.agent import agent_at
from tests.support.commands import command_environment, run, running, shim
from tests.support.daemon import daemon, user_socket
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.user import user_at


async def wait_until_subscribed(events, path):
    """Create and release terminals until the command `events` prints such an event.

    Return the number of lines that it has printed. No line about these terminals follows.
    """
    async with user_at(user_socket(path)) as user:
        with trio.fail_after(DEADLINE_S):
            while not events.lines:
                created = await user.request("terminal/create", {"command": "sleep 1000"})
                await user.terminal_request("release", created["terminalId"])
                await trio.sleep(0.01)
        # Wait for the last event, so that no earlier one is printed afterwards.
        end = await user.request("terminal/create", {"command": "sleep 1000 # marker"})
        await user.terminal_request("release", end["terminalId"])
    released = re.compile(r'  released  |"event":"released"')
    await poll(lambda: any(released.search(line) and "marker" in line for line in events.lines))
    return len(events.lines)


async def test_events_prints_a_line_for_each_event(tmp_path, path):
    async with running(tmp_path, path, "events") as events:
        before = await wait_until_subscribed(events, path)
        async with agent_at(path) as agent:
            params = {"protocolVersion": 1, "clientInfo": {"name": "ro\x1bbot", "version": "1"}}
            await agent.request("initialize", params)
            one = await agent.create_ended("exit 3 # \x1b[31mred\n")
            update = {"sessionUpdate": "tool_call", "toolCallId": "c", "status": "completed"}
            update["title"] = "Run\x1b]0;it\x07"
            await agent.notify("session/update", {"sessionId": agent.session, "update": update})
            await agent.release(one)
        await poll(lambda: "disconnected" in events.out or None)
        events.interrupt()
        assert await events.wait() == 0
    assert events.err == ""
    found = [re.split(r" {2,}", line.rstrip("\n")) for line in events.lines[before:]]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", line[0]) for line in found)
    agent_label, short = "ro\\x1bbot session-1", one[5:13]
    assert re.fullmatch(r"exited with 3 after \d+s", found[2][-1])
    assert [line[1:] for line in found] == [
        ["connected", "-", "-", found[0][4]],
        ["created", short, "agent", agent_label, "exit 3 # \\x1b[31mred"],
        ["exited", short, "agent", agent_label, found[2][-1]],
        ["tool_call", "-", "-", agent_label, "Run\\x1b]0;it\\x07 [completed]"],
        ["released", short, "agent", agent_label, "exit 3 # \\x1b[31mred", "(by agent)"],
        ["disconnected", "-", "-", "ro\\x1bbot"],
    ]


@pytest.mark.long
async def test_exit_event_names_the_side_that_killed_the_program(tmp_path, path):
    async with running(tmp_path, path, "events") as events:
        await wait_until_subscribed(events, path)
        async with agent_at(path) as agent:
            one = await agent.create("sleep 1000")
            await agent.kill(one)
            await agent.wait(one)
            await poll(lambda: "exited" in events.out or None)
    (line,) = [line.rstrip("\n") for line in events.lines if "  exited" in line]
    assert re.search(r"  ended by SIGTERM after \d+s  \(by agent\)$", line)


@pytest.mark.long
async def test_events_json_has_the_daemons_notifications(tmp_path, path):
    async with running(tmp_path, path, "events", "--json") as events:
        before = await wait_until_subscribed(events, path)
        async with agent_at(path) as agent:
            one = await agent.create_ended("echo 'a\n\u2028b\x9b31m\u202e'")
        await poll(lambda: "disconnected" in events.out or None)
    found = [json.loads(line) for line in events.lines[before:]]
    assert [one["event"] for one in found] == [
        "connected",
        "created",
        "exited",
        "released",
        "disconnected",
    ]
    assert found[1]["terminal"]["terminalId"] == one
    # The value is unchanged, and its control characters are escaped.
    assert found[1]["terminal"]["command"] == "echo 'a\n\u2028b\x9b31m\u202e'"
    assert not {"\u2028", "\x9b", "\u202e"} & set(events.out)
    assert found[1]["sessionId"] == "session-1"


@pytest.mark.long
async def test_events_fails_when_the_daemon_exits(tmp_path):
    async with daemon(tmp_path) as (process, path), running(tmp_path, path, "events") as events:
        await wait_until_subscribed(events, path)
        process.terminate()
        assert await events.wait() == 1
    assert "is gone" in events.err


@pytest.mark.costly
@pytest.mark.parametrize("option", ["", "--json"])
async def test_events_exits_when_its_pipe_has_no_reader(tmp_path, path, option):
    reader, writer = os.pipe()
    async with running(tmp_path, path, "events", *filter(None, [option]), stdout=writer) as events:
        os.close(writer)
        async with agent_at(path):
            pass
        assert events.process.poll() is None
        os.close(reader)
        assert await events.wait() == 0
    assert events.err == ""


@pytest.mark.long
async def test_head_receives_the_first_line_and_events_exits_with_0(tmp_path, path):
    line = "acpterm events | head -1; echo ${PIPESTATUS[0]}"
    env = command_environment(path, PATH=shim(tmp_path / "bin"))
    with subprocess.Popen(
        ["bash", "-c", line], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as shell:
        try:
            with trio.fail_after(DEADLINE_S):
                while shell.poll() is None:
                    async with agent_at(path):
                        pass
                    await trio.sleep(0.01)
        finally:
            shell.kill()
        assert shell.stdout is not None
        out = shell.stdout.read().splitlines()
    assert len(out) == 2
    assert "connected" in out[0]
    assert out[1] == "0"


@pytest.mark.long
async def test_events_starts_a_daemon_when_none_runs(tmp_path):
    path = str(tmp_path / "run" / "agent.sock")
    async with running(tmp_path, path, "events") as events:
        await poll(lambda: os.path.exists(path) or None)
        status, out, err = await run(path, "shutdown")
        assert (status, err) == (0, "")
        assert re.fullmatch(r"ended the daemon \(pid \d+\) and 0 terminals that ran\n", out)
        assert await events.wait() == 1
