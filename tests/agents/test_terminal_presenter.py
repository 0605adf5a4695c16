"""Presenting the host's terminals as the agent's own, with `_meta` updates."""

import json

import pytest

from acpterm.acp.terminal_updates import ProgramExit
from acpterm.agents import session_update
from acpterm.agents.envelope import parse_envelope
from acpterm.agents.proxy import presenter
from acpterm.agents.proxy.presenter import TerminalPresenter
from tests.acp.validate import validate_sent
from tests.agents.test_text_presenter import embed, update_line

T = ("s", "t")


class Shown:
    def __init__(self):
        self.followed = []
        self.it = TerminalPresenter(follow=self.followed.append)

    def update(self, what, call="c", **fields):
        fields = {"sessionUpdate": what, "toolCallId": call, **fields}
        line = update_line("s", fields)
        lines = self.it.translate(line, session_update.parse_update(parse_envelope(line).params))
        return [update_in(line) for line in lines]


def update_in(line):
    message = json.loads(line)
    validate_sent(message, {})
    return message["params"]["update"]


def test_tool_call_update_that_first_embeds_a_terminal_becomes_a_complete_tool_call():
    shown = Shown()
    shown.it.on_created(T, "make", "/p")
    location = {"path": "/p/a"}
    shown.update("tool_call", title="run", kind="execute", locations=[location], rawInput={"a": 1})
    shown.update("tool_call_update", status="in_progress", title=None)
    (call,) = shown.update("tool_call_update", content=[embed("t")], _meta={"mine": 1})
    assert call == {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "title": "run",
        "kind": "execute",
        "locations": [location],
        "rawInput": {"a": 1},
        "status": "in_progress",
        "content": [embed("t")],
        "_meta": {"mine": 1, "terminal_info": {"terminal_id": "t", "cwd": "/p"}},
    }
    assert shown.followed == [T]


def test_tool_call_has_a_title_when_no_earlier_update_had_one():
    shown = Shown()
    shown.it.on_created(T, "make", None)
    (call,) = shown.update("tool_call_update", content=[embed("t")])
    assert call["title"] == "terminal"


def test_terminal_info_is_sent_once():
    shown = Shown()
    shown.it.on_created(T, "make", None)
    shown.update("tool_call", title="run", content=[embed("t")])
    again = shown.update("tool_call_update", content=[embed("t")])
    assert again == [
        {"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": [embed("t")]}
    ]
    assert shown.followed == [T]


def test_terminal_info_of_two_terminals_precedes_their_content():
    shown = Shown()
    for terminal in ("t", "u"):
        shown.it.on_created(("s", terminal), terminal, None)
    first, second = shown.update("tool_call", title="two", content=[embed("t"), embed("u")])
    assert first["_meta"]["terminal_info"]["terminal_id"] == "t"
    assert "content" not in first
    assert second["_meta"]["terminal_info"]["terminal_id"] == "u"
    assert second["content"] == [embed("t"), embed("u")]


def test_output_and_exit_are_encoded_in_meta():
    shown = Shown()
    shown.it.on_created(T, "x", None)
    shown.update("tool_call", title="x", content=[embed("t")])
    (line,) = shown.it.on_output(T, b"x\xe2\x98", 5)
    data = "\r\n[5 bytes are missing]\r\nx"
    assert update_in(line)["_meta"] == {"terminal_output": {"terminal_id": "t", "data": data}}
    rest, end = map(update_in, shown.it.on_exit(T, ProgramExit(None, "SIGTERM")))
    assert rest["_meta"]["terminal_output"]["data"] == "\ufffd"
    how = {"terminal_id": "t", "exit_code": None, "signal": "SIGTERM"}
    assert end["_meta"] == {"terminal_exit": how}


def test_unknown_terminal_passes_unchanged():
    shown = Shown()
    line = update_line(
        "s", {"sessionUpdate": "tool_call", "toolCallId": "c", "content": [embed("z")]}
    )
    assert shown.it.translate(line, session_update.parse_update(parse_envelope(line).params)) == [
        line
    ]


def test_v2_snapshot_replaces_earlier_output():
    shown = Shown()
    whole = {"data": "eA=="}
    assert shown.update("terminal_update", terminalId="v", output=whole) == []
    call, output = shown.update("tool_call", title="x", content=[embed("v")])
    assert call["_meta"]["terminal_info"] == {"terminal_id": "v"}
    assert output["_meta"]["terminal_output"]["data"] == "x"
    (output,) = shown.update("terminal_update", terminalId="v", output=whole)
    assert output["_meta"]["terminal_output"]["data"] == "\x1b[2J\x1b[3J\x1b[Hx"


def test_memory_for_terminals_and_calls_is_bounded():
    shown = Shown()
    for number in range(3000):
        shown.it.on_created(("s", f"t{number}"), "x", None)
        big = {"text": "x" * 17_000} if number > 2900 else 1
        fields = {"sessionUpdate": "tool_call", "toolCallId": f"c{number}", "rawInput": big}
        line = update_line("s", fields)
        shown.it.translate(line, session_update.parse_update(parse_envelope(line).params))
    assert len(shown.it._terminals) == presenter.TERMINALS_MAX
    assert len(shown.it._calls) == presenter.CALLS_MAX
    retained = [known for known in shown.it._calls.values() if "rawInput" in known]
    assert len(retained) == 1000 - 99


def test_raw_output_becomes_output_of_the_agents_only_silent_terminal():
    shown = Shown()
    info = {"terminal_info": {"terminal_id": "own"}}
    shown.update("tool_call", title="run", content=[embed("own")], _meta=info)
    raw = {"aggregated_output": "out\n"}
    exit_ = {"terminal_exit": {"terminal_id": "own", "exit_code": 0}}
    first, last = shown.update("tool_call_update", rawOutput=raw, _meta=exit_)
    assert first["_meta"] == {"terminal_output": {"terminal_id": "own", "data": "out\n"}}
    assert last["rawOutput"] == raw
    assert len(shown.update("tool_call_update", rawOutput=raw)) == 1


def test_raw_output_is_ignored_when_the_terminal_has_output():
    shown = Shown()
    info = {"terminal_info": {"terminal_id": "own"}}
    shown.update("tool_call", title="run", content=[embed("own")], _meta=info)
    output = {"terminal_output": {"terminal_id": "own", "data": "out\n"}}
    assert len(shown.update("tool_call_update", rawOutput="out\n", _meta=output)) == 1


@pytest.mark.long
def test_number_of_silent_terminals_is_bounded():
    shown = Shown()
    for number in range(presenter.TERMINALS_MAX + 10):
        info = {"terminal_info": {"terminal_id": f"t{number}"}}
        shown.update("tool_call", call=f"c{number}", title="run", _meta=info)
    assert len(shown.it._silent) == presenter.TERMINALS_MAX
