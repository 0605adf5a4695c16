"""What an agent can do with its terminals by name: list, describe, read, and give to the user."""

import shutil
import time

import psutil
import pytest
import trio

from acpterm.host.agent.connection import AgentConnection
from acpterm.jsonrpc import RpcError
from acpterm.pty.input_wait import detect
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal
from tests.support.agent import agent_of
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_here, host_here
from tests.support.polling import poll
from tests.support.user import user_of

ASKS = "printf 'name? '; read name; echo \"hello $name\"; exec sleep 60"
UNKNOWN = -32002
INVALID = -32602


async def create(agent, command="read x", **own):
    """Create a terminal; return its id and its name. `own` is `_meta.acpterm`."""
    params = {"sessionId": agent.session, "command": command, "_meta": {"acpterm": own}}
    result = await agent.request("terminal/create", params)
    return result["terminalId"], result["_meta"]["acpterm"].get("name")


async def own(agent, method, terminal, **more):
    return await agent.request(f"_acpterm/terminal/{method}", agent.of(terminal, **more))


async def listed(agent, **more):
    params = {"sessionId": agent.session, **more}
    return (await agent.request("_acpterm/terminal/list", params))["terminals"]


async def refused(code, says, method, *arguments, **more):
    with pytest.raises(RpcError, match=says) as caught:
        await method(*arguments, **more)
    assert caught.value.code == code


# Names


async def test_terminal_has_the_name_that_its_agent_gives_it(agent, user):
    terminal, name = await create(agent, name="server")
    assert name == "server"
    assert (await user.terminal_request("get", "server"))["terminalId"] == terminal
    assert (await create(agent))[1] is None


async def test_number_of_a_name_is_higher_than_all_before(agent, user):
    await user.request("terminal/create", {"command": "true", "name": "term-2"})
    await user.terminal_request("wait", "term-2")
    assert (await create(agent, name="term-#"))[1] == "term-3"
    await agent.release("term-3")
    assert (await create(agent, name="term-#"))[1] == "term-4"
    assert (await create(agent, name="#"))[1] == "#"


async def test_creates_that_race_for_a_name_get_different_ones(agent):
    requests = [
        await agent.start(
            "terminal/create",
            {
                "sessionId": agent.session,
                "command": "read x",
                "_meta": {"acpterm": {"name": "term-#"}},
            },
        )
        for _ in range(8)
    ]
    names = {(await agent.result(one))["_meta"]["acpterm"]["name"] for one in requests}
    assert names == {f"term-{number}" for number in range(1, 9)}


async def test_name_that_is_taken_or_invalid_is_refused(agent):
    params = {
        "sessionId": agent.session,
        "command": "read x",
        "_meta": {"acpterm": {"name": "one"}},
    }
    first, second = [await agent.start("terminal/create", params) for _ in range(2)]
    await agent.result(first)
    await refused(INVALID, "'one' runs", agent.result, second)
    await refused(INVALID, "name '@last'", create, agent, name="@last")
    await refused(INVALID, "name 'term_#'", create, agent, name="term_#")
    assert len(await listed(agent)) == 1


async def test_name_of_a_command_that_was_not_started_is_free(agent, tmp_path):
    with pytest.raises(RpcError, match="cwd"):
        await agent.create("true", cwd=str(tmp_path / "none"), own={"name": "one"})
    assert (await create(agent, name="one"))[1] == "one"


async def test_name_can_be_used_instead_of_the_id(agent):
    terminal, _ = await create(agent, ASKS, name="ask")
    await agent.until_output("ask", "name?")
    await agent.type("ask", "Ada\n")
    assert "hello Ada" in await agent.until_output("ask", "hello")
    assert (await own(agent, "get", "ask"))["terminalId"] == terminal
    assert "hello Ada" in (await own(agent, "read", "ask"))["data"]
    await agent.kill("ask")
    assert (await agent.wait("ask"))["signal"] == "SIGTERM"
    await agent.release("ask")
    await refused(UNKNOWN, "'ask'", agent.output, "ask")
    await refused(UNKNOWN, "has been released", agent.output, terminal)


async def test_name_of_another_session_does_not_exist(host, agent):
    async with agent_of(host, "other") as other:
        await create(other, name="theirs")
        agent.session = other.session
        for method in ("get", "read", "screen", "promote"):
            await refused(UNKNOWN, "no terminal 'theirs'", own, agent, method, "theirs")
        await refused(UNKNOWN, "no terminal 'theirs'", agent.kill, "theirs")
        await refused(UNKNOWN, "no terminal 'theirs'", agent.release, "theirs")


