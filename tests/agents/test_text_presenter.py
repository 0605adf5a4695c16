"""Presenting terminals as text: intervals, bounds and content, without a clock or programs."""

import json
import math
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import Raw

from acpterm.acp.raw_json import members
from acpterm.acp.terminal_updates import ProgramExit
from acpterm.agents import session_update
from acpterm.agents.envelope import parse_envelope
from acpterm.agents.proxy import presenter
from acpterm.agents.proxy.capabilities import editor_capabilities
from acpterm.agents.proxy.display import Display
from acpterm.agents.proxy.presenter import TextPresenter, new_presenter
from acpterm.config import Settings
from tests.acp.validate import validate_sent
from tests.support.cases import each_case
from tests.support.readers import TEXT_READERS, Acpx, CodeCompanion, Marimo


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Shown:
    """A `TextPresenter`, the terminals that it follows, and the lines that it sent."""

    def __init__(self, *, editor_has_terminals=False, lines=40, limit=8192, live=True):
        self.clock = Clock()
        self.followed = []
        self.sent = []
        self.it = TextPresenter(
            clock=self.clock,
            follow=self.followed.append,
            limit=limit,
            lines=lines,
            live=live,
            editor_has_terminals=editor_has_terminals,
        )

    def update(self, session="s", **fields):
        line = update_line(session, fields)
        sent = self.it.translate(line, session_update.parse_update(parse_envelope(line).params))
        self.sent += sent
        return sent

    def call(self, *content, call="c", session="s", **fields):
        return self.update(
            session,
            sessionUpdate="tool_call_update",
            toolCallId=call,
            content=list(content),
            **fields,
        )

    def render(self, session=None):
        sent = self.it.render(session)
        self.sent += sent
        return sent


def update_line(session, fields):
    params = {"sessionId": session, "update": fields}
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode()


def embed(terminal):
    return {"type": "terminal", "terminalId": terminal}


def block(line):
    """Return the texts in the content of the update in `line`, a JSON message."""
    content = json.loads(line)["params"]["update"]["content"]
    return [item["content"]["text"] for item in content if item["type"] == "content"]


def text(content):
    return {"type": "content", "content": {"type": "text", "text": content}}


T = ("s", "t")


def test_terminal_is_followed_once_when_it_is_first_shown():
    shown = Shown()
    shown.it.on_created(T, "make", "/p")
    assert shown.followed == []
    shown.call(embed("t"))
    shown.call(embed("t"), call="d")
    assert shown.followed == [T]


@pytest.mark.long
def test_updates_are_a_quarter_of_a_second_apart_during_a_flood():
    shown = Shown()
    shown.it.on_created(T, "yes", None)
    shown.call(embed("t"))
    rendered = []
    for _ in range(1000):
        shown.clock.now += 0.01
        shown.it.on_output(T, b"y %d\r\n" % len(rendered), 0)
        rendered += shown.render()
    assert 38 <= len(rendered) <= 40
    for line in rendered:
        validate_sent(json.loads(line), {})


def test_two_terminals_in_one_call_share_its_update_interval():
    shown = Shown()
    for terminal in ("t", "u"):
        shown.it.on_created(("s", terminal), terminal, None)
    shown.call(embed("t"), embed("u"))
    rendered = []
    for number in range(100):
        shown.clock.now += 0.01
        shown.it.on_output(("s", "tu"[number % 2]), b"%d\r\n" % number, 0)
        rendered += shown.render()
    assert 3 <= len(rendered) <= 4


def test_render_sends_nothing_when_the_content_is_unchanged():
    shown = Shown()
    shown.it.on_created(T, "clear", None)
    shown.call(embed("t"))
    shown.clock.now += 1
    assert shown.render() == []
    # Printed and erased again.
    shown.it.on_output(T, b"xxx\r\x1b[K", 0)
    assert shown.render() == []
    assert shown.it.next_render_at == math.inf


