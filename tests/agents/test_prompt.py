"""`acpterm prompt` as a process: its output, and its responses to the agent's requests."""

import base64
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.support.commands import run as run_command
from tests.support.commands import run_here
from tests.support.daemon import daemon
from tests.support.editor import create, embed, of, say, shown, tool_call, tool_update, until
from tests.support.polling import poll
from tests.support.prompts import (
    CANCELLED,
    SELECTED,
    agent_with,
    ask,
    at_a_terminal,
    command_line,
    permission,
    prompt_environment,
    prompted,
    prompting,
    sleep,
    start,
)


def update(kind, **fields):
    return {"do": "update", "update": {"sessionUpdate": kind, **fields}}


EXAMPLE_AGENT = Path(__file__).parents[2] / "docs" / "examples" / "acp_agent.py"


@pytest.mark.long
async def test_terminal_of_a_tool_call_stays_readable_after_the_prompt(tmp_path):
    async with daemon(tmp_path) as (_, path):
        agent = [sys.executable, str(EXAMPLE_AGENT)]
        options = ["--socket", path, "--allow", "all"]
        done = await run_command(path, "prompt", "echo kept", *options, "--", *agent)
        assert done.status == 0, done.err
        listed = json.loads((await run_command(path, "ls", "--all", "--json")).out)
        assert [(one["state"], len(one["toolCalls"])) for one in listed] == [("released", 1)]
        logs = await run_command(path, "logs", listed[0]["terminalId"])
        assert (logs.status, logs.out) == (0, "kept\n")


def test_example_agent_has_capabilities_which_avante_reads():
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    agent = [sys.executable, str(EXAMPLE_AGENT)]
    line = json.dumps(request).encode() + b"\n"
    done = subprocess.run(agent, input=line, capture_output=True, check=True)
    assert json.loads(done.stdout)["result"] == {"protocolVersion": 1, "agentCapabilities": {}}


# Output


@pytest.mark.long
async def test_message_is_printed_before_the_turn_ends(tmp_path):
    async with prompting(tmp_path, say("as it comes"), sleep()) as run:
        await run.until_printed("as it comes")
        assert run.process.poll() is None
        run.interrupt()
        await run.wait()


@pytest.mark.long
async def test_successful_turn_prints_only_its_message(tmp_path):
    status, run = await prompted(tmp_path, say("Hello "), say("there.\nDone"))
    assert (status, run.out, run.err) == (0, "Hello there.\nDone\n", "")


@pytest.mark.long
async def test_prompt_may_be_any_text(tmp_path):
    status, run = await prompted(tmp_path, text="tell me, é\n🙂 -- all")
    assert (status, run.out) == (0, "You said: tell me, é\n🙂 -- all\n")


@pytest.mark.long
@pytest.mark.costly
@pytest.mark.parametrize("text", [None, "-"])
async def test_prompt_may_come_from_stdin(tmp_path, text):
    status, run = await prompted(tmp_path, text=text, stdin=b"from stdin")
    assert (status, run.out) == (0, "You said: from stdin\n")


@pytest.mark.long
async def test_invalid_utf_8_in_the_prompt_is_replaced(tmp_path):
    _, run = await prompted(tmp_path, text=os.fsdecode(b"a\xffb"))
    assert run.out == "You said: a\ufffdb\n"


@pytest.mark.long
async def test_tool_call_lines_enclose_the_output_of_its_terminals(tmp_path):
    steps = [*shown("echo one; echo two >&2; exit 3", title="Build"), say("done")]
    status, run = await prompted(tmp_path, *steps)
    assert status == 0
    lines = run.out.splitlines()
    assert [line for line in lines if not line.startswith("{")] == [
        "▸ Build",
        "  │ one",
        "  │ two",
        "  │ [exit status 3]",
        "✓ Build",
        "done",
    ]


@pytest.mark.long
async def test_exit_is_printed_above_the_agents_message_after_the_release(tmp_path):
    for _ in range(3):
        _, run = await prompted(
            tmp_path,
            tool_call(),
            create("echo out; exit 4"),
            tool_update(content=[embed()]),
            of("wait_for_exit"),
            {**of("release"), "do": "start", "as": "released"},
            tool_update(status="failed"),
            say("over\n"),
        )
        lines = ["▸ a call", "  │ out", "  │ [exit status 4]", "✗ a call", "over"]
        assert run.out.splitlines() == lines


