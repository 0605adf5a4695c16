"""Tool calls, as their updates tell of them."""

import json

import pytest
from msgspec import Raw

from acpterm.acp import read_update
from acpterm.client.prompt.tool_calls import CALLS_MAX, ToolCalls

TERMINAL = {"type": "terminal", "terminalId": "t1"}
DIFF = {"type": "diff", "path": "/a", "oldText": "old", "newText": "new"}


def told(calls, event="tool_call_update", /, call="c", **fields):
    update = {"sessionUpdate": event, "toolCallId": call, **fields}
    return calls.take(read_update(Raw(json.dumps(update).encode())))


def test_a_call_is_what_its_updates_have_told_together():
    calls = ToolCalls()
    call = told(calls, "tool_call", title="Edit", kind="edit", content=[DIFF])
    assert (call.name, call.kind, call.status) == ("Edit", "edit", "pending")
    assert told(calls, status="completed") is call
    assert (call.name, call.kind, call.status) == ("Edit", "edit", "completed")
    assert [(diff.old_text, diff.new_text) for diff in call.diffs] == [("old", "new")]


def test_content_that_is_told_takes_the_place_of_all_that_was():
    calls = ToolCalls()
    call = told(calls, "tool_call", title="x", content=[DIFF, TERMINAL])
    assert (len(call.diffs), call.terminals) == (1, ["t1"])
    told(calls, content=[{**TERMINAL, "terminalId": "t2"}])
    assert (call.diffs, call.terminals) == ([], ["t2"])
    told(calls, title="y")
    assert call.terminals == ["t2"]
    told(calls, content=None)
    assert (call.diffs, call.terminals) == ([], [])


def test_null_leaves_what_has_to_be_something():
    calls = ToolCalls()
    call = told(calls, "tool_call", title="Look", kind="read", status="in_progress")
    told(calls, title=None, kind=None, status=None)
    assert (call.title, call.kind, call.status) == ("Look", "read", "in_progress")
    told(calls, title="")
    assert call.title == "Look"


def test_what_is_wrong_in_an_update_costs_only_itself():
    calls = ToolCalls()
    call = told(
        calls, "tool_call", title="x", kind="strange", status=7, content=[{"type": 1}, DIFF]
    )
    assert (call.kind, call.status, len(call.diffs)) == ("other", "pending", 1)


def test_a_call_that_was_never_begun_is_called_by_its_kind():
    call = told(ToolCalls(), status="in_progress", kind="search")
    assert (call.name, call.started, call.finished) == ("search", False, False)
    assert told(ToolCalls()).name == "other"


def test_of_very_many_calls_the_latest_are_kept():
    calls = ToolCalls()
    first = told(calls, "tool_call", call="first", title="first")
    second = told(calls, "tool_call", call="second", title="second")
    for number in range(CALLS_MAX - 1):
        told(calls, call=str(number))
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
def test_what_a_call_runs_is_part_of_its_name(raw_input, name):
    assert told(ToolCalls(), "tool_call", title="execute", rawInput=raw_input).name == name


def test_a_title_that_says_what_runs_is_name_enough():
    call = told(ToolCalls(), "tool_call", title="Shell: ls -l", rawInput={"command": "ls -l "})
    assert call.name == "Shell: ls -l"


def test_texts_of_a_content_are_kept_and_nothing_else_is_one():
    image = {"type": "content", "content": {"type": "image", "data": "x"}}
    block = {"type": "content", "content": {"type": "text", "text": "found"}}
    call = told(ToolCalls(), "tool_call", title="x", content=[block, image, DIFF, TERMINAL])
    assert call.texts == ["found"]
