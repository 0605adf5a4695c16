"""The state of tool calls, merged from their updates."""

import json

import pytest
from msgspec import Raw

from acpterm.acp.session import read_update
from acpterm.agents.prompt.tool_calls import CALLS_MAX, ShownToolCalls

TERMINAL = {"type": "terminal", "terminalId": "t1"}
DIFF = {"type": "diff", "path": "/a", "oldText": "old", "newText": "new"}


def updated(calls, event="tool_call_update", /, call="c", **fields):
    update = {"sessionUpdate": event, "toolCallId": call, **fields}
    return calls.update(read_update(Raw(json.dumps(update).encode())))


def test_call_merges_its_updates():
    calls = ShownToolCalls()
    call = updated(calls, "tool_call", title="Edit", kind="edit", content=[DIFF])
    assert (call.name, call.kind, call.status) == ("Edit", "edit", "pending")
    assert updated(calls, status="completed") is call
    assert (call.name, call.kind, call.status) == ("Edit", "edit", "completed")
    assert [(diff.old_text, diff.new_text) for diff in call.diffs] == [("old", "new")]


def test_new_content_replaces_all_content():
    calls = ShownToolCalls()
    call = updated(calls, "tool_call", title="x", content=[DIFF, TERMINAL])
    assert (len(call.diffs), call.terminals) == (1, ["t1"])
    updated(calls, content=[{**TERMINAL, "terminalId": "t2"}])
    assert (call.diffs, call.terminals) == ([], ["t2"])
    updated(calls, title="y")
    assert call.terminals == ["t2"]
    updated(calls, content=None)
    assert (call.diffs, call.terminals) == ([], [])


def test_null_does_not_clear_required_members():
    calls = ShownToolCalls()
    call = updated(calls, "tool_call", title="Look", kind="read", status="in_progress")
    updated(calls, title=None, kind=None, status=None)
    assert (call.title, call.kind, call.status) == ("Look", "read", "in_progress")
    updated(calls, title="")
    assert call.title == "Look"


def test_invalid_member_is_ignored_alone():
    calls = ShownToolCalls()
    call = updated(
        calls, "tool_call", title="x", kind="strange", status=7, content=[{"type": 1}, DIFF]
    )
    assert (call.kind, call.status, len(call.diffs)) == ("other", "pending", 1)


def test_unknown_call_is_named_by_its_kind():
    call = updated(ShownToolCalls(), status="in_progress", kind="search")
    assert (call.name, call.start_printed, call.end_printed) == ("search", False, False)
    assert updated(ShownToolCalls()).name == "other"


def test_only_the_latest_calls_are_kept():
    calls = ShownToolCalls()
    first = updated(calls, "tool_call", call="first", title="first")
    second = updated(calls, "tool_call", call="second", title="second")
    for number in range(CALLS_MAX - 1):
        updated(calls, call=str(number))
    assert calls.get("second") is second
    assert calls.get("first") is not first


@pytest.mark.parametrize(
    ("raw_input", "name"),
    [
        ({"command": "echo hi"}, "execute: echo hi"),
        ({"command": ["/bin/sh", "-lc", "echo hi"]}, "execute: /bin/sh -lc 'echo hi'"),
        ({"cmd": "ls"}, "execute: ls"),
        ({"command": 5}, "execute"),
        ({"path": "/x"}, "execute"),
        ([], "execute"),
    ],
)
def test_command_is_part_of_the_name(raw_input, name):
    assert updated(ShownToolCalls(), "tool_call", title="execute", rawInput=raw_input).name == name


def test_command_is_not_repeated_when_the_title_has_it():
    call = updated(
        ShownToolCalls(), "tool_call", title="Shell: ls -l", rawInput={"command": "ls -l "}
    )
    assert call.name == "Shell: ls -l"


def test_only_text_content_is_kept_as_text():
    image = {"type": "content", "content": {"type": "image", "data": "x"}}
    block = {"type": "content", "content": {"type": "text", "text": "found"}}
    call = updated(ShownToolCalls(), "tool_call", title="x", content=[block, image, DIFF, TERMINAL])
    assert call.texts == ["found"]