@pytest.mark.long
async def test_output_is_printed_while_the_program_runs(tmp_path):
    steps = [
        create("echo begun; while [ ! -e go ]; do sleep 0.05; done; echo over"),
        tool_call(content=[embed()]),
        of("wait_for_exit"),
    ]
    async with prompting(tmp_path, *steps) as run:
        await run.until_printed("begun")
        assert "over" not in run.out
        (tmp_path / "go").touch()
        assert await run.wait() == 0
        assert "over" in run.out


@pytest.mark.long
async def test_terminal_outside_of_tool_calls_is_not_printed(tmp_path):
    _, run = await prompted(tmp_path, create("echo hidden"), of("wait_for_exit"), of("release"))
    assert run.out == ""


@pytest.mark.long
async def test_long_output_is_printed_completely(tmp_path):
    _, run = await prompted(tmp_path, *shown("seq 20000"))
    numbers = re.findall(r"│ (\d+)\n", run.out)
    lost = re.findall(r"… (\d+) bytes are not shown", run.out)
    assert numbers[-1] == "20000"
    assert lost or len(numbers) == 20_000


@pytest.mark.long
async def test_changed_file_is_printed_as_a_diff(tmp_path):
    diff = {"type": "diff", "path": "/a", "oldText": "one\ntwo\n", "newText": "one\nTWO\n"}
    done = tool_update(status="completed")
    _, run = await prompted(tmp_path, tool_call(title="Edit", content=[diff]), done)
    lines = run.out.splitlines()
    assert (lines[0], lines[-1]) == ("▸ Edit", "✓ Edit")
    assert lines[4:-1] == ["   one", "  -two", "  +TWO"]


@pytest.mark.long
async def test_plan_is_printed_and_thoughts_and_unknown_updates_are_not(tmp_path):
    entry = {"content": "look around", "priority": "high", "status": "pending"}
    _, run = await prompted(
        tmp_path,
        update("plan", entries=[entry]),
        update("agent_thought_chunk", content={"type": "text", "text": "hm"}),
        update("of_the_future", text="what"),
        update("agent_message_chunk", content={"type": "image", "data": "", "mimeType": "x/y"}),
    )
    assert run.out == "☐ look around\n[image]\n"


async def test_notices_compactions_and_names_of_tools_are_printed(tmp_path):
    summary = {"type": "text", "text": "it was long"}
    status, run = await prompted(
        tmp_path,
        update("notice", severity="warning", title="Quota low", description="10 % left\x1b[2J"),
        update("compaction_update", compactionId="1", status="in_progress"),
        update("compaction_summary_chunk", compactionId="1", content=summary),
        update("compaction_update", compactionId="1", status="completed"),
        update("compaction_update", compactionId="2", status="failed", error="no room"),
        update("tool_call", toolCallId="c", title="Look around", name="list", status="completed"),
    )
    assert (status, run.err) == (0, "acpterm: the agent's warning: Quota low: 10 % left\n")
    assert run.out == (
        "▸ compact the conversation\n  │ it was long\n✓ compact the conversation\n"
        "▸ compact the conversation\n  │ no room\n✗ compact the conversation\n"
        "▸ Look around (list)\n✓ Look around (list)\n"
    )
    assert run.log.params("initialize")["clientCapabilities"]["session"] == {
        "notices": {},
        "compaction": {},
    }


@pytest.mark.long
async def test_agents_own_terminals_are_printed(tmp_path):
    """An agent sends their output if its client has the capability `_meta.terminal_output`."""
    out = {"terminal_id": "own", "data": "one\ntwo"}
    _, run = await prompted(
        tmp_path,
        tool_call(content=[embed("own")], _meta={"terminal_info": {"terminal_id": "own"}}),
        tool_update(_meta={"terminal_output": out}),
        tool_update(_meta={"terminal_output_delta": {**out, "data": " and on"}}),
        tool_update(_meta={"terminal_exit": {"terminal_id": "own", "exit_code": 4}}),
    )
    assert run.out.splitlines() == [
        "▸ a call",
        "  │ one",
        "  │ two and on",
        "  │ [exit status 4]",
    ]
    expected = run.log.params("initialize")["clientCapabilities"]
    assert expected["terminal"] is True
    assert expected["_meta"]["terminal_output"] is True