# List and get


async def test_list_has_only_the_terminals_of_the_session(host, agent):
    async with agent_of(host) as other, user_of(host) as user:
        terminal, _ = await create(agent, name="mine")
        await create(other)
        await user.request("terminal/create", {"command": "read x"})
        (found,) = await listed(agent)
        assert (found["terminalId"], found["name"]) == (terminal, "mine")
        assert await listed(agent, sessionId="none") == []
        agent.session = "session-2"
        await create(agent)
        assert [one["sessionId"] for one in await listed(agent)] == ["session-2"]


async def test_description_for_an_agent_lacks_what_concerns_the_user(tmp_path):
    settings = {"record": True, "record_dir": str(tmp_path / "recordings")}
    async with host_here(**settings) as host, agent_of(host) as agent, user_of(host) as user:
        terminal, _ = await create(agent)
        await user.open("terminal/attach", terminalId=terminal, cols=80, rows=24)
        users = await user.terminal_request("get", terminal)
        with trio.fail_after(DEADLINE_S):
            while (users := await user.terminal_request("get", terminal))["attached"] == 0:
                await trio.sleep(0.005)
        assert None not in (users["connection"], users["recording"])
        found = await own(agent, "get", terminal)
        same = {"connection": None, "recording": None, "attached": 0}
        varies = {"waitingForInput": None, "waitingProgram": None}
        assert {**found, **varies} == {**users, **same, **varies}
        assert {**(await listed(agent))[0], **varies} == {**found, **varies}


# Screen


async def test_screen_has_its_rows_and_says_which_screen_is_shown(agent, user):
    command = "printf 'one\\033[1mtwo'; read x; printf '\\033[?1049hfull'; read x"
    terminal, _ = await create(agent, command, cols=20, rows=4, name="app")
    await agent.until_output(terminal, "two")
    found = await own(agent, "screen", "app")
    assert found["rows"][0] == "one\x1b[0;1mtwo\x1b[m"
    assert (found["cols"], found["lines"], found["cursor"]) == (20, 4, [6, 0])
    assert (found["alternate"], found["position"]) == (False, 10)
    assert await user.terminal_request("screen", terminal) == found
    await agent.type(terminal, "\n")
    await agent.until_output(terminal, "full")
    assert (await own(agent, "screen", "app"))["alternate"] is True


# Promote


async def test_promoted_terminal_is_the_users_and_can_only_be_read(host, agent, user):
    terminal, _ = await create(agent, ASKS, name="ask", timeoutMs=3_600_000)
    _, token = await user.open("events")
    await agent.until_output(terminal, "name?")
    for _ in range(2):
        assert (await own(agent, "promote", "ask"))["owner"] == "user"
    await user.until(lambda: promotions(user, token))
    assert [one["by"] for one in promotions(user, token)] == ["agent"]
    for method, more in (
        ("terminal/kill", {}),
        ("_acpterm/terminal/write", {"data": "x"}),
        ("_acpterm/terminal/resize", {"cols": 9, "rows": 9}),
        ("_acpterm/terminal/signal", {"signal": "SIGINT"}),
    ):
        await refused(INVALID, "the user owns it", agent.request, method, agent.of("ask", **more))
    assert "name?" in (await own(agent, "read", "ask"))["data"]
    assert (await own(agent, "screen", "ask"))["rows"][0] == "name?"
    assert [one["owner"] for one in await listed(agent)] == ["user"]
    assert host.terminals.registry.get(terminal).record.lifetime_end is None
    await agent.close()
    with trio.fail_after(DEADLINE_S):
        while await user.request("session/list") != {"sessions": []}:
            await trio.sleep(0.005)
    assert (await user.terminal_request("get", terminal))["state"] == "running"


def promotions(user, token):
    """Return the received events `promoted`; others depend on the time, such as `waiting`."""
    events = [one["params"] for one in user.by_token[token]]
    return [one for one in events if one["event"] == "promoted"]


