"""The validator that all host tests rely on refuses invalid messages."""

import copy
import json

import msgspec
import pytest
from jsonschema import Draft202012Validator

from acpterm.acp.agent_meta import ExitMeta
from acpterm.acp.initialize import host_answer
from acpterm.acp.terminal import (
    CreateTerminalResponse,
    Empty,
    TerminalExitStatus,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
)
from acpterm.jsonrpc import Peer, RpcError, encode_error, encode_response
from tests.acp.validate import _closed_definitions, _validator, validate_sent
from tests.support.cases import each_case

META = {"acpterm": ExitMeta(ended_by="exited", wall_ms=5, cpu_ms=130)}


def parse(line: bytes) -> dict:
    return json.loads(line)


GOOD = [
    ("terminal/create", CreateTerminalResponse("t")),
    ("terminal/create", CreateTerminalResponse("t", meta={"acpterm": {"pid": 1}})),
    ("terminal/output", TerminalOutputResponse("x", truncated=False)),
    ("terminal/output", TerminalOutputResponse("", True, TerminalExitStatus(0, meta=META))),
    ("terminal/wait_for_exit", WaitForTerminalExitResponse(signal="SIGTERM", meta=META)),
    ("terminal/kill", Empty()),
    ("terminal/release", Empty()),
    ("initialize", host_answer("0.1.0", {"read": True})),
    ("initialize", host_answer("0.1.0")),
    ("_acpterm/terminal/read", {"anything": 1}),
]


@each_case(("method", "result"), GOOD)
def test_encoded_results_are_valid(method, result):
    validate_sent(parse(encode_response(7, result)), {7: method})
    validate_sent(parse(encode_response("a", result)), {"a": method}.get)


def test_errors_requests_and_notifications_are_valid():
    validate_sent(parse(encode_error(None, RpcError(-32700, "no JSON"))), {})
    validate_sent(parse(encode_error(1, RpcError(-32602, "bad", {"x": 1}))), {})
    validate_sent(parse(Peer().cancel(0)), {})
    validate_sent(parse(Peer().notify("_acpterm/x", {"x": 1})), {})
    validate_sent(parse(Peer().notify("session/cancel", {"sessionId": "s"})), {})


BAD = [
    ("terminal/create", {}),
    ("terminal/create", {"terminalId": 5}),
    ("terminal/create", {"terminalId": "t", "pid": 5}),
    ("terminal/create", None),
    ("terminal/output", {"output": "x"}),
    ("terminal/output", {"output": "x", "truncated": False, "exitStatus": {"exitcode": 1}}),
    ("terminal/output", {"output": "x", "truncated": False, "exitStatus": {"exitCode": -1}}),
    ("terminal/output", {"output": "x", "truncated": 0}),
    ("terminal/wait_for_exit", {"exitStatus": {"exitCode": 0}}),
    ("terminal/wait_for_exit", {"exitCode": "0"}),
    ("terminal/kill", {"ok": True}),
    ("terminal/kill", None),
    ("terminal/release", {"_meta": 3}),
    ("terminal/nonsense", {}),
    ("initialize", {"protocolVersion": 1}),
]


@each_case(("method", "result"), BAD)
def test_results_that_the_schema_does_not_allow_are_refused(method, result):
    with pytest.raises(AssertionError):
        validate_sent({"jsonrpc": "2.0", "id": 1, "result": result}, {1: method})


def change(path: str, value) -> dict:
    answer = copy.deepcopy(msgspec.to_builtins(host_answer("0.1.0")))
    *inside, last = path.split(".")
    target = answer
    for name in inside:
        target = target[name]
    target[last] = value
    return answer


@each_case(
    ("path", "value"),
    [
        ("agentCapabilities", {}),
        ("clientCapabilities.terminals", True),
        ("clientCapabilities.terminal", "yes"),
        ("clientCapabilities.fs.write", True),
        ("clientInfo.url", "x"),
        ("clientInfo.version", None),
        ("protocolVersion", "1"),
        ("_meta", None),
    ],
)
def test_initialize_responses_that_the_schema_does_not_allow_are_refused(path, value):
    with pytest.raises(AssertionError):
        validate_sent({"jsonrpc": "2.0", "id": 1, "result": change(path, value)}, {1: "initialize"})


@each_case(
    "message",
    [
        {"id": 1, "result": {}},
        {"jsonrpc": "2.0", "result": {}},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 2, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "extra": 1},
        {"jsonrpc": "2.0", "id": 1.5, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": "m"}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": "1", "message": "m"}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 2**31, "message": "m"}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "m", "more": 1}},
        {"jsonrpc": "2.0", "method": "acpterm/x"},
        {"jsonrpc": "2.0", "method": "_x", "result": 1},
        {"jsonrpc": "2.0", "method": "session/cancel", "params": {}},
        {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s", "x": 1}},
        {"jsonrpc": "2.0", "id": 1, "method": "session/cancel", "params": {"sessionId": "s"}},
        [],
    ],
)
def test_envelopes_that_the_protocol_does_not_allow_are_refused(message):
    with pytest.raises(AssertionError):
        validate_sent(message, {1: "terminal/kill"})


def test_tagged_values_may_have_no_additional_members():
    def valid(**content) -> bool:
        call = {"sessionUpdate": "tool_call", "toolCallId": "x", "title": "t", "content": [content]}
        return _validator("SessionUpdate").is_valid(call)

    assert valid(type="terminal", terminalId="t")
    assert valid(type="content", content={"type": "text", "text": "x"})
    assert not valid(type="terminal", terminalId="t", more=1)
    assert not valid(type="content", content={"type": "text", "text": "x", "more": 1})
    assert len(_closed_definitions()) > 200


@pytest.mark.long
def test_closed_definitions_are_a_valid_schema():
    Draft202012Validator.check_schema({"$defs": _closed_definitions()})
