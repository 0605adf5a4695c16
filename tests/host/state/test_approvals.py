"""A daemon's worker is killed while a question is pending: the question survives."""

import os
import signal
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from acpterm.jsonrpc import RpcError
from tests.support.agent import agent_on
from tests.support.asking import TIMEOUT_S, asking_variables, ran, recording_script
from tests.support.daemon import daemon
from tests.support.polling import poll
from tests.support.processes import environment


def asking_daemon(tmp_path, *, unattended="wait", dangerous_timeout=TIMEOUT_S, **settings):
    values = {"unattended": unattended, "dangerous_timeout": dangerous_timeout}
    env = environment(**asking_variables(tmp_path, **values))
    return daemon(tmp_path, env=env, terminate=True, settings=settings)


def create(tmp_path, what="wait-first"):
    command = f"{recording_script(tmp_path)} {what}"
    return {"sessionId": "session-1", "command": command, "cwd": str(tmp_path)}


async def pending(daemon, count=1):
    """Wait until that number of questions is pending, and return them."""
    async with daemon.user() as user:
        found = []

        async def listed():
            found[:] = (await user.request("approval/list"))["approvals"]
            return len(found) == count

        while not await listed():
            pass
    return found


async def answer(daemon, question, decision="allow", **more):
    params = {"approvalId": question["approvalId"], "decision": decision, **more}
    async with daemon.user() as user:
        return await user.request("approval/answer", params)


@pytest.mark.long
async def test_question_is_continued_by_the_repeated_request(tmp_path):
    async with asking_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, own):
            id_ = await agent.start("terminal/create", create(tmp_path))
            (before,) = await pending(daemon)
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _):
            assert await pending(daemon) == [before]
            await agent.start("terminal/create", create(tmp_path), id_)
            assert await pending(daemon) == [before]
            await answer(daemon, before)
            assert (await agent.result(id_))["terminalId"]
            await poll(lambda: ran(tmp_path) == "wait-first\n")
            assert await pending(daemon, 0) == []
            # The record of the question is gone: the next worker has no question.
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]):
            assert await pending(daemon, 0) == []


@pytest.mark.long
@pytest.mark.parametrize("dies_again", [False, True])
async def test_answer_given_before_the_request_is_repeated_counts(tmp_path, dies_again):
    async with asking_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, own):
            id_ = await agent.start("terminal/create", create(tmp_path))
            (question,) = await pending(daemon)
            await daemon.kill_worker()
        await answer(daemon, question)
        if dies_again:
            await daemon.kill_worker()
        assert ran(tmp_path) == ""
        async with daemon.agent(own["resume"]) as (agent, _):
            assert await agent.repeat(id_, "terminal/create", create(tmp_path))
            await poll(lambda: ran(tmp_path) == "wait-first\n")


@pytest.mark.long
async def test_answer_does_not_count_for_another_command_with_the_same_id(tmp_path):
    async with asking_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, own):
            id_ = await agent.start("terminal/create", create(tmp_path))
            (question,) = await pending(daemon)
            await daemon.kill_worker()
        await answer(daemon, question)
        async with daemon.agent(own["resume"]) as (agent, _):
            other = create(tmp_path, "wait-first other")
            await agent.start("terminal/create", other, id_)
            (again,) = await pending(daemon)
            assert again["command"] == other["command"]
            assert again["approvalId"] != question["approvalId"]
            await answer(daemon, again, "deny")
            with pytest.raises(RpcError, match="the user has refused"):
                await agent.result(id_)
            assert ran(tmp_path) == ""


@pytest.mark.long
async def test_question_is_withdrawn_when_its_connection_is_given_up(tmp_path):
    async with asking_daemon(tmp_path, resume_timeout=0.5) as daemon:
        async with daemon.agent() as (agent, _):
            await agent.start("terminal/create", create(tmp_path))
            await pending(daemon)
            await daemon.kill_worker()
        assert await pending(daemon, 0) == []
        await daemon.kill_worker()
        assert await pending(daemon, 0) == []


@pytest.mark.long
async def test_deadline_of_a_question_is_kept(tmp_path):
    # The deadline is late enough that the question is still pending when it is looked for.
    async with asking_daemon(tmp_path, dangerous_timeout=10.0) as daemon:
        async with daemon.agent() as (agent, own):
            params = {**create(tmp_path), "command": f"printf soon > {tmp_path}/ran"}
            id_ = await agent.start("terminal/create", params)
            await pending(daemon)
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _):
            with pytest.raises(RpcError, match="not answered in time"):
                await agent.repeat(id_, "terminal/create", params)


