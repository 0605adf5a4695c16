"""A minimal editor: it speaks ACP over pipes, grants every permission, and records updates.

It has no terminals. With `shows` it displays terminals of agents (`_meta.terminal_output`), as Zed
does. A tool call that embeds an unknown terminal is an error, as in Zed.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

Message = dict[str, Any]


class Client:
    """A client of an agent, or of the proxy in front of it. Created by `talking`."""

    def __init__(self, stream: trio.abc.Stream, *, shows: bool) -> None:
        self._stream = stream
        self._shows = shows
        self._answers: dict[int, Message] = {}
        self._waiting: dict[int, trio.Event] = {}
        self._last_id = 0
        self._send_lock = trio.Lock()
        self.message_text: dict[str, str] = {}
        """The text of the agent's messages, by session."""
        self.calls: dict[tuple[str, str], Message] = {}
        """The tool calls with their updates merged, by session and id."""
        self.terminals: dict[str, Message] = {}
        """The agent's own terminals by id: `cwd`, `data`, `exit`."""

    async def start(self, cwd: str) -> str:
        """Initialize and open a session; return its id."""
        meta = {"terminal_output": True} if self._shows else {}
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "_meta": meta}
        info = {"name": "tests", "version": "1"}
        params = {"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": info}
        answer = await self.request("initialize", params)
        assert answer["protocolVersion"] == 1
        return await self.open(cwd)

    async def open(self, cwd: str) -> str:
        """Open a session; return its id."""
        opened = await self.request("session/new", {"cwd": cwd, "mcpServers": []})
        return str(opened["sessionId"])

    async def prompt(self, session: str, text: str) -> str:
        """Run a turn; return its stop reason."""
        params = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
        return str((await self.request("session/prompt", params))["stopReason"])

    async def cancel(self, session: str) -> None:
        await self._send({"method": "session/cancel", "params": {"sessionId": session}})

    async def request(self, method: str, params: Any) -> Any:
        self._last_id += 1
        id_ = self._last_id
        self._waiting[id_] = trio.Event()
        await self._send({"id": id_, "method": method, "params": params})
        await self._waiting[id_].wait()
        del self._waiting[id_]
        assert id_ in self._answers, f"no answer to {method}: the stream has ended"
        answer = self._answers.pop(id_)
        assert "error" not in answer, f"{method}: {answer}"
        return answer["result"]

    def shown(self) -> str:
        """Return the text that an editor shows in all tool calls."""
        return "\n".join(
            item["content"].get("text", "")
            for call in self.calls.values()
            for item in call.get("content") or []
            if item["type"] == "content"
        )

    async def read(self) -> None:
        """Handle messages until the stream ends."""
        rest = b""
        try:
            while data := await self._stream.receive_some(1 << 20):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    await self._handle(json.loads(line))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            for event in self._waiting.values():
                event.set()

    async def _handle(self, message: Message) -> None:
        method, params = message.get("method"), message.get("params")
        if method is None:
            self._answers[message["id"]] = message
            self._waiting[message["id"]].set()
        elif method == "session/update":
            self._update(params["sessionId"], params["update"])
        elif method == "session/request_permission":
            self._check(params["toolCall"])
            option = next(o for o in params["options"] if o["kind"].startswith("allow"))
            outcome = {"outcome": "selected", "optionId": option["optionId"]}
            await self._send({"id": message["id"], "result": {"outcome": outcome}})
        elif "id" in message:
            error = {"code": -32601, "message": f"this client has no method {method}"}
            await self._send({"id": message["id"], "error": error})

    def _update(self, session: str, update: Message) -> None:
        match update["sessionUpdate"]:
            case "agent_message_chunk":
                text = update["content"].get("text", "")
                self.message_text[session] = self.message_text.get(session, "") + text
            case "tool_call" | "tool_call_update":
                call = self.calls.setdefault((session, update["toolCallId"]), {})
                self._apply_meta(update)
                self._check(update)
                call.update({name: value for name, value in update.items() if value is not None})

    def _apply_meta(self, update: Message) -> None:
        meta = update.get("_meta") or {}
        if info := meta.get("terminal_info"):
            # Zed reads this only from a `tool_call`.
            assert update["sessionUpdate"] == "tool_call", update
            self.terminals[info["terminal_id"]] = {"cwd": info.get("cwd"), "data": "", "exit": None}
        if output := meta.get("terminal_output"):
            self.terminals[output["terminal_id"]]["data"] += output["data"]
        if end := meta.get("terminal_exit"):
            self.terminals[end["terminal_id"]]["exit"] = end["exit_code"], end["signal"]

    def _check(self, call: Message) -> None:
        embedded = [i["terminalId"] for i in call.get("content") or [] if i["type"] == "terminal"]
        unknown = [terminal for terminal in embedded if terminal not in self.terminals]
        assert not unknown, f"unknown terminals: {call}"

    async def _send(self, message: Message) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        async with self._send_lock:
            await self._stream.send_all(line)


@asynccontextmanager
async def talking(stream: trio.abc.Stream, *, shows: bool) -> AsyncIterator[Client]:
    """Run a client on a stream while the block lasts; with `shows`, it can show terminals."""
    client = Client(stream, shows=shows)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.read)
        yield client
        nursery.cancel_scope.cancel()
