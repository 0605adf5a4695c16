"""Commands that must be approved: who is asked, who may answer, and what the agent gets."""

from contextlib import asynccontextmanager
from functools import partial

import msgspec
import pytest
import trio

from acpterm.acp.approvals import ApproverRequest
from acpterm.config import Settings
from acpterm.config.places import SshPlace
from acpterm.config.profiles import BUILTIN
from acpterm.host.open_host import open_host
from acpterm.jsonrpc import INVALID_REQUEST, REQUEST_CANCELLED, RpcError
from acpterm.policy.judge import Judge
from acpterm.runtime.exec_context import current
from tests.support.agent import agent_of, agent_on
from tests.support.asking import TIMEOUT_S, asking, asking_settings, ran, recording_script
from tests.support.polling import poll
from tests.support.user import user_of

ASKED = "_acpterm/approval/asked"
WITHDRAWN = "_acpterm/approval/withdrawn"


@asynccontextmanager
async def asking_host(**values):
    """Run a host whose profile asks; `values` are other values of the profile."""
    async with open_host(asking(**values), current()) as host:
        yield host


@asynccontextmanager
async def approver_of(host, kind="editor"):
    ours, theirs = trio.socket.socketpair()
    async with trio.open_nursery() as nursery:
        serve = partial(host.serve, approver=ApproverRequest(kind))
        nursery.start_soon(serve, trio.SocketStream(theirs), host.context)
        async with agent_on(trio.SocketStream(ours)) as agent:
            yield agent


def of(client, method):
    return [m["params"] for m in client.messages if m.get("method") == method]


async def asked(client, count=1):
    """Wait until `client` was sent `count` questions; return the last of them."""
    found = await client.until(lambda: of(client, ASKED)[count - 1 :])
    return found[0]["approval"]


async def start(agent, command, **more):
    params = {"sessionId": agent.session, "command": command, **more}
    return await agent.start("terminal/create", params)


async def error_of(agent, id_):
    with pytest.raises(RpcError) as raised:
        await agent.result(id_)
    return raised.value


async def answer(client, question, decision="allow", **more):
    params = {"approvalId": question["approvalId"], "decision": decision, **more}
    return await client.request("_acpterm/approval/answer", params)


async def test_command_runs_when_the_approver_allows_it(tmp_path):
    async with asking_host() as host, approver_of(host) as agent:
        script = recording_script(tmp_path)
        id_ = await start(agent, f"{script} once", cwd=str(tmp_path))
        question = await asked(agent)
        assert question["command"] == f"{script} once"
        assert question["cwd"] == str(tmp_path)
        assert question["prefix"] == [script]
        assert question["level"] == "unknown"
        assert question["reason"] == "record is not in the list of safe programs"
        assert not agent.has_response(id_)
        assert ran(tmp_path) == ""
        assert await answer(agent, question) == {}
        created = await agent.result(id_)
        assert created["_meta"]["acpterm"]["level"] == "unknown"
        await agent.wait(created["terminalId"])
        assert ran(tmp_path) == "once\n"
        (withdrawn,) = of(agent, WITHDRAWN)
        assert withdrawn["answer"]["by"] == "editor"


async def test_question_shows_the_variables_that_change_what_is_executed(tmp_path):
    async with asking_host() as host, approver_of(host) as agent:
        env = {"PATH": "/tmp/a b:/bin", "GIT_PAGER": "cat", "COLOR": "1", "LD_PRELOAD": "x.so"}
        values = [{"name": name, "value": value} for name, value in env.items()]
        id_ = await start(agent, "make t", env=values, cwd=str(tmp_path))
        question = await asked(agent)
        assert question["command"] == "export PATH='/tmp/a b:/bin' LD_PRELOAD=x.so; make t"
        assert question["prefix"] is None
        await answer(agent, question, "deny")
        await error_of(agent, id_)