def test_next_render_at_is_when_render_has_lines():
    shown = Shown()
    shown.it.on_created(T, "x", None)
    shown.call(embed("t"))
    assert shown.it.next_render_at == math.inf
    shown.it.on_output(T, b"x", 0)
    assert shown.it.next_render_at == 100.25
    shown.clock.now = 100.24
    assert shown.render() == []
    shown.clock.now = 100.25
    assert len(shown.render()) == 1


def test_render_of_a_session_sends_all_its_pending_calls_and_no_others():
    shown = Shown()
    for session in ("s", "z"):
        shown.it.on_created((session, "t"), "x", None)
        shown.call(embed("t"), session=session)
        shown.it.on_output((session, "t"), b"late\n", 0)
    (line,) = shown.render("s")
    assert json.loads(line)["params"]["sessionId"] == "s"
    assert block(line) == ["```console\n$ x\nlate\n```"]
    shown.clock.now += 1
    assert len(shown.render()) == 1


def test_content_without_a_terminal_passes_unchanged():
    shown = Shown()
    line = update_line("s", {"sessionUpdate": "tool_call", "toolCallId": "c", "content": []})
    line = line.replace(b'"content": []', b'"content" :\t[ {"type":"content"} ]')
    assert shown.it.translate(line, session_update.parse_update(parse_envelope(line).params)) == [
        line
    ]


@pytest.mark.parametrize("content", [None, []])
def test_removed_content_is_not_sent_again(content):
    shown = Shown()
    shown.it.on_created(T, "x", None)
    shown.call(embed("t"))
    shown.update(sessionUpdate="tool_call_update", toolCallId="c", content=content)
    shown.it.on_output(T, b"x", 0)
    shown.clock.now += 1
    assert shown.render() == []


def test_update_without_content_keeps_the_shown_terminal():
    shown = Shown()
    shown.it.on_created(T, "x", None)
    shown.call(embed("t"))
    shown.update(sessionUpdate="tool_call_update", toolCallId="c", status="in_progress")
    shown.it.on_output(T, b"x", 0)
    shown.clock.now += 1
    assert len(shown.render()) == 1


END = {"sessionUpdate": "tool_call_update", "toolCallId": "c"}


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_end_of_a_call_has_the_final_text_and_nothing_follows(status):
    shown = Shown()
    shown.it.on_created(T, "x", None)
    shown.call(embed("t"))
    shown.it.on_output(T, b"one\r\n", 0)
    assert block(shown.update(**END, status=status)[0]) == ["```console\n$ x\none\n```"]
    shown.it.on_output(T, b"two\r\n", 0)
    shown.it.on_exit(T, ProgramExit(1, None))
    shown.clock.now += 1
    assert (shown.it.next_render_at, shown.render(), shown.render("s")) == (math.inf, [], [])
    # The agent itself may go on.
    shown.update(**END, status="in_progress")
    shown.it.on_output(T, b"three\r\n", 0)
    assert block(shown.render()[0])[0].endswith("two\nthree\n[exit status 1]\n```")


def test_end_without_any_text_passes_unchanged():
    shown = Shown()
    shown.it.on_created(T, "true", None)
    shown.call(embed("t"))
    update = {**END, "status": "completed", "rawOutput": "shown by the editor"}
    assert shown.update(**update) == [update_line("s", update)]


def test_appending_editor_gets_each_item_once():
    shown = Shown(live=False)
    for terminal in "t", "u":
        shown.it.on_created(("s", terminal), terminal, None)
    shown.call(text("mine"), embed("t"))
    shown.call(embed("u"), call="d")
    for terminal in "t", "u":
        shown.it.on_output(("s", terminal), b"one\r\n", 0)
    shown.clock.now += 1
    assert (shown.it.next_render_at, shown.render()) == (math.inf, [])
    shown.update(**END, status="completed")
    # The call that has no end is shown at the end of the turn.
    for _ in range(2):
        shown.render("s")
        shown.it.on_output(("s", "u"), b"two\r\n", 0)
    received = [json.loads(line) for line in shown.sent]
    calls = Marimo().read(received)
    assert calls.shown("c") == "mine\n```console\n$ t\none\n```"
    assert calls.shown("d") == "```console\n$ u\none\n```"


