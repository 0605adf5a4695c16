"""An editor for tests: a client whose agent is at the other end of a stream, a proxy as a rule."""

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from acpterm.client.proxy.run import ProxyOptions, run_proxy
from acpterm.config import Settings
from tests.support.depth import DEADLINE_S
from tests.support.hosts import poll

SCRIPTED = Path(__file__).parent / "scripted.py"
# Without site-packages a Python starts in half the time.
AGENT = [sys.executable, "-S", "-E", str(SCRIPTED)]
FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}
SHOWS = {"_meta": {"terminal_output": True}}


class AgentError(Exception):
    """The error that a request was answered with."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]


class Editor:
    """One end of a stream to an agent. What comes is in `lines`, `messages` and `updates`."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.lines: list[bytes] = []
        self.messages: list[dict[str, Any]] = []
        self.closed = trio.Event()
        self.answer: Callable[[dict[str, Any]], Any] = lambda _: {}
        self._answers: dict[Any, dict[str, Any]] = {}
        self._waiting: dict[Any, trio.Event] = {}
        self._next = 0
        self.session = "s1"

    @property
    def updates(self) -> list[dict[str, Any]]:
        """The updates of `session/update`s, in order."""
        found = [m["params"]["update"] for m in self.messages if m.get("method") == UPDATE]
        return [update for update in found if isinstance(update, dict)]

    @property
    def said(self) -> list[str]:
        """The agent's messages."""
        chunks = [u for u in self.updates if u["sessionUpdate"] == "agent_message_chunk"]
        return [chunk["content"]["text"] for chunk in chunks]

    def calls(self, call: str = "c") -> list[dict[str, Any]]:
        """Give the updates of a tool call."""
        return [update for update in self.updates if update.get("toolCallId") == call]

    def texts(self, call: str = "c") -> list[str]:
        """Give the text blocks in the contents of a tool call, update by update."""
        return [
            item["content"]["text"]
            for update in self.calls(call)
            for item in update.get("content", [])
            if item["type"] == "content"
        ]

    async def read(self) -> None:
        """Take what comes until the stream is closed."""
        rest = b""
        try:
            while data := await self.stream.receive_some(1 << 20):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    await self._take(line)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.closed.set()
            for event in self._waiting.values():
                event.set()

    async def _take(self, line: bytes) -> None:
        self.lines.append(line)
        try:
            message = json.loads(line)
        except ValueError:
            return
        self.messages.append(message)
        if "method" not in message:
            self._answers[message.get("id")] = message
            if message.get("id") in self._waiting:
                self._waiting[message["id"]].set()
        elif "id" in message:
            result = self.answer(message)
            await self.send({"id": message["id"], "result": result})

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        await self.send_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def send_line(self, line: bytes) -> None:
        """Send a line as it is."""
        await self.stream.send_all(line + b"\n")

    async def start(self, method: str, params: Any) -> int:
        """Ask, and give the id to wait for."""
        self._next += 1
        self._waiting[self._next] = trio.Event()
        await self.send({"id": self._next, "method": method, "params": params})
        return self._next

    async def wait(self, id_: int) -> Any:
        """Wait for an answer: the result, or `AgentError`."""
        await self._waiting[id_].wait()
        message = self._answers.get(id_)
        if message is None:
            raise EOFError("the stream was closed before the answer")
        if "error" in message:
            raise AgentError(message["error"])
        return message["result"]

    async def request(self, method: str, params: Any) -> Any:
        """Ask, and wait for the result."""
        return await self.wait(await self.start(method, params))

    async def notify(self, method: str, params: Any) -> None:
        """Say something that has no answer."""
        await self.send({"method": method, "params": params})

    async def open(self, cwd: str, **capabilities: Any) -> dict[str, Any]:
        """`initialize` and `session/new`: what the first was answered."""
        told = {"protocolVersion": 1, "clientCapabilities": {**FILES, **capabilities}}
        answer: dict[str, Any] = await self.request("initialize", told)
        opened = await self.request("session/new", {"cwd": cwd, "mcpServers": []})
        self.session = opened["sessionId"]
        return answer

    async def begin(self, *steps: dict[str, Any]) -> int:
        """Send a prompt of steps (`scripted`): its id."""
        text = {"type": "text", "text": json.dumps(steps)}
        return await self.start("session/prompt", {"sessionId": self.session, "prompt": [text]})

    async def prompt(self, *steps: dict[str, Any]) -> str:
        """Have a turn of steps: why it ended."""
        answer = await self.wait(await self.begin(*steps))
        return str(answer["stopReason"])

    async def until(self, look: Callable[[], Any], seconds: float = DEADLINE_S) -> Any:
        """Look until what is seen is true: that."""
        return await poll(lambda: look() or None, seconds)


UPDATE = "session/update"


class Proxied(Editor):
    """An editor before a proxy in this process."""

    status: int | None = None
    done: trio.Event


@asynccontextmanager
async def proxied(
    *agent: str, settings: dict[str, Any] | None = None, **wishes: Any
) -> AsyncIterator[Proxied]:
    """Run a proxy in this process, before the scripted agent with options, or another command."""
    command = list(agent) if agent and os.sep in agent[0] else [*AGENT, *agent]
    ours, theirs = trio.socket.socketpair()
    editor = Proxied(trio.SocketStream(ours))
    editor.done = trio.Event()

    async def run() -> None:
        stated = Settings(**{"kill_grace": 0.2, **(settings or {})})
        wish = ProxyOptions(command, **{"embedded": True, **wishes})
        editor.status = await run_proxy(trio.SocketStream(theirs), stated, wish)
        editor.done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(editor.read)
        nursery.start_soon(run)
        try:
            yield editor
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(15):
                await editor.stream.aclose()
                await editor.done.wait()
            nursery.cancel_scope.cancel()


# Steps of the scripted agent, in short.


def say(text: str) -> dict[str, Any]:
    return {"do": "say", "text": text}


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
    """Run a command to its end, as agents do: call, create, embed, wait, output, release."""
    return [
        tool_call(call, title=title, kind="execute", status="pending"),
        create(command),
        tool_update(call, status="in_progress", content=[embed()]),
        of("wait_for_exit", report=True),
        of("output", report=True),
        of("release"),
        tool_update(call, status="completed"),
    ]
