"""The words of `/terminal`: how lines are parsed, and what the actions request and answer."""

import itertools

import pytest

from acpterm.acp.agent_api import ReadResponse, WriteResponse
from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import (
    ExitInfo,
    OutputResponse,
    ScreenResponse,
    TerminalInfo,
)
from acpterm.agents.chat.actions import ChatAction, UsageError, parse
from acpterm.agents.chat.steps import Intervals, Pause, StartPlace, list_text, steps
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError
from tests.support.cases import each_case

HERE = StartPlace("/project", "local")


@each_case(
    ("line", "action"),
    [
        # The examples of the documentation of these words.
        (" list", ChatAction("list")),
        (" start npm run dev", ChatAction("start", text="npm run dev")),
        (" send term-1 y", ChatAction("send", "term-1", "y")),
        (" output term-1", ChatAction("output", "term-1")),
        (" stop term-1", ChatAction("stop", "term-1")),
        (" provider get", ChatAction("provider", "get")),
        (" provider select", ChatAction("provider", "select")),
        (" provider set local", ChatAction("provider", "set", "local")),
        (" provider list", ChatAction("provider", "list")),
        # White space
        ("\tlist \n", ChatAction("list")),
        (" start  sh -c 'a  b'\n", ChatAction("start", text="sh -c 'a  b'")),
        (" start echo 1\necho 2", ChatAction("start", text="echo 1\necho 2")),
        (" send term-1  a  b \n", ChatAction("send", "term-1", "a  b ")),
        (" send term-1 a\nb\n", ChatAction("send", "term-1", "a\nb")),
        (" send term-1", ChatAction("send", "term-1", "")),
        (" provider  set  local ", ChatAction("provider", "set", "local")),
    ],
)
def test_line_is_parsed(line, action):
    assert parse(line) == action


@each_case(
    ("line", "why"),
    [
        ("", "/terminal list"),
        (" help", "/terminal list"),
        (" frobnicate", "there is no action 'frobnicate'"),
        (" start", "/terminal start needs a command"),
        (" start  ", "/terminal start needs a command"),
        (" send", "/terminal send needs a session id"),
        (" output", "/terminal output needs a session id"),
        (" stop ", "/terminal stop needs a session id"),
        (" provider", "/terminal provider needs one of get, select, set and list"),
        (" provider set", "/terminal provider set needs the name of a provider"),
        (" provider x", "there is no action 'provider x'"),
    ],
)
def test_invalid_line_is_answered_with_the_usage(line, why):
    with pytest.raises(UsageError) as raised:
        parse(line)
    assert str(raised.value).startswith(why)
    assert "/terminal send <sessionId> <input>" in str(raised.value)


def terminal(number=1, **fields):
    values = {
        "terminal_id": f"term_{number:032x}",
        "name": f"term-{number}",
        "state": "running",
        "owner": "user",
        "agent": None,
        "connection": None,
        "session_id": None,
        "tool_calls": [],
        "command": "npm run dev",
        "cwd": "/project",
        "pid": 1,
        "cols": 120,
        "rows": 40,
        "created_at": 1_000_000,
        "last_output_at": None,
        "exited_at": None,
        "position": 0,
        "attached": 0,
        "waiting_for_input": False,
        "recording": None,
        "exit_status": None,
    }
    return TerminalInfo(**{**values, **fields})


def test_list_is_a_table():
    terminals = [
        terminal(1, position=1024, created_at=955_000),
        terminal(2, position=2048, created_at=880_000, command="python server.py"),
    ]
    assert list_text(terminals, 1000) == (
        "Active Terminal Sessions:\n"
        "ID           | Command                        | Position | Running | Uptime\n"
        "-------------|--------------------------------|----------|---------|--------\n"
        "term-1       | npm run dev                    | 1024     | Yes     | 45s\n"
        "term-2       | python server.py               | 2048     | Yes     | 120s"
    )


def test_list_has_one_safe_line_for_each_terminal():
    ended = terminal(
        0xABCDEF01 << 96,
        name=None,
        state="exited",
        exited_at=1_005_000,
        command="printf 'x\n'\x1b[2J" + "y" * 100,
    )
    _, _, _, row = list_text([ended], 2000).split("\n")
    assert row.startswith(
        "abcdef01     | printf 'x\\n'\\x1b[2Jyyyyyyyyyy… | 0        | No      | 5s"
    )
    assert list_text([], 0) == "No active terminal sessions."


