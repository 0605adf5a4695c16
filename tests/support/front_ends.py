"""Small models of front ends: what they show after what they are told; each message is checked.

They are as strict as the strictest real ones: a `tool_call_update` of a call that nobody has told
of, a terminal that is embedded or prints before it was told of, and `terminal_info` anywhere but in
a `tool_call` are failures.
"""

import base64
import functools
import json
import re
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from tests.acp import validate

TOKENLESS = {"jsonrpc", "method", "params"}
_V2 = json.loads((Path(validate.__file__).parent / "schema" / "schema-v2.json").read_text())
# Of ours it is only the kinds of things that v2 has.
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
    for name, definition in _known_kinds(_V2["$defs"]).items():
        closed[name] = validate._close(definition)
        still_open = validate._close(definition)
        still_open.pop("unevaluatedProperties", None)
        closed[f"{name}.open"] = still_open
    return Draft202012Validator({"$ref": "#/$defs/UpdateSessionNotification", "$defs": closed})


def validate_v2(message: dict[str, Any]) -> None:
    """Check a `session/update` of v2; raise AssertionError saying what is wrong with it."""
    assert message.keys() == TOKENLESS
    assert message["method"] == "session/update"
    errors = list(_v2_validator().iter_errors(message["params"]))
    what = "; ".join(f"{error.json_path}: {error.message}" for error in errors)
    assert not errors, f"{what}: {message!r}"


class Shown:
    """A terminal in a front end. `output`: since the last loss; `missing`: bytes, if known."""

    def __init__(self) -> None:
        self.output = b""
        self.missing = 0
        self.exit: tuple[Any, Any] | None = None
        self.cwd: str | None = None
        self.command: str | None = None
        self.parts = 0

    @property
    def state(self) -> tuple[bytes, Any, Any]:
        return self.output, self.exit, self.cwd


class FrontEnd:
    """What is shown. `foreign`: ids of terminals that may be embedded without being told of."""

    def __init__(self, *foreign: str) -> None:
        self.calls: dict[str, dict[str, Any]] = {}
        self.terminals: dict[str, Shown] = {}
        self.foreign = set(foreign)
        self.log: list[tuple[str | None, ...]] = []

    def take(self, message: dict[str, Any]) -> None:
        """Take a notification."""
        raise NotImplementedError

    def take_all(self, messages: list[dict[str, Any]]) -> "FrontEnd":
        for message in messages:
            self.take(message)
        return self

    @property
    def state(self) -> Any:
        """What there is to see."""
        return self.calls, {name: shown.state for name, shown in self.terminals.items()}

    def _merge(self, update: dict[str, Any]) -> None:
        call = update["toolCallId"]
        held = self.calls.setdefault(call, {})
        for name, value in update.items():
            if name in ("sessionUpdate", "toolCallId"):
                continue
            if name == "_meta":
                notes = {"terminal_info", "terminal_output", "terminal_exit"}
                more = {key: member for key, member in value.items() if key not in notes}
                if more:
                    held["_meta"] = {**held.get("_meta", {}), **more}
            elif value is None or value == []:
                held.pop(name, None)
            else:
                held[name] = value
        for item in update.get("content") or ():
            if item["type"] == "terminal":
                known = self.terminals.keys() | self.foreign
                assert item["terminalId"] in known, f"embedded before it was told of: {update!r}"
        if set(update) - {"sessionUpdate", "toolCallId", "_meta"}:
            self.log.append(("call", call, update.get("status")))


class MetaFrontEnd(FrontEnd):
    """One of ACP v1, as Zed is."""

    def take(self, message: dict[str, Any]) -> None:
        validate.validate_sent(message, {})
        assert message["method"] == "session/update"
        update = message["params"]["update"]
        meta = update.get("_meta") or {}
        if info := meta.get("terminal_info"):
            assert update["sessionUpdate"] == "tool_call", "Zed does not look here"
            assert info["terminal_id"] not in self.terminals, f"told of twice: {message!r}"
            shown = self.terminals[info["terminal_id"]] = Shown()
            shown.cwd = info.get("cwd")
        if update["sessionUpdate"] == "tool_call_update":
            assert update["toolCallId"] in self.calls, f"of a call that is not known: {message!r}"
        self._merge(update)
        if output := meta.get("terminal_output"):
            shown = self.terminals[output["terminal_id"]]
            shown.parts += 1
            self.log.append(("output", output["terminal_id"]))
            text = output["data"]
            if "\x1b[2J\x1b[3J\x1b[H" in text:
                shown.output, text = b"", text.split("\x1b[2J\x1b[3J\x1b[H")[-1]
            while lost := _MISSING.search(text):
                shown.missing += int(lost[1])
                shown.output, text = b"", text[lost.end() :]
            shown.output += text.encode()
        if end := meta.get("terminal_exit"):
            self.log.append(("exit", end["terminal_id"]))
            shown = self.terminals[end["terminal_id"]]
            shown.exit = end["exit_code"], end["signal"]


class V2FrontEnd(FrontEnd):
    """One of ACP v2."""

    def take(self, message: dict[str, Any]) -> None:
        validate_v2(message)
        update = message["params"]["update"]
        match update["sessionUpdate"]:
            case "tool_call_update":
                self._merge(update)
            case "terminal_output_chunk":
                shown = self.terminals[update["terminalId"]]
                shown.output += base64.b64decode(update["data"], validate=True)
                shown.parts += 1
                self.log.append(("output", update["terminalId"]))
            case "terminal_update":
                shown = self.terminals.setdefault(update["terminalId"], Shown())
                shown.cwd = update.get("cwd", shown.cwd)
                shown.command = update.get("command", shown.command)
                if "output" in update:
                    shown.output = base64.b64decode(update["output"]["data"], validate=True)
                if "exitStatus" in update:
                    self.log.append(("exit", update["terminalId"]))
                    end = update["exitStatus"]
                    shown.exit = end and (end.get("exitCode"), end.get("signal"))
            case kind:
                raise AssertionError(kind)


FRONT_ENDS = {"meta": MetaFrontEnd, "v2": V2FrontEnd}
