"""An editor: the client of an agent, usually with a proxy between them."""

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from acpterm.agents.proxy.run import ProxyOptions, run_proxy
from acpterm.config import Settings
from tests.support.rpc import Message, RpcClient

SCRIPTED = Path(__file__).parent / "scripted.py"
# Python starts in half the time without site-packages.
AGENT = [sys.executable, "-S", "-E", str(SCRIPTED)]
FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}
SHOWS = {"_meta": {"terminal_output": True}}


class Editor(RpcClient):
    """A client's connection to an agent, or to a proxy in front of it."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self.session = "s1"
        self.info: dict[str, str] | None = {"name": "an editor", "version": "1"}
        self.lines: list[bytes] = []
        """The lines received so far, unchanged."""
        self.on_request: Callable[[Message], Any] = lambda _: {}
        """Called with a request of the agent; returns the result to send."""

    async def _receive_line(self, line: bytes) -> None:
        self.lines.append(line)
        try:
            message = json.loads(line)
        except ValueError:
            return
        await self._receive_message(message)

    async def _receive_message(self, message: Message) -> None:
        await super()._receive_message(message)
        if "method" in message and "id" in message:
            await self.respond(message, self.on_request(message))

    @property
    def updates(self) -> list[dict[str, Any]]:
        """The `update` members of the received `session/update`s, in order."""
        updates = [m["params"]["update"] for m in self.messages if m.get("method") == UPDATE]
        return [update for update in updates if isinstance(update, dict)]

    @property
    def texts_sent(self) -> list[str]:
        """The texts of the agent's message chunks."""
        chunks = [u for u in self.updates if u["sessionUpdate"] == "agent_message_chunk"]
        return [chunk["content"]["text"] for chunk in chunks]

    def calls(self, call: str = "c") -> list[dict[str, Any]]:
        """Return the received updates of a tool call, in order."""
        return [update for update in self.updates if update.get("toolCallId") == call]

    def texts(self, call: str = "c") -> list[str]:
        """Return all texts in the content of a tool call, in the order of the received updates."""
        return [
            item["content"]["text"]
            for update in self.calls(call)
            for item in update.get("content", [])
            if item["type"] == "content"
        ]

    async def open(self, cwd: str, **capabilities: Any) -> dict[str, Any]:
        """Send `initialize` and `session/new`; return the result of `initialize`."""
        params = {
            "protocolVersion": 1,
            "clientInfo": self.info,
            "clientCapabilities": {**FILES, **capabilities},
        }
        result: dict[str, Any] = await self.request("initialize", params)
        opened = await self.request("session/new", {"cwd": cwd, "mcpServers": []})
        self.session = opened["sessionId"]
        return result

    async def begin(self, *steps: dict[str, Any]) -> int:
        """Send a prompt of steps (see `scripted`); return its id."""
        text = {"type": "text", "text": json.dumps(steps)}
        params = {"sessionId": self.session, "prompt": [text]}
        return int(await self.start("session/prompt", params))

    async def prompt(self, *steps: dict[str, Any]) -> str:
        """Run a turn of steps; return its stop reason."""
        result = await self.result(await self.begin(*steps))
        return str(result["stopReason"])


UPDATE = "session/update"


class Proxied(Editor):
    """An editor connected to a proxy in this process."""

    status: int | None = None
    """The exit status of the proxy."""
    done: trio.Event
    """Set once the proxy has ended."""


@asynccontextmanager
async def proxied(
    *agent: str, settings: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Proxied]:
    """Run a proxy in this process, and connect an editor to it.

    `agent` is either options of the scripted agent, or the command of another agent.
    """
    command = list(agent) if agent and os.sep in agent[0] else [*AGENT, *agent]
    ours, theirs = trio.socket.socketpair()
    editor = Proxied(trio.SocketStream(ours))
    editor.done = trio.Event()

    async def run() -> None:
        applied = Settings(**{"kill_grace": 0.2, **(settings or {})})
        chosen = ProxyOptions(command, **{"embedded": True, **options})
        editor.status = await run_proxy(trio.SocketStream(theirs), applied, chosen)
        editor.done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(editor.listen)
        nursery.start_soon(run)
        try:
            yield editor
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(15):
                await editor.stream.aclose()
                await editor.done.wait()
            nursery.cancel_scope.cancel()


# Steps of the scripted agent.


def say(text: str) -> dict[str, Any]:
    return {"do": "say", "text": text}


def until(path: Path) -> dict[str, Any]:
    """Return a step that waits until the file `path` exists."""
    return {"do": "until", "path": str(path)}


def tool_call(call: str = "c", **fields: Any) -> dict[str, Any]:
    update = {"sessionUpdate": "tool_call", "toolCallId": call, "title": "a call", **fields}
    return {"do": "update", "update": update}


def tool_update(call: str = "c", **fields: Any) -> dict[str, Any]:
    fields = {("_meta" if name == "meta" else name): value for name, value in fields.items()}
    update = {"sessionUpdate": "tool_call_update", "toolCallId": call, **fields}
    return {"do": "update", "update": update}


def embed(terminal: str = "$t") -> dict[str, Any]:
    return {"type": "terminal", "terminalId": terminal}


def text(content: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": content}}


def create(command: str, name: str = "t", **more: Any) -> dict[str, Any]:
    params = {"command": command, **more}
    return {"do": "ask", "method": "terminal/create", "params": params, "as": name}


def of(method: str, name: str = "t", **more: Any) -> dict[str, Any]:
    params = {"terminalId": f"${name}"}
    return {"do": "ask", "method": f"terminal/{method}", "params": params, **more}


def shown(command: str, call: str = "c", *, title: str = "a call") -> list[dict[str, Any]]:
    """Return steps of the scripted agent that run a command in a terminal shown by a tool call.

    The order is that of real agents: tool call, create, embed, wait, output, release.
    """
    return [
        tool_call(call, title=title, kind="execute", status="pending"),
        create(command),
        tool_update(call, status="in_progress", content=[embed()]),
        of("wait_for_exit", report=True),
        of("output", report=True),
        of("release"),
        tool_update(call, status="completed"),
    ]
