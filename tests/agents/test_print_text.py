"""The text printer: with colours for a terminal, and without for a pipe."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from acpterm.acp.session import Diff, SessionNotification
from acpterm.acp.terminal_updates import ProgramExit
from acpterm.agents.prompt.acp_client import Turn
from acpterm.agents.prompt.printer import TextPrinter
from acpterm.agents.prompt.tool_calls import ShownToolCalls, ToolCallState

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b5n\b\u202e"


class Paper:
    """A printer that records its output."""

    def __init__(self, *, colours=False, quiet=True):
        self._out, self._err = [], []
        self.printer = TextPrinter(self._out.append, self._err.append, colours=colours, quiet=quiet)

    @property
    def out(self):
        return b"".join(self._out).decode()

    @property
    def err(self):
        return b"".join(self._err).decode()


@pytest.fixture
def paper():
    return Paper()


def call(title="Build", status="pending", **more):
    tool_call = ToolCallState("c")
    tool_call.title, tool_call.status = title, status
    for name, value in more.items():
        setattr(tool_call, name, value)
    return tool_call


# The message


def test_message_is_printed_piece_by_piece(paper):
    paper.printer.message("one ")
    assert paper.out == "one "
    paper.printer.message("two\nthree")
    assert paper.out == "one two\nthree"
    paper.printer.end("end_turn", 0, None)
    assert paper.out == "one two\nthree\n"


def test_message_that_ends_with_a_newline_gets_no_second_one(paper):
    paper.printer.message("done\n")
    paper.printer.message("")
    paper.printer.end("end_turn", 0, None)
    assert paper.out == "done\n"


def test_nothing_is_printed_without_a_message(paper):
    paper.printer.update(Raw(b"{}"))
    paper.printer.session("s1")
    paper.printer.end("end_turn", 0, None)
    assert (paper.out, paper.err) == ("", "")


@given(st.lists(st.sampled_from(["\x1b", "[31m", "]0;t", "\x07", "\x9b", "\r", "x", "\n"])))
def test_split_control_sequence_is_removed(pieces):
    paper = Paper(colours=True)
    for piece in pieces:
        paper.printer.message(piece)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", paper.out)


# Calls


def test_call_has_a_line_at_its_start_and_one_at_its_end(paper):
    tool_call = call()
    paper.printer.tool_call(tool_call)
    assert paper.out == "▸ Build\n"
    tool_call.status = "in_progress"
    paper.printer.tool_call(tool_call)
    assert paper.out == "▸ Build\n"
    tool_call.status, tool_call.title = "completed", "Built"
    paper.printer.tool_call(tool_call)
    paper.printer.tool_call(tool_call)
    assert paper.out == "▸ Build\n✓ Built\n"


def test_failed_call_has_a_failure_mark(paper):
    paper.printer.tool_call(call(status="failed"))
    assert paper.out == "▸ Build\n✗ Build\n"


def test_call_starts_on_a_new_line(paper):
    paper.printer.message("I build")
    paper.printer.tool_call(call())
    paper.printer.message("and so on")
    assert paper.out == "I build\n▸ Build\nand so on"


def test_title_is_one_sanitized_line(paper):
    paper.printer.tool_call(call(title=f"rm\n{HOSTILE}-rf\n" + "x" * 1000))
    assert re.fullmatch(r"▸ rm\\n\\x1b\]0;title.*-rf\\nx{100,}…\n", paper.out)


# Terminals


def test_output_is_printed_line_by_line(paper):
    paper.printer.output("t", b"one\r\ntw", 0)
    assert paper.out == "  │ one\n"
    paper.printer.output("t", b"o\nthree", 0)
    assert paper.out == "  │ one\n  │ two\n"
    paper.printer.exited("t", ProgramExit(0, None))
    assert paper.out == "  │ one\n  │ two\n  │ three\n"


def test_split_character_is_printed_whole(paper):
    for byte in "é🙂\n".encode():
        paper.printer.output("t", bytes([byte]), 0)
    assert paper.out == "  │ é🙂\n"


def test_invalid_utf_8_is_replaced(paper):
    paper.printer.output("t", b"a\xffb\n\xf0\x9f", 0)
    paper.printer.exited("t", ProgramExit(0, None))
    assert paper.out == "  │ a\ufffdb\n  │ \ufffd\n"


def test_overwritten_line_shows_its_last_version(paper):
    paper.printer.output("t", b"10%\r50%\r100%\r\n", 0)
    assert paper.out == "  │ 100%\n"


def test_very_long_line_is_printed_before_its_end(paper):
    paper.printer.output("t", b"x" * 10_000, 0)
    assert paper.out == f"  │ {'x' * 10_000}\n"


@pytest.mark.parametrize(
    ("end", "line"),
    [
        (ProgramExit(0, None), ""),
        (ProgramExit(None, None), ""),
        (ProgramExit(3, None), "  │ [exit status 3]\n"),
        (ProgramExit(None, "SIGKILL"), "  │ [ended by SIGKILL]\n"),
    ],
)
def test_unsuccessful_exit_is_printed(paper, end, line):
    paper.printer.output("t", b"x\n", 0)
    paper.printer.exited("t", end)
    assert paper.out == "  │ x\n" + line


def test_lost_bytes_are_printed(paper):
    paper.printer.output("t", b"x\n", 17)
    assert paper.out == "  │ … 17 bytes are not shown\n  │ x\n"


def test_output_of_concurrent_terminals_is_labelled_with_their_calls(paper):
    paper.printer.tool_call(call(title="Build", terminals=["t"]))
    paper.printer.tool_call(call(title="Test", terminals=["u"]))
    for terminal in ("t", "u", "u", "t"):
        paper.printer.output(terminal, f"of {terminal}\n".encode(), 0)
    assert paper.out.splitlines()[2:] == [
        "  │ of t",
        "  ┌ Test",
        "  │ of u",
        "  │ of u",
        "  ┌ Build",
        "  │ of t",
    ]


def test_last_line_of_a_running_terminal_is_printed_at_the_end(paper):
    paper.printer.output("t", b"one\ntwo", 0)
    paper.printer.end("end_turn", 0, None)
    assert paper.out == "  │ one\n  │ two\n"


def test_signal_name_from_an_agent_is_sanitized(paper):
    paper.printer.exited("t", ProgramExit(None, f"SIG{HOSTILE}X"))
    assert paper.out == "  │ [ended by SIGX]\n"


# Diffs and plans


def test_changed_file_is_printed_as_a_diff(paper):
    diff = Diff("/src/a.py", "one\nTWO\nthree\n", "one\ntwo\nthree\n")
    tool_call = call(status="in_progress", diffs=[diff])
    paper.printer.tool_call(tool_call)
    assert "-two" not in paper.out
    tool_call.status = "completed"
    paper.printer.tool_call(tool_call)
    assert paper.out.splitlines() == [
        "▸ Build",
        "  --- /src/a.py",
        "  +++ /src/a.py",
        "  @@ -1,3 +1,3 @@",
        "   one",
        "  -two",
        "  +TWO",
        "   three",
        "✓ Build",
    ]


def test_new_file_is_a_diff_against_dev_null(paper):
    paper.printer.tool_call(call(status="completed", diffs=[Diff("/a", "x\n")]))
    assert paper.out.splitlines()[1:5] == ["  --- /dev/null", "  +++ /a", "  @@ -0,0 +1 @@", "  +x"]


def test_diff_is_sanitized(paper):
    paper.printer.tool_call(call(status="completed", diffs=[Diff(f"/{HOSTILE}a", f"x{HOSTILE}y")]))
    assert "  +++ /\\x1b]0;title" in paper.out
    assert "  +xy\n" in paper.out


def test_long_diff_is_truncated_with_a_note(paper):
    paper.printer.tool_call(call(status="completed", diffs=[Diff("/a", "x\n" * 1000)]))
    lines = paper.out.splitlines()
    assert (len(lines), lines[-2]) == (403, "  … 603 more lines")


def test_only_new_plan_entries_are_printed(paper):
    paper.printer.plan([("look", "in_progress"), ("write", "pending")])
    paper.printer.plan([("look", "completed"), ("write", "pending"), ("te\x1b[2Jst", "strange")])
    assert paper.out.splitlines() == ["▸ look", "☐ write", "☑ look", "☐ te\\x1b[2Jst"]


# Notices and end


def test_notice_goes_to_stderr_after_the_current_line(paper):
    paper.printer.message("half")
    paper.printer.notice(f"refused{HOSTILE}")
    assert (paper.out, paper.err) == ("half\n", "acpterm: refused\n")


def test_session_id_is_printed_when_not_quiet():
    paper = Paper(quiet=False)
    paper.printer.session("s1")
    assert paper.err == "acpterm: session s1\n"


@pytest.mark.parametrize(
    ("reason", "error", "printed"),
    [
        ("end_turn", None, ""),
        ("cancelled", None, ""),
        ("refusal", None, "acpterm: the turn ended with refusal\n"),
        ("max_tokens", None, "acpterm: the turn ended with max_tokens\n"),
        (None, "it is broken", "acpterm: it is broken\n"),
    ],
)
def test_error_or_unusual_stop_reason_is_printed(paper, reason, error, printed):
    paper.printer.end(reason, 1, error)
    assert (paper.out, paper.err) == ("", printed)


# Colours


def test_colours_of_programs_are_kept_with_colours():
    paper = Paper(colours=True)
    paper.printer.output("t", f"\x1b[31mred{HOSTILE}\n".encode(), 0)
    assert paper.out.endswith("\x1b[31mred\x1b[0m\n")
    assert re.sub(r"\x1b\[[0-9;]*m", "", paper.out) == "  │ red\n"


def test_colours_of_the_agent_are_removed_with_colours():
    paper = Paper(colours=True)
    paper.printer.message("\x1b[31mred")
    assert paper.out == "red"


def test_statuses_and_diffs_are_coloured_with_colours():
    paper = Paper(colours=True)
    paper.printer.tool_call(call(status="completed", diffs=[Diff("/a", "new", "old")]))
    for code, text in ((1, "▸ Build"), (32, "✓ Build"), (32, "  +new"), (31, "  -old")):
        assert f"\x1b[{code}m{text}\x1b[0m\n" in paper.out


def test_nothing_is_coloured_without_colours(paper):
    paper.printer.output("t", b"\x1b[31mred\x1b[0m\n", 0)
    paper.printer.tool_call(call(status="failed", diffs=[Diff("/a", "new", "old")]))
    paper.printer.plan([("look", "pending")])
    assert "\x1b" not in paper.out


# Calls without a terminal, and questions


def test_result_of_a_call_without_a_terminal_is_shortened(paper):
    texts = ["1\n2\n", "\n".join(map(str, range(3, 15)))]
    paper.printer.tool_call(call(status="completed", texts=texts))
    lines = paper.out.splitlines()
    assert lines[1:4] == ["  │ 1", "  │ 2", "  │ "]
    assert lines[-2:] == ["  │ … 5 more lines", "✓ Build"]
    assert len(lines) == 13


@pytest.mark.parametrize("more", [{"terminals": ["t"]}, {"diffs": [Diff("/a", "new")]}])
def test_result_text_is_not_printed_beside_a_terminal_or_a_diff(paper, more):
    paper.printer.tool_call(call(status="completed", texts=["hidden"], **more))
    assert "hidden" not in paper.out


def test_result_is_sanitized(paper):
    paper.printer.tool_call(call(status="failed", texts=[HOSTILE + "x"]))
    assert paper.out == "▸ Build\n  │ x\n✗ Build\n"


def test_call_and_diffs_are_printed_once_before_a_question(paper):
    tool_call = call(diffs=[Diff("/a", "new", "old")])
    paper.printer.before_question(tool_call)
    assert paper.out.startswith("▸ Build\n")
    assert "+new" in paper.out
    tool_call.status = "completed"
    paper.printer.tool_call(tool_call)
    assert paper.out.count("+new") == 1
    assert paper.out.endswith("✓ Build\n")


# A call and its terminals


def test_text_that_a_terminal_of_the_call_has_printed_is_not_printed_again(paper):
    running = call(terminals=["t"], status="in_progress")
    paper.printer.tool_call(running)
    paper.printer.output("t", b"one\r\n\x1b[1mtwo\x1b[m\r\n", 0)
    paper.printer.exited("t", ProgramExit(3, None))
    running.terminals, running.texts, running.status = [], ["one\ntwo\nExit code: 3"], "failed"
    paper.printer.tool_call(running)
    start = "▸ Build\n  │ one\n  │ two\n  │ [exit status 3]\n"
    assert paper.out == f"{start}  │ Exit code: 3\n✗ Build\n"
    # What another call prints is its own.
    other = call(texts=["one"], status="completed")
    other.id = "d"
    paper.printer.tool_call(other)
    assert paper.out.endswith("▸ Build\n  │ one\n✓ Build\n")


def test_last_line_and_exit_of_a_terminal_precede_the_end_of_its_call(paper):
    turn = Turn(paper.printer, ShownToolCalls())
    info = {"terminal_info": {"terminal_id": "t"}}
    ended = {"terminal_exit": {"terminal_id": "t", "exit_code": 3, "signal": None}}
    printed = {"terminal_output": {"terminal_id": "t", "data": "one\ntwo"}}
    content = [{"type": "terminal", "terminalId": "t"}]
    for update in (
        {"sessionUpdate": "tool_call", "title": "Build", "content": content, "_meta": info},
        {"sessionUpdate": "tool_call_update", "_meta": printed},
        {"sessionUpdate": "tool_call_update", "status": "failed", "_meta": ended},
    ):
        raw = Raw(json.dumps({"toolCallId": "c", **update}).encode())
        turn.on_update(SessionNotification(session_id="s", update=raw))
    assert paper.out == "▸ Build\n  │ one\n  │ two\n  │ [exit status 3]\n✗ Build\n"