async def test_terminal_whose_program_has_exited_can_be_promoted(agent, user):
    terminal = await agent.create("echo done")
    await agent.wait(terminal)
    found = await own(agent, "promote", terminal)
    assert (found["owner"], found["state"]) == ("user", "exited")
    assert "done" in (await agent.output(terminal))["output"]
    await agent.release(terminal)
    assert (await user.terminal_request("get", terminal))["owner"] == "user"


async def test_terminal_that_was_released_cannot_be_promoted(agent):
    terminal = await agent.create("read x")
    await agent.release(terminal)
    await refused(UNKNOWN, "has been released", own, agent, "promote", terminal)


async def test_promotion_prevents_the_release_after_a_cancelled_turn(host, agent):
    terminal = await agent.create("trap '' TERM; echo ready; read x; exec sleep 60")
    await agent.until_output(terminal, "ready")
    await agent.notify("session/cancel", {"sessionId": agent.session})
    assert (await own(agent, "promote", terminal))["owner"] == "user"
    assert host.terminals.registry.get(terminal).record.release_at is None


# Waiting for input


@pytest.mark.parametrize("socket", ["agent", "user"])
async def test_read_until_input_ends_when_the_program_waits_for_input(agent, user, socket):
    terminal = await agent.create(ASKS)
    await agent.until_output(terminal, "name?")

    async def read(**more):
        if socket == "agent":
            return await own(agent, "read", terminal, **more)
        return await user.terminal_request("read", terminal, **more)

    began = time.monotonic()
    found = await read(since=6, waitMs=60_000, untilInput=True)
    assert (found["data"], found["position"]) == ("", 6)
    assert found["waitingForInput"] is True
    assert time.monotonic() - began < DEADLINE_S
    assert (await read(since=0, untilInput=True))["data"] == "name? "


@pytest.mark.parametrize(
    ("program", "line", "expected"),
    [
        ("vim", "vim -u NONE COMMIT_EDITMSG", "vim waits on COMMIT_EDITMSG"),
        (
            "git",
            "git init -q . && git -c user.name=n -c user.email=e commit --allow-empty",
            "vi waits on COMMIT_EDITMSG",
        ),
        ("less", "seq 200 | less", "less waits"),
        ("sh", "exec sh -c 'read x'", "sh waits for input"),
    ],
)
async def test_program_that_waits_is_named(tmp_path, monkeypatch, program, line, expected):
    if not shutil.which(program) or not shutil.which("vi"):
        pytest.skip(f"{program} or vi is not installed")
    monkeypatch.setenv("EDITOR", "vi -u NONE")
    monkeypatch.setenv("HOME", str(tmp_path))
    async with (
        host_here(disable_editors=False) as host,
        agent_of(host) as agent,
        user_of(host) as user,
    ):
        terminal = await agent.create(line, cwd=str(tmp_path))
        found = {"position": 0}
        with trio.fail_after(DEADLINE_S):
            while found.get("waitingProgram") != expected:
                found = await agent.read_from(
                    terminal, since=found["position"], waitMs=1000, untilInput=True
                )
        own_meta = (await agent.output(terminal))["_meta"]["acpterm"]
        assert own_meta == {"waitingForInput": True, "waitingProgram": expected}
        info = await user.terminal_request("get", terminal)
        # For the user, an editor and a pager ask nothing.
        assert (info["waitingForInput"], info["waitingProgram"]) == (
            expected.startswith("sh "),
            expected,
        )


async def test_read_until_input_ends_with_output_and_at_the_exit(tmp_path):
    go = tmp_path / "go"
    async with agent_here() as agent:
        terminal = await agent.create(
            "stty -echo; printf go; read x; echo more; "
            f"until [ -e {go} ]; do sleep 0.01; done; exit 3"
        )
        await agent.until_output(terminal, "go")
        request = await agent.start(
            "_acpterm/terminal/read",
            agent.of(terminal, since=2, waitMs=60_000, untilInput=True, format="screen"),
        )
        await agent.type(terminal, "\n")
        with trio.fail_after(DEADLINE_S):
            found = await agent.result(request)
        assert "exitStatus" not in found
        position, text = 2, found["data"]
        with trio.fail_after(DEADLINE_S):
            while "exitStatus" not in found:
                if "more" in text:
                    go.touch()
                found = await agent.read_from(
                    terminal, since=position, waitMs=60_000, untilInput=True
                )
                position = found["position"]
                text += found["data"]
        assert "waitingForInput" not in found


