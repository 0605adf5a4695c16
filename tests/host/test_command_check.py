"""`_acpterm/command/check`: a command is judged, and the user asked, as for a create."""

import json
from functools import partial

import pytest

from acpterm.config import Settings
from acpterm.host.open_host import open_host
from acpterm.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, REQUEST_CANCELLED, RpcError
from acpterm.runtime.exec_context import current
from tests.host.test_approvals import (
    answer,
    approver_of,
    asked,
    asking_host,
    error_of,
    pending,
    start,
)
from tests.support.agent import agent_of
from tests.support.cases import each_case
from tests.support.hosts import agent_here
from tests.support.user import user_of

METHOD = "_acpterm/command/check"


def params_of(agent, command, **more):
    return {"sessionId": agent.session, "command": command, **more}


async def check(agent, command, **more):
    return await agent.request(METHOD, params_of(agent, command, **more))


async def start_check(agent, command, **more):
    return await agent.start(METHOD, params_of(agent, command, ask=True, **more))


async def refused(agent, command, **more):
    with pytest.raises(RpcError) as raised:
        await check(agent, command, **more)
    return raised.value


async def test_judgement_has_level_decision_and_parts():
    async with agent_here(rules="/dev/null") as agent:
        assert await check(agent, "ls | grep x") == {
            "level": "safe",
            "decision": "allow",
            "parts": [
                {"words": ["ls"], "level": "safe", "reason": ""},
                {"words": ["grep", "x"], "level": "safe", "reason": ""},
            ],
            "profile": "guarded",
        }
        found = await check(agent, "ls && rm -rf x")
        assert (found["level"], found["decision"]) == ("dangerous", "ask")
        assert found["reason"]
        assert (await check(agent, "rm", args=["-r", "x"]))["decision"] == "ask"
        # Nothing has been started.
        assert await agent.request("_acpterm/terminal/list", {"sessionId": agent.session}) == {
            "terminals": []
        }


