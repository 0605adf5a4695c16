"""acpx, a third-party client, drives an agent through `acpterm proxy`.

acpx prints all messages that it sends and receives (`--format json`), one per line. It has
terminals of its own, unless an option hides them. The agent is the scripted one.
"""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.interop.agents.ways import Place, running
from tests.interop.agents.wire import Wire
from tests.support.starting import ACPTERM

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

HERE = Path(__file__).parent
ACPX = HERE / "node_modules" / "acpx" / "dist" / "cli.js"
SCRIPTED = [sys.executable, str(HERE.parents[1] / "support" / "scripted.py")]

# Exit statuses of acpx.
OK, FAILED, TIMED_OUT = 0, 1, 3


class PromptResult:
    """The result of a prompt: acpx's exit status, and the messages that it printed."""

    def __init__(self, status: int, out: bytes, log: Path) -> None:
        self.status = status
        self.messages: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
        self.wire = Wire(log, "proxy->agent", "agent->proxy")

    def params_of(self, method: str) -> list[dict[str, Any]]:
        return [m["params"] for m in self.messages if m.get("method") == method and "id" in m]

    def updates(self) -> list[dict[str, Any]]:
        updates = [m for m in self.messages if m.get("method") == "session/update"]
        return [m["params"]["update"] for m in updates]

    def message_text(self) -> str:
        chunks = [u for u in self.updates() if u["sessionUpdate"] == "agent_message_chunk"]
        return "".join(chunk["content"]["text"] for chunk in chunks)

    def content(self, call: str) -> list[dict[str, Any]]:
        """Return the last content of a tool call."""
        contents = [u["content"] for u in self.updates() if _is_content_of(u, call)]
        return contents[-1]

    def text(self, call: str) -> str:
        """Return the text of the only item of the last content of a tool call."""
        (item,) = self.content(call)
        return item["content"]["text"]

    def embedded(self) -> list[str]:
        """Return the ids of all terminals in the updates and permission requests for acpx."""
        contents = [u.get("content") for u in self.updates()]
        contents += [
            p["toolCall"].get("content") for p in self.params_of("session/request_permission")
        ]
        items = [item for content in contents if isinstance(content, list) for item in content]
        return [item["terminalId"] for item in items if item["type"] == "terminal"]


def _is_content_of(update: dict[str, Any], call: str) -> bool:
    return update.get("toolCallId") == call and update.get("content") is not None


@pytest.fixture
def prompt(tmp_path: Path):
    """Return a function that runs acpx once with a script for the agent."""
    if not ACPX.exists():
        raise FileNotFoundError(f"acpx is not at {ACPX}: run make interop to install it")

    async def prompt(
        steps: list[dict[str, Any]],
        *flags: str,
        proxy: tuple[str, ...] = (),
        agent: tuple[str, ...] = (),
        seconds: int = 60,
    ) -> PromptResult:
        place = Place(tmp_path, {})
        log = tmp_path / "proxy.log"
        command = [*ACPTERM, "proxy", "--embedded", "--log", str(log), *proxy]
        command += ["--", *SCRIPTED, *agent]
        line = ["node", str(ACPX), "--cwd", str(place.work), "--approve-all"]
        line += ["--format", "json", "--json-strict", "--timeout", str(seconds), *flags]
        line += ["--agent", shlex.join(command), "exec", json.dumps(steps)]
        with (tmp_path / "out").open("wb") as out, trio.fail_after(90):
            async with running(place, line, stdout=out) as process:
                await process.stdin.aclose()
                status = await process.wait()
        result = PromptResult(status, (tmp_path / "out").read_bytes(), log)
        result.wire.check(to_client="proxy->editor")
        return result

    return prompt


def ask(method: str, name: str = "last", **params: Any) -> dict[str, Any]:
    """Return a step that sends a request and repeats its response as a message."""
    return {"do": "ask", "method": method, "params": params, "as": name, "report": True}


