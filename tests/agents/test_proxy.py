"""The proxy between an editor and the scripted agent: messages, terminals and their display."""

import json
import os
import re
import socket
import sys

import pytest
import trio

from acpterm.agents.proxy.run import ProxyOptions, run_proxy
from acpterm.agents.terminals import EXTENSIONS_META
from acpterm.config import Settings
from acpterm.jsonrpc import RpcError
from acpterm.link import daemon
from acpterm.runtime.unix_socket import PeerCredentials
from tests.acp.validate import DEFS, sample, validate_sent
from tests.support.depth import DEADLINE_S
from tests.support.editor import (
    AGENT,
    SHOWS,
    UPDATE,
    create,
    embed,
    of,
    proxied,
    say,
    shown,
    text,
    tool_call,
    tool_update,
    until,
)
from tests.support.fake_host import fake_host
from tests.support.polling import poll
from tests.support.processes import alive
from tests.support.readers import Zed

PERMISSION = "session/request_permission"


def valid(editor):
    """Validate the updates that the proxy sent against the schema."""
    for message in editor.messages:
        if message.get("method") == UPDATE:
            validate_sent(message, {})


def echoes(editor):
    return [message for message in editor.messages if message.get("method") == "_echo"]


# Messages that pass


async def test_unknown_messages_pass_unchanged_in_both_directions():
    async with proxied() as editor:
        await editor.open("/tmp")
        message = {
            "jsonrpc": "2.0",
            "id": "an id",
            "method": "_vendor/thing",
            "params": {"deep": [1, {"x": None, "1.0": 1.50}], "_meta": {"a": "é\u0000"}},
            "_meta": {"top": True},
        }
        await editor.send_message(**message)
        answer = await editor.until(lambda: editor.responses.get("an id"))
        assert answer["result"]["echo"] == message


@pytest.mark.parametrize("id_", ["", "é", 0, -1, 1.5, 2**64, None])
@pytest.mark.long
async def test_response_has_the_id_of_the_request(id_):
    async with proxied(chat=False) as editor:
        begin = {"id": id_, "method": "initialize", "params": {"protocolVersion": 1}}
        await editor.send_message(**begin)
        await editor.until(lambda: editor.messages)
        assert editor.messages[0]["id"] == id_
        await editor.send_message(id=id_, method="session/new", params={"cwd": "/tmp"})
        await editor.until(lambda: editor.messages[1:])
        create = {"jsonrpc": "2.0", "id": id_, "method": "terminal/create", "params": {}}
        prompt = [text(json.dumps([{"do": "line", "text": json.dumps(create)}]))["content"]]
        params = {"sessionId": "s1", "prompt": prompt}
        await editor.send_message(id=id_, method="session/prompt", params=params)
        await editor.until(lambda: editor.messages[2:])
        # Terminal requests go to the proxy, whatever their id, and never reach the editor.
        assert [message.get("id", "none") for message in editor.messages] == [id_] * 3


async def test_line_passes_byte_for_byte():
    line = '{ "method" :"_x/y",  "jsonrpc":"2.0","params":{"n":1.0,"u":"\\u00e9"} , "more": [ ] }'
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.prompt({"do": "line", "text": line})
        assert line.encode() in editor.lines


STRAY = ["Welcome!\x1b[1m", '"text"', '{"level":"info","id":1}', '{"method":"GET"}', "bye"]


def notices(editor):
    return [
        f"{u['title']}: {u['description']}"
        for u in editor.updates
        if u["sessionUpdate"] == "notice"
    ]


def stray(line):
    return {"do": "line", "text": line}


