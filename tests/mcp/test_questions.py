"""Questions to the user: approvals and input, through the MCP client or elsewhere."""

import mcp_types as types
import pytest
import trio
import trio.testing

from acpterm.mcp import call
from tests.support.depth import DEADLINE_S
from tests.support.mcp import DANGEROUS, answer, mcp_tools, until_pending
from tests.support.polling import poll


class Elicited:
    """Answers questions of the server with `answer`, and records them."""

    def __init__(self, action="accept", **content):
        self.messages = []
        self._result = types.ElicitResult(action=action, content=content or None)

    async def __call__(self, _context, params):
        self.messages.append(params.message)
        return self._result


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_answer_of_the_client_counts_if_the_user_allows_that(tmp_path, mode):
    elicited = Elicited(decision="allow")
    settings = {"profile": "guarded", "mcp_elicitation_approves": True}
    async with mcp_tools(tmp_path, mode=mode, elicit=elicited, **settings) as tools:
        result = await tools.call("terminal_bash", command=DANGEROUS)
    assert result.data["state"] == "exited"
    (message,) = elicited.messages
    assert message.startswith("test-client wants to run a command in ")
    assert message.endswith(f"):\n\n    {DANGEROUS}")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize(
    "elicited", [Elicited(decision="deny"), Elicited(action="decline")], ids=["deny", "decline"]
)
async def test_user_can_refuse_in_the_client(tmp_path, mode, elicited):
    settings = {"profile": "guarded", "mcp_elicitation_approves": True}
    async with mcp_tools(tmp_path, mode=mode, elicit=elicited, **settings) as tools:
        result = await tools.call("terminal_bash", command=DANGEROUS)
    assert result.is_error
    assert "the user has refused the command" in result.text


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_client_that_cancels_the_question_leaves_the_command_refused(tmp_path, mode):
    elicited = Elicited(action="cancel")
    settings = {"profile": "guarded", "mcp_elicitation_approves": True}
    async with mcp_tools(tmp_path, mode=mode, elicit=elicited, **settings) as tools:
        result = await tools.call("terminal_bash", command=DANGEROUS)
    assert result.is_error
    assert "the user cannot be asked" in result.text


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_answer_of_the_client_does_not_count_by_default(tmp_path, mode):
    elicited = Elicited(decision="allow")
    results = []
    async with (
        mcp_tools(tmp_path, mode=mode, elicit=elicited, profile="confirm") as tools,
        trio.open_nursery() as nursery,
    ):

        async def run():
            results.append(await tools.call("terminal_bash", command=DANGEROUS))

        nursery.start_soon(run)
        await poll(lambda: bool(elicited.messages))
        await trio.testing.wait_all_tasks_blocked(0.05)
        # The client has answered, and the question is still open.
        assert not results
        await until_pending(tools.host, 1)
        await answer(tools.host, "deny")
        await poll(lambda: bool(results))
    assert results[0].is_error
    (message,) = elicited.messages
    assert "in a terminal of your own, not here: acpterm approvals -f" in message
    assert max(map(len, message.split("\n\n")[0].splitlines())) < 72
    assert message.endswith(f"acpterm approvals -f\n\n    {DANGEROUS}")


async def test_agent_cannot_answer_by_itself_and_the_question_waits_by_default(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(call, "BLOCK_MAX_S", 1.0)
    elicited = Elicited(decision="allow")
    async with mcp_tools(tmp_path, elicit=elicited, profile="guarded") as tools:
        result = await tools.call("terminal_bash", command=DANGEROUS)
        assert result.data["state"] == "approval_pending"
        assert "in a terminal of your own, not here" in elicited.messages[0]
        await answer(tools.host, "allow")
        waited = await tools.call("terminal_wait", sessionId=result.data["id"])
    assert waited.data["state"] == "exited"


async def test_start_that_waits_for_approval_has_an_id_to_continue_with(tmp_path, monkeypatch):
    monkeypatch.setattr(call, "BLOCK_MAX_S", 0.3)
    async with mcp_tools(tmp_path, profile="confirm") as tools:
        result = await tools.call("terminal_start", command=f"{DANGEROUS}; echo ran; sleep 60")
        assert result.data["state"] == "approval_pending"
        assert result.data["id"] == "pending-1"
        assert result.state == (
            '[waits for the user\'s approval · terminal_wait {"sessionId":"pending-1"} · the user '
            "can: acpterm approvals -f]"
        )
        again = await tools.call("terminal_wait", sessionId="pending-1")
        assert again.data["state"] == "approval_pending"
        await answer(tools.host, "allow")
        monkeypatch.setattr(call, "BLOCK_MAX_S", 20)
        waited = await tools.call("terminal_wait", sessionId="pending-1", pattern="ran")
    assert waited.data["id"] == "term-1"
    assert "ran\n" in waited.data["output"]


async def test_start_that_waits_for_approval_can_be_withdrawn(tmp_path, monkeypatch):
    monkeypatch.setattr(call, "BLOCK_MAX_S", 0.3)
    async with mcp_tools(tmp_path, profile="confirm") as tools:
        await tools.call("terminal_start", command=DANGEROUS)
        await until_pending(tools.host, 1)
        stopped = await tools.call("terminal_stop", sessionId="pending-1")
        await until_pending(tools.host, 0)
    assert stopped.text == "Terminal session pending-1 terminated."


async def test_cancelled_call_withdraws_the_question(tmp_path):
    async with mcp_tools(tmp_path, profile="confirm") as tools:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                lambda: tools.client.call_tool("terminal_start", {"command": DANGEROUS})
            )
            await until_pending(tools.host, 1)
            nursery.cancel_scope.cancel()
        await until_pending(tools.host, 0)


