"""Read acpterm's wire log: the agent's requests and their responses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.acp.validate import validate_sent

Message = dict[str, Any]

TERMINAL = ("create", "output", "wait_for_exit", "kill", "release")


class Terminal:
    """One terminal of the agent: the params of its `terminal/create`, and results of requests.

    A result is None if the agent has not sent that request or not received the response.
    """

    def __init__(self, params: Message, created: Message) -> None:
        self.params = params
        self.id = created["terminalId"]
        self.waited: Message | None = None
        self.output: Message | None = None
        self.killed: Message | None = None
        self.released: Message | None = None
        self.order = ["create"]

    @property
    def text(self) -> str:
        assert self.output is not None
        return self.output["output"]

    @property
    def status(self) -> tuple[int | None, str | None]:
        """The exit code and the signal, from the response to the wait."""
        assert self.waited is not None
        return self.waited["exitCode"], self.waited["signal"]


class Wire:
    """A wire log. `to_agent` and `from_agent` are the names of its directions."""

    def __init__(self, log: Path, to_agent: str, from_agent: str) -> None:
        # The log may still be written to, so its last line may be incomplete.
        whole = log.read_text().rpartition("\n")[0] if log.exists() else ""
        self.entries = [json.loads(line) for line in whole.splitlines()]
        self.to_agent = [e["msg"] for e in self.entries if e["dir"] == to_agent]
        self.from_agent = [e["msg"] for e in self.entries if e["dir"] == from_agent]

    def in_direction(self, direction: str) -> list[Message]:
        return [entry["msg"] for entry in self.entries if entry["dir"] == direction]

    def params_of(self, method: str) -> list[Message]:
        """Return the params of the agent's requests of one method."""
        return [m["params"] for m in self.from_agent if m.get("method") == method and "id" in m]

    def exchanges(self) -> Iterator[tuple[str, Message, Message]]:
        """Yield method, params and response of the answered requests, in order of the responses."""
        requests = {m["id"]: m for m in self.from_agent if "method" in m and "id" in m}
        for message in self.to_agent:
            if "method" not in message and message["id"] in requests:
                request = requests[message["id"]]
                yield request["method"], request["params"], message

    def errors(self) -> list[str]:
        """Return the messages of the errors that the agent received."""
        return [m["error"]["message"] for _, _, m in self.exchanges() if "error" in m]

    def terminals(self) -> list[Terminal]:
        """Return the agent's terminals, in the order in which they were created."""
        found: dict[str, Terminal] = {}
        for method, params, answer in self.exchanges():
            if not method.startswith("terminal/") or "error" in answer:
                continue
            name = method.removeprefix("terminal/")
            if name == "create":
                terminal = Terminal(params, answer["result"])
                found[terminal.id] = terminal
                continue
            attributes = {"wait_for_exit": "waited", "kill": "killed", "release": "released"}
            terminal = found[params["terminalId"]]
            terminal.order.append(name)
            setattr(terminal, attributes.get(name, name), answer["result"])
        return list(found.values())

    def terminal(self) -> Terminal:
        """Return the only terminal."""
        (found,) = self.terminals()
        return found

    def message_text(self) -> str:
        """Return the text of the agent's messages."""
        updates = [m["params"]["update"] for m in self.from_agent if _is_update(m)]
        chunks = [u for u in updates if u["sessionUpdate"] == "agent_message_chunk"]
        return "".join(chunk["content"].get("text", "") for chunk in chunks)

    def check(self, to_client: str | None = None) -> None:
        """Validate the messages that acpterm itself sent against ACP's schema.

        Those are all messages to the agent and, with `to_client`, the messages to the client that
        were not passed on unchanged from the agent.
        """
        methods = {m["id"]: m["method"] for m in self.from_agent if "method" in m and "id" in m}
        for message in self.to_agent:
            validate_sent(message, methods)
        if to_client is not None:
            passed_on = {json.dumps(message, sort_keys=True) for message in self.from_agent}
            for message in self.in_direction(to_client):
                if json.dumps(message, sort_keys=True) not in passed_on:
                    validate_sent(message, methods)


def _is_update(message: Message) -> bool:
    return message.get("method") == "session/update"