@pytest.mark.long
async def test_v2_terminals_are_printed(tmp_path):
    def chunk(data):
        encoded = base64.b64encode(data).decode()
        return update("terminal_output_chunk", terminalId="own", data=encoded)

    _, run = await prompted(
        tmp_path,
        tool_call(content=[embed("own")]),
        update("terminal_update", terminalId="own", command="make"),
        chunk(b"one\nt\xc3"),
        chunk(b"\xa9\n"),
        update("terminal_update", terminalId="own", exitStatus={"signal": "SIGINT"}),
    )
    assert run.out.splitlines() == ["▸ a call", "  │ one", "  │ té", "  │ [ended by SIGINT]"]


@pytest.mark.long
async def test_only_new_output_of_a_v2_snapshot_is_printed(tmp_path):
    def snapshot(data):
        encoded = base64.b64encode(data).decode()
        return update("terminal_update", terminalId="own", output={"data": encoded})

    _, run = await prompted(
        tmp_path,
        tool_call(content=[embed("own")]),
        snapshot(b"one\n"),
        snapshot(b"one\ntwo\n"),
        snapshot(b"new\n"),
    )
    assert run.out.splitlines() == ["▸ a call", "  │ one", "  │ two", "  │ new"]


# As JSON


@pytest.mark.long
async def test_json_has_one_event_per_line_in_order(tmp_path):
    steps = [say("é\n"), *shown("printf '\\033[31mred'"), permission()]
    status, run = await prompted(tmp_path, *steps, options=["--json", "--allow", "none"])
    assert status == 0
    assert run.events[0] == {"event": "session", "sessionId": "s1"}
    assert run.events[-1] == {
        "event": "end",
        "stopReason": "end_turn",
        "status": 0,
        "error": None,
    }
    (terminal,) = {one["terminalId"] for one in run.of("output")}
    assert "".join(one["data"] for one in run.of("output")) == "\x1b[31mred"
    assert run.of("exit") == [{"terminalId": terminal, "exitCode": 0, "signal": None}]
    assert run.of("notice") == [{"text": "refused: delete it all (--allow none)"}]
    updates = [one["update"] for one in run.of("update")]
    assert updates[0]["content"] == {"type": "text", "text": "é\n"}
    assert [one["status"] for one in updates if one.get("toolCallId")] == [
        "pending",
        "in_progress",
        "completed",
    ]
    assert run.err == ""


@pytest.mark.long
async def test_json_has_the_error_in_the_last_event(tmp_path):
    status, run = await prompted(tmp_path, options=["--json"], agent=["--die"])
    (event,) = run.events
    assert status == 1
    assert (event["event"], event["stopReason"], event["status"]) == ("end", None, 1)
    assert "set AGENT_KEY" in event["error"]


# On a terminal


HOSTILE = "\x1b]0;stolen\x07\x1b[2J\x1b[?1049h\x1b]52;c;aGk=\x07\x9b5n"
HOSTILE_STEPS = [
    say(f"said {HOSTILE}\x1b[35m"),
    tool_call(title=f"title {HOSTILE}"),
    create("printf '\\033]0;stolen\\007\\033[31mred\\033[0m\\033[2J\\n'"),
    tool_update(content=[embed()]),
    of("wait_for_exit"),
    tool_update(
        content=[{"type": "diff", "path": f"/{HOSTILE}", "newText": HOSTILE}], status="completed"
    ),
    {"do": "stderr", "text": HOSTILE},
    update("plan", entries=[{"content": HOSTILE, "priority": "low", "status": "pending"}]),
    permission(title=HOSTILE),
]