async def test_judgement_names_the_rule(tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\npattern = ["git", "push"]\ndecision = "deny"\nreason = "no"\n')
    async with agent_here(rules=str(rules)) as agent:
        found = await check(agent, "git push origin")
        assert (found["decision"], found["reason"]) == ("deny", "no")
        assert "git push" in found["rule"]
        error = await refused(agent, "git push origin", ask=True)
        assert error.code == INVALID_REQUEST
        create = await agent.start("terminal/create", params_of(agent, "git push origin"))
        assert error.message == (await error_of(agent, create)).message


async def test_profile_with_short_messages_gives_no_reasons_for_a_denial():
    async with agent_here(profile="pool", rules="/dev/null") as agent:
        found = await check(agent, "sudo true")
        assert (found["decision"], found["profile"]) == ("deny", "pool")
        assert found["reason"] == "Command blocked for security reasons"
        assert "rule" not in found
        assert {part["reason"] for part in found["parts"]} == {""}
        error = await refused(agent, "sudo true", ask=True)
        assert error.message == "Command blocked for security reasons"


async def test_profile_with_short_messages_gives_no_reasons_for_a_refused_question():
    blocked = "Command blocked for security reasons"
    async with asking_host(short_messages=True) as host, agent_of(host) as agent:
        assert (await refused(agent, "echo one", ask=True)).message == blocked
        long = (await refused(agent, f"echo {'x' * 20_000}", ask=True)).message
        assert long.startswith(f"{blocked}, and its 20005 characters are too many")
    async with asking_host(short_messages=True) as host, approver_of(host) as agent:
        id_ = await start_check(agent, "echo one")
        await answer(agent, await asked(agent), "deny", reason="not now")
        # These are the user's own words, which are meant for the agent.
        assert (await error_of(agent, id_)).message == "the user has refused the command: not now"
    async with (
        asking_host(short_messages=True, unknown_timeout=0.1) as host,
        approver_of(host) as agent,
    ):
        assert (await refused(agent, "echo one", ask=True)).message == blocked


async def test_check_is_not_limited_in_number():
    async with agent_here(profile="pool", rules="/dev/null") as agent:
        for _ in range(10):
            assert (await check(agent, "true"))["decision"] == "allow"
        await agent.create("true")


@each_case(
    "more", [{"cwd": "src"}, {"command": ""}, {"args": [1]}, {"ask": "yes"}, {"command": "a\0b"}]
)
async def test_invalid_params_are_refused(agent, more):
    assert (await refused(agent, **{"command": "ls", **more})).code == INVALID_PARAMS


async def test_user_is_asked_only_if_the_request_says_so():
    async with asking_host() as host, approver_of(host) as agent:
        assert (await check(agent, "echo one"))["decision"] == "ask"
        assert pending(host) == []
        assert (await check(agent, "true", ask=True))["decision"] == "allow"
        id_ = await start_check(agent, "echo one", cwd="/tmp")
        question = await asked(agent)
        assert (question["command"], question["cwd"]) == ("echo one", "/tmp")
        assert not agent.has_response(id_)
        await answer(agent, question)
        found = await agent.result(id_)
        assert (found["decision"], found["level"]) == ("allow", "unknown")


async def test_answer_for_always_is_for_creates_too():
    async with asking_host() as host, approver_of(host) as agent:
        id_ = await start_check(agent, "echo one")
        await answer(agent, await asked(agent), scope="always")
        await agent.result(id_)
        await agent.create("echo two")
        assert (await check(agent, "echo three", ask=True))["decision"] == "allow"


async def test_refused_check_has_the_error_of_a_create():
    async with asking_host() as host, approver_of(host) as agent:
        messages = []
        for begin in (start_check, start):
            id_ = await begin(agent, "echo one")
            question = await asked(agent, len(messages) + 1)
            await answer(agent, question, "deny", reason="not now")
            error = await error_of(agent, id_)
            messages.append((error.code, error.message))
        assert messages[0] == messages[1]
        assert "the user has refused the command: not now" in messages[0][1]


async def test_check_without_anybody_to_ask_is_refused():
    async with asking_host() as host, agent_of(host) as agent:
        assert "user cannot be asked" in (await refused(agent, "echo one", ask=True)).message


@pytest.mark.parametrize("what", ["request", "turn"])
async def test_cancelled_check_withdraws_its_question(what):
    async with asking_host() as host, approver_of(host) as agent:
        id_ = await start_check(agent, "echo one")
        await asked(agent)
        if what == "request":
            await agent.cancel(id_)
        else:
            await agent.notify("session/cancel", {"sessionId": agent.session})
        assert (await error_of(agent, id_)).code == REQUEST_CANCELLED
        assert pending(host) == []


@pytest.mark.long
async def test_question_of_a_check_stays_when_the_connection_is_resumed():
    async with (
        asking_host(unattended="wait") as host,
        user_of(host) as user,
        agent_of(host) as lost,
    ):
        secret = (await lost.initialize())["resume"]
        id_ = await start_check(lost, "echo one")
        (question,) = await user.until(partial(pending, host))
        async with agent_of(host) as agent:
            assert (await agent.initialize(secret))["resumed"] is True
            await agent.start(METHOD, params_of(agent, "echo one", ask=True), id_)
            await lost.closed.wait()
            assert pending(host) == [question]
            await answer(user, {"approvalId": question.id})
            assert (await agent.result(id_))["decision"] == "allow"
            assert host.guard.approval_records._ids == {}


@pytest.mark.long
async def test_answer_to_a_check_does_not_count_for_a_create_with_the_same_id():
    async with (
        asking_host(unattended="wait") as host,
        user_of(host) as user,
        agent_of(host) as lost,
    ):
        secret = (await lost.initialize())["resume"]
        id_ = await start_check(lost, "echo one")
        (question,) = await user.until(partial(pending, host))
        async with agent_of(host) as agent:
            assert (await agent.initialize(secret))["resumed"] is True
            await lost.closed.wait()
            await answer(user, {"approvalId": question.id})
            await agent.start("terminal/create", params_of(agent, "echo one"), id_)
            (again,) = await user.until(partial(pending, host))
            assert again.id != question.id


async def test_checks_are_in_the_audit_log(tmp_path):
    settings = Settings(rules="/dev/null", profile="pool", audit_dir=str(tmp_path / "audit"))
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        await check(agent, "curl -u me:secret-word https://example.org")
        await refused(agent, "sudo true", ask=True)
    log = (tmp_path / "audit" / "audit.jsonl").read_text()
    entries = [json.loads(line) for line in log.splitlines()]
    assert [entry["event"] for entry in entries] == ["check", "check", "refused"]
    assert [entry.get("decision") for entry in entries] == ["allow", "deny", None]
    assert {entry["session"] for entry in entries} == {agent.session}
    assert "secret-word" not in log


async def test_check_in_another_session_has_none_of_its_answers(host, agent):
    assert (await check(agent, "true"))["level"] == "unknown"
    assert [one.id for one in host.resumption.connections[0].sessions.values()] == [agent.session]