@pytest.mark.long
async def test_approver_stays_one_and_gets_its_pending_questions_again(tmp_path):
    async with asking_daemon(tmp_path, unattended="refuse") as daemon:
        async with daemon.user() as user:
            token = (await user.request("approver", {"kind": "editor"}))["token"]
            worker = (await user.request("status"))["workerPid"]
        params = create(tmp_path, "ask-first")
        # From this process: the token is only for the process that has requested it, and no other
        # process can resume an approver's connection.
        async with agent_on(await trio.open_unix_socket(daemon.path)) as agent:
            initialize = {"protocolVersion": 1, "_meta": {"acpterm": {"approver": token}}}
            own = (await agent.request("initialize", initialize))["_meta"]["acpterm"]
            assert own["approver"] is True
            id_ = await agent.start("terminal/create", params)
            question = (await agent.until(partial(notified, agent, "asked")))["approval"]
            os.kill(worker, signal.SIGKILL)
            await agent.closed.wait()
        async with resumed_here(daemon, own["resume"]) as agent:
            again = await agent.until(partial(notified, agent, "pending"))
            assert [one["approvalId"] for one in again["approvals"]] == [question["approvalId"]]
            await agent.start("terminal/create", params, id_)
            answered = {"approvalId": question["approvalId"], "decision": "allow"}
            answered["scope"] = "always"
            await agent.request("_acpterm/approval/answer", answered)
            assert (await agent.result(id_))["terminalId"]
            await daemon.kill_worker()
        # The session remembers the decision, too.
        async with resumed_here(daemon, own["resume"]) as agent:
            await agent.create(f"{params['command']} again")


@asynccontextmanager
async def resumed_here(daemon, secret):
    """Resume the lost connection with this secret, in this process; yield the agent."""
    async with agent_on(await trio.open_unix_socket(daemon.path)) as agent:
        initialize = {"protocolVersion": 1, "_meta": {"acpterm": {"resume": secret}}}
        own = (await agent.request("initialize", initialize))["_meta"]["acpterm"]
        assert own["resumed"] is True
        yield agent


def notified(agent, name):
    method = f"_acpterm/approval/{name}"
    found = [m["params"] for m in agent.messages if m.get("method") == method]
    return found[0] if found else None


@pytest.mark.long
async def test_stolen_token_is_worthless_in_another_process(tmp_path):
    async with asking_daemon(tmp_path, unattended="refuse") as daemon, daemon.user() as user:
        token = (await user.request("approver", {"kind": "editor"}))["token"]
        initialize = {"protocolVersion": 1, "_meta": {"acpterm": {"approver": token}}}
        # This agent connects from another process.
        async with daemon.agent() as (agent, _):
            own = (await agent.request("initialize", initialize))["_meta"]["acpterm"]
            assert own["approver"] is False
            with pytest.raises(RpcError, match="user cannot be asked"):
                await agent.create("echo ask-first")


@pytest.mark.long
async def test_question_without_an_approver_waits_for_the_user_to_reconnect(tmp_path):
    async with asking_daemon(tmp_path, unattended="refuse") as daemon:
        params = create(tmp_path, "ask-first")
        async with daemon.agent() as (agent, own), daemon.user() as user:
            await user.open("approval/subscribe")
            await user.request("status")
            id_ = await agent.start("terminal/create", params)
            (question,) = await pending(daemon)
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _):
            await agent.start("terminal/create", params, id_)
            await agent.request("_acpterm/session/set", {"sessionId": "session-1", "cwd": "/"})
            assert not agent.has_response(id_)
            await answer(daemon, question)
            assert (await agent.result(id_))["terminalId"]


@pytest.mark.long
async def test_question_of_a_check_is_continued_by_the_repeated_request(tmp_path):
    params = {"sessionId": "session-1", "command": "wait-first", "cwd": str(tmp_path), "ask": True}
    async with asking_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, own):
            id_ = await agent.start("_acpterm/command/check", params)
            (before,) = await pending(daemon)
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _):
            assert await pending(daemon) == [before]
            await agent.start("_acpterm/command/check", params, id_)
            await answer(daemon, before)
            assert (await agent.result(id_))["decision"] == "allow"
            assert await pending(daemon, 0) == []


@pytest.mark.long
async def test_requested_profile_and_names_survive_the_worker(tmp_path):
    async with asking_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, own):
            meta = {"acpterm": {"profile": "pool"}}
            await agent.request("initialize", {"protocolVersion": 1, "_meta": meta})
            terminal = await agent.create("env", own={"name": "term-#"})
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _):
            with pytest.raises(RpcError, match="Command blocked for security"):
                await agent.create("sudo true")
            found = await agent.request("_acpterm/terminal/get", agent.of("term-1"))
            assert found["terminalId"] == terminal
            await agent.start("_acpterm/events", {"sessionId": agent.session, "token": "t"})
            created = await agent.create("true", own={"name": "term-#"})
            assert (await agent.request("_acpterm/terminal/get", agent.of("term-2")))[
                "terminalId"
            ] == created
            (event, *_) = await agent.until(
                lambda: [m for m in agent.messages if m.get("method") == "_acpterm/event"]
            )
            assert event["params"]["terminal"]["terminalId"] == created
