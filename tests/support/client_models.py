"""Models of clients: the state that they display after a series of updates, each validated.

They are as strict as the strictest real clients. They raise AssertionError for a `tool_call_update`
of an unknown call, for a terminal that is embedded or has output before its `terminal_info`, and
for `terminal_info` outside of a `tool_call`.
"""

import base64
import functools
import re
from typing import Any

from jsonschema import Draft202012Validator

from tests.acp import validate

TOKENLESS = {"jsonrpc", "method", "params"}
# Variants in the schema that accept any other kind, which v2 does not have.
_CATCH_ALLS = ("other", "unknown")
_MISSING = re.compile(r"\r\n\[(\d+) bytes are missing\]\r\n")


def _known_kinds(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_known_kinds(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _known_kinds(value) for key, value in schema.items() if key != "not"}
    if isinstance(out.get("anyOf"), list):
        out["anyOf"] = [v for v in out["anyOf"] if v.get("title") not in _CATCH_ALLS]
    return out


@functools.cache
def _v2_validator() -> Draft202012Validator:
    closed = {}
    for name, definition in _known_kinds(validate.V2_DEFS).items():
        closed[name] = validate._close(definition)
        still_open = validate._close(definition)
        still_open.pop("unevaluatedProperties", None)
        closed[f"{name}.open"] = still_open
    return Draft202012Validator({"$ref": "#/$defs/UpdateSessionNotification", "$defs": closed})


def validate_v2(message: dict[str, Any]) -> None:
    """Validate a `session/update` of ACP v2; raise an AssertionError that says what is invalid."""
    assert message.keys() == TOKENLESS
    assert message["method"] == "session/update"
    errors = list(_v2_validator().iter_errors(message["params"]))
    invalid = "; ".join(f"{error.json_path}: {error.message}" for error in errors)
    assert not errors, f"{invalid}: {message!r}"


class TerminalModel:
    """A terminal that a client displays."""

    def __init__(self) -> None:
        self.output = b""
        """The output since bytes were last reported as lost."""
        self.missing = 0
        """The number of bytes that were reported as lost."""
        self.exit: tuple[Any, Any] | None = None
        self.cwd: str | None = None
        self.command: str | None = None
        self.parts = 0

    @property
    def state(self) -> tuple[bytes, Any, Any]:
        return self.output, self.exit, self.cwd


class ClientModel:
    """The state that a client displays.

    Terminals whose ids are in `foreign` may be embedded without `terminal_info`.
    """

    def __init__(self, *foreign: str) -> None:
        self.calls: dict[str, dict[str, Any]] = {}
        self.terminals: dict[str, TerminalModel] = {}
        self.foreign = set(foreign)
        self.log: list[tuple[str | None, ...]] = []

    def process(self, message: dict[str, Any]) -> None:
        """Process a notification."""
        raise NotImplementedError

    def process_all(self, messages: list[dict[str, Any]]) -> "ClientModel":
        """Process notifications in order; return this model."""
        for message in messages:
            self.process(message)
        return self

    @property
    def state(self) -> Any:
        """The tool calls and terminals that are displayed."""
        return self.calls, {name: terminal.state for name, terminal in self.terminals.items()}

    def _merge(self, update: dict[str, Any]) -> None:
        call = update["toolCallId"]
        call_state = self.calls.setdefault(call, {})
        for name, value in update.items():
            if name in ("sessionUpdate", "toolCallId"):
                continue
            if name == "_meta":
                notes = {"terminal_info", "terminal_output", "terminal_exit"}
                more = {key: member for key, member in value.items() if key not in notes}
                if more:
                    call_state["_meta"] = {**call_state.get("_meta", {}), **more}
            elif value is None or value == []:
                call_state.pop(name, None)
            else:
                call_state[name] = value
        for item in update.get("content") or ():
            if item["type"] == "terminal":
                known = self.terminals.keys() | self.foreign
                assert item["terminalId"] in known, f"embedded before its terminal_info: {update!r}"
        if set(update) - {"sessionUpdate", "toolCallId", "_meta"}:
            self.log.append(("call", call, update.get("status")))


class V1MetaClient(ClientModel):
    """A client of ACP v1 that reads `_meta`, such as Zed."""

    def process(self, message: dict[str, Any]) -> None:
        validate.validate_sent(message, {})
        assert message["method"] == "session/update"
        update = message["params"]["update"]
        meta = update.get("_meta") or {}
        if info := meta.get("terminal_info"):
            assert update["sessionUpdate"] == "tool_call", "Zed ignores it here"
            assert info["terminal_id"] not in self.terminals, f"a second terminal_info: {message!r}"
            terminal = self.terminals[info["terminal_id"]] = TerminalModel()
            terminal.cwd = info.get("cwd")
        if update["sessionUpdate"] == "tool_call_update":
            assert update["toolCallId"] in self.calls, f"an update of an unknown call: {message!r}"
        self._merge(update)
        if output := meta.get("terminal_output"):
            terminal = self.terminals[output["terminal_id"]]
            terminal.parts += 1
            self.log.append(("output", output["terminal_id"]))
            text = output["data"]
            if "\x1b[2J\x1b[3J\x1b[H" in text:
                terminal.output, text = b"", text.split("\x1b[2J\x1b[3J\x1b[H")[-1]
            while lost := _MISSING.search(text):
                terminal.missing += int(lost[1])
                terminal.output, text = b"", text[lost.end() :]
            terminal.output += text.encode()
        if end := meta.get("terminal_exit"):
            self.log.append(("exit", end["terminal_id"]))
            terminal = self.terminals[end["terminal_id"]]
            terminal.exit = end["exit_code"], end["signal"]


class V2Client(ClientModel):
    """A client of ACP v2."""

    def process(self, message: dict[str, Any]) -> None:
        validate_v2(message)
        update = message["params"]["update"]
        match update["sessionUpdate"]:
            case "tool_call_update":
                self._merge(update)
            case "terminal_output_chunk":
                terminal = self.terminals[update["terminalId"]]
                terminal.output += base64.b64decode(update["data"], validate=True)
                terminal.parts += 1
                self.log.append(("output", update["terminalId"]))
            case "terminal_update":
                terminal = self.terminals.setdefault(update["terminalId"], TerminalModel())
                terminal.cwd = update.get("cwd", terminal.cwd)
                terminal.command = update.get("command", terminal.command)
                if "output" in update:
                    terminal.output = base64.b64decode(update["output"]["data"], validate=True)
                if "exitStatus" in update:
                    self.log.append(("exit", update["terminalId"]))
                    end = update["exitStatus"]
                    terminal.exit = end and (end.get("exitCode"), end.get("signal"))
            case kind:
                raise AssertionError(kind)


CLIENT_MODELS = {"meta": V1MetaClient, "v2": V2Client}