async def test_command_with_variables_that_are_too_long_to_show_is_refused(tmp_path):
    async with asking_host() as host, approver_of(host) as agent:
        env = [{"name": "PATH", "value": "/x:" * 6000}]
        error = await error_of(agent, await start(agent, "make t", env=env, cwd=str(tmp_path)))
        assert "are too many to show them to the user" in error.message
        assert of(agent, ASKED) == []


async def test_command_that_executes_what_a_directory_configures_is_safe_only_in_the_sessions(
    tmp_path,
):
    settings = Settings(profile="confirm", rules="/dev/null")
    async with open_host(settings, current()) as host, approver_of(host) as agent:
        sub = tmp_path / "sub"
        sub.mkdir()
        await agent.request("_acpterm/session/open", {"sessionId": agent.session, "cwd": str(sub)})
        created = await agent.request(
            "terminal/create",
            {"sessionId": agent.session, "command": "git status", "cwd": str(sub)},
        )
        await agent.wait(created["terminalId"])
        assert of(agent, ASKED) == []
        id_ = await start(agent, "git status", cwd=str(tmp_path))
        question = await asked(agent)
        assert question["reason"] == "git: it executes what another directory configures"
        await answer(agent, question, "deny")
        await error_of(agent, id_)


async def test_question_names_the_place_and_an_answer_for_always_holds_only_there(tmp_path):
    settings = Settings(**asking_settings(places=("ssh:*",)), ssh={"far": SshPlace()})
    async with open_host(settings, current()) as host, approver_of(host) as agent:
        script = recording_script(tmp_path)
        here = await start(agent, f"{script} here", cwd=str(tmp_path))
        await answer(agent, await asked(agent), scope="always")
        await agent.result(here)
        meta = {"acpterm": {"provider": "ssh:far"}}
        there = await start(agent, f"{script} there", cwd=str(tmp_path), _meta=meta)
        question = await asked(agent, 2)
        assert question["cwd"] == f"ssh:far:{tmp_path}"
        await answer(agent, question, "deny")
        await error_of(agent, there)


async def test_refused_command_does_not_run_and_the_error_says_why(tmp_path):
    async with asking_host() as host, approver_of(host) as agent:
        id_ = await start(agent, f"echo ask-first > {tmp_path}/ran")
        await answer(agent, await asked(agent), "deny", reason="not on a Friday")
        error = await error_of(agent, id_)
        assert error.code == INVALID_REQUEST
        assert "the user has refused the command: not on a Friday" in error.message
        assert not (tmp_path / "ran").exists()


async def test_denied_command_is_refused_without_a_question():
    async with asking_host(unknown="deny") as host, approver_of(host) as agent:
        error = await error_of(agent, await start(agent, "echo 1"))
        assert "refused: it is unknown (echo is not in the list of safe programs)" in error.message
        assert of(agent, ASKED) == []


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ('git commit -m "use `ls`"', True),
        ("$PAGER notes", True),
        ("git commit -m 'use `ls`'", False),
        ("make $(date)", True),
        ("make", False),
    ],
)
def test_refusal_of_computed_text_says_what_can_be_judged(command, expected):
    verdict = Judge().judge(command, None, profile=BUILTIN["confirm"])
    assert verdict.is_computed == expected


