"""Decoding is as lenient as the schema requires, and no more."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from acpterm.acp.agent_meta import ResourcesParams
from acpterm.acp.initialize import InitializeRequest
from acpterm.acp.lenient import decode
from acpterm.acp.session import CancelNotification
from acpterm.acp.terminal import (
    CreateTerminalRequest,
    EnvVariable,
    TerminalOutputResponse,
    TerminalRequest,
)
from acpterm.jsonrpc import RpcError
from tests.support.cases import each_case


def create(**more) -> CreateTerminalRequest:
    params = {"sessionId": "s", "command": "c", **more}
    return decode(Raw(json.dumps(params).encode()), CreateTerminalRequest)


def refusal(raw, into=CreateTerminalRequest) -> str:
    with pytest.raises(RpcError) as caught:
        decode(raw, into)
    assert caught.value.code == -32602
    return caught.value.message


def test_complete_request_is_decoded():
    env = [{"name": "A", "value": "b", "_meta": {"x": 1}}]
    request = create(args=["-l"], env=env, cwd="/", outputByteLimit=0, _meta={"k": [1]})
    assert (request.session_id, request.command, request.cwd) == ("s", "c", "/")
    assert request.args == ["-l"]
    assert request.output_byte_limit == 0
    assert request.env == [EnvVariable("A", "b", {"x": Raw(b"1")})]
    assert bytes(request.meta["k"]) == b"[1]"


def test_absent_args_differ_from_an_empty_list():
    assert create().args is None
    assert create(args=[]).args == []


@each_case(
    ("field", "value", "name", "expected"),
    [
        ("outputByteLimit", None, "output_byte_limit", None),
        ("args", None, "args", None),
        ("env", None, "env", []),
        ("env", [{"name": "A", "value": "b", "_meta": 3}], "env", [EnvVariable("A", "b")]),
        ("cwd", None, "cwd", None),
        ("_meta", [], "meta", None),
        ("_meta", None, "meta", None),
    ],
)
@each_case("other", [{}, {"args": None, "env": None, "_meta": 3}])
def test_value_is_treated_as_absent_where_the_schema_tolerates_it(
    field, value, name, expected, other
):
    assert getattr(create(**{**other, field: value}), name) == expected


@each_case(
    ("member", "value", "named"),
    [
        ("outputByteLimit", "9", "params.outputByteLimit is "),
        ("outputByteLimit", -1, "params.outputByteLimit is -1: it must be an integer, 0 or more"),
        ("args", "x", 'params.args is "x": it must be an array'),
        ("args", ["a", 1], "params.args[1] is 1: it must be a string"),
        ("env", {"A": "b"}, "params.env is "),
        ("env", [{"name": "A"}], "params.env[0].value is missing"),
        ("env", [{"name": "A", "value": "b"}, {"value": "b"}], "params.env[1].name is missing"),
        ("cwd", 5, "params.cwd is 5: it must be a string"),
    ],
)
def test_invalid_optional_value_is_refused_by_name(member, value, named):
    params = {"sessionId": "s", "command": "c", member: value}
    assert named in refusal(json.dumps(params).encode())


def test_invalid_value_does_not_affect_valid_ones():
    request = create(args=["a"], env=None, cwd="/", outputByteLimit=5, _meta=3)
    assert request == CreateTerminalRequest("s", "c", ["a"], [], "/", 5)


def test_unknown_resource_is_refused():
    raw = b'{"cpus":2,"nodes":2}'
    names = "partition, account, time, cpus, memory, gpus"
    assert refusal(raw, ResourcesParams) == f"params has no member 'nodes': there are {names}"
    assert decode(b'{"cpus":2}', ResourcesParams) == ResourcesParams(cpus=2)


def test_unknown_fields_are_ignored():
    assert create(more=1, Command="x") == create()
    assert create(more=1, _meta=3) == create()


@each_case(
    ("params", "words"),
    [
        (b'{"sessionId":"s"}', ["params.command is missing", "string", "the command to run"]),
        (b'{"sessionId":"s","command":null}', ["params.command is null", "string"]),
        (b'{"sessionId":"s","command":["ls"]}', ['params.command is ["ls"]', "string"]),
        (b'{"sessionId":5,"command":"c"}', ["params.sessionId is 5", "string"]),
        (b'{"command":"c","cwd":1}', ["params.sessionId is missing"]),
        (b'{"sessionId":"s","command":"\\ud800"}', [r'params is {"sessionId"']),
        (b"null", ["params is missing", "sessionId and command"]),
        (b"[]", ["params is []", "an object with sessionId and command"]),
        (b'"x"', ['params is "x"']),
        (b"3", ["params is 3"]),
        (b"", ["params is"]),
    ],
)
def test_invalid_value_is_refused_where_the_schema_requires_it(params, words):
    for raw in (params, Raw(params)):
        message = refusal(raw)
        for word in words:
            assert word in message


def test_absent_params_are_refused():
    assert "params is missing" in refusal(UNSET)
    assert "terminalId" in refusal(UNSET, TerminalRequest)
    assert "params is missing" in refusal(UNSET, CancelNotification)


def test_error_message_truncates_long_values():
    message = refusal(json.dumps({"sessionId": "s", "command": ["x" * 10_000]}).encode())
    assert len(message) < 200
    assert "…" in message


def test_params_of_the_other_terminal_methods_are_decoded():
    raw = Raw(b'{"sessionId":"s","terminalId":"t","_meta":3}')
    assert decode(raw, TerminalRequest) == TerminalRequest("s", "t")
    assert "params.terminalId is missing" in refusal(b'{"sessionId":"s"}', TerminalRequest)


def test_initialize_keeps_unmodelled_members_as_raw_json():
    raw = b'{"protocolVersion":1,"clientInfo":3,"clientCapabilities":{"terminal":true},"_meta":7}'
    request = decode(raw, InitializeRequest)
    assert request.protocol_version == 1
    assert bytes(request.client_info) == b"3"
    assert request.meta is None
    assert decode(b'{"protocolVersion":2}', InitializeRequest).client_info is UNSET
    for version in (b'"1"', b"-1", b"65536", b"null"):
        wrong = refusal(b'{"protocolVersion":' + version + b"}", InitializeRequest)
        assert "params.protocolVersion is " + version.decode() in wrong


def test_leniency_applies_inside_optional_objects():
    raw = b'{"output":"x","truncated":true,"exitStatus":{"exitCode":-5,"signal":"SIGHUP"}}'
    status = decode(raw, TerminalOutputResponse, "result").exit_status
    assert (status.exit_code, status.signal) == (None, "SIGHUP")
    raw = b'{"output":"x","truncated":true,"exitStatus":3}'
    assert decode(raw, TerminalOutputResponse, "result").exit_status is UNSET
    with pytest.raises(RpcError, match=r"result\.truncated is 1: it must be true or false"):
        decode(b'{"output":"x","truncated":1}', TerminalOutputResponse, "result")


def test_deeply_nested_params_are_refused():
    deep = b"[" * 100_000 + b"]" * 100_000
    assert "params is" in refusal(b'{"sessionId":"s","command":' + deep + b"}")


def test_leniency_works_deep_on_the_stack():
    def at_depth(depth: int):
        return at_depth(depth - 1) if depth else create(args=None, env=None, _meta=3)

    assert at_depth(100) == create()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
ENV = st.lists(JSON | st.fixed_dictionaries({"name": JSON, "value": JSON}), max_size=3)


def is_string(value) -> bool:
    return isinstance(value, str)


def is_variable(item) -> bool:
    return isinstance(item, dict) and is_string(item.get("name")) and is_string(item.get("value"))


def is_valid(params) -> bool:
    args, env, cwd, limit = map(params.get, ("args", "env", "cwd", "outputByteLimit"))
    return (
        (args is None or (isinstance(args, list) and all(map(is_string, args))))
        and (env is None or (isinstance(env, list) and all(map(is_variable, env))))
        and (cwd is None or is_string(cwd))
        and (limit is None or (type(limit) is int and limit >= 0))
    )


@given(
    st.fixed_dictionaries(
        {"command": st.text(max_size=3)},
        optional={
            "args": JSON | st.lists(st.text(max_size=3)),
            "env": ENV | JSON,
            "cwd": JSON,
            "outputByteLimit": JSON,
            "_meta": JSON,
        },
    )
)
@pytest.mark.long
def test_decode_agrees_with_an_independent_model(params):
    try:
        got = create(**params)
    except RpcError:
        assert not is_valid(params)
        return
    assert is_valid(params)
    assert got.args == params.get("args")
    env = [(item["name"], item["value"]) for item in params.get("env") or []]
    assert [(item.name, item.value) for item in got.env] == env
    assert got.cwd == params.get("cwd")
    assert got.output_byte_limit == params.get("outputByteLimit")
    assert (got.meta is not None) == isinstance(params.get("_meta"), dict)
    assert got.command == params["command"]


@pytest.mark.long
@given(st.binary(max_size=60))
def test_random_bytes_decode_or_raise_rpc_error(raw):
    try:
        decode(raw, CreateTerminalRequest)
    except RpcError:
        pass
    else:
        msgspec.json.decode(raw)