def claude_code(call, command, output, exit_code, *, content):
    """Return the updates of claude-agent-acp for a command, for a client that shows terminals.

    Its versions differ in whether the last one has `content`.
    """
    own = {"toolCallId": call, "sessionUpdate": "tool_call_update"}
    terminal = {"content": [embed(call)]}
    meta = {"terminal_exit": {"terminal_id": call, "exit_code": exit_code, "signal": None}}
    end = {"status": "failed" if exit_code else "completed", "rawOutput": output, "_meta": meta}
    begin = {"title": "Terminal", "kind": "execute", "status": "pending", "rawInput": {}}
    info = {"_meta": {"terminal_info": {"terminal_id": call}}}
    printed = {"terminal_output": {"terminal_id": call, "data": output}}
    return [
        {**own, "sessionUpdate": "tool_call", **begin, **terminal, **info},
        {**own, "title": command, "kind": "execute", **terminal},
        *([{**own, "_meta": printed}] if output else []),
        {**own, **end, **(terminal if content else {})},
    ]


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize(
    ("command", "output", "exit_code"),
    [
        ("echo hello world", "hello world", 0),
        ("make", "Exit code 2\nno rule", 2),
        ("true", "", 0),
        ("seq 300", "\n".join(map(str, range(300))), 0),
    ],
)
def test_each_editor_reads_the_output_of_claude_code(command, output, exit_code, content):
    updates = claude_code("c", command, output, exit_code, content=content)
    for kind in TEXT_READERS:
        shown = Shown(lines=400, live=kind is not Marimo)
        for update in updates:
            shown.update(**update)
            shown.clock.now += 1
            shown.render()
        shown.render("s")
        reader = kind().read([json.loads(line) for line in shown.sent])
        lines = reader.shown("c").splitlines()
        # acpx prints `rawOutput` as well as `content`.
        times = 2 if kind is Acpx else 1
        assert [line for line in output.splitlines() if lines.count(line) != times] == [], kind
        if kind is CodeCompanion:
            assert lines[0] == f"execute: {command}"
        if kind is Acpx:
            assert len(reader.printed["c"]) == 1


def test_terminals_of_different_sessions_are_distinct():
    shown = Shown()
    shown.it.on_created(T, "x", None)
    shown.call(embed("t"), session="z")
    assert shown.followed == []
    assert block(shown.sent[-1]) == []
    shown.it.on_output(T, b"x", 0)
    shown.clock.now += 1
    assert shown.render() == []


@pytest.mark.long
def test_memory_for_displays_and_calls_is_bounded():
    shown = Shown()
    for number in range(3000):
        terminal = f"t{number}"
        shown.it.on_created(("s", terminal), "x", None)
        shown.call(embed(terminal), call=f"c{number}")
        shown.it.on_output(("s", terminal), b"x" * 100, 0)
    it = shown.it
    assert len(it._calls) == presenter.CALLS_MAX
    assert len(it._displays) == presenter.DISPLAYS_MAX
    assert len(it._ours) == presenter.CALLS_MAX
    shown.clock.now += 1
    assert all(json.loads(line) for line in shown.render())


def test_lost_bytes_end_the_current_line():
    shown = Shown()
    shown.it.on_created(T, "x", None)
    shown.call(embed("t"))
    shown.it.on_output(T, b"begun", 0)
    shown.it.on_output(T, b"gone on\r\n", 1000)
    shown.clock.now += 1
    assert block(shown.render()[0]) == ["```console\n$ x\nbegun\ngone on\n```"]


# Terminals that the agent runs itself, and the raw output of their calls