async def test_refusal_by_a_rule_names_the_rule_and_no_level(tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\npattern = ["git", "push"]\ndecision = "deny"\nreason = "shared"\n')
    settings = Settings(rules=str(rules))
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        by_rule = await error_of(agent, await start(agent, "git push origin main"))
    assert by_rule.message == (
        "the command was refused: the rule 'deny git push' applies (shared), in the profile "
        "'guarded'"
    )


async def test_refusal_of_computed_text_is_one_sentence():
    async with asking_host(unknown="deny") as host, agent_of(host) as agent:
        error = await error_of(agent, await start(agent, "make $(date)"))
    assert error.message.startswith(
        "the command was refused: it is unknown (the line is not plain: it has a command "
        "substitution; instead of $(…), `…` or a variable, write the text itself in single quotes)"
    )


async def test_safe_command_runs_without_a_question():
    async with asking_host() as host, approver_of(host) as agent:
        await agent.create("true")
        assert of(agent, ASKED) == []


async def test_question_without_anybody_to_ask_is_refused_with_advice():
    async with asking_host() as host, agent_of(host) as agent, user_of(host) as user:
        error = await error_of(agent, await start(agent, "echo ask-first"))
        assert "acpterm policy allow -- echo" in error.message
        assert "acpterm approvals --follow" in error.message
        assert (await user.request("approval/list"))["approvals"] == []


async def test_question_waits_for_the_user_when_the_profile_says_so():
    async with (
        asking_host(unattended="wait") as host,
        agent_of(host) as agent,
        user_of(host) as user,
    ):
        id_ = await start(agent, "echo wait-first")
        (question,) = await user.until(partial(pending, host))
        listed = (await user.request("approval/list"))["approvals"]
        assert [one["approvalId"] for one in listed] == [question.id]
        allowed = await user.request(
            "approval/answer", {"approvalId": question.id[:4], "decision": "allow"}
        )
        assert allowed["command"] == "echo wait-first"
        assert (await agent.result(id_))["terminalId"]


def pending(host):
    return host.guard.approvals.pending


async def test_question_times_out():
    async with asking_host() as host, approver_of(host) as agent:
        id_ = await start(agent, "printf soon")
        question = await asked(agent)
        assert question["level"] == "dangerous"
        assert 0 < question["remainingMs"] <= 1000 * TIMEOUT_S
        error = await error_of(agent, id_)
        assert "not answered in time (0.5 s)" in error.message


async def test_first_answer_counts_and_the_question_is_withdrawn_elsewhere():
    async with asking_host() as host, approver_of(host) as agent, user_of(host) as user:
        _, token = await user.open("approval/subscribe")
        id_ = await start(agent, "echo ask-first")
        question = await asked(agent)
        assert (await asked(user))["approvalId"] == question["approvalId"]
        await answer(user, question, "deny")
        await error_of(agent, id_)
        assert of(agent, WITHDRAWN)[0]["answer"]["by"] == "approvals"
        with pytest.raises(RpcError, match="not pending"):
            await answer(agent, question, "allow")
        await user.until(lambda: of(user, WITHDRAWN))
        assert {one["token"] for one in of(user, ASKED) + of(user, WITHDRAWN)} == {token}


async def test_answer_from_the_page_is_recorded_as_such():
    async with (
        asking_host() as host,
        approver_of(host) as agent,
        user_of(host, answers_as="page") as page,
    ):
        id_ = await start(agent, "echo ask-first")
        await answer(page, await asked(agent), "deny")
        await error_of(agent, id_)
        assert of(agent, WITHDRAWN)[0]["answer"]["by"] == "page"


async def test_user_who_follows_is_there_to_ask():
    async with asking_host() as host, agent_of(host) as agent, user_of(host) as user:
        follow, _ = await user.open("approval/subscribe")
        await poll(lambda: len(host.guard.approvals._observers) == 3)
        id_ = await start(agent, "echo ask-first")
        await asked(user)
        await user.cancel(follow)
        error = await error_of(agent, id_)
        assert "the user cannot be asked" in error.message


async def test_always_is_for_the_prefix_in_the_session_only():
    async with asking_host() as host, approver_of(host) as agent:
        id_ = await start(agent, "echo ask-first 1")
        await answer(agent, await asked(agent), scope="always")
        await agent.result(id_)
        await agent.create("echo ask-first 2")
        assert len(of(agent, ASKED)) == 1
        # Another prefix, and another session.
        other = await start(agent, "date -d")
        await answer(agent, await asked(agent, 2), "deny", scope="always")
        await error_of(agent, other)
        assert (
            "rejected it for this session"
            in (await error_of(agent, await start(agent, "date -d again"))).message
        )
        agent.session = "session-2"
        id_ = await start(agent, "echo ask-first 3")
        await answer(agent, await asked(agent, 3))
        await agent.result(id_)


async def test_always_is_refused_for_a_command_without_a_prefix():
    async with asking_host() as host, approver_of(host) as agent:
        id_ = await start(agent, "echo ask-first; date")
        question = await asked(agent)
        assert question["prefix"] is None
        with pytest.raises(RpcError, match="allow it once"):
            await answer(agent, question, scope="always")
        await answer(agent, question)
        await agent.result(id_)


async def test_cancelled_request_withdraws_its_question():
    async with asking_host() as host, approver_of(host) as agent:
        id_ = await start(agent, "echo ask-first")
        question = await asked(agent)
        await agent.cancel(id_)
        assert (await error_of(agent, id_)).code == REQUEST_CANCELLED
        (withdrawn,) = of(agent, WITHDRAWN)
        assert withdrawn["approvalId"] == question["approvalId"]
        assert withdrawn["answer"]["by"] == "cancelled"


async def test_cancelled_turn_withdraws_the_sessions_questions():
    async with asking_host() as host, approver_of(host) as agent:
        id_ = await start(agent, "echo ask-first")
        await asked(agent)
        await agent.notify("session/cancel", {"sessionId": agent.session})
        assert (await error_of(agent, id_)).code == REQUEST_CANCELLED
        assert of(agent, WITHDRAWN)[0]["answer"]["reason"] == "the turn was cancelled"


async def test_disconnect_withdraws_the_connections_questions():
    async with asking_host() as host, user_of(host) as user:
        await user.open("approval/subscribe")
        async with agent_of(host) as agent:
            await start(agent, "echo ask-first")
            await asked(user)
        (withdrawn,) = await user.until(lambda: of(user, WITHDRAWN))
        assert withdrawn["answer"]["reason"] == "the agent has disconnected"
        assert pending(host) == []


async def test_declined_question_is_left_to_the_user_and_refused_without_one():
    async with asking_host() as host, approver_of(host) as agent, user_of(host) as user:
        follow, _ = await user.open("approval/subscribe")
        id_ = await start(agent, "echo ask-first")
        question = await asked(agent)
        await asked(user)
        params = {"approvalId": question["approvalId"], "reason": "it broke"}
        assert await agent.request("_acpterm/approval/decline", params) == {}
        assert not agent.has_response(id_)
        await user.cancel(follow)
        assert "user cannot be asked: it broke" in (await error_of(agent, id_)).message


@pytest.mark.long
async def test_question_stays_when_the_connection_is_resumed_on_another_transport(tmp_path):
    async with asking_host(unattended="wait") as host, user_of(host) as user:
        params = {"sessionId": "session-1", "command": f"echo wait-first >> {tmp_path}/ran"}
        async with agent_of(host) as lost:
            secret = (await lost.initialize())["resume"]
            id_ = await lost.start("terminal/create", params)
            (question,) = await user.until(partial(pending, host))
            async with agent_of(host) as agent:
                assert (await agent.initialize(secret))["resumed"] is True
                await agent.start("terminal/create", params, id_)
                # The first transport's request ends about a second later.
                await lost.closed.wait()
                assert pending(host) == [question]
                await answer(user, {"approvalId": question.id})
                terminal = (await agent.result(id_))["terminalId"]
                await agent.wait(terminal)
                assert (tmp_path / "ran").read_text() == "wait-first\n"
                assert host.guard.approval_records._ids == {}


# The question has its task until 3 s after the resumption, when the lost transport is closed.
@pytest.mark.long
@pytest.mark.parametrize("resume_timeout", [1.0, 6.0])
async def test_question_expires_when_its_request_is_not_repeated_after_a_resumption(resume_timeout):
    settings = msgspec.structs.replace(asking(unattended="wait"), resume_timeout=resume_timeout)
    async with (
        open_host(settings, current()) as host,
        user_of(host) as user,
        agent_of(host) as lost,
    ):
        secret = (await lost.initialize())["resume"]
        await start(lost, "echo x >> /dev/null; unknown-program")
        await user.until(partial(pending, host))
        # The time for clients of a previous worker, which began with the host, ends earlier.
        await trio.sleep(1)
        async with agent_of(host) as agent:
            began = trio.current_time()
            assert (await agent.initialize(secret))["resumed"] is True
            await lost.closed.wait()
            await poll(lambda: not pending(host))
            assert trio.current_time() - began >= resume_timeout


# An agent cannot approve its own commands.


async def test_agent_cannot_answer_or_decline_its_own_question():
    async with asking_host() as host, agent_of(host) as agent, user_of(host) as user:
        await user.open("approval/subscribe")
        id_ = await start(agent, "echo ask-first")
        question = await asked(user)
        for method in "answer", "decline":
            params = {"decision": "allow", "reason": "", "approvalId": question["approvalId"]}
            with pytest.raises(RpcError, match="cannot answer questions about its own commands"):
                await agent.request(f"_acpterm/approval/{method}", params)
        for method in "_acpterm/approver", "_acpterm/approval/list", "_acpterm/approval/subscribe":
            with pytest.raises(RpcError, match="no method"):
                await agent.request(method, {"kind": "editor", "token": "t"})
        assert of(agent, ASKED) == []
        assert not agent.has_response(id_)
        await answer(user, question, "deny")
        await error_of(agent, id_)


@pytest.mark.parametrize(
    "token", ["", "0" * 64, "editor", "é\ud800".encode(errors="replace").decode()]
)
async def test_agent_does_not_become_an_approver_by_a_guessed_token(token):
    async with asking_host() as host, agent_of(host) as agent, user_of(host) as user:
        await user.request("approver", {"kind": "editor"})
        params = {"protocolVersion": 1, "_meta": {"acpterm": {"approver": token}}}
        result = await agent.request("initialize", params)
        assert result["_meta"]["acpterm"]["approver"] is False
        error = await error_of(agent, await start(agent, "echo ask-first"))
        assert "user cannot be asked" in error.message


async def test_token_is_valid_once():
    async with asking_host() as host, agent_of(host) as first, agent_of(host) as second:
        async with user_of(host) as user:
            token = (await user.request("approver", {"kind": "prompt"}))["token"]
        params = {"protocolVersion": 1, "_meta": {"acpterm": {"approver": token}}}
        for agent, is_approver in (first, True), (second, False):
            result = await agent.request("initialize", params)
            assert result["_meta"]["acpterm"]["approver"] is is_approver
        # A later initialize, such as with the agent's name, does not end the right.
        await first.initialize()
        id_ = await start(first, "echo ask-first")
        await answer(first, await asked(first))
        await first.result(id_)


async def test_chosen_profile_replaces_the_one_that_an_earlier_request_has_selected():
    async with asking_host() as host, agent_of(host) as agent, user_of(host) as user:
        await agent.create("true")
        request = {"kind": "prompt", "agent": ["claude"], "profile": "open"}
        token = (await user.request("approver", request))["token"]
        params = {"protocolVersion": 1, "_meta": {"acpterm": {"approver": token}}}
        await agent.request("initialize", params)
        await agent.create("date")
        assert of(agent, ASKED) == []


async def test_token_for_a_profile_that_does_not_exist_is_refused():
    async with asking_host() as host, user_of(host) as user:
        with pytest.raises(RpcError, match="no profile 'typo'"):
            await user.request("approver", {"kind": "prompt", "profile": "typo"})


async def test_approver_cannot_answer_the_question_of_another_connection():
    async with asking_host() as host, approver_of(host) as mine, approver_of(host) as other:
        id_ = await start(mine, "echo ask-first")
        question = await asked(mine)
        assert of(other, ASKED) == []
        for decision in "allow", "deny":
            with pytest.raises(RpcError, match="of this connection is not pending"):
                await answer(other, question, decision)
        # Not even the beginning of the id is an id here.
        with pytest.raises(RpcError, match="of this connection is not pending"):
            await answer(mine, {"approvalId": question["approvalId"][:8]})
        await answer(mine, question)
        await mine.result(id_)
