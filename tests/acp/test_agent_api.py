"""acpterm's own methods and members are decoded strictly."""

import json

import msgspec
import pytest
from msgspec import Raw

from acpterm.acp.agent_api import (
    ReadRequest,
    ReadResponse,
    ResizeRequest,
    SetSessionRequest,
    SignalRequest,
    WriteRequest,
    WriteResponse,
)
from acpterm.acp.agent_meta import CreateMeta, ExitMeta, InitializeMeta, own_meta
from acpterm.acp.initialize import host_answer
from acpterm.acp.lenient import decode
from acpterm.acp.terminal import (
    CreateTerminalRequest,
    Empty,
    TerminalExitStatus,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
)
from acpterm.jsonrpc import RpcError
from tests.support.cases import each_case


def params(**more) -> bytes:
    return json.dumps({"sessionId": "s", "terminalId": "t", **more}).encode()


def test_valid_params_are_decoded():
    assert decode(params(), ReadRequest) == ReadRequest("s", "t")
    assert decode(params(since=None, format=None), ReadRequest) == ReadRequest("s", "t")
    full = params(since=0, maxBytes=1, format="raw", waitMs=0, _meta={}, more=1)
    assert decode(full, ReadRequest) == ReadRequest("s", "t", 0, 1, "raw", 0)
    assert decode(params(data="x\n"), WriteRequest).data == "x\n"
    assert decode(params(cols=1, rows=10000), ResizeRequest) == ResizeRequest("s", "t", 1, 10000)
    assert decode(params(signal="SIGINT"), SignalRequest).signal == "SIGINT"
    assert decode(params(cwd="/"), SetSessionRequest).cwd == "/"


@each_case(
    ("into", "more", "words"),
    [
        (ReadRequest, {"since": -1}, "params.since is -1: it must be an integer, 0 or more"),
        (ReadRequest, {"since": "0"}, 'params.since is "0"'),
        (ReadRequest, {"maxBytes": 0}, "params.maxBytes is 0: it must be an integer, 1 or more"),
        (ReadRequest, {"format": "html"}, 'params.format is "html": it must be "text" or "raw"'),
        (ReadRequest, {"waitMs": 1.5}, "params.waitMs is 1.5"),
        (ReadRequest, {"terminalId": None}, "params.terminalId is null"),
        (WriteRequest, {}, "params.data is missing: it must be a string, what to type"),
        (WriteRequest, {"data": 3}, "params.data is 3"),
        (
            ResizeRequest,
            {"cols": 0, "rows": 1},
            "params.cols is 0: it must be an integer, 1 to 10000",
        ),
        (ResizeRequest, {"cols": 1, "rows": 10001}, "params.rows is 10001"),
        (ResizeRequest, {"cols": 1}, "params.rows is missing"),
        (SignalRequest, {"signal": 9}, "params.signal is 9: it must be a string, the name of"),
        (SetSessionRequest, {"cwd": None}, "params.cwd is null"),
    ],
)
def test_invalid_params_are_refused(into, more, words):
    with pytest.raises(RpcError) as caught:
        decode(params(**more), into)
    assert caught.value.code == -32602
    assert words in caught.value.message


def test_results_are_encoded_in_camel_case():
    plain = ReadResponse("x", 5, 0)
    assert json.loads(msgspec.json.encode(plain)) == {"data": "x", "position": 5, "lost": 0}
    full = ReadResponse("eA==", 5, 2, "base64", TerminalExitStatus(0))
    assert json.loads(msgspec.json.encode(full)) == {
        "data": "eA==",
        "position": 5,
        "lost": 2,
        "encoding": "base64",
        "exitStatus": {"exitCode": 0, "signal": None},
    }
    assert msgspec.json.encode(WriteResponse(3)) == b'{"written":3}'
    assert msgspec.json.encode(Empty()) == b"{}"