async def test_program_does_not_wait_for_input_before_its_output_is_consumed(host, agent, tmp_path):
    go = tmp_path / "go"
    terminal = await agent.create(f"until [ -e {go} ]; do sleep 0.01; done; printf done; read x")
    pty = host.terminals.registry.get(terminal).terminal
    keeper = psutil.Process(psutil.Process(pty.pid).ppid())
    keeper.suspend()
    try:
        go.touch()
        await poll(lambda: detect.waiting_process(pty._master.fd))
        assert pty.waiting_process() == 0
        request = await agent.start(
            "_acpterm/terminal/read",
            agent.of(terminal, since=0, waitMs=60_000, untilInput=True),
        )
    finally:
        keeper.resume()
    assert (await agent.result(request))["data"] == "done"
    await poll(pty.waiting_process)


async def test_read_until_input_goes_on_while_the_program_works(agent):
    terminal = await agent.create("printf working; exec sleep 60")
    await agent.until_output(terminal, "working")
    began = time.monotonic()
    found = await agent.read_from(terminal, since=7, waitMs=400, untilInput=True)
    assert time.monotonic() - began >= 0.4
    assert found["waitingForInput"] is False


async def test_input_is_checked_rarely_and_only_while_a_read_waits_for_it(monkeypatch):
    checks = []
    async with host_here() as host, agent_of(host) as agent:
        terminal = await agent.create("printf working; exec sleep 60")
        await agent.until_output(terminal, "working")
        pty = host.terminals.registry.get(terminal).terminal
        monkeypatch.setattr(Terminal, "waiting_process", lambda _: int(bool(checks.append(1))))
        await poll(lambda: time.monotonic() - pty.timeline.last > 0.2)
        await agent.read_from(terminal, since=7, waitMs=700)
        assert len(checks) == 1  # for the response
        checks.clear()
        await agent.read_from(terminal, since=7, waitMs=700, untilInput=True)
        assert 2 <= len(checks) <= 5


# Terminals of the user


@pytest.mark.long
async def test_agent_can_read_the_users_terminals_only_if_the_user_allows_it():
    for allowed in (False, True):
        async with (
            host_here(agents_read_user_terminals=allowed) as host,
            agent_of(host) as agent,
            agent_of(host) as other,
            user_of(host) as user,
        ):
            command = {"command": "echo mine; read x", "name": "build"}
            terminal = (await user.request("terminal/create", command))["terminalId"]
            theirs, _ = await create(other, name="theirs")
            promoted, _ = await create(other)
            await own(other, "promote", promoted)
            for name in (theirs, "theirs", promoted):
                for method in ("get", "read", "screen"):
                    await refused(UNKNOWN, "no terminal", own, agent, method, name)
            if not allowed:
                assert await listed(agent) == []
                for method in ("get", "read", "screen"):
                    await refused(UNKNOWN, "no terminal", own, agent, method, terminal)
                continue
            (found,) = await listed(agent)
            assert (found["terminalId"], found["owner"]) == (terminal, "user")
            assert await listed(agent, user=False) == []
            for name in (terminal, "build"):
                assert (await own(agent, "get", name))["command"] == "echo mine; read x"
                read = await own(agent, "read", name, waitMs=60_000)
                assert read["data"].startswith("mine")
                assert (await own(agent, "screen", name))["rows"][0] == "mine"


async def test_own_terminal_is_found_before_one_of_the_user_with_the_same_name():
    async with (
        host_here(agents_read_user_terminals=True) as host,
        agent_of(host) as agent,
        user_of(host) as user,
    ):
        await user.request("terminal/create", {"command": "true", "name": "build"})
        await user.terminal_request("wait", "build")
        terminal, _ = await create(agent, name="build")
        assert (await own(agent, "get", "build"))["terminalId"] == terminal


async def test_list_has_no_terminal_that_is_released_meanwhile(host, agent, monkeypatch):
    first, second = [await agent.create("read x") for _ in range(2)]
    describe = AgentConnection.info

    def describe_and_release(connection, entry):
        info = describe(connection, entry)
        connection.release(connection.session(agent.session), entry.id, EndedBy.AGENT)
        return info

    monkeypatch.setattr(AgentConnection, "info", describe_and_release)
    params = {"sessionId": agent.session}
    assert (await agent.request("_acpterm/terminal/list", params))["terminals"] == []
    assert not {first, second} & {entry.id for entry in host.terminals.registry}
