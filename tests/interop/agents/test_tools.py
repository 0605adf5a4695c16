"""Real agents use terminals by MCP, with `proxy --mcp` and `prompt --mcp`.

The agent starts `acpterm mcp` because the session's `mcpServers` name it, and offers its tools to
the scripted model. Each test checks what the model received.
"""

import re

import pytest

from tests.interop.agents.kinds import KINDS_AT_ONCE, Kind
from tests.interop.agents.model import in_turn, tool
from tests.interop.agents.ways import WAYS

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

# The names under which agents offer the tools of the server `acpterm`.
PREFIXES = {"kimi": "", "fast-agent": "acpterm__"}


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


@pytest.fixture
def received(tmp_path, way):
    """Return a function that runs a turn in which the model makes tool calls.

    Each call is a tool's name and arguments. The function returns the results as the model has
    received them.
    """

    async def received(agent: Kind, *calls, options=()):
        prefix = PREFIXES[agent.name]
        text = in_turn(*(tool(f"{prefix}{name}", **arguments) for name, arguments in calls))
        flags = ("--mcp", *options, "--socket", str(tmp_path / "run" / "agent.sock"))
        async with WAYS[way](tmp_path, agent, text, flags=flags) as turn:
            assert await turn.end() == "end_turn"
        message = turn.wire().message_text()
        print(message)
        return message.partition("RESULT\n")[2]

    return received


CALLS = [
    ("terminal_start", {"command": "read word; echo got $word; sleep 1; exec cat"}),
    ("terminal_continue", {"sessionId": "term-1", "stdin": "it\n"}),
    ("terminal_wait", {"sessionId": "term-1", "for": "input"}),
    ("terminal_list", {}),
    ("terminal_stop", {"sessionId": "term-1"}),
]


@pytest.mark.parametrize("agent", PREFIXES)
async def test_model_gets_the_text_of_results(received, agent):
    text = await received(KINDS_AT_ONCE[agent], *CALLS)
    assert re.search(r"\[running, \w+ waits for input · terminal_continue\]", text)
    assert (
        "Terminal Session Started\n"
        "Terminal Id: term-1\n"
        "Sent Command: read word; echo got $word; sleep 1; exec cat\n"
        "\n"
        "Output:\n"
    ) in text
    assert "Terminal Session: term-1\n\nOutput:\nit\ngot it\n" in text
    assert re.search(r"term-1       \| read word; echo got \$word; sl… \| 12 +\| Yes", text)
    assert "Terminal session term-1 terminated." in text


async def test_command_is_refused_by_the_profile_pool(received):
    agent = KINDS_AT_ONCE["kimi"]
    options = ("--tools", "pool", "--profile", "pool")
    text = await received(
        agent, ("spawn_background_terminal", {"command": ["rm", "x"], "cwd": "/"}), options=options
    )
    assert "Command blocked for security reasons" in text