def escapes(text):
    """Return the control characters and sequences in `text`, except colours and line ends."""
    return re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f].?", re.sub(r"\x1b\[[0-9;]*m|\r\n", "", text))


@pytest.mark.long
async def test_terminal_gets_colours_and_no_other_control_sequences(tmp_path):
    options = ["--allow", "none"]
    async with at_a_terminal(tmp_path, *HOSTILE_STEPS, options=options, raw=True) as user:
        shown_, status = await user.end()
    assert status == 0
    assert "\x1b[31mred\x1b[0m" in shown_
    assert "\x1b[1m▸ title" in shown_
    # The agent's own colours are removed.
    assert "\x1b[35m" not in shown_
    assert escapes(shown_) == []


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.long
async def test_terminal_without_colours_gets_no_control_sequences(tmp_path, env):
    options = ["--allow", "none"]
    async with at_a_terminal(tmp_path, *HOSTILE_STEPS, options=options, raw=True, env=env) as user:
        shown_, _ = await user.end()
    assert "  │ red\r\n" in shown_
    assert "\x1b" not in shown_
    assert escapes(shown_) == []


@pytest.mark.long
async def test_pipe_gets_plain_text(tmp_path):
    _, run = await prompted(tmp_path, *HOSTILE_STEPS)
    assert "  │ red\n" in run.out
    assert "\x1b" not in run.out + run.err
    assert escapes(run.out + run.err) == []


@pytest.mark.long
async def test_error_message_of_the_agent_is_sanitized(tmp_path):
    code = f"""
def refuse(id_, params):
    scripted.send({{"id": id_, "error": {{"code": 1, "message": {HOSTILE!r} + "broken"}}}})
scripted.ANSWERS["session/new"] = refuse
"""
    status, run = await prompted(tmp_path, agent=agent_with(tmp_path, code))
    assert (status, escapes(run.err)) == (1, [])
    assert "broken" in run.err


@pytest.mark.long
async def test_verbose_prints_the_session_id_and_the_agents_stderr(tmp_path):
    expected = {"do": "stderr", "text": "from the agent"}
    _, quiet = await prompted(tmp_path, expected)
    _, run = await prompted(tmp_path, expected, options=["--verbose"])
    assert quiet.err == ""
    assert "acpterm: session s1\n" in run.err
    assert "from the agent\n" in run.err


@pytest.mark.long
async def test_stderr_of_the_agent_is_sanitized(tmp_path):
    expected = {"do": "stderr", "text": "a\x1b]0;title\x07\x1b[2Jb"}
    _, run = await prompted(tmp_path, expected, options=["--verbose"])
    assert "ab\n" in run.err
    assert "\x1b" not in run.err


# Permissions


@pytest.mark.long
@pytest.mark.costly
@pytest.mark.parametrize(
    ("rule", "kind", "chosen", "expected"),
    [
        ("all", "delete", "yes", "allowed: delete it all (--allow all)"),
        ("reads", "read", "yes", "allowed: delete it all (--allow reads)"),
        ("reads", "edit", "no", "refused: delete it all (--allow reads)"),
        ("none", "read", "no", "refused: delete it all (--allow none)"),
    ],
)
async def test_allow_rule_answers_permissions(tmp_path, rule, kind, chosen, expected):
    _, run = await prompted(tmp_path, permission(kind=kind), options=["--allow", rule])
    assert json.loads(run.out) == SELECTED[chosen]
    assert run.err.splitlines()[0] == f"acpterm: {expected}"


@pytest.mark.long
@pytest.mark.costly
@pytest.mark.parametrize(
    ("rule", "steps", "status"),
    [
        ("none", [permission()], 3),
        ("ask", [permission(), permission()], 3),
        # Reading does not count.
        ("none", [tool_call("l", kind="read", status="completed"), permission()], 3),
        # An agent may report a refused call as completed.
        ("none", [permission(), tool_call("c", kind="delete", status="completed")], 3),
        ("none", [permission(), tool_call("d", kind="edit", status="completed")], 0),
        ("none", [permission(), ask("terminal/create", command="true")], 0),
        ("reads", [permission(), permission(kind="read")], 0),
        ("all", [permission()], 0),
        ("none", [], 0),
    ],
)
async def test_status_is_3_when_a_request_was_refused_and_nothing_done(
    tmp_path, rule, steps, status
):
    done, run = await prompted(tmp_path, *steps, options=["--allow", rule])
    assert done == status
    last = run.err.splitlines()[-1] if run.err else ""
    refusals = "2 requests were" if rule == "ask" else "1 request was"
    expected = (
        f"acpterm: {refusals} refused and nothing was done: --allow all allows what the agent"
    )
    assert last.startswith(expected) == (status == 3)


@pytest.mark.long
async def test_writing_a_file_counts_as_doing_something(tmp_path):
    write = ask("fs/write_text_file", path=str(tmp_path / "a"), content="x")
    done, _ = await prompted(tmp_path, permission(), write, options=["--allow", "none"])
    assert done == 0


@pytest.mark.long
async def test_permission_is_refused_with_a_notice_without_a_terminal(tmp_path):
    _, run = await prompted(tmp_path, permission())
    assert json.loads(run.out) == SELECTED["no"]
    assert "refused: delete it all (there is no terminal to ask at; --allow" in run.err


@pytest.mark.long
async def test_permission_uses_the_kind_from_an_earlier_update(tmp_path):
    call = tool_call(title="look around", kind="read")
    request = permission()
    request["params"]["toolCall"] = {"toolCallId": "c"}
    _, run = await prompted(tmp_path, call, request, options=["--allow", "reads"])
    assert "allowed: look around" in run.err


@pytest.mark.long
async def test_user_is_asked_with_the_agents_options(tmp_path):
    async with at_a_terminal(tmp_path, permission()) as user:
        screen = await user.sees("1 to 3: ")
        assert [line for line in screen.splitlines() if line] == [
            "▸ delete it all",
            "May the agent do this? delete it all",
            "  1  Yes, once",
            "  2  Yes, always",
            "  3  No, never mind",
            "1 to 3: ",
        ]
        await user.types("2\n")
        _, status = await user.end()
        assert (status, user.log.answers("session/request_permission")) == (
            0,
            [SELECTED["always"]],
        )


@pytest.mark.long
async def test_tool_call_is_printed_above_the_question(tmp_path):
    diff = {"type": "diff", "path": "/a.py", "oldText": "old\n", "newText": "new\n"}
    request = permission()
    request["params"]["toolCall"] |= {"rawInput": {"command": "rm -r x"}, "content": [diff]}
    async with at_a_terminal(tmp_path, request) as user:
        screen = await user.sees("1 to 3: ")
        assert screen.index("-old") < screen.index("+new") < screen.index("May the agent do this? ")
        assert "May the agent do this? delete it all\n    rm -r x\n" in screen
        await user.types("3\n")
        await user.end()


@pytest.mark.long
async def test_input_typed_before_the_question_is_ignored(tmp_path):
    go = tmp_path / "go"
    async with at_a_terminal(tmp_path, say("begun\n"), until(go), permission()) as user:
        await user.sees("begun\n")
        await user.types("1\n")
        await user.sees("begun\n1\n")
        go.touch()
        await user.sees("1 to 3: ")
        await user.types("3\n")
        await user.end()
        assert user.log.answers("session/request_permission") == [SELECTED["no"]]


@pytest.mark.long
async def test_question_is_repeated_after_an_invalid_answer(tmp_path):
    async with at_a_terminal(tmp_path, permission()) as user:
        await user.sees("1 to 3: ")
        for nonsense in ("0", "4", "yes", "", "-1", "1.0"):
            await user.types(f"{nonsense}\n")
        await user.types("3\n")
        screen, _ = await user.end()
        assert screen.count("1 to 3: ") == 7
        assert user.log.answers("session/request_permission") == [SELECTED["no"]]


@pytest.mark.long
async def test_end_of_input_refuses(tmp_path):
    async with at_a_terminal(tmp_path, permission()) as user:
        await user.sees("1 to 3: ")
        await user.types("\x04")
        await user.end()
        assert user.log.answers("session/request_permission") == [SELECTED["no"]]


@pytest.mark.long
async def test_questions_are_asked_one_at_a_time(tmp_path):
    def request(name):
        params = permission(name)["params"]
        return start("session/request_permission", name, **params)

    def answer(name):
        return {"do": "await", "as": name, "report": True}

    steps = [request("first"), request("second"), answer("first"), answer("second")]
    async with at_a_terminal(tmp_path, *steps) as user:
        screen = await user.sees("1 to 3: ")
        assert screen.count("May the agent") == 1
        await user.types("1\n")
        await poll(lambda: user.log.answers("session/request_permission") or None)
        await user.sees("1 to 3: ", count=2)
        await user.types("3\n")
        await user.end()
        answers = user.log.answers("session/request_permission")
        assert sorted(map(str, answers)) == sorted(map(str, [SELECTED["yes"], SELECTED["no"]]))


@pytest.mark.long
async def test_ctrl_c_at_a_question_cancels_the_turn(tmp_path):
    async with at_a_terminal(tmp_path, permission()) as user:
        await user.sees("1 to 3: ")
        await user.types("\x03")
        _, status = await user.end()
        assert status == 130
        assert user.log.answers("session/request_permission") == [CANCELLED]
        assert "session/cancel" in user.log.methods()


# Files


def read(path, **more):
    return ask("fs/read_text_file", path=str(path), **more)


def write(path, content="new"):
    return ask("fs/write_text_file", path=str(path), content=content)


@pytest.mark.long
async def test_files_in_the_sessions_directory_are_read_and_written(tmp_path):
    (tmp_path / "a").write_text("1\n2\n3\n4\n")
    steps = [read(tmp_path / "a", line=2, limit=2), write(tmp_path / "b/c", "é\n")]
    _, run = await prompted(tmp_path, *steps)
    assert run.log.answers("fs/read_text_file") == [{"content": "2\n3\n"}]
    assert run.log.answers("fs/write_text_file") == [{}]
    assert (tmp_path / "b/c").read_text() == "é\n"
    assert run.log.params("session/new") == {"cwd": str(tmp_path), "mcpServers": []}


@pytest.mark.long
async def test_cwd_option_sets_the_sessions_and_programs_directory(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there/a").write_text("inside")
    (tmp_path / "a").write_text("outside")
    steps = [read(tmp_path / "there/a"), read(tmp_path / "a"), *shown("pwd")]
    _, run = await prompted(tmp_path, *steps, options=["--cwd", "there"])
    inside, outside = run.log.answers("fs/read_text_file")
    assert inside == {"content": "inside"}
    assert outside["code"] == -32602
    assert run.log.params("session/new")["cwd"] == str(tmp_path / "there")
    assert f"  │ {tmp_path}/there\n" in run.out


@pytest.mark.long
async def test_path_outside_of_the_directory_is_refused(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (inside / "link").symlink_to(outside)
    (inside / "dangling").symlink_to(outside / "new")
    ways = [outside / "secret", f"{inside}/../outside/secret", inside / "link/secret", "secret"]
    steps = [step for way in ways for step in (read(way), write(way))]
    options = ["--cwd", str(inside)]
    _, run = await prompted(tmp_path, *steps, write(inside / "dangling"), options=options)
    answers = run.log.answers("fs/read_text_file") + run.log.answers("fs/write_text_file")
    assert [answer["code"] for answer in answers] == [-32602] * 9
    assert (outside / "secret").read_text() == "secret"
    assert os.listdir(outside) == ["secret"]


@pytest.mark.long
async def test_reading_a_non_text_file_is_an_error_without_blocking(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff")
    names = ["pipe", "binary", "", "missing"]
    steps = [read(tmp_path / name) for name in names]
    _, run = await prompted(tmp_path, *steps, write(tmp_path / "pipe"), say("still there"))
    codes = [answer["code"] for answer in run.log.answers("fs/read_text_file")]
    assert codes == [-32602, -32602, -32602, -32002]
    assert run.log.answers("fs/write_text_file")[0]["code"] == -32602
    assert run.out.endswith("still there\n")


@pytest.mark.long
async def test_read_only_announces_no_writes_and_refuses_them(tmp_path):
    _, run = await prompted(tmp_path, write(tmp_path / "a"), options=["--read-only"])
    assert not (tmp_path / "a").exists()
    assert "--read-only" in run.log.answers("fs/write_text_file")[0]["message"]
    able = run.log.params("initialize")["clientCapabilities"]["fs"]
    assert able == {"readTextFile": True, "writeTextFile": False}


@pytest.mark.long
async def test_file_request_of_another_session_is_refused(tmp_path):
    (tmp_path / "a").touch()
    _, run = await prompted(tmp_path, read(tmp_path / "a", sessionId="other"))
    (error,) = run.log.answers("fs/read_text_file")
    assert error["code"] == -32002
    assert "there is no session 'other' here" in error["message"]


MORE = """
before = scripted.send
def send(message):
    able = message.get("result", {}).get("agentCapabilities")
    if able:
        able["sessionCapabilities"]["additionalDirectories"] = {}
    before(message)
scripted.send = send
"""


@pytest.mark.long
async def test_additional_directories_are_passed_when_supported(tmp_path):
    inside, more = tmp_path / "inside", tmp_path / "more"
    inside.mkdir()
    more.mkdir()
    options = ["--cwd", "inside", "--add-dir", "more"]
    agent = agent_with(tmp_path, MORE)
    _, run = await prompted(tmp_path, write(more / "a"), options=options, agent=agent)
    assert (more / "a").read_text() == "new"
    assert run.log.params("session/new")["additionalDirectories"] == [str(more)]


async def test_directory_with_a_non_utf_8_name_is_an_error(tmp_path):
    directory = os.fsdecode(bytes(tmp_path) + b"/\xff")
    os.mkdir(directory)
    for options in (["--cwd", directory], ["--add-dir", directory]):
        status, run = await prompted(tmp_path, options=options)
        assert status == 2
        assert "is not UTF-8" in run.err


@pytest.mark.long
async def test_additional_directories_are_an_error_when_not_supported(tmp_path):
    status, run = await prompted(tmp_path, options=["--add-dir", "."])
    assert status == 1
    assert run.err == "acpterm: the agent knows no additional directories (--add-dir)\n"


# Unknown and invalid messages


@pytest.mark.long
async def test_unknown_method_is_an_error(tmp_path):
    _, run = await prompted(tmp_path, ask("_vendor/thing"), ask("fs/read_text_file"), say("on"))
    (unknown,) = run.log.answers("_vendor/thing")
    assert unknown["code"] == -32601
    assert run.log.answers("fs/read_text_file")[0]["code"] == -32602
    assert run.out.endswith("on\n")


@pytest.mark.long
async def test_invalid_lines_on_the_agents_stdout_are_skipped(tmp_path):
    status, run = await prompted(tmp_path, say("hello"), agent=["--garbage"])
    expected = (
        "acpterm: some of what the agent wrote is no message: the message is not JSON: Welcome"
    )
    assert (status, run.out) == (0, "hello\n")
    assert run.err.startswith(expected)
    assert 'a message must be a JSON object, not "text"' in run.err
    assert run.err.count("is not JSON") == 1


@pytest.mark.long
async def test_lone_surrogate_in_a_message_is_replaced(tmp_path):
    line = {"jsonrpc": "2.0", "method": "session/update"}
    halves = "ab\\ud83d", "\\ude00c\\\\ud83d"
    lines = [
        json.dumps({**line, "params": {"sessionId": "s1", "update": message("TEXT")}}).replace(
            "TEXT", half
        )
        for half in halves
    ]
    status, run = await prompted(tmp_path, *({"do": "line", "text": text} for text in lines))
    assert (status, run.out) == (0, "ab\ufffd\ufffdc\\ud83d\n")


def message(text):
    content = {"type": "text", "text": text}
    return {"sessionUpdate": "agent_message_chunk", "content": content}


@pytest.mark.long
async def test_invalid_updates_are_skipped(tmp_path):
    lines = [
        '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1"}}',
        '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{}}}',
        '{"jsonrpc":"2.0","method":"session/update"}',
        '{"jsonrpc":"2.0","method":"_other/thing","params":[]}',
        json.dumps({"jsonrpc": "2.0", "id": 99, "result": {}}),
    ]
    wrong = [{"do": "line", "text": line} for line in lines]
    other = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "other"}}
    note = {"method": "session/update", "params": {"sessionId": "other", "update": other}}
    wrong.append({"do": "line", "text": json.dumps({"jsonrpc": "2.0", **note})})
    status, run = await prompted(
        tmp_path, *wrong, update("tool_call"), update("agent_message_chunk"), say("on")
    )
    assert (status, run.out) == (0, "on\n")


# Sessions and authentication


REPLAY = """
def load(id_, params):
    scripted.Turn(params["sessionId"]).say("from long ago")
    scripted.done(id_, params)
scripted.ANSWERS["session/load"] = scripted.ANSWERS["session/resume"] = load
"""
NO_RESUME = """
before = scripted.send
def send(message):
    able = message.get("result", {}).get("agentCapabilities")
    if able:
        del able["sessionCapabilities"]["resume"]
        able["loadSession"] = LOADS
    before(message)
scripted.send = send
"""


@pytest.mark.costly
@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("session/resume", REPLAY),
        ("session/load", REPLAY + NO_RESUME.replace("LOADS", "True")),
    ],
)
async def test_resumed_session_does_not_print_its_history(tmp_path, method, code):
    agent, options = agent_with(tmp_path, code), ["--resume", "old", "--json"]
    status, run = await prompted(tmp_path, say("new"), options=options, agent=agent)
    assert status == 0
    assert run.log.methods() == ["initialize", method, "session/prompt"]
    assert run.log.params(method)["sessionId"] == "old"
    assert run.of("session") == [{"sessionId": "old"}]
    assert [one["update"]["content"]["text"] for one in run.of("update")] == ["new"]