def own(shown, **output):
    """Show an agent's own terminal that exits at once; return the texts shown last.

    `output` may have `data`, the terminal's output, and `raw`, the tool call's raw output.
    """
    info = {"terminal_info": {"terminal_id": "t", "cwd": "/"}}
    shown.update(
        sessionUpdate="tool_call",
        toolCallId="c",
        title="t",
        content=[embed("t")],
        _meta=info,
    )
    assert block(shown.sent[-1]) == []
    meta = {"terminal_exit": {"terminal_id": "t", "exit_code": 3, "signal": None}}
    if "data" in output:
        meta["terminal_output"] = {"terminal_id": "t", "data": output["data"]}
    more = {"rawOutput": output["raw"]} if "raw" in output else {}
    shown.update(
        sessionUpdate="tool_call_update", toolCallId="c", status="failed", _meta=meta, **more
    )
    shown.clock.now += 1
    shown.render()
    return (
        block(shown.sent[-1]) if "content" in json.loads(shown.sent[-1])["params"]["update"] else []
    )


FENCE = "```console\none\ntwo\n[exit status 3]\n```"


@each_case(
    "output",
    [
        {"raw": {"aggregated_output": "one\ntwo\n", "formatted_output": "cut", "stdout": "one\n"}},
        {"raw": {"aggregated_output": "", "formatted_output": "one\ntwo\n"}},
        {"raw": {"stdout": "one\n", "stderr": "two\n"}},
        {"raw": "one\ntwo"},
        {"data": "one\ntwo\n"},
        {"data": "one\r\ntwo\r\n", "raw": {"stdout": "one\ntwo\n"}},
        {"data": "two\n", "raw": {"stdout": "one\ntwo\n"}},
        {"data": "one\ntwo\n", "raw": {"stdout": "two\n"}},
        {"data": "one\ntwo\n", "raw": {"exit_code": 3}},
    ],
)
def test_output_of_an_agents_own_terminal_is_shown_once_whatever_its_source(output):
    assert own(Shown(), **output) == [FENCE]


@pytest.mark.parametrize("raw", [{"exit_code": 3}, {"stdout": ""}, {"stdout": 7}, [], None, 1])
def test_unrecognised_raw_output_produces_no_console_block(raw):
    assert own(Shown(), raw=raw) == []


def test_different_output_and_raw_output_are_both_shown():
    (fence,) = own(Shown(), data="one\n", raw={"stdout": "two\n"})
    assert fence == FENCE


def test_raw_output_is_shown_in_full():
    lines = "".join(f"line {number}\n" for number in range(500))
    (fence,) = own(Shown(lines=5, limit=200), raw={"aggregated_output": lines})
    assert lines in fence
    # The streamed output has the same end, so it is not shown twice.
    cut = lines[:300] + "[cut]\n" + lines[-300:]
    (fence,) = own(Shown(lines=5), data=lines, raw={"formatted_output": cut})
    assert lines in fence
    assert "[cut]" not in fence


def test_raw_output_of_a_call_with_a_host_terminal_is_not_shown():
    shown = Shown()
    shown.it.on_created(T, "x", None)
    shown.call(embed("t"), rawOutput="what the agent makes of it")
    shown.it.on_output(T, b"out\n", 0)
    shown.clock.now += 1
    assert block(shown.render()[0]) == ["```console\n$ x\nout\n```"]


def test_host_terminal_without_output_is_shown_only_if_it_failed():
    for code, texts in ((0, []), (1, ["```console\n$ x\n[exit status 1]\n```"])):
        shown = Shown()
        shown.it.on_created(T, "x", None)
        shown.call(embed("t"))
        assert block(shown.sent[-1]) == []
        shown.it.on_exit(T, ProgramExit(code, None))
        shown.clock.now += 1
        assert [text for line in shown.render() for text in block(line)] == texts


# Display


def display(data, *, lines=40, limit=8192, command="x", end=None):
    shown = Display(command, limit=limit, lines=lines, ours=True)
    shown.feed(data)
    shown.finish(end)
    return shown.fence()


@given(st.binary(max_size=400), st.integers(1, 5), st.sampled_from([100, 8192]))
def test_fence_is_closed_only_by_its_last_line(data, lines, limit):
    fence = display(data.replace(b"x", b"`"), lines=lines, limit=limit)
    assume(fence is not None)  # only blanks
    first, *body, last = fence.split("\n")
    assert first == last + "console"
    assert set(last) == {"`"}
    assert len(last) >= 3
    assert not any(last in line for line in body)
    assert len(body) <= lines + 2