class Host:
    """Answers requests with the values in `answers`, in order; an error is thrown."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.pauses = 0.0

    def run(self, action, place=HERE, intervals=Intervals()):  # noqa: B008
        work = steps(action, place, intervals, lambda: self.pauses)
        try:
            step = next(work)
            while True:
                if isinstance(step, Pause):
                    self.pauses = round(self.pauses + step.seconds, 3)
                    step = next(work)
                    continue
                self.requests.append((step.method, step.params))
                answer = self.answers.pop(0)
                if isinstance(answer, Exception):
                    step = work.throw(answer)
                else:
                    assert isinstance(answer, step.into)
                    step = work.send(answer)
        except StopIteration as end:
            return end.value

    def params(self, method):
        return [params for name, params in self.requests if name == f"terminal/{method}"]


def read(data, lost=0):
    return ReadResponse(data, 0, lost)


EXITED = ExitInfo(3, None, "exited", wall_ms=10)


def test_start_shows_the_name_that_the_daemon_has_numbered():
    ended = terminal(2, exit_status=EXITED, position=8)
    host = Host(ended, ended, read("ready\n"))
    assert host.run(ChatAction("start", text="npm run dev")) == (
        "Terminal Session Started\n"
        "Terminal Id: term-2\n"
        "Sent Command: npm run dev\n"
        "\n"
        "Output:\n"
        "ready\n"
        "[exited with 3]"
    )
    (create,) = host.params("create")
    assert (create.name, create.command, create.args) == ("term-#", "npm run dev", None)
    assert (create.cwd, create.provider) == ("/project", None)


def test_start_uses_the_selected_provider():
    ended = terminal(1, exit_status=EXITED)
    host = Host(ended, ended, read(""))
    text = host.run(ChatAction("start", text="make", args=["a b"]), StartPlace(None, "bubblewrap"))
    assert "Sent Command: make 'a b'\n" in text
    assert host.params("create")[0].provider == "bubblewrap"


def test_start_fails_if_the_command_is_refused():
    refused = RpcError(INVALID_PARAMS, "there is no directory '/project'")
    host = Host(refused)
    with pytest.raises(RpcError, match="no directory"):
        host.run(ChatAction("start", text="true"))


def started(*looks, output="out"):
    """Start a program with the action `start`; return the host, and the seconds that it waited.

    `looks` are the terminal's states, which `start` requests one after the other until it stops
    waiting; `output` is the output that it then reads.
    """
    host = Host(terminal(), *looks, read(output))
    host.text = host.run(ChatAction("start", text="x"))
    return host, host.pauses


def test_output_is_awaited_until_it_has_settled():
    # It comes during 1.5 s; then nothing for two seconds.
    moving = [terminal(position=at) for at in range(1, 17)]
    assert started(*moving, *itertools.repeat(terminal(position=16), 20))[1] == 3.5


def test_silent_program_is_awaited_for_the_settle_interval():
    assert started(*itertools.repeat(terminal(), 21))[1] == 2.0


def test_program_that_waits_for_input_is_awaited_for_the_minimum():
    waiting = terminal(waiting_for_input=True, position=3)
    assert started(*itertools.repeat(waiting, 11))[1] == 1.0


def test_program_that_never_settles_is_awaited_for_the_maximum():
    assert started(*(terminal(position=at) for at in range(301)))[1] == 30.0


def test_only_the_last_output_of_a_flood_is_shown():
    host, _ = started(terminal(exit_status=EXITED, position=100_000), output="last\n")
    assert "Output:\n[67232 bytes left out: output term-1 shows all]\nlast\n[" in host.text
    assert host.params("read")[0].since == 100_000 - 32 * 1024


def test_send_types_text_and_enter_and_shows_what_is_new():
    ended = terminal(position=20, exit_status=EXITED)
    host = Host(terminal(position=10), WriteResponse(2), ended, read("y\nyes\n"))
    assert host.run(ChatAction("send", "term-1", "y")) == (
        "Terminal Session: term-1\n\nOutput:\ny\nyes\n[exited with 3]"
    )
    (write,) = host.params("write")
    assert (write.terminal_id, write.data) == (terminal().terminal_id, "y\r")
    assert host.params("read")[0].since == 10
    # @last must not be an agent's terminal.
    assert host.params("get")[0].own


SCREEN = ScreenResponse(
    rows=[],
    cols=1,
    lines=1,
    cursor=(0, 0),
    cursor_visible=True,
    application_cursor=True,
    bracketed_paste=False,
    title=None,
    position=0,
)


@pytest.mark.parametrize(
    ("text", "data"), [("C-c", "\x03"), ("Escape", "\x1b"), ("up", "up\r"), ("", "\r")]
)
def test_send_presses_a_key_that_is_named(text, data):
    ended = terminal(exit_status=EXITED)
    host = Host(terminal(), WriteResponse(1), ended, read(""))
    host.run(ChatAction("send", "term-1", text))
    assert host.params("write")[0].data == data


def test_send_presses_an_arrow_key_as_the_program_expects_it():
    ended = terminal(exit_status=EXITED)
    host = Host(terminal(), SCREEN, WriteResponse(1), ended, read(""))
    host.run(ChatAction("send", "term-1", "Up"))
    assert host.params("write")[0].data == "\x1bOA"


def test_send_error_names_the_terminal_as_the_user_does():
    error = RpcError(INVALID_PARAMS, f"terminal '{terminal().terminal_id}' has ended")
    with pytest.raises(RpcError, match="terminal 'web' has ended"):
        Host(terminal(), error).run(ChatAction("send", "web", "y"))


def test_output_is_complete():
    text = "line\n" * 100_000
    host = Host(terminal(), OutputResponse(text, False, 1, None))
    assert (
        host.run(ChatAction("output", "term-1"))
        == f"Terminal Session: term-1\nComplete Output:\n{text}"
    )
    host = Host(terminal(), OutputResponse("x", True, 1, None))
    assert host.run(ChatAction("output", "term-1")).endswith(
        "[the beginning is no longer retained]\nx"
    )


@pytest.mark.parametrize(("owner", "method"), [("user", "release"), ("agent", "kill")])
def test_stop_removes_only_the_users_own_terminals(owner, method):
    host = Host(terminal(owner=owner), Empty())
    assert host.run(ChatAction("stop", "term-1")) == "Terminal session term-1 terminated."
    assert len(host.params(method)) == 1


def test_unknown_terminal_is_an_error():
    with pytest.raises(RpcError, match="no terminal 'x'"):
        Host(RpcError(RESOURCE_NOT_FOUND, "there is no terminal 'x'")).run(ChatAction("stop", "x"))