def texts_in(log):
    """Return what was no JSON in a wire log."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    return [entry["text"] for entry in entries if "text" in entry]


@pytest.mark.parametrize("capabilities", [{}, {"session": {"notices": {}}}])
async def test_what_is_no_message_is_kept_from_the_editor_and_told_once_of_each_kind(
    tmp_path, capfd, capabilities
):
    log = tmp_path / "log"
    async with proxied("--garbage", log=str(log)) as editor:
        await editor.open("/tmp", **capabilities)
        await editor.prompt(*map(stray, STRAY))
        assert all(json.loads(line)["jsonrpc"] == "2.0" for line in editor.lines)
        valid(editor)
        told = notices(editor)
    err = capfd.readouterr().err
    for line in ("Welcome to the agent!", *STRAY):
        assert f"{line}\n" in err
    expected = [
        "The agent has printed a line that is not JSON: Welcome to the agent!",
        'The agent has printed JSON that is no message: "text"',
    ]
    assert [line for line in err.splitlines() if "acpterm: " in line] == [
        f"acpterm: {what}" for what in expected
    ]
    assert told == (expected if capabilities else [])
    assert texts_in(log)[-2:] == [STRAY[0], "bye"]


async def test_log_line_with_the_id_of_a_request_does_not_answer_it():
    async with proxied() as editor:
        await editor.open("/tmp")
        id_ = await editor.begin(stray(json.dumps({"level": "info", "id": 3})), say("on"))
        assert id_ == 3
        assert await editor.result(id_) == {"stopReason": "end_turn"}


async def test_invalid_response_fails_its_request_and_an_invalid_request_is_refused():
    code = (
        "import json, sys\n"
        "def ask(): return json.loads(sys.stdin.readline())\n"
        "print(json.dumps({'jsonrpc': '2.0', 'id': 9, 'method': 'x', 'params': [float('nan')]}))\n"
        "sys.stdout.flush()\n"
        "id, refused = ask()['id'], ask()\n"
        "if 'error' not in refused: id, refused = refused['id'], ask()\n"
        "print(json.dumps({'jsonrpc': '2.0', 'id': id, 'result': [float('nan')]}), flush=True)\n"
        "print(json.dumps({'jsonrpc': '2.0', 'method': '_echo', 'params': refused}), flush=True)\n"
        "sys.stdin.read()\n"
    )
    async with proxied(sys.executable, "-c", code) as editor:
        with pytest.raises(RpcError, match="not JSON"):
            await editor.request("initialize", {})
        (refused,) = await editor.until(lambda: echoes(editor))
        assert refused["params"]["id"] == 9
        assert "NaN" in refused["params"]["error"]["message"]


async def test_message_that_is_too_long_or_cut_by_the_agents_death_is_told(tmp_path, capfd):
    log = tmp_path / "log"
    async with proxied(settings={"max_message_bytes": 100_000}, log=str(log)) as editor:
        await editor.open("/tmp", session={"notices": {}})
        await editor.prompt({**stray("xy"), "times": 100_000})
        (told,) = notices(editor)
        assert told == "A message of the agent was too long: 200000 bytes: see max_message_bytes"
        id_ = await editor.begin({"do": "cut", "text": '{"jsonrpc": "2.0", "id": 4'})
        with pytest.raises(RpcError, match=r'(?s)its last words.*"jsonrpc": "2.0", "id": 4'):
            await editor.result(id_)
        assert len(notices(editor)) == 2
        assert all(json.loads(line) for line in editor.lines)
    err = capfd.readouterr().err
    assert '{"jsonrpc": "2.0", "id": 4\n' in err
    assert texts_in(log) == [
        "A message of the agent was too long, dropped: 200000 bytes: see max_message_bytes",
        '{"jsonrpc": "2.0", "id": 4',
    ]
    assert told in err


async def test_end_of_a_message_without_end_is_told():
    code = "import sys; sys.stdin.readline(); sys.stdout.write('x' * 150_000)"
    async with proxied(
        sys.executable, "-c", code, settings={"max_message_bytes": 100_000}
    ) as editor:
        with pytest.raises(RpcError, match="too long, dropped: 150000 bytes"):
            await editor.request("initialize", {})


KINDS = [sample(kind) for kind in DEFS["SessionUpdate"]["oneOf"]]


@pytest.mark.parametrize("update", KINDS, ids=[kind["sessionUpdate"] for kind in KINDS])
async def test_each_kind_of_update_of_the_schema_passes_unchanged(update):
    if update["sessionUpdate"].startswith("tool_call"):
        update |= {"name": "list_files"}
    line = {"jsonrpc": "2.0", "method": UPDATE, "params": {"sessionId": "s1", "update": update}}
    async with proxied(chat=False) as editor:
        await editor.open("/tmp")
        await editor.prompt(stray(json.dumps(line)))
        assert json.dumps(line).encode() in editor.lines
        valid(editor)


async def test_notifications_pass_in_order_before_the_response_that_follows():
    async with proxied() as editor:
        await editor.open("/tmp")
        id_ = await editor.begin({"do": "many", "times": 300})
        await editor.result(id_)
        assert editor.texts_sent == [f"{number} " for number in range(300)]
        assert editor.messages[-1]["id"] == id_


async def test_oversized_message_is_dropped_and_a_large_one_passes():
    async with proxied(settings={"max_message_bytes": 3_000_000}) as editor:
        await editor.open("/tmp")
        long = "x" * 2_000_000
        await editor.notify("_long", {"text": long})
        echo = await editor.until(
            lambda: [m for m in editor.messages if m.get("method") == "_echo"]
        )
        assert echo[0]["params"]["echo"]["params"]["text"] == long
        await editor.notify("_long", {"text": "x" * 3_000_001})
        await editor.notify("_short", {})
        echo = await editor.until(lambda: echoes(editor)[1:])
        assert echo[0]["params"]["echo"]["method"] == "_short"


async def test_editor_answers_the_agents_other_requests():
    async with proxied() as editor:
        await editor.open("/tmp")
        editor.on_request = lambda message: {"content": message["params"]["path"]}
        ask = {"do": "ask", "method": "fs/read_text_file", "params": {"path": "/x"}, "report": True}
        await editor.prompt(ask)
        assert json.loads(editor.texts_sent[0]) == {"content": "/x"}


# Capabilities


async def test_agent_gets_terminals_and_the_editors_capabilities():
    capabilities = {"session": {"x": 1}, "_meta": {"mine": [1]}}
    async with proxied() as editor:
        answer = await editor.open("/tmp", **capabilities)
    assert answer["_meta"]["clientCapabilities"] == {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "session": {"x": 1},
        "terminal": True,
        "_meta": {"mine": [1], **EXTENSIONS_META, "terminal_output": True},
    }


@pytest.mark.parametrize("params", [{"protocolVersion": 1}, {"clientCapabilities": None}, [], None])
async def test_incomplete_initialize_is_passed_on_with_terminals(params):
    async with proxied() as editor:
        answer = await editor.request("initialize", params)
    announced = {"terminal": True, "_meta": {**EXTENSIONS_META, "terminal_output": True}}
    assert answer["_meta"]["clientCapabilities"] == announced


@pytest.mark.costly
@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume"])
async def test_commands_run_in_the_sessions_directory(tmp_path, method):
    async with proxied() as editor:
        await editor.open("/tmp")
        params = {"cwd": str(tmp_path), "mcpServers": [], "sessionId": "old"}
        answer = await editor.request(method, params)
        editor.session = answer.get("sessionId", "old")
        await editor.prompt(*shown("pwd"))
        assert json.loads(editor.texts_sent[1])["output"] == f"{tmp_path}\n"


# The agent's terminals


@pytest.mark.costly
@pytest.mark.parametrize(
    ("agent_name", "code"), [("@mistralai/mistral-vibe", 137), ("scripted", None)]
)
async def test_agent_that_takes_null_for_success_is_sent_a_code_for_a_signal(agent_name, code):
    async with proxied(*AGENT, f"--name={agent_name}") as editor:
        await editor.open("/tmp")
        await editor.prompt(*shown("kill -KILL $$"))
        assert json.loads(editor.texts_sent[0])["exitCode"] == code
        assert json.loads(editor.texts_sent[0])["signal"] == "SIGKILL"


async def test_agent_gets_terminals_with_the_editors_environment(monkeypatch):
    monkeypatch.setenv("ACPTERM_TEST_MARK", "here")
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.prompt(*shown("tty | cut -c1-8; echo $ACPTERM_TEST_MARK; exit 3"))
        status, output = (json.loads(message) for message in editor.texts_sent)
        assert (status["exitCode"], status["signal"]) == (3, None)
        assert output["output"] == "/dev/pts\nhere\n"
        valid(editor)


async def test_agent_can_use_extension_methods():
    async with proxied() as editor:
        await editor.open("/tmp")
        params = {"terminalId": "$t", "data": "yes\n"}
        await editor.prompt(
            create("read x; echo got $x"),
            {"do": "ask", "method": "_acpterm/terminal/write", "params": params},
            of("wait_for_exit"),
            of("output", report=True),
        )
        assert "got yes\n" in json.loads(editor.texts_sent[0])["output"]


async def test_extensions_are_not_announced_when_terminals_are_the_editors():
    async with proxied() as editor:
        answer = await editor.open("/tmp", terminal=True)
    assert answer["_meta"]["clientCapabilities"]["_meta"] == {"terminal_output": True}


async def test_host_errors_reach_the_agent_with_its_own_id():
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.prompt(
            {**create("ls", cwd="sub"), "report": True}, {**of("kill"), "report": True}
        )
        assert "cwd 'sub' is not absolute" in json.loads(editor.texts_sent[0])["message"]
        assert json.loads(editor.texts_sent[1])["code"] in (-32602, -32002)


async def test_wait_cancelled_by_the_agent_is_answered_as_cancelled():
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.prompt(
            create("sleep 60"),
            {
                "do": "start",
                "method": "terminal/wait_for_exit",
                "params": {"terminalId": "$t"},
                "as": "w",
            },
            # The scripted agent numbers its requests.
            {"do": "line", "text": cancel_request(2)},
            {"do": "await", "as": "w", "report": True},
        )
        assert json.loads(editor.texts_sent[0])["code"] == -32800


def cancel_request(id_):
    return json.dumps(
        {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id_}}
    )


async def test_cancel_of_a_request_to_the_editor_passes():
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.prompt({"do": "line", "text": cancel_request(99)})
        assert cancel_request(99).encode() in editor.lines


# Terminals as text


async def test_embedded_terminal_becomes_a_console_block_in_its_place():
    diff = {"type": "diff", "path": "/a", "oldText": None, "newText": "x"}
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.prompt(
            tool_call(),
            create("echo one; echo two"),
            of("wait_for_exit"),
            tool_update(content=[text("before"), embed(), diff]),
            of("release"),
        )
        for update in editor.calls()[1:]:
            first, *block, last = update["content"]
            assert (first, last) == (text("before"), diff)
            for item in block:
                assert item["content"]["text"].startswith("```console\n$ echo one; echo two\none\n")
        assert editor.texts()[-1] == "```console\n$ echo one; echo two\none\ntwo\n```"
        valid(editor)


@pytest.mark.long
async def test_console_block_is_updated_live_and_final_before_the_turn_ends(tmp_path):
    async with proxied() as editor:
        await editor.open(str(tmp_path))
        wait = "until [ -e $i ]; do sleep 0.02; done"
        turn = await editor.begin(*shown(f"for i in 1 2 3; do echo $i; {wait}; done; exit 2"))
        for number in range(1, 4):
            await editor.until(
                lambda shown=f"{number}\n```": any(text.endswith(shown) for text in editor.texts())
            )
            (tmp_path / str(number)).touch()
        await editor.result(turn)
        texts = editor.texts()
        assert len(texts) >= 3
        assert any("1\n" in shown_text and "3\n" not in shown_text for shown_text in texts)
        assert texts[-1].endswith("1\n2\n3\n[exit status 2]\n```")
        # Only the end of the call, which has its whole content, may repeat what was shown.
        assert len(set(texts[:-1])) == len(texts[:-1])
        assert "stopReason" in editor.messages[-1]["result"]
        valid(editor)


@pytest.mark.long
async def test_all_output_is_shown_when_the_terminal_is_released_at_once():
    async with proxied() as editor:
        await editor.open("/tmp")
        for call in range(5):
            await editor.prompt(*shown("seq 5", f"c{call}"))
            assert editor.texts(f"c{call}")[-1] == "```console\n$ seq 5\n1\n2\n3\n4\n5\n```"


async def test_terminal_released_while_running_is_shown_as_ended(tmp_path):
    printed, go = tmp_path / "printed", tmp_path / "go"
    shown_end = "begun\n[ended by SIGTERM]\n```"
    async with proxied() as editor, trio.open_nursery() as nursery:
        await editor.open("/tmp")
        # The turn ends once the end is shown: afterwards, the proxy waits for it only shortly.
        steps = create(f"echo begun; >{printed}; sleep 60"), tool_update(content=[embed()])
        ends = until(printed), of("release"), until(go)
        nursery.start_soon(editor.prompt, tool_call(), *steps, *ends)
        await editor.until(lambda: "".join(editor.texts()[-1:]).endswith(shown_end))
        go.touch()


async def test_console_block_is_bounded():
    async with proxied(settings={"shown_lines": 3, "shown_bytes": 1000}) as editor:
        await editor.open("/tmp")
        await editor.prompt(*shown("seq 10; printf '%0500d' 1; echo; echo '````'"))
        last = editor.texts()[-1]
        assert last.startswith("`````console\n")
        assert last.endswith("`````")
        assert len(last) < 1200
        assert "\n…\n" in last


@pytest.mark.parametrize("released", [True, False])
@pytest.mark.parametrize("embedded", ["while it runs", "at the end"])
async def test_end_of_a_call_has_all_output_and_nothing_follows_it(released, embedded):
    begins = [tool_update(content=[embed()])] if embedded == "while it runs" else []
    ends = {} if begins else {"content": [embed()]}
    # A terminal that was released before it is embedded cannot be shown any more.
    release = [of("release")] if released else []
    before, after = (release, []) if begins else ([], release)
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.prompt(
            tool_call(),
            create("seq 5; exit 2"),
            *begins,
            of("wait_for_exit"),
            *before,
            tool_update(status="completed", **ends),
            *after,
        )
        last = editor.calls()[-1]
        assert last["status"] == "completed"
        block = "```console\n$ seq 5; exit 2\n1\n2\n3\n4\n5\n[exit status 2]\n```"
        assert last["content"] == [text(block)]
        valid(editor)


async def test_running_terminal_does_not_delay_the_end_of_its_call(tmp_path):
    async with proxied() as editor:
        await editor.open("/tmp")
        steps = create("echo begun; sleep 60"), tool_update(content=[embed()])
        with trio.fail_after(DEADLINE_S):
            turn = await editor.begin(tool_call(), *steps, until(tmp_path / "go"))
            await editor.until(editor.texts)
            (tmp_path / "go").touch()
            await editor.result(turn)
            await editor.prompt(tool_update(status="completed"))
        assert editor.calls()[-1]["status"] == "completed"
        assert editor.texts()[-1] == "```console\n$ echo begun; sleep 60\nbegun\n```"


async def test_editor_that_does_not_name_itself_gets_each_block_once(tmp_path):
    async with proxied() as editor:
        editor.info = None
        await editor.open("/tmp")
        await editor.prompt(*shown("for i in 1 2 3; do echo $i; sleep 0.3; done"))
        assert len(editor.texts()) == 1
        assert editor.texts()[0].endswith("\n1\n2\n3\n```")
        assert editor.calls()[-1]["status"] == "completed"


async def test_content_without_the_terminal_is_not_updated_any_more(tmp_path):
    go = tmp_path / "go"
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.prompt(
            tool_call(),
            create(f"echo one; until [ -e {go} ]; do sleep 0.02; done; echo two"),
            tool_update(content=[embed()]),
            tool_update(content=[text("mine")]),
            create(f">{go}", "go"),
            of("wait_for_exit"),
            of("release"),
        )
        assert editor.texts()[-1] == "mine"
        assert not any("\ntwo" in shown_text for shown_text in editor.texts())


async def test_terminal_in_a_permission_request_becomes_text():
    async with proxied() as editor:
        await editor.open("/tmp")
        requests = []
        editor.on_request = lambda m: requests.append(m) or {"outcome": {"outcome": "cancelled"}}
        tool = {"toolCallId": "c", "content": [embed(), text("sure?")]}
        params = {"toolCall": tool, "options": []}
        await editor.prompt(
            create("echo one"),
            of("wait_for_exit"),
            {"do": "ask", "method": "session/request_permission", "params": params},
            {"do": "ask", "method": "session/request_permission", "params": {"toolCall": {}}},
        )
        first, second = requests
        assert first["params"]["toolCall"]["content"][0]["content"]["text"].startswith("```console")
        assert first["params"]["toolCall"]["content"][1] == text("sure?")
        assert second["params"]["toolCall"] == {}
        validate_sent(first, {})


# Terminals as an agent's own


async def test_host_terminals_are_presented_as_the_agents_when_supported():
    async with proxied() as editor:
        await editor.open("/tmp", **SHOWS)
        await editor.prompt(*shown("printf 'a\\033[1mb'; sleep 0.3; echo é; exit 3"))
        first, embedding, *rest, last = editor.calls()
        terminal = embedding["content"][0]["terminalId"]
        assert first["sessionUpdate"] == embedding["sessionUpdate"] == "tool_call"
        assert embedding["title"] == "a call"
        assert embedding["status"] == "in_progress"
        info = {"terminal_id": terminal, "cwd": "/tmp"}
        assert embedding["_meta"] == {"terminal_info": info}
        *outputs, end = [update["_meta"] for update in rest]
        data = "".join(output["terminal_output"]["data"] for output in outputs)
        assert data == "a\x1b[1mbé\r\n"
        end_of = {"terminal_id": terminal, "exit_code": 3, "signal": None}
        assert end == {"terminal_exit": end_of}
        assert last == {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "c",
            "status": "completed",
        }
        valid(editor)


def data_of(editor):
    """Return all terminal output that the editor received."""
    metas = [update.get("_meta", {}) for update in editor.calls()]
    return "".join(meta["terminal_output"]["data"] for meta in metas if "terminal_output" in meta)


async def test_bytes_overwritten_in_the_ring_are_counted_as_lost():
    async with proxied(settings={"raw_bytes": 2000}) as editor:
        await editor.open("/tmp", **SHOWS)
        await editor.prompt(*shown("seq 10000"))
        data = data_of(editor)
        missing = [int(found) for found in re.findall(r"\[(\d+) bytes are missing\]", data)]
        assert missing
        rest = re.sub(r"\r\n\[\d+ bytes are missing\]\r\n", "", data)
        total = sum(len(f"{number}\r\n") for number in range(1, 10001))
        assert sum(missing) + len(rest) == total
        assert rest.endswith("9999\r\n10000\r\n")


async def test_output_of_a_display_terminal_precedes_the_end_of_its_call():
    async with proxied() as editor:
        await editor.open("/tmp", **SHOWS)
        await editor.prompt(
            tool_call(),
            create("echo one"),
            of("wait_for_exit"),
            tool_update(content=[embed()], status="completed"),
        )
        *_, output, end, last = editor.calls()
        assert output["_meta"]["terminal_output"]["data"] == "one\r\n"
        assert end["_meta"]["terminal_exit"]["exit_code"] == 0
        assert (last["sessionUpdate"], last["status"]) == ("tool_call_update", "completed")
        assert Zed().read(editor.messages).shown("c") == "one\n"


@pytest.mark.long
async def test_output_is_not_duplicated_when_released_while_printing(tmp_path):
    async with proxied() as editor:
        await editor.open("/tmp", **SHOWS)
        for number in range(5):
            editor.messages.clear()
            printed = tmp_path / str(number)
            await editor.prompt(
                tool_call(),
                create(f"while :; do echo $((i=i+1)); sleep 0.01; [ $i != 9 ] || >{printed}; done"),
                tool_update(content=[embed()]),
                create(f"until [ -e {printed} ]; do sleep 0.01; done", "until"),
                of("wait_for_exit", "until"),
                of("release"),
            )
            lines = data_of(editor).split("\r\n")[:-1]
            assert len(lines) > 3
            assert lines == [str(number) for number in range(1, len(lines) + 1)]


async def test_agents_own_terminals_pass_unchanged_when_supported():
    steps = display_only()
    async with proxied() as editor:
        await editor.open("/tmp", **SHOWS)
        await editor.prompt(*steps)
        assert editor.calls() == [step["update"] for step in steps]


def display_only():
    return [
        tool_call(content=[embed("X")], _meta={"terminal_info": {"cwd": "/p", "terminal_id": "X"}}),
        tool_update(meta={"terminal_output": {"data": "one\n", "terminal_id": "X"}}),
        tool_update(meta={"terminal_output_delta": {"data": "two\n", "terminal_id": "X"}}),
        tool_update(
            status="failed",
            meta={
                "terminal_output": {"data": "three\n", "terminal_id": "X"},
                "terminal_exit": {"exit_code": 4, "signal": None, "terminal_id": "X"},
            },
        ),
    ]


async def test_agents_own_terminals_become_text_when_not_supported():
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.prompt(*display_only())
        assert editor.texts()[-1] == "```console\none\ntwo\nthree\n[exit status 4]\n```"
        valid(editor)


async def test_agents_own_terminals_become_text_for_an_editor_with_terminals():
    async with proxied() as editor:
        await editor.open("/tmp", terminal=True)
        await editor.prompt(*display_only())
        assert editor.texts()[-1].endswith("three\n[exit status 4]\n```")


def of_v2():
    update = {"do": "update"}
    kind = "sessionUpdate"
    return [
        {**update, "update": {kind: "terminal_update", "terminalId": "X", "command": "make"}},
        tool_call(content=[embed("X")]),
        {**update, "update": {kind: "terminal_output_chunk", "terminalId": "X", "data": "4piD"}},
        {**update, "update": {kind: "terminal_output_chunk", "terminalId": "X", "data": "4pg="}},
        {**update, "update": {kind: "terminal_output_chunk", "terminalId": "X", "data": "gwo="}},
        {
            **update,
            "update": {kind: "terminal_update", "terminalId": "X", "exitStatus": {"exitCode": 1}},
        },
    ]


async def test_v2_terminals_become_text_for_a_v1_editor():
    async with proxied(chat=False) as editor:
        await editor.open("/tmp")
        await editor.prompt(*of_v2())
        assert editor.texts()[-1] == "```console\n$ make\n☃☃\n[exit status 1]\n```"
        assert {update["sessionUpdate"] for update in editor.updates} <= {
            "tool_call",
            "tool_call_update",
        }
        valid(editor)


async def test_v2_terminals_become_meta_updates_when_supported():
    async with proxied() as editor:
        await editor.open("/tmp", **SHOWS)
        await editor.prompt(*of_v2())
        first, *rest = editor.calls()
        assert first["_meta"] == {"terminal_info": {"terminal_id": "X"}}
        data = [
            u["_meta"]["terminal_output"]["data"] for u in rest if "terminal_output" in u["_meta"]
        ]
        assert "".join(data) == "☃☃\n"
        assert rest[-1]["_meta"]["terminal_exit"]["exit_code"] == 1
        valid(editor)


async def test_v2_terminals_pass_between_v2_peers():
    async with proxied("--v2") as editor:
        await editor.open("/tmp")
        await editor.prompt(*of_v2())
        assert editor.updates == [step["update"] for step in of_v2()]


# The editor's terminals


async def test_editor_with_terminals_gets_the_terminal_requests():
    async with proxied() as editor:
        await editor.open("/tmp", terminal=True)
        requests = []

        def answer(message):
            requests.append(message["method"])
            return {"terminalId": "theirs"} if message["method"] == "terminal/create" else {}

        editor.on_request = answer
        await editor.prompt(
            tool_call(), create("ls"), tool_update(content=[embed()]), of("release")
        )
        assert requests == ["terminal/create", "terminal/release"]
        assert editor.calls()[-1]["content"] == [embed("theirs")]


async def test_editor_with_terminals_gets_no_terminal_requests_with_terminals_ours():
    async with proxied(terminals="ours") as editor:
        await editor.open("/tmp", terminal=True)
        await editor.prompt(*shown("echo ours"))
        assert editor.texts()[-1] == "```console\n$ echo ours\nours\n```"


async def test_terminals_are_not_announced_when_the_editor_has_none():
    async with proxied(terminals="editor") as editor:
        answer = await editor.open("/tmp")
        assert answer["_meta"]["clientCapabilities"].get("terminal") is None
        # The agent may send the request all the same.
        requests = []
        editor.on_request = lambda m: requests.append(m["method"]) or {"terminalId": "x"}
        await editor.prompt(create("ls"))
        assert requests == ["terminal/create"]


# The log


async def test_wire_log_has_all_messages(tmp_path):
    log = tmp_path / "wire.jsonl"
    async with proxied(log=str(log)) as editor:
        await editor.open("/tmp")
        await editor.prompt(say("é"), {"do": "line", "text": "no json"})
    assert log.stat().st_mode & 0o777 == 0o600
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert entries[0]["msg"]["method"] == "initialize"
    assert {entry["dir"] for entry in entries} == {
        "editor->proxy",
        "proxy->agent",
        "agent->proxy",
        "proxy->editor",
    }
    assert {"dir": "agent->proxy", "text": "no json"}.items() <= next(
        entry for entry in entries if "text" in entry and entry["dir"] == "agent->proxy"
    ).items()


# A slow editor


async def test_editor_that_stops_reading_blocks_the_agent_in_bounded_memory(tmp_path, monkeypatch):
    # Time for what is left after the agent's exit, also if this process stalls.
    monkeypatch.setattr("acpterm.agents.proxy.run._SEND_TIMEOUT_S", DEADLINE_S)
    monkeypatch.setattr("acpterm.agents.agent_process.DRAIN_TIMEOUT_S", DEADLINE_S)
    progress = tmp_path / "progress"
    code = (
        "import sys, json\n"
        "params = {'text': 'x' * 200_000}\n"
        "line = json.dumps({'jsonrpc': '2.0', 'method': '_x', 'params': params})\n"
        "sys.stdin.readline()\n"
        "for number in range(100):\n"
        "    sys.stdout.write(line + '\\n'); sys.stdout.flush()\n"
        f"    open({str(progress)!r}, 'w').write(str(number))\n"
    )
    ours, theirs = trio.socket.socketpair()
    wishes = ProxyOptions([sys.executable, "-c", code], embedded=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_proxy, trio.SocketStream(theirs), Settings(), wishes)
        await ours.send(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n')

        def written():
            return int(progress.read_text() or 0) if progress.exists() else 0

        await poll(progress.exists)
        # The agent blocks once all buffers between the two are full.
        count, same = -1, 0
        with trio.fail_after(DEADLINE_S):
            while same < 20:
                now = written()
                same = same + 1 if now == count else 0
                count = now
                await trio.sleep(0.02)
        assert count < 20
        received = 0
        stream = trio.SocketStream(ours)
        while data := await stream.receive_some(1 << 20):
            received += data.count(b"\n")
        # The response to initialize is an error: the agent is gone.
        assert received == 101
        await stream.aclose()


# Shutdown


@pytest.mark.costly
@pytest.mark.parametrize("options", [[], ["--stay"], ["--stay", "--deaf"]])
async def test_agents_process_tree_ends_with_the_editor(options):
    async with proxied(*options) as editor:
        await editor.open("/tmp")
        spawn = [
            sys.executable,
            "-c",
            "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(60)",
        ]
        await editor.prompt({"do": "spawn", "argv": spawn}, create("exec sleep 60"))
        child = int(editor.texts_sent[0])
        assert alive(child)
        await editor.stream.aclose()
        with trio.fail_after(DEADLINE_S):
            await editor.done.wait()
    assert not alive(child)
    assert editor.status == 0


async def test_agents_messages_are_passed_on_after_the_editor_closed_its_side():
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.begin({"do": "sleep", "seconds": 0.2}, say("late"))
        await editor.stream.send_eof()
        with trio.fail_after(DEADLINE_S):
            await editor.done.wait()


async def test_pending_requests_fail_with_the_reason_when_the_agent_exits(capfd):
    async with proxied() as editor:
        await editor.open("/tmp")
        other = await editor.start("session/new", [])
        await editor.result(other)
        steps = {"do": "stderr", "text": "the key is wrong"}, {"do": "exit", "code": 5}
        first = await editor.begin({"do": "sleep", "seconds": 60})
        second = await editor.begin(*steps)
        for id_ in (first, second):
            with pytest.raises(RpcError, match="exited with status 5; its last words: the key is"):
                await editor.result(id_)
        with trio.fail_after(DEADLINE_S):
            await editor.done.wait()
        assert editor.status == 5
    assert "the key is wrong" in capfd.readouterr().err


async def test_agents_exit_is_noticed_while_a_child_holds_its_stdout():
    async with proxied() as editor:
        await editor.open("/tmp")
        id_ = await editor.begin(
            {"do": "spawn", "argv": ["sleep", "60"]}, {"do": "exit", "code": 5}
        )
        with trio.fail_after(DEADLINE_S), pytest.raises(RpcError, match="exited with status 5"):
            await editor.result(id_)
        with trio.fail_after(DEADLINE_S):
            await editor.done.wait()
        assert not alive(int(editor.texts_sent[0]))


async def test_error_says_why_when_the_agent_dies_in_initialize():
    async with proxied("--die") as editor:
        with pytest.raises(RpcError, match="status 7; its last words: no key in the environment"):
            await editor.request("initialize", {"protocolVersion": 1})


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("./no/such/agent", "there is no such file"),
        ("/etc/passwd", "no program that may be executed"),
        ("/", "no program that may be executed"),
    ],
)
async def test_initialize_fails_when_the_agent_cannot_be_started(command, why, capfd):
    async with proxied(command) as editor:
        with pytest.raises(RpcError, match=why):
            await editor.request("initialize", {"protocolVersion": 1})
        with pytest.raises(RpcError, match=why):
            await editor.request("session/new", {})
        await editor.stream.aclose()
        await editor.done.wait()
        assert editor.status == 1
    assert why in capfd.readouterr().err


async def test_missing_agent_is_reported_when_the_editor_sends_nothing(capfd):
    async with proxied("./no/such/agent") as editor:
        await editor.stream.aclose()
        with trio.fail_after(DEADLINE_S):
            await editor.done.wait()
        assert editor.status == 1
    reported = "acpterm: the agent './no/such/agent' cannot be started: there is no such file\n"
    assert reported in capfd.readouterr().err


async def test_initialize_fails_when_the_agents_interpreter_is_missing(tmp_path):
    script = tmp_path / "agent"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    async with proxied(str(script)) as editor:
        with pytest.raises(RpcError, match="agent"):
            await editor.request("initialize", {"protocolVersion": 1})


async def test_no_agent_is_started_when_the_editor_closes_at_once():
    async with proxied() as editor:
        await editor.stream.send_eof()
        with trio.fail_after(DEADLINE_S):
            await editor.done.wait()
        assert editor.status == 0


def read_pid(path):
    return int(path.read_text()) if path.exists() and path.read_text().strip() else None


async def test_cancel_kills_terminals_that_the_agent_leaks(tmp_path):
    file = tmp_path / "pid"
    async with proxied() as editor:
        await editor.open(str(tmp_path))
        id_ = await editor.begin(create("echo $$ > pid; exec sleep 60"), of("wait_for_exit"))
        pid = await poll(lambda: read_pid(file))
        await editor.notify("session/cancel", {"sessionId": editor.session})
        assert (await editor.result(id_))["stopReason"] == "cancelled"
        await poll(lambda: not alive(pid))


def started(directory, name):
    """Return steps that start a terminal `name`, whose program writes its pid to a file."""
    line = f"echo $$ > {name}.new; mv {name}.new {name}; exec sleep 60"
    return {**create(line, name), "report": True}, until(directory / name)


def ask(method, terminal, **params):
    params["terminalId"] = terminal
    return {"do": "ask", "method": method, "params": params, "report": True}


async def test_terminal_outlives_its_turn_until_the_agent_ends_it(tmp_path):
    async with proxied() as editor:
        await editor.open(str(tmp_path))
        server = {**create("echo up; read line", "server"), "report": True}
        shown = tool_call(content=[embed("$server")])
        printed = ask("_acpterm/terminal/read", "$server", since=0, waitMs=9000)
        await editor.prompt(server, shown, printed)
        terminal = json.loads(editor.texts_sent[0])["terminalId"]
        assert "\nup\n```" in editor.texts()[-1]
        # A terminal sends the end of a line separately.
        newline = ask("_acpterm/terminal/read", "$server", since=len("up"), waitMs=9000)
        await editor.prompt(newline, ask("terminal/output", terminal))
        output = json.loads(editor.texts_sent[-1])
        assert (output["output"], output.get("exitStatus")) == ("up\n", None)
        await editor.prompt(ask("terminal/kill", terminal), ask("terminal/wait_for_exit", terminal))
        assert json.loads(editor.texts_sent[-1])["signal"] == "SIGTERM"
        assert "\nup\n[ended by SIGTERM]\n```" in editor.texts()[-1]


async def test_terminal_outlives_its_turn_until_the_editor_is_gone(tmp_path):
    async with proxied() as editor:
        await editor.open(str(tmp_path))
        await editor.prompt(*started(tmp_path, "server"))
        pid = read_pid(tmp_path / "server")
        await editor.prompt(say("the next turn"))
        assert alive(pid)
    await poll(lambda: not alive(pid))


async def test_cancel_ends_what_its_turn_has_started_and_nothing_older(tmp_path):
    async with proxied() as editor:
        await editor.open(str(tmp_path))
        await editor.prompt(*started(tmp_path, "older"))
        shown = tool_call(content=[embed("$newer")])
        id_ = await editor.begin(*started(tmp_path, "newer"), shown, of("wait_for_exit", "newer"))
        await editor.until(editor.calls)
        newer = read_pid(tmp_path / "newer")
        await editor.notify("session/cancel", {"sessionId": editor.session})
        assert (await editor.result(id_))["stopReason"] == "cancelled"
        await editor.until(lambda: "[ended by SIGTERM]" in "".join(editor.texts()))
        await poll(lambda: not alive(newer))
        older = json.loads(editor.texts_sent[0])["terminalId"]
        await editor.prompt(ask("terminal/output", older))
        assert "exitStatus" not in json.loads(editor.texts_sent[-1])
        assert alive(read_pid(tmp_path / "older"))


async def test_terminal_created_after_the_cancel_ends_with_the_cancelled_turn(tmp_path):
    go = tmp_path / "go"
    async with proxied("--stubborn") as editor:
        await editor.open(str(tmp_path))
        stop = {"do": "stop", "reason": "cancelled"}
        id_ = await editor.begin(until(go), *started(tmp_path, "late"), stop)
        await editor.notify("session/cancel", {"sessionId": editor.session})
        go.touch()
        assert (await editor.result(id_))["stopReason"] == "cancelled"
        pid = read_pid(tmp_path / "late")
        await poll(lambda: not alive(pid))


async def test_closing_a_session_releases_its_terminals(tmp_path):
    async with proxied() as editor:
        await editor.open(str(tmp_path))
        id_ = await editor.begin(create("echo $$ > pid; exec sleep 60"), of("wait_for_exit"))
        pid = await poll(lambda: read_pid(tmp_path / "pid"))
        await editor.request("session/close", {"sessionId": editor.session})
        await poll(lambda: not alive(pid))
        await editor.result(id_)


# The daemon


@pytest.mark.long
async def test_daemon_starts_on_demand_and_exits_when_idle(tmp_path, monkeypatch):
    monkeypatch.setenv("ACPTERM_IDLE_EXIT", "0.2")
    socket = tmp_path / "run" / "agent.sock"
    settings = {"socket": str(socket)}
    async with proxied(embedded=False, settings=settings) as one:
        await one.open("/tmp")
        async with proxied(embedded=False, settings=settings) as two:
            await two.open("/tmp")
            await two.prompt(*shown("echo two"))
            assert two.texts()[-1] == "```console\n$ echo two\ntwo\n```"
        await one.prompt(*shown("echo one"))
        daemon = int((tmp_path / "run" / "agent.sock.log").read_text().split()[0])
        assert alive(daemon)
    await poll(lambda: not alive(daemon))
    assert not socket.exists()


@pytest.mark.long
async def test_session_continues_without_terminals_when_the_daemon_dies(tmp_path, monkeypatch):
    monkeypatch.setenv("ACPTERM_IDLE_EXIT", "0.2")
    settings = {"socket": str(tmp_path / "run" / "agent.sock")}
    async with proxied(embedded=False, settings=settings) as editor:
        await editor.open("/tmp")
        await editor.prompt(create("true"))
        daemon = int((tmp_path / "run" / "agent.sock.log").read_text().split()[0])
        os.kill(daemon, 9)
        await poll(lambda: not alive(daemon))
        await editor.prompt({**create("true"), "report": True}, say("still here"))
        # The worker outlives its keeper by a moment.
        why = json.loads(editor.texts_sent[0])["message"]
        assert "agent.sock is gone" in why or "acpterm is shutting down" in why
        assert editor.texts_sent[1] == "still here"


async def test_error_says_why_when_the_daemon_cannot_start(tmp_path):
    (tmp_path / "agent.sock").write_text("no socket")
    async with proxied(embedded=False, settings={"socket": str(tmp_path / "agent.sock")}) as editor:
        with pytest.raises(RpcError, match=r"is there and is no socket.*--embedded"):
            await editor.request("initialize", {"protocolVersion": 1})


async def test_nothing_is_sent_to_a_daemon_of_another_user(tmp_path, monkeypatch):
    path = tmp_path / "agent.sock"
    monkeypatch.setattr(daemon, "peer_of", lambda _: PeerCredentials(65534, 1))
    async with trio.open_nursery() as nursery:
        received = []

        async def listen(stream):
            received.append(await stream.receive_some())

        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
            sock.listen()
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
            nursery.start_soon(trio.serve_listeners, listen, [listener])
            async with proxied(embedded=False, settings={"socket": str(path)}) as editor:
                with pytest.raises(RpcError, match=r"another user's \(uid 65534\).*--embedded"):
                    await editor.request("initialize", {"protocolVersion": 1})
            await poll(lambda: received)
        nursery.cancel_scope.cancel()
    assert received == [b""]


async def test_error_is_reported_when_the_daemon_refuses_initialize(tmp_path):
    async with (
        fake_host(tmp_path) as host,
        proxied(embedded=False, settings={"socket": host.path}) as editor,
        trio.open_nursery() as nursery,
    ):

        @nursery.start_soon
        async def refuse():
            daemon = await host.accept()
            await daemon.respond_error(await daemon.expect("initialize"), "no such thing")

        with pytest.raises(RpcError, match="cannot be used: no such thing"):
            await editor.request("initialize", {"protocolVersion": 1})


async def test_context_for_the_daemon_omits_text_that_json_cannot_hold(monkeypatch):
    monkeypatch.setitem(os.environb, b"ACPTERM_TEST_BAD", b"\xff")
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.prompt(*shown("echo fine"))
        assert editor.texts()[-1].endswith("fine\n```")


@pytest.mark.long
async def test_socket_path_may_be_relative(tmp_path, monkeypatch):
    monkeypatch.setenv("ACPTERM_IDLE_EXIT", "0.2")
    monkeypatch.chdir(tmp_path)
    async with proxied(embedded=False, settings={"socket": "run/a.sock"}) as editor:
        await editor.open("/tmp")
        await editor.prompt(*shown("echo fine"))
        pid = int((tmp_path / "run" / "a.sock.log").read_text().split()[0])
    await poll(lambda: not alive(pid))


@pytest.mark.exhaustive
@pytest.mark.long
async def test_unread_host_responses_do_not_accumulate():
    code = (
        "import json, sys\n"
        "def send(**m): print(json.dumps({'jsonrpc': '2.0', **m}), flush=True)\n"
        "def hear(): return json.loads(sys.stdin.readline())\n"
        "send(id=hear()['id'], result={'protocolVersion': 1})\n"
        "s = {'sessionId': 's'}\n"
        "send(id=1, method='terminal/create', params={**s, 'command': 'seq 200000'})\n"
        "t = {**s, 'terminalId': hear()['result']['terminalId']}\n"
        "send(id=2, method='terminal/wait_for_exit', params=t)\n"
        "hear()\n"
        "for n in range(3, 103): send(id=n, method='terminal/output', params=t)\n"
        "send(method='_asked')\n"
        "sys.stdin.readline()\n"
        "import time; time.sleep(60)\n"
    )
    async with proxied(sys.executable, "-c", code) as editor:
        begun = memory()
        await editor.request("initialize", {"protocolVersion": 1})
        await editor.until(lambda: [m for m in editor.messages if m.get("method") == "_asked"])
        # Only a few of the hundred responses of 1 MiB exist, at the host and in transit.
        most = begun
        with trio.move_on_after(1.5):
            while True:
                most = max(most, memory())
                await trio.sleep(0.02)
        assert most - begun < 40 * 2**20
        await editor.stream.aclose()


def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.long
async def test_unread_stderr_does_not_block_the_agent(tmp_path):
    code = (
        "import os, subprocess, sys, json\n"
        "reads, writes = os.pipe()\n"
        "command = [sys.executable, '-m', 'acpterm', 'proxy', '--embedded', '--log-level', 'error',"
        " '--', *sys.argv[1:]]\n"
        "pipe = subprocess.PIPE\n"
        "p = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=writes)\n"
        "os.close(writes); os.close(reads)\n"
        "def ask(id, method, params):\n"
        "    m = {'jsonrpc': '2.0', 'id': id, 'method': method, 'params': params}\n"
        "    p.stdin.write(json.dumps(m).encode() + b'\\n'); p.stdin.flush()\n"
        "    while (found := json.loads(p.stdout.readline())).get('id') != id: pass\n"
        "    return found['result']\n"
        "ask(1, 'initialize', {})\n"
        "s = ask(2, 'session/new', {'cwd': '/tmp'})['sessionId']\n"
        "steps = json.dumps([{'do': 'stderr', 'text': 'x' * 10000}] * 30)\n"
        "prompt = [{'type': 'text', 'text': steps}]\n"
        "print(ask(3, 'session/prompt', {'sessionId': s, 'prompt': prompt})['stopReason'])\n"
        "p.stdin.close(); p.wait()\n"
    )
    done = await trio.run_process(
        [sys.executable, "-c", code, *AGENT], capture_stdout=True, check=False
    )
    assert done.stdout == b"end_turn\n"


async def test_end_of_turn_is_passed_on_when_the_agent_exits_at_once():
    async with proxied() as editor:
        await editor.open("/tmp")
        # The proxy reads the output before it passes the line on; the agent is gone by then.
        command = "echo begun; exec sleep 60"
        line = {"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn"}}
        id_ = await editor.begin(
            tool_call(),
            create(command),
            tool_update(content=[embed()]),
            {"do": "sleep", "seconds": 0.2},
            {"do": "line", "text": json.dumps(line)},
            {"do": "exit", "code": 0},
        )
        assert id_ == 3
        assert await editor.result(id_) == {"stopReason": "end_turn"}


async def test_last_line_may_lack_its_newline():
    code = (
        "import json, sys\n"
        "id = json.loads(sys.stdin.readline())['id']\n"
        "sys.stdout.write(json.dumps({'jsonrpc': '2.0', 'id': id, 'result': {'x': 1}}))\n"
    )
    async with proxied(sys.executable, "-c", code) as editor:
        assert await editor.request("initialize", {}) == {"x": 1}


async def test_lone_surrogate_in_a_command_or_call_is_replaced():
    async with proxied() as editor:
        await editor.open("/tmp")
        call = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "TITLE"}
        params = {"sessionId": "s1", "update": {**call, "content": [embed()]}}
        line = json.dumps({"jsonrpc": "2.0", "method": UPDATE, "params": params})
        await editor.prompt(
            create("echo one"),
            of("wait_for_exit"),
            {"do": "line", "text": line.replace("TITLE", "a\\ud83d")},
        )
        # The line embeds an unknown terminal, and was parsed all the same.
        assert editor.calls()[0]["content"] == []


async def test_permission_request_may_be_the_first_to_embed_a_terminal():
    async with proxied(chat=False) as editor:
        await editor.open("/tmp", **SHOWS)
        editor.on_request = lambda _: {"outcome": {"outcome": "cancelled"}}
        tool = {"toolCallId": "c", "title": "run", "content": [embed()]}
        params = {"toolCall": tool, "options": []}
        await editor.prompt(
            create("echo one"),
            {"do": "ask", "method": "session/request_permission", "params": params},
        )
        sent = [m for m in editor.messages if m.get("method") in (UPDATE, PERMISSION)]
        update, request = sent[:2]
        assert "terminal_info" in update["params"]["update"]["_meta"]
        assert request["params"]["toolCall"] == {
            **tool,
            "content": update["params"]["update"]["content"],
        }
        valid(editor)


async def test_v2_initialize_is_passed_on_unchanged():
    async with proxied() as editor:
        params = {"protocolVersion": 2, "info": {"name": "x", "version": "1"}, "capabilities": {}}
        answer = await editor.request("initialize", params)
        assert answer["_meta"]["clientCapabilities"] is None