async def test_resume_is_an_error_when_not_supported(tmp_path):
    agent = agent_with(tmp_path, NO_RESUME.replace("LOADS", "False"))
    status, run = await prompted(tmp_path, options=["--resume", "old"], agent=agent)
    assert status == 1
    assert "cannot resume sessions: leave --resume out" in run.err


async def test_error_lists_the_authentication_methods(tmp_path):
    status, run = await prompted(tmp_path, agent=["--login"])
    assert status == 1
    assert run.err == (
        "acpterm: the agent wants you to log in first (Authentication required). It offers:\n"
        "  login: Log in. Run `scripted login` first. "
        "(--auth login has the agent do it, where it can)\n"
    )


LOGIN = """
new = scripted.new_session
def authenticate(id_, params):
    scripted.OPTIONS.discard("--login")
    scripted.done(id_, params)
scripted.ANSWERS["authenticate"] = authenticate
"""


async def test_authentication_precedes_the_session(tmp_path):
    agent = [*agent_with(tmp_path, LOGIN), "--login"]
    status, run = await prompted(tmp_path, say("hi"), options=["--auth", "login"], agent=agent)
    assert (status, run.out) == (0, "hi\n")
    assert run.log.methods() == ["initialize", "authenticate", "session/new", "session/prompt"]
    assert run.log.params("authenticate") == {"methodId": "login"}


