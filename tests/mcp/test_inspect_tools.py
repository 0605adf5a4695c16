"""The tool of `--tools inspect`: Inspect AI's `bash_session`."""

import pytest

from tests.support.mcp import mcp_tools
from tests.support.polling import poll

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("bash_without_rc")]


class Bash:
    """Calls the tool; `seen` is all output so far."""

    def __init__(self, tools):
        self.tools = tools
        self.seen = ""

    async def act(self, action, text=None):
        result = await self.tools.call("bash_session", action=action, input=text)
        assert not result.is_error, result.text
        self.seen += result.text
        return result.text

    async def read_until(self, text):
        while text not in self.seen:
            await self.act("read")


async def test_schema_is_that_of_inspect(tmp_path):
    async with mcp_tools(tmp_path, "inspect") as tools:
        (tool,) = (await tools.client.list_tools()).tools
    assert tool.name == "bash_session"
    assert tool.input_schema["required"] == ["action"]
    actions = tool.input_schema["properties"]["action"]["enum"]
    assert set(actions) == {"type", "type_submit", "restart", "read", "interrupt"}


async def test_shell_keeps_its_state_until_it_is_restarted(tmp_path):
    async with mcp_tools(tmp_path, "inspect") as tools:
        bash = Bash(tools)
        await bash.act("type", "here=7; cd /")
        await bash.act("type_submit")
        await bash.act("type_submit", "echo =$here=$PWD=")
        await bash.read_until("=7=/=\n")
        assert await bash.act("restart") == "Bash session restarted."
        await bash.act("type_submit", "echo again=$here=")
        await bash.read_until("again==\n")


async def test_program_is_typed_into_and_interrupted(tmp_path):
    async with mcp_tools(tmp_path, "inspect") as tools:
        bash = Bash(tools)
        await bash.act("type_submit", "read -p 'name? ' n; echo hi $n; sleep 600")
        await bash.read_until("name? ")
        await bash.act("type_submit", "you")
        await bash.read_until("hi you\n")
        await bash.act("interrupt")
        await bash.act("type_submit", "echo status $?")
        await bash.read_until("status 130\n")


async def test_shell_that_has_ended_is_replaced(tmp_path):
    async with mcp_tools(tmp_path, "inspect") as tools:
        bash = Bash(tools)
        await bash.act("type_submit", "exit")
        await bash.read_until("The next call starts another one")
        await poll(lambda: not tools.host.terminals.registry)
        await bash.act("type_submit", "echo new")
        await bash.read_until("\nnew\n")


@pytest.mark.parametrize(
    ("action", "text", "message"),
    [
        ("type", None, "'input' is required for 'type' action."),
        ("read", "x", "Do not provide 'input' with 'read' action."),
        ("push", None, 'bash_session: action is "push", but must be one of interrupt, read'),
    ],
)
async def test_wrong_input_is_an_error(tmp_path, action, text, message):
    async with mcp_tools(tmp_path, "inspect") as tools:
        result = await tools.call("bash_session", action=action, input=text)
    assert result.is_error
    assert result.text.startswith(message)
