"""Directories that are gone, or that are not UTF-8."""

import base64
import os

import pytest
import trio

from acpterm.host.launch import validation
from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from tests.support.agent import agent_of
from tests.support.asking import asking_settings
from tests.support.cases import each_case
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_here, host_here
from tests.support.polling import poll
from tests.support.user import user_of

ODD = b"caf\xe9"
SHOWN = "caf\N{REPLACEMENT CHARACTER}"


async def own(agent, method, **params):
    return await agent.request(f"_acpterm/{method}", {"sessionId": agent.session, **params})


async def create(agent, command, **params):
    made = await agent.request(
        "terminal/create", {"sessionId": agent.session, "command": command, **params}
    )
    return made["terminalId"], made["_meta"]["acpterm"]


async def printed(agent, terminal):
    await agent.wait(terminal)
    return (await agent.output(terminal))["output"]


def as_bytes(path):
    return base64.b64encode(os.fsencode(path)).decode()


# A session's directory that is gone.


async def test_session_whose_directory_is_gone_uses_the_nearest_parent_and_says_so(tmp_path):
    gone = tmp_path / "a" / "b"
    gone.mkdir(parents=True)
    async with host_here() as host, agent_of(host) as agent, user_of(host) as user:
        await own(agent, "session/set", cwd=str(gone))
        output, _ = await agent.run("pwd")
        assert output == f"{gone}\n"
        gone.rmdir()
        gone.parent.rmdir()
        for _ in range(2):
            terminal, meta = await create(agent, 'pwd; echo "$PWD"')
            assert (meta["cwd"], meta["cwdGone"]) == (str(tmp_path), str(gone))
            assert await printed(agent, terminal) == f"{tmp_path}\n" * 2
        info = await user.terminal_request("get", terminal)
        assert (info["cwd"], info["cwdGone"]) == (str(tmp_path), str(gone))
        gone.mkdir(parents=True)
        terminal, meta = await create(agent, "pwd")
        assert not {"cwd", "cwdGone"} & meta.keys()
        assert await printed(agent, terminal) == f"{gone}\n"


async def test_directory_that_is_gone_is_an_error_if_the_request_names_it(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    async with agent_here() as agent:
        # It is also an error if it was valid a moment ago.
        for named in {"cwd": str(gone)}, {"_meta": {"acpterm": {"cwdBytes": as_bytes(gone)}}}:
            await agent.run("true", **named)
            gone.rmdir()
            with pytest.raises(RpcError, match="gone' does not exist") as caught:
                await agent.run("pwd", **named)
            assert caught.value.code == INVALID_PARAMS
            gone.mkdir()


async def test_file_in_place_of_the_sessions_directory_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    async with agent_here() as agent:
        await own(agent, "session/set", cwd=str(tmp_path / "file"))
        with pytest.raises(RpcError, match="is not a directory"):
            await agent.run("pwd")


async def test_what_is_allowed_in_a_directory_that_is_gone_is_asked_in_its_parent(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()

    async with (
        host_here(**asking_settings(unattended="wait")) as host,
        agent_of(host) as agent,
        user_of(host) as user,
    ):

        async def asked(command):
            """Run a command, allow it for always, and return the directory in the question."""
            params = {"sessionId": agent.session, "command": command}
            id_ = await agent.start("terminal/create", params)
            (question,) = await user.until(lambda: host.guard.approvals.pending)
            answer = {"approvalId": question.id, "decision": "allow", "scope": "always"}
            await user.request("approval/answer", answer)
            await agent.result(id_)
            return question.directory

        await own(agent, "session/set", cwd=str(gone))
        assert await asked("tool one") == str(gone)
        with trio.fail_after(DEADLINE_S):
            await agent.run("tool two")
        gone.rmdir()
        checked = await own(agent, "command/check", command="tool three")
        assert checked["decision"] == "ask"
        assert await asked("tool three") == str(tmp_path)


# A directory that is not UTF-8.


@pytest.fixture
def odd(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), ODD)
    os.mkdir(path)
    return path


@pytest.mark.parametrize("way", ["daemon", "session", "create"])
async def test_directory_that_is_not_utf8_is_used_and_breaks_no_reply(
    odd, monkeypatch, way, tmp_path
):
    if way == "daemon":
        monkeypatch.chdir(odd)
    shown = f"{tmp_path}/{SHOWN}"
    async with (
        host_here(audit=True, audit_dir=str(tmp_path / "audit")) as host,
        agent_of(host) as agent,
        user_of(host) as user,
    ):
        _, token = await user.open("events")
        await poll(lambda: host.terminals.events.has_subscribers)
        named = {"cwdBytes": as_bytes(odd)} if way != "daemon" else {}
        if way == "session":
            await own(agent, "session/set", **named)
        meta = {"_meta": {"acpterm": named}} if way == "create" else {}
        terminal, _ = await create(agent, 'printf %s "$PWD" | tail -c 4 | od -An -tx1', **meta)
        assert await printed(agent, terminal) == " 63 61 66 e9\n"
        assert await printed(agent, (await create(agent, "pwd", **meta))[0]) == f"{shown}\n"
        assert (await user.terminal_request("get", terminal))["cwd"] == shown
        assert {one["cwd"] for one in await user.list()} == {shown}
        assert (await own(agent, "terminal/get", terminalId=terminal))["cwd"] == shown
        check = named if way == "create" else {}
        assert (await own(agent, "command/check", command="ls", **check))["decision"] == "allow"
        await user.request("status")
        entries = []
        # The log is written some milliseconds later.
        with trio.fail_after(DEADLINE_S):
            while not entries:
                entries = (await user.request("audit/read", {"event": "started"}))["entries"]
        assert SHOWN in str(entries[0])
        await user.until(
            lambda: any(
                one.get("params", {}).get("token") == token and "exited" in str(one)
                for one in user.messages
            )
        )
        if way != "create":
            os.rmdir(odd)
            _, gone = await create(agent, "true")
            assert (gone["cwd"], gone["cwdGone"]) == (str(tmp_path), shown)


@each_case(
    ("named", "words"),
    [
        ("###", "cwdBytes"),
        (as_bytes("relative"), "'relative' is not absolute"),
        (as_bytes("/a\0b"), "holds a NUL character"),
        (as_bytes(b"/no/such/caf\xe9"), "does not exist"),
    ],
)
async def test_invalid_bytes_of_a_directory_are_refused(agent, named, words):
    with pytest.raises(RpcError, match=words) as caught:
        await agent.run("true", _meta={"acpterm": {"cwdBytes": named}})
    assert caught.value.code == INVALID_PARAMS


async def test_valid_directory_is_not_checked_in_a_thread_again(tmp_path, monkeypatch):
    cache = validation.DirectoryCache()
    assert await cache.nearest(str(tmp_path)) == str(tmp_path)
    monkeypatch.setattr(validation, "run_blocking", None)
    await cache.check(str(tmp_path))