@pytest.mark.parametrize(
    ("end", "last"),
    [
        (ProgramExit(0, None), "out"),
        (ProgramExit(7, None), "[exit status 7]"),
        (ProgramExit(None, "SIGKILL"), "[ended by SIGKILL]"),
        (ProgramExit(None, None), "[how it ended is not known]"),
        (None, "out"),
    ],
)
def test_unsuccessful_exit_is_the_last_line(end, last):
    assert display(b"out\r\n", end=end).split("\n")[-2] == last


def test_long_and_multi_line_commands_are_shortened():
    assert display(b"x", command="a\nb") == "```console\n$ a…\nx\n```"
    assert len(display(b"x", command="a" * 1000)) < 230


def test_last_lines_are_shown_after_an_ellipsis():
    assert display(b"1\n2\n3\n", lines=2) == "```console\n$ x\n…\n2\n3\n```"
    assert display(b"1\n2\n", lines=2) == "```console\n$ x\n1\n2\n```"


def test_line_without_its_beginning_is_dropped():
    fence = display(b"".join(b"%03d %s\n" % (n, b"x" * 30) for n in range(10)), limit=100)
    assert fence == "```console\n$ x\n…\n008 " + "x" * 30 + "\n009 " + "x" * 30 + "\n```"
    # The only line is kept, even if it lacks its beginning.
    assert display(b"x" * 200, limit=100) == "```console\n$ x\n…\n" + "x" * 100 + "\n```"


def test_members_of_a_non_object_are_empty():
    assert members(Raw(b"[1]")) == {}
    assert members(Raw(b'{"a": 1, "a": 2}')) == {"a": Raw(b"2")}


def test_invisible_characters_are_escaped_in_console_blocks():
    display = Display("cat \u202etxt.exe", limit=8192, lines=40)
    display.feed("safe \u200btext \u2066and\u2069 \U000e0068 tags\n".encode())
    display.finish(ProgramExit(0, None))
    assert display.fence() == (
        "```console\n$ cat \\u202etxt.exe\nsafe \\u200btext \\u2066and\\u2069 \\U000e0068 tags\n```"
    )


def of_codecompanion(text):
    """Return what CodeCompanion shows of a text, beside the title: one line of 100 characters."""
    return " ".join(re.sub("```[a-z]*", "", text).split())[:100]


def of_avante(text):
    """Return what avante.nvim shows of a text: four lines, without fences that name no language."""
    lines = text.split("\n")
    lines = lines[lines[0] == "```" :]
    return "\n".join(lines[: -1 if lines[-1] == "```" else None][:4])


@pytest.mark.parametrize(
    ("name", "shown"), [("CodeCompanion.nvim", of_codecompanion), (None, of_avante)]
)
async def test_editor_that_shows_only_a_beginning_shows_as_much_output_as_without_the_proxy(
    name, shown
):
    info = {} if name is None else {"clientInfo": {"name": name, "version": "1"}}
    editor = editor_capabilities(Raw(json.dumps(info).encode()))
    presenter = new_presenter(editor, Settings(), ours=True, follow=lambda _: None)
    presenter.on_created(("s", "t"), f"seq 4 # {'a long command ' * 9}", None)
    terminal = {"type": "terminal", "terminalId": "t"}
    fields = {"toolCallId": "c", "content": [terminal], "status": "in_progress"}
    start = update_line("s", {"sessionUpdate": "tool_call", **fields})
    presenter.translate(start, session_update.parse_update(parse_envelope(start).params))
    output = "\n".join(map(str, range(1, 100)))
    presenter.on_output(("s", "t"), f"{output}\n".encode(), 0)
    presenter.on_exit(("s", "t"), ProgramExit(0, None))
    end = {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}
    line = update_line("s", end)
    (last,) = presenter.translate(line, session_update.parse_update(parse_envelope(line).params))
    (block,) = json.loads(last)["params"]["update"]["content"]
    assert shown(block["content"]["text"]) == shown(output)
