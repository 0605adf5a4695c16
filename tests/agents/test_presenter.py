"""Presenters handle any update of an agent without an error."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acpterm.acp.raw_json import members
from acpterm.acp.terminal_updates import ProgramExit
from acpterm.agents import session_update
from acpterm.agents.envelope import parse_envelope
from acpterm.agents.proxy.capabilities import Capabilities
from acpterm.agents.proxy.presenter import TerminalPresenter, TextPresenter, new_presenter
from acpterm.config import Settings
from tests.support.depth import examples

ids = st.sampled_from(["t", "u", "X", ""])
junk = st.sampled_from([None, 1, -1.5, True, "x", "\u0000", [], {}, [None], {"x": 1}, "4pg=", "!"])
terminal = st.fixed_dictionaries({"type": st.just("terminal"), "terminalId": ids | junk})
block = st.just({"type": "content", "content": {"type": "text", "text": "é"}})
content = st.lists(terminal | block | junk, max_size=3) | junk
end = st.fixed_dictionaries({}, optional={"exit_code": junk, "signal": junk, "terminal_id": ids})
output = st.fixed_dictionaries({"terminal_id": ids | junk}, optional={"data": st.text() | junk})
meta = st.fixed_dictionaries(
    {},
    optional={
        "terminal_info": output | junk,
        "terminal_output": output | junk,
        "terminal_output_delta": output | junk,
        "terminal_exit": end | junk,
    },
)
raw_output = st.fixed_dictionaries(
    {}, optional={name: st.text() | junk for name in ("aggregated_output", "stdout", "stderr")}
)
updates = st.fixed_dictionaries(
    {
        "sessionUpdate": st.sampled_from(
            ["tool_call", "tool_call_update", "terminal_update", "terminal_output_chunk", "plan"]
        )
        | junk
    },
    optional={
        "toolCallId": st.sampled_from(["c", "d"]) | junk,
        "title": junk,
        "content": content,
        "rawOutput": raw_output | junk,
        "_meta": meta | junk,
        "terminalId": ids | junk,
        "data": junk,
        "output": st.fixed_dictionaries({"data": junk}) | junk,
        "exitStatus": st.fixed_dictionaries({}, optional={"exitCode": junk}) | junk,
    },
)
steps = st.lists(
    st.tuples(st.just("update"), updates)
    | st.tuples(st.just("made"), ids)
    | st.tuples(st.just("output"), ids, st.binary(max_size=20), st.integers(0, 2))
    | st.tuples(st.just("ended"), ids)
    | st.tuples(st.just("permission"), updates)
    | st.tuples(st.just("paint"), st.none() | st.just("s")),
    max_size=30,
)


def as_text(*, editor_has_terminals=False, live=True):
    now = [0.0]

    def clock():
        now[0] += 0.1
        return now[0]

    return TextPresenter(
        clock=clock,
        follow=lambda _: None,
        limit=200,
        lines=3,
        live=live,
        editor_has_terminals=editor_has_terminals,
    )


@pytest.mark.long
@pytest.mark.costly
@pytest.mark.parametrize("presenter", ["text", "text beside terminals", "terminals"])
@settings(max_examples=examples(100))
@given(steps)
def test_presenter_accepts_any_update_of_an_agent(presenter, steps):
    if presenter == "terminals":
        it = TerminalPresenter(follow=lambda _: None)
    else:
        it = as_text(editor_has_terminals=presenter != "text")
    for what, *more in steps:
        lines = []
        if what == "update":
            line = json.dumps({"method": "x", "params": {"sessionId": "s", "update": more[0]}})
            parsed = session_update.parse_update(parse_envelope(line.encode()).params)
            if parsed is not None:
                lines = it.translate(line.encode(), parsed)
        elif what == "made":
            it.on_created(("s", more[0]), "command", None)
        elif what == "output":
            lines = it.on_output(("s", more[0]), more[1], more[2])
        elif what == "ended":
            lines = it.on_exit(("s", more[0]), ProgramExit(1, None))
        elif what == "permission":
            raw = json.dumps({"sessionId": "s", "toolCall": more[0]}).encode()
            lines, changed = it.permission(
                members(parse_envelope(b'{"params":' + raw + b"}").params)
            )
            assert changed is None or "toolCall" in changed
        else:
            lines = it.render(more[0])
        for line in lines:
            json.loads(line)
    assert it.next_render_at == math.inf or it.next_render_at > 0


@pytest.mark.parametrize(
    ("editor", "presenter"),
    [
        (Capabilities(), TextPresenter),
        (Capabilities(has_terminals=True), TextPresenter),
        (Capabilities(shows_agent_terminals=True), TerminalPresenter),
        (Capabilities(has_terminals=True, shows_agent_terminals=True), TerminalPresenter),
    ],
)
def test_presenter_follows_from_the_editors_capabilities(editor, presenter):
    assert isinstance(
        new_presenter(editor, Settings(), ours=True, follow=lambda _: None), presenter
    )
