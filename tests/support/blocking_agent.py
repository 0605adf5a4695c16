"""An agent for tests that are not async: its methods block."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.connector import connect_as_agent_blocking
from tests.support.depth import DEADLINE_S
from tests.support.rpc import Message, encode


class BlockingAgent:
    """An agent's connection, with one session.

    A response that arrives while `result` waits for another one is kept for a later `result`.
    """

    def __init__(self, path: str, session: str) -> None:
        self.session = session
        self._socket = connect_as_agent_blocking(path)
        self._socket.settimeout(DEADLINE_S)
        self._lines = self._socket.makefile("rb")
        self._responses: dict[int, Message] = {}
        self._last_id = 0
        info = {"name": "tester", "version": "1"}
        self.request("initialize", protocolVersion=1, clientInfo=info)

    def close(self) -> None:
        """Close the connection."""
        self._lines.close()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def start(self, method: str, **params: Any) -> int:
        """Send a request; return its id for `result`."""
        self._last_id += 1
        self._socket.sendall(encode(id=self._last_id, method=method, params=params))
        return self._last_id

    def result(self, id_: int) -> Any:
        """Wait for the response to a request; return its result."""
        while id_ not in self._responses:
            message = json.loads(self._lines.readline())
            if "method" not in message:
                self._responses[message["id"]] = message
        response = self._responses.pop(id_)
        assert "error" not in response, response
        return response["result"]

    def request(self, method: str, **params: Any) -> Any:
        """Send a request and wait for its result."""
        return self.result(self.start(method, **params))

    def create(self, command: str, *arguments: str, **params: Any) -> str:
        """Create a terminal; return its id."""
        params = {"sessionId": self.session, "command": command, "args": arguments, **params}
        return str(self.request("terminal/create", **params)["terminalId"])

    def terminal(self, method: str, terminal: str, **params: Any) -> Any:
        """Send the request `terminal/METHOD` for a terminal and wait for its result."""
        params = {"sessionId": self.session, "terminalId": terminal, **params}
        return self.request(f"terminal/{method}", **params)

    def tool_call(self, call: str, title: str, *terminals: str, status: str = "completed") -> None:
        """Report a tool call that embeds terminals."""
        update = {
            "sessionUpdate": "tool_call",
            "toolCallId": call,
            "title": title,
            "kind": "execute",
            "status": status,
            "content": [{"type": "terminal", "terminalId": terminal} for terminal in terminals],
        }
        params = {"sessionId": self.session, "update": update}
        self._socket.sendall(encode(method="session/update", params=params))


@contextmanager
def blocking_agent(path: str, session: str = "session-1") -> Iterator[BlockingAgent]:
    """Connect an agent to a daemon's agents' socket."""
    agent = BlockingAgent(path, session)
    try:
        yield agent
    finally:
        agent.close()
