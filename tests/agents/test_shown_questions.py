"""Every surface shows what decides: the variables before a command, and the end of a long one."""

import html

import msgspec
import pytest

from acpterm.acp.approvals import ApprovalInfo
from acpterm.agents.prompt import permissions
from acpterm.agents.proxy import editor_requests
from acpterm.agents.questions import question_options
from acpterm.commands.approval_format import asked_lines, keys_line, table
from acpterm.host import hooks
from acpterm.mcp import starting

START, END = "export PATH=/tmp/x:/bin; make", "&& rm -rf /important"
LONG = f"{START} {'target ' * 1500}\n{END}"
INFO = ApprovalInfo(
    approval_id="0123456789abcdef",
    connection="c",
    agent="agent",
    session_id="s",
    command=LONG,
    cwd="/src",
    level="dangerous",
    reason="because",
    prefix=["rm", "-rf", "x" * 200, "/important"],
    asked_at=0,
    remaining_ms=None,
)
EDITOR = editor_requests._permission_params(INFO, "call")["toolCall"]


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(EDITOR["content"][0]["content"]["text"], id="editor"),
        pytest.param(EDITOR["rawInput"]["command"], id="editor's raw input"),
        pytest.param(permissions._question(INFO), id="prompt"),
        pytest.param(asked_lines(INFO, has_keys=True), id="approvals -f"),
        pytest.param(table([INFO], 0), id="approvals"),
        pytest.param(starting._about("", LONG), id="elicitation"),
    ],
)
def test_surface_that_takes_the_answer_shows_the_whole_command(shown):
    unwrapped = shown.replace("\n  … ", "").replace("\\n", "\n").replace("\n    ", "\n")
    assert LONG in unwrapped


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(EDITOR["title"], id="editor's title"),
        pytest.param(html.unescape(hooks._sentence(f"An agent asks: {LONG}")), id="notify-send"),
    ],
)
def test_shortened_command_lacks_its_middle(shown):
    assert START in shown
    assert shown.endswith(END)
    assert len(shown) <= 1000


def test_list_of_questions_says_why_each_is_asked():
    second = msgspec.structs.replace(INFO, reason="throws away changes in b.py")
    lines = table([INFO, second], 0).split("\n")
    assert lines[2::2] == ["          because", "          throws away changes in b.py"]


def test_prefix_of_the_option_for_always_lacks_its_middle():
    names = [option.name for option in question_options(INFO)]
    assert all("rm -rf" in name and "/important" in name for name in names if "lways" in name)


@pytest.mark.parametrize("can_undo", [True, False])
def test_answer_that_allows_says_whether_all_comes_back(can_undo):
    info = msgspec.structs.replace(INFO, can_undo=can_undo)
    back = " (acpterm undo can bring back all of it)" if can_undo else ""
    options = [option.name for option in question_options(info)]
    assert options[0] == f"Allow once{back}"
    assert not any("undo" in name for name in options[1:])
    assert f": y allows{back}, n refuses" in keys_line(info)


def test_elicitation_has_no_line_longer_than_a_window():
    assert max(map(len, starting._about("", LONG).split("\n"))) <= 80


def test_prompt_shows_all_of_a_command_that_escapes_make_longer():
    info = msgspec.structs.replace(INFO, command="\x1b" * 9000 + END)
    assert END in permissions._question(info)
