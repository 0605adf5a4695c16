"""Agents whose own client asks the user: only if the setting `mcp_elicitation_approves` is on."""

from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from acpterm.config import Settings
from acpterm.host.open_host import open_host
from acpterm.jsonrpc import INVALID_REQUEST, RESOURCE_NOT_FOUND, RpcError
from acpterm.runtime.exec_context import current
from tests.support.agent import agent_of
from tests.support.asking import asking_settings, ran, recording_script

ASKED = "_acpterm/approval/asked"


@asynccontextmanager
async def asking_host(*, approves: bool, **values):
    settings = asking_settings(**values) | {"mcp_elicitation_approves": approves}
    async with open_host(Settings(**settings), current()) as host:
        yield host


@asynccontextmanager
async def eliciting_agent(host):
    async with agent_of(host) as agent:
        await agent.request(
            "initialize", {"protocolVersion": 1, "_meta": {"acpterm": {"elicits": True}}}
        )
        yield agent


def questions(agent):
    return [m["params"]["approval"] for m in agent.messages if m.get("method") == ASKED]


async def start(agent, command, cwd):
    params = {"sessionId": agent.session, "command": command, "cwd": str(cwd)}
    return await agent.start("terminal/create", params)


async def answer(agent, identifier, **more):
    params = {"approvalId": identifier, "decision": "allow", **more}
    return await agent.request("_acpterm/approval/answer", params)


async def test_agent_gets_no_questions_and_cannot_answer_by_default(tmp_path):
    async with (
        asking_host(approves=False, unattended="wait") as host,
        eliciting_agent(host) as agent,
    ):
        await start(agent, recording_script(tmp_path), tmp_path)
        await agent.request("initialize", {"protocolVersion": 1})
        assert questions(agent) == []
        with pytest.raises(RpcError) as raised:
            await answer(agent, "any")
    assert raised.value.code == INVALID_REQUEST
    assert not ran(tmp_path)


async def test_agent_that_does_not_ask_gets_no_questions(tmp_path):
    async with asking_host(approves=True) as host, agent_of(host) as agent:
        with pytest.raises(RpcError, match="the user cannot be asked"):
            await agent.result(await start(agent, recording_script(tmp_path), tmp_path))
        with pytest.raises(RpcError) as raised:
            await answer(agent, "any")
    assert raised.value.code == INVALID_REQUEST


async def test_answer_of_the_client_allows_one_command_if_the_setting_is_on(tmp_path):
    async with asking_host(approves=True) as host, eliciting_agent(host) as agent:
        script = recording_script(tmp_path)
        for count in (1, 2):
            id_ = await start(agent, f"{script} run", tmp_path)
            found = await agent.until(lambda count=count: questions(agent)[count - 1 :])
            # An answer for always counts once.
            await answer(agent, found[0]["approvalId"], scope="always")
            created = await agent.result(id_)
            await agent.wait(created["terminalId"])
        assert ran(tmp_path) == "run\nrun\n"


async def test_client_cannot_answer_the_questions_of_another_connection(tmp_path):
    async with (
        asking_host(approves=True) as host,
        eliciting_agent(host) as asked,
        eliciting_agent(host) as other,
    ):
        await start(asked, recording_script(tmp_path), tmp_path)
        (question,) = await asked.until(lambda: questions(asked))
        with pytest.raises(RpcError) as raised:
            await answer(other, question["approvalId"])
        await trio.testing.wait_all_tasks_blocked()
        assert questions(other) == []
    assert raised.value.code == RESOURCE_NOT_FOUND
    assert not ran(tmp_path)


async def test_client_that_answers_has_no_other_right_of_an_approver(tmp_path):
    async with asking_host(approves=True) as host, eliciting_agent(host) as agent:
        with pytest.raises(RpcError) as raised:
            await agent.request(
                "_acpterm/session/open", {"sessionId": agent.session, "cwd": str(tmp_path)}
            )
    assert raised.value.code == INVALID_REQUEST
