"""Questions of the host at `acpterm prompt`: asked at the terminal, or answered by --allow."""

import json

import pytest
import trio

from acpterm.jsonrpc import RpcError
from tests.support.asking import asking_variables, ran, recording_script
from tests.support.commands import run, running
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.editor import AGENT, create, of
from tests.support.polling import poll
from tests.support.processes import environment
from tests.support.prompts import at_a_terminal, prompt_environment, prompted
from tests.support.user import user_at

pytestmark = pytest.mark.long


def ask(command):
    return {**create(command), "report": True}


async def until_users(user, count):
    with trio.fail_after(DEADLINE_S):
        while (await user.request("status"))["users"] != count:
            await trio.sleep(0.05)


async def test_user_is_asked_at_the_terminal(tmp_path):
    script = recording_script(tmp_path)
    command = f"{script} once"
    again = [ask(f"{script} again"), of("wait_for_exit")]
    steps = [ask(command), of("wait_for_exit"), ask(f"{command} > {tmp_path}/out"), *again]
    async with at_a_terminal(tmp_path, *steps, env=asking_variables(tmp_path)) as user:
        shown = await user.sees("1 to 4:")
        assert f"May the agent do this? {command}\n" in shown
        assert f"    in {tmp_path}\n    record is not in the list of safe programs\n" in shown
        assert f'2  Always allow "{script}" in this session' in shown
        await user.types("2\n")
        # The second command has no prefix, so that three options are left.
        shown = await user.sees("1 to 3:")
        await user.types("2\n")
        shown, status = await user.end()
        assert shown.count("May the agent do this?") == 2
        assert status == 0
    assert ran(tmp_path) == "once\nagain\n"


@pytest.mark.parametrize(("rule", "is_allowed"), [("all", True), ("reads", False), ("none", False)])
async def test_rule_decides_without_a_question(tmp_path, rule, is_allowed):
    env = prompt_environment(tmp_path, **asking_variables(tmp_path))
    options = ["--allow", rule]
    status, run = await prompted(tmp_path, ask("echo ask-first"), options=options, env=env)
    verdict = "allowed" if is_allowed else "refused"
    assert f"{verdict}: echo ask-first (--allow {rule})" in run.err
    assert ("terminalId" in run.out) is is_allowed
    # An agent that could do nothing, because everything was refused, has not succeeded.
    assert status == (0 if is_allowed else 3)


async def test_command_is_refused_without_a_terminal_and_a_follower(tmp_path):
    env = prompt_environment(tmp_path, **asking_variables(tmp_path))
    _, run = await prompted(tmp_path, ask("echo ask-first"), env=env)
    assert "not asked: echo ask-first (there is no terminal to ask at: say --allow all)" in run.err
    assert "the user cannot be asked: there is no terminal to ask at" in run.out


async def test_command_without_a_terminal_waits_for_acpterm_approve(tmp_path):
    env = environment(**asking_variables(tmp_path, unattended="wait"))
    async with daemon(tmp_path, env=env, terminate=True) as served:
        path = served.path
        steps = json.dumps([ask("echo wait-first"), of("wait_for_exit")])
        async with user_at(served.user_path) as user:
            # The daemon counts this connection, and another one once the follower has connected.
            await until_users(user, 1)
            async with running(tmp_path, path, "approvals", "--follow") as follower:
                await until_users(user, 2)
                async with running(
                    tmp_path, path, "prompt", steps, "--", *AGENT, start_new_session=True
                ) as prompt:
                    await poll(lambda: "asks (unknown): echo wait-first" in follower.out)
                    assert "acpterm approve --always" in follower.out
                    short = follower.out.split()[1]
                    listed = await run(path, "approvals")
                    header, row, reason = listed.out.splitlines()
                    assert " ".join(header.split()) == "ID AGE LEFT AGENT LEVEL DIRECTORY COMMAND"
                    assert row.split()[0] == short
                    assert row.endswith("echo wait-first")
                    assert reason.strip() in follower.out
                    done = await run(path, "approve", short)
                    assert done.out == f"{short}  allowed: echo wait-first\n"
                    assert await prompt.wait() == 0
                    assert "terminalId" in prompt.out
                await poll(lambda: f"{short}  allowed (in a terminal)" in follower.out)
                again = await run(path, "approve", short)
                assert again.status == 1
                assert "is pending: it may have been answered or withdrawn" in again.err
                follower.interrupt()
                assert await follower.wait() == 0


async def test_question_of_a_headless_agent_is_refused_in_ci(tmp_path):
    env = environment(**asking_variables(tmp_path, unattended="wait"), CI="true")
    async with daemon(tmp_path, env=env, terminate=True) as served, served.agent() as (agent, _):
        params = {"sessionId": agent.session, "command": "echo ask-first"}
        with pytest.raises(RpcError, match="the user cannot be asked"):
            await agent.request("terminal/create", params)


async def test_lists_without_a_daemon_are_empty(tmp_path):
    path = str(tmp_path / "agent.sock")
    listed = await run(path, "approvals", "--json")
    assert (listed.status, listed.out) == (0, "[]\n")
    denied = await run(path, "deny", "abc")
    assert denied.status == 1
    assert "no daemon listens" in denied.err
