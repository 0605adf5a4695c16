"""Validate messages of a host against ACP v1.

Every object has exactly the members that the schema names. Extensions are in ``_meta``, or in
methods that start with ``_``.
"""

import functools
import json
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator


def _definitions(file: str) -> dict[str, Any]:
    path = Path(__file__).parent / "schema" / file
    definitions: dict[str, Any] = json.loads(path.read_text())["$defs"]
    return definitions


DEFS, V2_DEFS = _definitions("schema.json"), _definitions("schema-v2.json")

# The response of a host to `initialize`, which has the client's part of the handshake.
HOST_ANSWER = {
    "type": "object",
    "properties": {
        "protocolVersion": {"$ref": "#/$defs/ProtocolVersion"},
        "clientCapabilities": {"$ref": "#/$defs/ClientCapabilities"},
        "clientInfo": {"$ref": "#/$defs/Implementation"},
        "_meta": {"type": "object"},
    },
    "required": ["protocolVersion", "clientCapabilities", "clientInfo"],
    "unevaluatedProperties": False,
}


def validate_sent(
    message: dict[str, Any], method_of_id: Mapping[Any, str] | Callable[[Any], str | None]
) -> None:
    """Check a message that a host sent; raise AssertionError with a description if it is invalid.

    `method_of_id` maps the id of a request to its method.
    """
    assert isinstance(message, dict), f"not an object: {message!r}"
    assert message.get("jsonrpc") == "2.0", f"jsonrpc is not 2.0: {message!r}"
    if "method" in message:
        _members(message, {"jsonrpc", "method"}, {"id", "params"})
        assert isinstance(message["method"], str), f"method is not a string: {message!r}"
        if "id" in message:
            _check("RequestId", message["id"], message)
        _check_params(message)
    elif "error" in message:
        _members(message, {"jsonrpc", "id", "error"}, set())
        _check("RequestId", message["id"], message)
        _check("Error", message["error"], message)
        code = message["error"]["code"]
        assert -(2**31) <= code < 2**31, f"error code is not of 32 bits: {message!r}"
        assert message["error"]["message"], f"error message is empty: {message!r}"
    else:
        _members(message, {"jsonrpc", "id", "result"}, set())
        _check("RequestId", message["id"], message)
        find = method_of_id if callable(method_of_id) else method_of_id.get
        method = find(message["id"])
        assert method is not None, f"answers a request that was not sent: {message!r}"
        if not method.startswith("_"):
            name = "HOST_ANSWER" if method == "initialize" else definition_of(method, "Response")
            _check(name, message["result"], message)


def _members(message: dict[str, Any], required: set[str], optional: set[str]) -> None:
    missing, extra = required - message.keys(), message.keys() - required - optional
    assert not missing, f"without {sorted(missing)}: {message!r}"
    assert not extra, f"with {sorted(extra)}: {message!r}"


def _check_params(message: dict[str, Any]) -> None:
    method = message["method"]
    if not method.startswith("_"):
        name = definition_of(method, "Request" if "id" in message else "Notification")
        _check(name, message.get("params"), message)


@functools.cache
def definition_of(method: str, suffix: str) -> str:
    """Return the name of the Request, Response or Notification of a method."""
    found = [n for n, d in DEFS.items() if d.get("x-method") == method and n.endswith(suffix)]
    assert len(found) == 1, f"ACP v1 has no {suffix.lower()} for {method}"
    return found[0]


def sample(schema: dict[str, Any]) -> Any:
    """Return a valid value, with the members that are required."""
    if "$ref" in schema:
        return sample(DEFS[schema["$ref"].split("/")[-1]])
    both = [sample(part) for part in schema.get("allOf", ())]
    for some in ("anyOf", "oneOf"):
        both += [sample(schema[some][0])] if some in schema else []
    if "const" in schema:
        return schema["const"]
    required = schema.get("required", ())
    if "properties" in schema:
        own = {name: sample(schema["properties"][name]) for name in required}
        return functools.reduce(operator.or_, both, own)
    if both:
        return both[0]
    return {"string": "s", "integer": 1, "boolean": True, "array": [], "object": {}}[schema["type"]]


def _check(name: str, value: Any, message: dict[str, Any]) -> None:
    errors = list(_validator(name).iter_errors(value))
    problems = "; ".join(f"{error.json_path}: {error.message}" for error in errors)
    assert not errors, f"not a {name}: {problems}: {message!r}"


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    schema = {"$ref": f"#/$defs/{name}", "$defs": _closed_definitions()}
    return Draft202012Validator(schema)


@functools.cache
def _closed_definitions() -> dict[str, Any]:
    """Return the schema's definitions, changed to forbid members that the schema does not name.

    Each definition also has a copy, NAME.open, which forbids nothing itself. A definition that adds
    a member to another one, such as a tag, refers to the copy, and forbids all members but those of
    both.
    """
    closed: dict[str, Any] = {"HOST_ANSWER": HOST_ANSWER}
    for name, definition in DEFS.items():
        closed[name] = _close(definition)
        still_open = _close(definition)
        still_open.pop("unevaluatedProperties", None)
        closed[f"{name}.open"] = still_open
    return closed


def _close(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_close(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {
        key: {name: _close(inner) for name, inner in value.items()}
        if key == "properties"
        else _close(value)
        for key, value in schema.items()
        if key not in {"default", "description", "discriminator"}
    }
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        out["unevaluatedProperties"] = False
        for key in ("allOf", "anyOf", "oneOf"):
            out.update({key: [_opened(inner) for inner in out[key]]} if key in out else {})
    return out


def _opened(schema: Any) -> Any:
    if "$ref" in schema:
        return {**schema, "$ref": schema["$ref"] + ".open"}
    return {key: value for key, value in schema.items() if key != "unevaluatedProperties"}