# The log


async def test_wire_log_has_both_directions_and_is_private(tmp_path):
    _, run = await prompted(tmp_path, say("hi"))
    entries = run.log.entries()
    assert [(entry["dir"], entry["msg"].get("method")) for entry in entries] == [
        ("client->agent", "initialize"),
        ("agent->client", None),
        ("client->agent", "session/new"),
        ("agent->client", None),
        ("client->agent", "session/prompt"),
        ("agent->client", "session/update"),
        ("agent->client", None),
    ]
    assert all(entry["t"] >= 0 for entry in entries)
    assert stat.S_IMODE(run.log.path.stat().st_mode) == 0o600


async def test_unwritable_log_is_an_error(tmp_path):
    status, run = await prompted(tmp_path, options=["--log", "missing/log"])
    assert status == 1
    assert run.err == (
        "acpterm: the log 'missing/log' cannot be written: No such file or directory\n"
    )


@pytest.mark.long
async def test_all_messages_sent_in_a_busy_turn_are_valid(tmp_path):
    steps = [*shown("echo hi"), permission(), read(tmp_path / "x"), write(tmp_path / "x"), sleep()]
    async with prompting(tmp_path, *steps, options=["--allow", "all"]) as run:
        await poll(lambda: run.log.answers("fs/write_text_file") or None)
        run.interrupt()
        assert await run.wait() == 130
    # `sent` has validated each.
    assert len(run.log.sent()) == 11