def test_exit_status_has_both_members_and_is_absent_while_running():
    meta = {"acpterm": ExitMeta(ended_by="timeout", wall_ms=10, cpu_ms=5, max_rss_bytes=4096)}
    wait = WaitForTerminalExitResponse(signal="SIGTERM", meta=meta)
    assert json.loads(msgspec.json.encode(wait)) == {
        "exitCode": None,
        "signal": "SIGTERM",
        "_meta": {
            "acpterm": {
                "endedBy": "timeout",
                "wallMs": 10,
                "cpuMs": 5,
                "maxRssBytes": 4096,
            }
        },
    }
    assert msgspec.json.encode(WaitForTerminalExitResponse(0)) == b'{"exitCode":0,"signal":null}'
    running = TerminalOutputResponse("x", truncated=False)
    assert msgspec.json.encode(running) == b'{"output":"x","truncated":false}'
    assert (
        msgspec.json.encode(ExitMeta(ended_by="exited", wall_ms=1))
        == b'{"wallMs":1,"endedBy":"exited"}'
    )


def test_host_answer_has_the_capabilities_and_extensions():
    assert msgspec.to_builtins(host_answer("1.2", {"read": True})) == {
        "protocolVersion": 1,
        "clientCapabilities": {
            "fs": {"readTextFile": False, "writeTextFile": False},
            "terminal": True,
            "_meta": {"acpterm": {"read": True}},
        },
        "clientInfo": {"name": "acpterm", "title": "acpterm", "version": "1.2"},
    }


def meta(own):
    return {"acpterm": Raw(msgspec.json.encode(own))}


def test_own_meta_decodes_the_acpterm_member():
    own = {"cols": 80, "rows": 24, "timeoutMs": 1, "shell": True, "format": "screen", "new": 1}
    raw = json.dumps({"sessionId": "s", "command": "c", "_meta": {"acpterm": own, "x": 1}}).encode()
    expected = CreateMeta(cols=80, rows=24, timeout_ms=1, shell=True, format="screen")
    assert own_meta(decode(raw, CreateTerminalRequest).meta, CreateMeta) == expected


@pytest.mark.parametrize("meta", [None, {}, {"x": Raw(b"1")}, {"acpterm": Raw(b"null")}])
def test_own_meta_is_none_without_the_acpterm_member(meta):
    assert own_meta(meta, CreateMeta) is None


@each_case(
    ("into", "own", "words"),
    [
        (CreateMeta, 3, "params._meta.acpterm is 3: it must be an object"),
        (CreateMeta, [], "params._meta.acpterm is []"),
        (
            CreateMeta,
            {"timeoutMs": "9"},
            'params._meta.acpterm.timeoutMs is "9": it must be an integer',
        ),
        (CreateMeta, {"timeoutMs": 0}, "timeoutMs is 0: it must be an integer, 1 or more"),
        (CreateMeta, {"shell": 1}, "shell is 1: it must be true or false"),
        (CreateMeta, {"cols": 10001}, "cols is 10001"),
        (InitializeMeta, {"context": {"umask": 512}}, "params._meta.acpterm.context.umask is 512"),
        (
            InitializeMeta,
            {"context": {"env": {"A": 1}}},
            'context.env is {"A":1}: it must be an object',
        ),
        (InitializeMeta, {"context": {"rlimits": {"AS": [1]}}}, "context.rlimits is"),
        (InitializeMeta, {"context": 3}, "context is 3: it must be an object"),
    ],
)
def test_own_meta_refuses_an_invalid_acpterm_member(into, own, words):
    with pytest.raises(RpcError) as caught:
        own_meta(meta(own), into)
    assert caught.value.code == -32602
    assert words in caught.value.message


def test_initialize_accepts_an_execution_context_by_either_name():
    context = {"env": {"A": "b"}, "cwd": "/", "umask": 18, "rlimits": {"NOFILE": [1, -1]}}
    got = own_meta(meta({"context": context}), InitializeMeta).context
    assert (got.env, got.cwd, got.umask) == ({"A": "b"}, "/", 0o022)
    assert got.rlimits == {"NOFILE": (1, -1)}
    assert own_meta(meta({}), InitializeMeta).context is None
    # The former name.
    assert own_meta(meta({"asker": context}), InitializeMeta).asker == got
