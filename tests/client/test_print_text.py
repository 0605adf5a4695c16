"""What a person sees of a turn: on a terminal with colours, and in a pipe without."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from acpterm.acp import Diff
from acpterm.acp.terminal_updates import ExitInfo
from acpterm.client.prompt.text_printer import TextPrinter
from acpterm.client.prompt.tool_calls import ToolCallState

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b5n\b\u202e"


class Paper:
    """A printer, and what it has printed."""

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
    made = ToolCallState("c")
    made.title, made.status = title, status
    for name, value in more.items():
        setattr(made, name, value)
    return made


# The message


def test_a_message_is_printed_piece_by_piece_as_it_comes(paper):
    paper.printer.message("one ")
    assert paper.out == "one "
    paper.printer.message("two\nthree")
    assert paper.out == "one two\nthree"
    paper.printer.end("end_turn", 0, None)
    assert paper.out == "one two\nthree\n"


def test_a_message_that_ends_its_line_gets_no_other_end(paper):
    paper.printer.message("done\n")
    paper.printer.message("")
    paper.printer.end("end_turn", 0, None)
    assert paper.out == "done\n"


def test_nothing_said_is_nothing_printed(paper):
    paper.printer.update(Raw(b"{}"))
    paper.printer.session("s1")
    paper.printer.end("end_turn", 0, None)
    assert (paper.out, paper.err) == ("", "")


@given(st.lists(st.sampled_from(["\x1b", "[31m", "]0;t", "\x07", "\x9b", "\r", "x", "\n"])))
def test_a_sequence_in_pieces_steers_no_terminal(pieces):
    paper = Paper(colours=True)
    for piece in pieces:
        paper.printer.message(piece)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", paper.out)


# Calls


def test_a_call_has_a_line_when_it_begins_and_one_when_it_is_over(paper):
    made = call()
    paper.printer.call(made)
    assert paper.out == "▸ Build\n"
    made.status = "in_progress"
    paper.printer.call(made)
    assert paper.out == "▸ Build\n"
    made.status, made.title = "completed", "Built"
    paper.printer.call(made)
    paper.printer.call(made)
    assert paper.out == "▸ Build\n✓ Built\n"


def test_a_call_that_failed_says_so(paper):
    paper.printer.call(call(status="failed"))
    assert paper.out == "▸ Build\n✗ Build\n"


def test_a_call_begins_a_line_of_its_own(paper):
    paper.printer.message("I build")
    paper.printer.call(call())
    paper.printer.message("and so on")
    assert paper.out == "I build\n▸ Build\nand so on"


def test_a_title_is_one_line_that_steers_nothing(paper):
    paper.printer.call(call(title=f"rm\n{HOSTILE}-rf\n" + "x" * 1000))
    assert re.fullmatch(r"▸ rm\\n\\x1b\]0;title.*-rf\\nx{100,}…\n", paper.out)


# Terminals


def test_output_is_printed_by_lines_as_it_comes(paper):
    paper.printer.output("t", b"one\r\ntw", 0)
    assert paper.out == "  │ one\n"
    paper.printer.output("t", b"o\nthree", 0)
    assert paper.out == "  │ one\n  │ two\n"
    paper.printer.ended("t", ExitInfo(0, None))
    assert paper.out == "  │ one\n  │ two\n  │ three\n"


def test_a_character_in_two_parts_is_one(paper):
    for byte in "é🙂\n".encode():
        paper.printer.output("t", bytes([byte]), 0)
    assert paper.out == "  │ é🙂\n"


def test_what_is_no_utf_8_is_replaced(paper):
    paper.printer.output("t", b"a\xffb\n\xf0\x9f", 0)
    paper.printer.ended("t", ExitInfo(0, None))
    assert paper.out == "  │ a\ufffdb\n  │ \ufffd\n"


def test_of_what_is_written_over_the_last_is_left(paper):
    paper.printer.output("t", b"10%\r50%\r100%\r\n", 0)
    assert paper.out == "  │ 100%\n"


def test_a_line_that_does_not_end_is_printed_all_the_same(paper):
    paper.printer.output("t", b"x" * 10_000, 0)
    assert paper.out == f"  │ {'x' * 10_000}\n"


@pytest.mark.parametrize(
    ("end", "line"),
    [
        (ExitInfo(0, None), ""),
        (ExitInfo(None, None), ""),
        (ExitInfo(3, None), "  │ [exit status 3]\n"),
        (ExitInfo(None, "SIGKILL"), "  │ [ended by SIGKILL]\n"),
    ],
)
def test_an_end_that_was_not_well_is_told(paper, end, line):
    paper.printer.output("t", b"x\n", 0)
    paper.printer.ended("t", end)
    assert paper.out == "  │ x\n" + line


def test_output_that_is_missing_is_told(paper):
    paper.printer.output("t", b"x\n", 17)
    assert paper.out == "  │ … 17 bytes are not shown\n  │ x\n"


def test_terminals_at_a_time_are_told_apart_by_their_calls(paper):
    paper.printer.call(call(title="Build", terminals=["t"]))
    paper.printer.call(call(title="Test", terminals=["u"]))
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


def test_the_last_line_of_a_terminal_that_never_ends_is_printed_at_the_end(paper):
    paper.printer.output("t", b"one\ntwo", 0)
    paper.printer.end("end_turn", 0, None)
    assert paper.out == "  │ one\n  │ two\n"


def test_a_signal_that_an_agent_tells_of_steers_nothing(paper):
    paper.printer.ended("t", ExitInfo(None, f"SIG{HOSTILE}X"))
    assert paper.out == "  │ [ended by SIGX]\n"


# Diffs and plans


def test_a_change_of_a_file_is_a_diff(paper):
    diff = Diff("/src/a.py", "one\nTWO\nthree\n", "one\ntwo\nthree\n")
    made = call(status="in_progress", diffs=[diff])
    paper.printer.call(made)
    assert "-two" not in paper.out
    made.status = "completed"
    paper.printer.call(made)
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


def test_a_new_file_is_a_diff_to_nothing(paper):
    paper.printer.call(call(status="completed", diffs=[Diff("/a", "x\n")]))
    assert paper.out.splitlines()[1:5] == ["  --- /dev/null", "  +++ /a", "  @@ -0,0 +1 @@", "  +x"]


def test_a_diff_steers_nothing(paper):
    paper.printer.call(call(status="completed", diffs=[Diff(f"/{HOSTILE}a", f"x{HOSTILE}y")]))
    assert "  +++ /\\x1b]0;title" in paper.out
    assert "  +xy\n" in paper.out


def test_a_long_diff_is_cut_and_says_so(paper):
    paper.printer.call(call(status="completed", diffs=[Diff("/a", "x\n" * 1000)]))
    lines = paper.out.splitlines()
    assert (len(lines), lines[-2]) == (403, "  … 603 more lines")


def test_of_a_plan_what_is_new_is_printed(paper):
    paper.printer.plan([("look", "in_progress"), ("write", "pending")])
    paper.printer.plan([("look", "completed"), ("write", "pending"), ("te\x1b[2Jst", "strange")])
    assert paper.out.splitlines() == ["▸ look", "☐ write", "☑ look", "☐ te\\x1b[2Jst"]


# Notices and the end


def test_notices_go_to_stderr_and_begin_no_line_in_the_middle_of_another(paper):
    paper.printer.message("half")
    paper.printer.notice(f"refused{HOSTILE}")
    assert (paper.out, paper.err) == ("half\n", "acpterm: refused\n")


def test_a_session_is_told_to_who_wants_to_know():
    paper = Paper(quiet=False)
    paper.printer.session("s1")
    assert paper.err == "acpterm: session s1\n"


@pytest.mark.parametrize(
    ("reason", "error", "told"),
    [
        ("end_turn", None, ""),
        ("cancelled", None, ""),
        ("refusal", None, "acpterm: the turn ended with refusal\n"),
        ("max_tokens", None, "acpterm: the turn ended with max_tokens\n"),
        (None, "it is broken", "acpterm: it is broken\n"),
    ],
)
def test_an_end_that_was_not_as_wished_is_told(paper, reason, error, told):
    paper.printer.end(reason, 1, error)
    assert (paper.out, paper.err) == ("", told)


# Colours


def test_with_colours_those_of_programs_stay_and_nothing_else():
    paper = Paper(colours=True)
    paper.printer.output("t", f"\x1b[31mred{HOSTILE}\n".encode(), 0)
    assert paper.out.endswith("\x1b[31mred\x1b[0m\n")
    assert re.sub(r"\x1b\[[0-9;]*m", "", paper.out) == "  │ red\n"


def test_with_colours_the_agents_own_are_left_out():
    paper = Paper(colours=True)
    paper.printer.message("\x1b[31mred")
    assert paper.out == "red"


def test_with_colours_states_and_changes_have_one():
    paper = Paper(colours=True)
    paper.printer.call(call(status="completed", diffs=[Diff("/a", "new", "old")]))
    for code, text in ((1, "▸ Build"), (32, "✓ Build"), (32, "  +new"), (31, "  -old")):
        assert f"\x1b[{code}m{text}\x1b[0m\n" in paper.out


def test_without_colours_nothing_has_one(paper):
    paper.printer.output("t", b"\x1b[31mred\x1b[0m\n", 0)
    paper.printer.call(call(status="failed", diffs=[Diff("/a", "new", "old")]))
    paper.printer.plan([("look", "pending")])
    assert "\x1b" not in paper.out


# Calls without a terminal, and questions


def test_what_a_call_without_a_terminal_has_come_to_is_shown_in_short(paper):
    texts = ["1\n2\n", "\n".join(map(str, range(3, 15)))]
    paper.printer.call(call(status="completed", texts=texts))
    lines = paper.out.splitlines()
    assert lines[1:4] == ["  │ 1", "  │ 2", "  │ "]
    assert lines[-2:] == ["  │ … 5 more lines", "✓ Build"]
    assert len(lines) == 13


@pytest.mark.parametrize("more", [{"terminals": ["t"]}, {"diffs": [Diff("/a", "new")]}])
def test_beside_a_terminal_or_a_change_texts_are_not_shown(paper, more):
    paper.printer.call(call(status="completed", texts=["hidden"], **more))
    assert "hidden" not in paper.out


def test_a_result_steers_no_terminal(paper):
    paper.printer.call(call(status="failed", texts=[HOSTILE + "x"]))
    assert paper.out == "▸ Build\n  │ x\n✗ Build\n"


def test_what_a_question_is_about_stands_above_it_and_is_not_shown_again(paper):
    asked = call(diffs=[Diff("/a", "new", "old")])
    paper.printer.asked(asked)
    assert paper.out.startswith("▸ Build\n")
    assert "+new" in paper.out
    asked.status = "completed"
    paper.printer.call(asked)
    assert paper.out.count("+new") == 1
    assert paper.out.endswith("✓ Build\n")