# Command line


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["hello"], "say which agent: end the line with -- AGENT"),
        (["hello", "--"], "say which agent: end the line with -- AGENT"),
        (["", "--", "agent"], "the prompt is empty"),
        ([" \n", "--", "agent"], "the prompt is empty"),
        (["--", "agent"], "say what is to be done: TEXT, or - to read it from stdin"),
        (["-", "--", "agent"], "the prompt is empty"),
        (["one", "two", "--", "agent"], "two"),
        (["hello", "--allow", "some", "--", "agent"], "some"),
        (["hello", "--timeout", "0", "--", "agent"], "--timeout"),
        (["hello", "--cwd", "missing", "--", "agent"], "missing"),
        (["hello", "--unknown", "--", "agent"], "--unknown"),
    ],
)
def test_error_says_what_is_wrong_with_the_command_line(tmp_path, words, expected):
    done = run_here(["prompt", *words], prompt_environment(tmp_path))
    assert (done.status, done.out) == (2, "")
    assert expected in done.err


async def test_error_says_that_the_current_directory_is_gone(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    done = await trio.run_process(
        ["/bin/sh", "-c", script, "sh", str(gone), *command_line("hello", agent=["/no/agent"])],
        env=prompt_environment(tmp_path),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert done.returncode == 1
    assert b"the current directory cannot be found: No such file or directory" in done.stderr