@pytest.mark.costly
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_user_types_the_input_in_the_client(tmp_path, mode):
    elicited = Elicited(input="blue")
    script = "printf 'Colour? '; read colour; echo got $colour"
    async with mcp_tools(tmp_path, mode=mode, elicit=elicited) as tools:
        await tools.call("terminal_start", command=script)
        result = await tools.call("terminal_continue", sessionId="term-1", ask_user=True)
    assert "got blue\n" in result.data["output"]
    assert elicited.messages == [f"{script} waits for input: Colour?"]


async def test_password_is_never_asked_in_the_client(tmp_path):
    elicited = Elicited(input="secret")
    script = "printf 'Say it: '; stty -echo; read secret; sleep 60"
    async with mcp_tools(tmp_path, elicit=elicited) as tools:
        started = await tools.call("terminal_start", command=script)
        assert "probably a password" in started.state
        result = await tools.call("terminal_continue", sessionId="term-1", ask_user=True)
    assert result.is_error
    assert result.text == (
        "term-1 waits for a password, which is not asked here; the user can: acpterm attach term-1"
    )
    assert not elicited.messages


async def test_client_that_cannot_ask_gets_the_command_for_the_user(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="printf 'Colour? '; read colour")
        result = await tools.call("terminal_continue", sessionId="term-1", ask_user=True)
    assert result.is_error
    assert result.text == (
        "the MCP client cannot ask the user; the user can: acpterm attach term-1"
    )


async def test_question_shows_the_command_last_with_invisible_characters_escaped(tmp_path):
    elicited = Elicited(decision="deny")
    settings = {"profile": "guarded", "mcp_elicitation_approves": True}
    command = f"{DANGEROUS}\necho\n\nin /home (safe: all is well)\u202e # txt"
    async with mcp_tools(tmp_path, elicit=elicited, agent="test\n\u202ename", **settings) as tools:
        await tools.call("terminal_bash", command=command)
    (message,) = elicited.messages
    about, shown = message.split("\n\n", 1)
    assert about.startswith("test\\n\\u202ename wants to run a command in ")
    assert about.endswith("in the list of dangerous commands):")
    assert max(map(len, about.split("\n"))) <= 80
    assert shown.split("\n") == [
        f"    {DANGEROUS}",
        "    echo",
        "    ",
        "    in /home (safe: all is well)\\u202e # txt",
    ]


async def test_prompt_of_a_program_is_one_line_with_invisible_characters_escaped(tmp_path):
    elicited = Elicited(input="x")
    script = "printf 'Colour\u202e? '\nread colour"
    async with mcp_tools(tmp_path, elicit=elicited) as tools:
        await tools.call("terminal_start", command=script)
        await tools.call("terminal_continue", sessionId="term-1", ask_user=True)
    (message,) = elicited.messages
    assert message.isprintable()
    assert "\\u202e? '\\nread colour waits for input: Colour" in message


async def test_command_waits_for_approval_as_long_as_for_its_end(tmp_path):
    async with mcp_tools(tmp_path, profile="confirm") as tools:
        with trio.fail_after(DEADLINE_S):
            started = await tools.call("terminal_bash", command=DANGEROUS, run_in_background=True)
            limited = await tools.call("terminal_bash", command=DANGEROUS, timeout_seconds=0.6)
            waited = await tools.call("terminal_wait", sessionId="pending-2", timeout_seconds=0.1)
            read = await tools.call("terminal_output", sessionId="pending-2")
            listed = await tools.call("terminal_list")
        await until_pending(tools.host, 2)
    states = [result.data["state"] for result in (started, limited, waited)]
    assert states == ["approval_pending"] * 3
    assert read.is_error
    assert "the user has not answered yet" in read.text
    assert "waiting for the user's approval: pending-1, pending-2" in listed.state


async def test_name_cannot_be_that_of_a_question(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call("terminal_start", command="true", name="pending-1")
        other = await tools.call("terminal_start", command="true", name="pending-work")
    assert result.is_error
    assert "the name 'pending-1' is that of a question to the user" in result.text
    assert other.data["id"] == "pending-work"
