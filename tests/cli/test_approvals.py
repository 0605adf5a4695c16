"""`acpterm approvals`, `approve` and `deny`: a question of an agent, and its answer by the user."""

import json
import shlex

import pytest
import trio

from acpterm.jsonrpc import RpcError
from tests.support.agent import agent_at
from tests.support.commands import command_environment, run
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.starting import ACPTERM
from tests.support.user import user_terminals_at

SETTINGS = {"profile": "guarded", "on_question": ""}


def line(path, *words):
    """Return the line that runs `acpterm` in a terminal of the user, as a shell does."""
    env = [f"{name}={value}" for name, value in command_environment(path).items()]
    return shlex.join(["env", "-i", *env, *ACPTERM, *words])


async def press(terminals, window, key, expected, count):
    """Type a key until it counts, since a key right after a question was shown is ignored."""
    with trio.fail_after(DEADLINE_S):
        while True:
            await terminals.type(window, key)
            with trio.move_on_after(2):
                while (await terminals.output(window))["output"].count(expected) < count:
                    await trio.sleep(0.01)
                return


async def until_questions(path, count):
    with trio.fail_after(DEADLINE_S):
        while json.loads((await run(path, "status", "--json")).out)["questions"] != count:
            await trio.sleep(0.01)


async def ask(agent, command):
    return await agent.start("terminal/create", {"sessionId": agent.session, "command": command})


@pytest.mark.long
async def test_keys_answer_the_questions_one_after_the_other(tmp_path):
    async with (
        daemon(tmp_path, settings=SETTINGS) as (_, path),
        agent_at(path) as agent,
        user_terminals_at(path) as terminals,
    ):
        window = await terminals.create(line(path, "approvals", "-f"))
        first = await ask(agent, "rm -r first")
        await terminals.until_output(window, "n refuses, a always allows rm -r first")
        second = await ask(agent, "rm -rf /")
        assert "always" not in (await terminals.until_output(window, "rm -rf /")).split("/")[-1]
        third = await ask(agent, "rm -r third")
        await terminals.until_output(window, "rm -r third")
        for key, asked, ended in (
            ("n", "n refuses, a always allows rm -r first", "refused ("),
            ("n", "n refuses\n", "refused (in a terminal)\n"),
            ("y", "n refuses, a always allows rm -r third", "allowed ("),
        ):
            before = (await terminals.until_output(window, asked)).count(ended)
            await press(terminals, window, key, ended, before + 1)
        await agent.wait((await agent.result(third))["terminalId"])
        for id_ in (first, second):
            with pytest.raises(RpcError, match="the user has refused the command"):
                await agent.result(id_)
        await terminals.type(window, "q")
        assert (await terminals.wait(window))["exitCode"] == 0


async def test_only_question_is_answered_without_an_id_and_the_newest_by_last(tmp_path):
    async with daemon(tmp_path, settings=SETTINGS) as (_, path), agent_at(path) as agent:
        none = await run(path, "approve")
        assert (none.status, none.err) == (1, "acpterm: no question waits for an answer\n")
        ids = [await ask(agent, "rm -r a")]
        await until_questions(path, 1)
        ids.append(await ask(agent, "rm -r b"))
        await until_questions(path, 2)
        several = await run(path, "approve")
        assert several.status == 1
        assert "2 questions wait: say which ID" in several.err
        assert "refused: rm -r b" in (await run(path, "deny", "@last")).out
        assert "allowed: rm -r a" in (await run(path, "approve")).out
        await agent.wait((await agent.result(ids[0]))["terminalId"])


@pytest.mark.long
async def test_commands_of_the_user_say_that_a_question_waits(tmp_path):
    hint = "acpterm: 1 command waits for you: acpterm approvals -f"
    async with (
        daemon(tmp_path, settings=SETTINGS) as (_, path),
        agent_at(path) as agent,
        user_terminals_at(path) as terminals,
    ):
        await ask(agent, "rm -r x")
        await until_questions(path, 1)
        status = await run(path, "status")
        assert "approvals       1 command waits for you: acpterm approvals -f\n" in status.out
        commands = ["ls", "events", "inspect @last", "audit", "policy list", "provider list"]
        for words in map(str.split, commands):
            window = await terminals.create(line(path, *words))
            await terminals.until_output(window, hint)
        assert (await run(path, "ls")).err == ""
