"""Tool calls are decoded; other updates are passed on as raw JSON."""

import json

import pytest
from msgspec import UNSET, Raw

from acpterm.acp.lenient import decode
from acpterm.acp.session import (
    CancelNotification,
    Content,
    Diff,
    OtherUpdate,
    SessionNotification,
    Terminal,
    ToolCall,
    ToolCallLocation,
    ToolCallUpdate,
    read_update,
)
from acpterm.jsonrpc import RpcError


def update(**members):
    params = json.dumps({"sessionId": "s", "update": members}).encode()
    notification = decode(Raw(params), SessionNotification)
    assert notification.session_id == "s"
    return read_update(notification.update)


def test_tool_call_is_decoded():
    call = update(
        sessionUpdate="tool_call",
        toolCallId="x",
        title="Run",
        kind="execute",
        status="in_progress",
        content=[
            {"type": "terminal", "terminalId": "t"},
            {"type": "diff", "path": "/f", "newText": "n"},
            {"type": "content", "content": {"type": "future", "a": 1}},
        ],
        locations=[{"path": "/f", "line": 3}],
        rawInput={"command": "ls"},
        _meta={"terminal_info": {"terminal_id": "t"}},
    )
    assert isinstance(call, ToolCall)
    assert (call.tool_call_id, call.title, call.kind, call.status) == (
        "x",
        "Run",
        "execute",
        "in_progress",
    )
    terminal, diff, block = call.content
    assert terminal == Terminal("t")
    assert diff == Diff("/f", "n")
    assert isinstance(block, Content)
    assert json.loads(bytes(block.content)) == {"type": "future", "a": 1}
    assert call.locations == [ToolCallLocation("/f", 3)]
    assert json.loads(bytes(call.raw_input)) == {"command": "ls"}
    assert json.loads(bytes(call.meta["terminal_info"])) == {"terminal_id": "t"}


def test_tool_call_tolerates_invalid_values_as_the_schema_does():
    call = update(
        sessionUpdate="tool_call",
        toolCallId="x",
        title="Run",
        kind="dance",
        status=None,
        content=[
            {"type": "hologram"},
            {"type": "terminal"},
            {"type": "terminal", "terminalId": "t"},
            3,
        ],
        locations="here",
    )
    assert call == ToolCall("x", "Run", "other", "pending", [Terminal("t")], [])
    call = update(
        sessionUpdate="tool_call",
        toolCallId="x",
        title="Run",
        content=[{"type": "diff", "path": "/f", "newText": "n", "oldText": 3, "_meta": []}],
        locations=[{"path": "/f", "line": -1}, {"line": 1}],
    )
    assert call.content == [Diff("/f", "n", None)]
    assert call.locations == [ToolCallLocation("/f")]


def test_update_distinguishes_absent_null_and_set_fields():
    assert update(sessionUpdate="tool_call_update", toolCallId="x") == ToolCallUpdate("x")
    assert ToolCallUpdate("x").content is UNSET
    nulls = dict.fromkeys(["title", "kind", "status", "content", "locations"])
    got = update(sessionUpdate="tool_call_update", toolCallId="x", rawOutput=None, **nulls)
    assert [getattr(got, name) for name in nulls] == [None] * 5
    assert bytes(got.raw_output) == b"null"
    given = update(sessionUpdate="tool_call_update", toolCallId="x", content=[], status="failed")
    assert (given.content, given.status) == ([], "failed")
    bad = update(sessionUpdate="tool_call_update", toolCallId="x", title=3, status="?", content="?")
    assert bad == ToolCallUpdate("x")


@pytest.mark.parametrize("kind", ["agent_message_chunk", "plan", "from_the_future", ""])
def test_other_updates_are_kept_as_raw_json(kind):
    got = update(sessionUpdate=kind, content={"type": "text", "text": 3})
    assert isinstance(got, OtherUpdate)
    assert got.kind == kind
    assert json.loads(bytes(got.raw))["content"] == {"type": "text", "text": 3}


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"sessionUpdate": "tool_call", "toolCallId": "x"}, r"params\.update\.title is missing"),
        ({"sessionUpdate": "tool_call_update"}, r"params\.update\.toolCallId is missing"),
        ({"sessionUpdate": "tool_call_update", "toolCallId": 3}, r"toolCallId is 3: .* a string"),
        ({"sessionUpdate": 3}, r"params\.update\.sessionUpdate is 3"),
        ({}, r"params\.update\.sessionUpdate is missing"),
    ],
)
def test_invalid_updates_are_refused(members, words):
    with pytest.raises(RpcError, match=words):
        update(**members)


def test_update_that_is_not_an_object_is_refused():
    notification = decode(b'{"sessionId":"s","update":3}', SessionNotification)
    with pytest.raises(RpcError, match=r"params\.update is 3: it must be an object"):
        read_update(notification.update)
    with pytest.raises(RpcError, match=r"params\.update is missing"):
        decode(b'{"sessionId":"s"}', SessionNotification)


def test_cancel_notification_is_decoded():
    assert decode(b'{"sessionId":"s"}', CancelNotification).session_id == "s"