TERMINAL = {"type": "terminal", "terminalId": "$t"}
RUN = [
    ask("terminal/create", "t", command="echo hello; exit 5"),
    {
        "do": "update",
        "update": {
            "sessionUpdate": "tool_call",
            "toolCallId": "call",
            "title": "run",
            "kind": "execute",
            "status": "in_progress",
            "content": [TERMINAL],
        },
    },
    ask("terminal/wait_for_exit", terminalId="$t"),
    ask("terminal/output", terminalId="$t"),
    ask("terminal/release", terminalId="$t"),
    {
        "do": "update",
        "update": {"sessionUpdate": "tool_call_update", "toolCallId": "call", "status": "failed"},
    },
]
FENCE = "```console\n$ echo hello; exit 5\nhello\n[exit status 5]\n```"


async def test_client_without_terminals_gets_them_as_text(prompt):
    result = await prompt(RUN, "--no-terminal")
    assert result.status == OK
    assert result.text("call") == FENCE
    assert not result.embedded()
    assert not result.params_of("terminal/create")
    terminal = result.wire.terminal()
    assert (terminal.status, terminal.text) == ((5, None), "hello\n")
    assert '"exitCode": 5' in result.message_text()


async def test_client_with_terminals_gets_the_terminal_requests(prompt):
    result = await prompt(RUN)
    assert result.status == OK
    (params,) = result.params_of("terminal/create")
    assert params["command"] == "echo hello; exit 5"
    terminal = result.wire.terminal()
    assert result.embedded() == [terminal.id]
    assert (terminal.status, terminal.text) == ((5, None), "hello\n")
    assert terminal.order == ["create", "wait_for_exit", "output", "release"]


async def test_client_with_terminals_gets_no_terminal_requests_with_terminals_ours(prompt):
    result = await prompt(RUN, proxy=("--terminals", "ours"))
    assert result.status == OK
    assert not result.params_of("terminal/create")
    assert not result.embedded()
    assert result.text("call") == FENCE
    assert result.wire.terminal().status == (5, None)


async def test_permission_request_embeds_terminals_as_text(prompt):
    options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
    call = {"toolCallId": "call", "title": "go on?", "content": [TERMINAL]}
    steps = [
        *RUN[:4],
        ask("session/request_permission", "answer", toolCall=call, options=options),
    ]
    result = await prompt(steps, "--no-terminal")
    assert result.status == OK
    (params,) = result.params_of("session/request_permission")
    (shown,) = params["toolCall"]["content"]
    assert shown["content"]["text"].startswith("```console\n$ echo hello; exit 5\n")
    assert not result.embedded()
    assert '"outcome": "selected", "optionId": "yes"' in result.message_text()


async def test_other_requests_are_passed_to_the_client(prompt, tmp_path):
    steps = [ask("fs/read_text_file", path=str(tmp_path / "work" / "file"))]
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").write_text("grüße 🙂\n")
    result = await prompt(steps, "--no-terminal")
    assert result.status == OK
    assert json.loads(result.message_text()) == {"content": "grüße 🙂\n"}


async def test_client_that_times_out_leaves_no_process(prompt):
    """`prompt` checks in every test that no process is left; here the agent has started some."""
    steps = [
        ask("terminal/create", "t", command="setsid sleep 7533 & sleep 7533"),
        ask("terminal/wait_for_exit", terminalId="$t"),
    ]
    result = await prompt(steps, "--no-terminal", seconds=3)
    assert result.status == TIMED_OUT
    # acpx closes the connection. So the proxy ends the terminals, and answers the agent's wait.
    assert result.wire.terminal().params["command"] == "setsid sleep 7533 & sleep 7533"
    waits = [m for name, _, m in result.wire.exchanges() if name == "terminal/wait_for_exit"]
    assert [answer["error"]["message"] for answer in waits] == ["the host is gone"]


async def test_agent_that_cannot_start_is_an_error_with_its_stderr(prompt):
    result = await prompt([], "--no-terminal", agent=("--die",))
    assert result.status == FAILED
    assert "no key in the environment: set AGENT_KEY" in json.dumps(result.messages)
