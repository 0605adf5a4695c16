"""The JSON printer: one object per line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from acpterm.acp.terminal_updates import ProgramExit
from acpterm.agents.prompt.printer import JsonPrinter
from acpterm.agents.prompt.tool_calls import ToolCallState


class Paper:
    """A printer that records its output."""

    def __init__(self):
        self._out = []
        self.printer = JsonPrinter(self._out.append)

    @property
    def lines(self):
        *lines, rest = b"".join(self._out).split(b"\n")
        assert rest == b""
        return [json.loads(line) for line in lines]


@pytest.fixture
def paper():
    return Paper()


def test_each_event_has_its_name_and_members(paper):
    printer = paper.printer
    printer.session("s1")
    printer.output("t", b"\x1b[31mred", 0)
    printer.output("t", b"more", 17)
    printer.exited("t", ProgramExit(3, None))
    printer.exited("u", ProgramExit(None, "SIGKILL"))
    printer.notice("refused")
    printer.end("end_turn", 0, None)
    printer.end(None, 1, "broken")
    assert paper.lines == [
        {"event": "session", "sessionId": "s1"},
        {"event": "output", "terminalId": "t", "data": "\x1b[31mred"},
        {"event": "output", "terminalId": "t", "data": "more", "lost": 17},
        {"event": "exit", "terminalId": "t", "exitCode": 3, "signal": None},
        {"event": "exit", "terminalId": "u", "exitCode": None, "signal": "SIGKILL"},
        {"event": "notice", "text": "refused"},
        {"event": "end", "stopReason": "end_turn", "status": 0, "error": None},
        {"event": "end", "stopReason": None, "status": 1, "error": "broken"},
    ]


def test_control_and_invisible_characters_are_escaped():
    out = []
    printer = JsonPrinter(out.append)
    printer.update(Raw('{"a": "\x7f\x9b2J\u202e👩\U000e0041"}'.encode()))
    printer.output("t", "\x9b31m".encode(), 0)
    update, output = (json.loads(line) for line in out)
    assert update["update"] == {"a": "\x7f\x9b2J\u202e👩\U000e0041"}
    assert output["data"] == "\x9b31m"
    assert rb'{"a": "\u007f\u009b2J\u202e' + "👩".encode() + rb'\udb40\udc41"}' in out[0]
    assert rb'"\u009b31m"' in out[1]


def test_update_is_printed_unchanged_on_one_line(paper):
    paper.printer.update(Raw(b'{"a" : 1.50,\n  "_x":{"b":[null, "\\u00e9\\n"]}\n}'))
    assert paper.lines == [
        {"event": "update", "update": {"a": 1.5, "_x": {"b": [None, "é\n"]}}},
    ]


def test_content_of_an_update_has_no_separate_event(paper):
    paper.printer.message("text")
    paper.printer.tool_call(ToolCallState("c"))
    paper.printer.plan([("look", "pending")])
    assert paper.lines == []


@given(st.text(), st.lists(st.integers(0, 500)))
def test_output_events_join_to_the_original_text(text, cuts):
    paper, data = Paper(), text.encode()
    places = sorted(min(cut, len(data)) for cut in cuts)
    for begin, end in zip([0, *places], [*places, len(data)], strict=True):
        paper.printer.output("t", data[begin:end], 0)
    assert "".join(line["data"] for line in paper.lines) == text
    assert all(line["data"] for line in paper.lines)


def test_incomplete_character_at_exit_becomes_a_replacement(paper):
    paper.printer.output("t", b"a\xf0\x9f", 0)
    paper.printer.exited("t", ProgramExit(0, None))
    assert [line.get("data") for line in paper.lines] == ["a", "\ufffd", None]


def test_incomplete_characters_are_kept_per_terminal(paper):
    paper.printer.output("t", b"\xc3", 0)
    paper.printer.output("u", b"\xa9", 0)
    paper.printer.output("t", b"\xa9", 0)
    assert [(line["terminalId"], line["data"]) for line in paper.lines] == [
        ("u", "\ufffd"),
        ("t", "é"),
    ]


def test_lost_bytes_are_reported_even_without_output(paper):
    paper.printer.output("t", b"", 17)
    paper.printer.output("t", b"", 0)
    assert paper.lines == [{"event": "output", "terminalId": "t", "data": "", "lost": 17}]
