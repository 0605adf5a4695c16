"""A small ACP agent that runs each line of its prompt as a command in a terminal of its client.

    acpterm prompt 'ls | head -3' --allow all -- python3 docs/examples/acp_agent.py

Standard library only: copy from it. The agent has no model; it shows the order of an agent's
messages: a tool call, a permission request, a terminal, the terminal in the tool call, the wait for
its exit, the output, the release, the end of the tool call. The client must have terminals.
"""

import asyncio
import itertools
import json
import os
import sys
from typing import Any

JSON = dict[str, Any]
LONGEST_LINE = 64 * 1024 * 1024
OPTIONS = [
    {"optionId": "yes", "name": "Run it", "kind": "allow_once"},
    {"optionId": "no", "name": "Do not run it", "kind": "reject_once"},
]


class ClientError(Exception):
    """The client responded with an error."""


class Client:
    """The client at the other end of stdin and stdout. One turn at a time."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[JSON]] = {}
        self._has_terminals = False
        self._turn: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Answer the client's requests until stdin ends."""
        reader = asyncio.StreamReader(limit=LONGEST_LINE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            message = json.loads(line)
            if "method" not in message:
                waiting = self._waiting.pop(message["id"], None)
                if waiting and not waiting.cancelled():
                    waiting.set_result(message)
            elif message["method"] == "session/cancel":
                if self._turn:
                    self._turn.cancel()
            elif "id" in message:
                self._answer(message)

    def _answer(self, message: JSON) -> None:
        params = message.get("params", {})
        match message["method"]:
            case "initialize":
                capabilities = params.get("clientCapabilities", {})
                self._has_terminals = capabilities.get("terminal", False)
                # Empty, but there: avante.nvim fails without them.
                result = {"protocolVersion": 1, "agentCapabilities": {}}
                self._send({"id": message["id"], "result": result})
            case "session/new":
                result = {"sessionId": f"session-{os.getpid()}"}
                self._send({"id": message["id"], "result": result})
            case "session/prompt" if self._has_terminals:
                self._turn = asyncio.create_task(self._prompt(message["id"], params))
            case "session/prompt":
                error = {"code": -32603, "message": "this client has no terminals"}
                self._send({"id": message["id"], "error": error})
            case method:
                error = {"code": -32601, "message": f"there is no method {method!r} here"}
                self._send({"id": message["id"], "error": error})

    async def _prompt(self, id_: Any, params: JSON) -> None:
        session = params["sessionId"]
        text = "\n".join(block.get("text", "") for block in params["prompt"])
        try:
            for number, command in enumerate(filter(None, text.splitlines()), 1):
                await self._run(session, f"call-{id_}-{number}", command)
        except asyncio.CancelledError:
            self._send({"id": id_, "result": {"stopReason": "cancelled"}})
        except ClientError as error:
            self._send({"id": id_, "error": {"code": -32603, "message": str(error)}})
        else:
            self._send({"id": id_, "result": {"stopReason": "end_turn"}})

    async def _run(self, session: str, call: str, command: str) -> None:
        update: JSON = {"toolCallId": call, "title": command, "kind": "execute"}
        self._update(session, sessionUpdate="tool_call", status="pending", **update)
        request = {"toolCall": {"toolCallId": call, "title": command}, "options": OPTIONS}
        answer = await self._ask("session/request_permission", session, **request)
        if answer["outcome"].get("optionId") != "yes":
            self._update(
                session, sessionUpdate="tool_call_update", toolCallId=call, status="failed"
            )
            return
        created = await self._ask(
            "terminal/create", session, command=command, outputByteLimit=16000
        )
        terminal = created["terminalId"]
        try:
            content = [{"type": "terminal", "terminalId": terminal}]
            update = {"toolCallId": call, "status": "in_progress", "content": content}
            self._update(session, sessionUpdate="tool_call_update", **update)
            end = await self._ask("terminal/wait_for_exit", session, terminalId=terminal)
            output = await self._ask("terminal/output", session, terminalId=terminal)
        finally:
            self._send_request("terminal/release", session, terminalId=terminal)
        status = "completed" if end.get("exitCode") == 0 else "failed"
        self._update(session, sessionUpdate="tool_call_update", toolCallId=call, status=status)
        lines = len(output["output"].splitlines())
        text = f"`{command}` printed {lines} {'line' if lines == 1 else 'lines'}.\n"
        message = {"type": "text", "text": text}
        self._update(session, sessionUpdate="agent_message_chunk", content=message)

    async def _ask(self, method: str, session: str, **params: Any) -> JSON:
        id_ = self._send_request(method, session, **params)
        waiting = self._waiting[id_] = asyncio.get_running_loop().create_future()
        answer = await waiting
        if "error" in answer:
            raise ClientError(f"{method}: {answer['error']['message']}")
        result: JSON = answer["result"]
        return result

    def _send_request(self, method: str, session: str, **params: Any) -> int:
        id_ = next(self._ids)
        self._send({"id": id_, "method": method, "params": {"sessionId": session, **params}})
        return id_

    def _update(self, session: str, **update: Any) -> None:
        params = {"sessionId": session, "update": update}
        self._send({"method": "session/update", "params": params})

    def _send(self, message: JSON) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(Client().serve())
