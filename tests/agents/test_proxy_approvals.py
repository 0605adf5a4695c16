"""Questions of the host through the proxy: the editor asks the user, the agent sees nothing."""

import functools
import json
import sys
from contextlib import asynccontextmanager

import pytest
import trio

from tests.acp.validate import validate_sent
from tests.support.asking import asking_settings, asking_variables, ran, recording_script
from tests.support.commands import run
from tests.support.daemon import daemon
from tests.support.editor import create, of, proxied, say, until
from tests.support.polling import poll
from tests.support.processes import environment
from tests.support.proxies import editor_of

PERMISSION = "session/request_permission"


def asking_proxy(**options):
    """Run a proxy in this process with a profile that asks, and connect an editor."""
    return proxied(settings=asking_settings(), **options)


def requests(editor, method=PERMISSION):
    return [message for message in editor.messages if message.get("method") == method]


def choosing(option):
    return lambda _: {"outcome": {"outcome": "selected", "optionId": option}}


def silent(editor):
    """Make the editor send no responses.

    Return its original `respond(request, result)`, with which the test can respond later.
    """
    respond = editor.respond

    async def nothing(request, result=None):
        await trio.lowlevel.checkpoint()

    editor.respond = nothing
    return respond


def ask(command, name="t"):
    return {**create(command, name), "report": True}


async def reported(editor, number=0):
    return json.loads((await editor.until(lambda: editor.texts_sent[number:]))[0])


async def test_command_runs_when_the_editor_allows_it(tmp_path):
    async with asking_proxy(log=str(tmp_path / "log")) as editor:
        await editor.open("/tmp")
        editor.on_request = choosing("allow_once")
        script = recording_script(tmp_path)
        command = f"{script} once"
        await editor.prompt(ask(command), of("wait_for_exit"))
        assert ran(tmp_path) == "once\n"
        (request,) = requests(editor)
        validate_sent(request, {})
        params = request["params"]
        assert params["sessionId"] == editor.session
        call = params["toolCall"]
        assert call["title"] == command
        assert call["kind"] == "execute"
        assert call["rawInput"] == {"command": command, "cwd": "/tmp"}
        assert call["content"][0]["content"]["text"] == (
            "record is not in the list of safe programs\n\nDirectory: /tmp"
        )
        assert [(one["kind"], one["name"]) for one in params["options"]] == [
            ("allow_once", "Allow once"),
            ("allow_always", f'Always allow "{script}" in this session'),
            ("reject_once", "Reject"),
            ("reject_always", f'Always reject "{script}" in this session'),
        ]
        # The editor's tool call does not stay pending.
        (end,) = editor.calls(call["toolCallId"])
        assert end["status"] == "completed"
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    to_agent = [json.dumps(line["msg"]) for line in lines if line["dir"] == "proxy->agent"]
    assert to_agent
    assert not any(request["id"] in line or "optionId" in line for line in to_agent)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("option", "first", "second"),
    [
        ("allow_always", "terminalId", "terminalId"),
        ("reject_always", "user has refused", "rejected it for this session"),
    ],
)
async def test_decision_for_always_is_remembered_in_the_session(option, first, second):
    async with asking_proxy() as editor:
        await editor.open("/tmp")
        editor.on_request = choosing(option)
        await editor.prompt(ask("echo ask-first"), ask("echo ask-first again"))
        assert len(requests(editor)) == 1
        assert first in editor.texts_sent[0]
        assert second in editor.texts_sent[1]


async def test_command_without_a_prefix_cannot_be_allowed_always():
    async with asking_proxy() as editor:
        await editor.open("/tmp")
        editor.on_request = choosing("allow_always")
        await editor.prompt(ask("echo ask-first; date"))
        (request,) = requests(editor)
        kinds = [one["kind"] for one in request["params"]["options"]]
        assert kinds == ["allow_once", "reject_once", "reject_always"]
        assert "user cannot be asked: the editor has responded" in editor.texts_sent[0]


async def test_cancelled_outcome_refuses_the_command():
    async with asking_proxy() as editor:
        await editor.open("/tmp")
        editor.on_request = lambda _: {"outcome": {"outcome": "cancelled"}}
        await editor.prompt(ask("echo ask-first"))
        assert "the user has refused" in editor.texts_sent[0]


@pytest.mark.costly
@pytest.mark.parametrize("result", [{}, [], {"outcome": "selected"}, {"outcome": {"optionId": 1}}])
async def test_response_that_is_no_answer_declines_the_question(result):
    async with asking_proxy() as editor:
        await editor.open("/tmp")
        editor.on_request = lambda _: result
        await editor.prompt(ask("echo ask-first"))
        assert "the user cannot be asked: the editor has responded" in editor.texts_sent[0]
        assert editor.calls(requests(editor)[0]["params"]["toolCall"]["toolCallId"])


async def test_error_of_the_editor_declines_the_question():
    async with asking_proxy() as editor:
        await editor.open("/tmp")
        silent(editor)
        turn = await editor.begin(ask("echo ask-first"))
        (request,) = await editor.until(lambda: requests(editor))
        await editor.respond_error(request, "no such session")
        await editor.result(turn)
        assert (
            "the user cannot be asked: the editor cannot ask: no such session"
            in (editor.texts_sent[0])
        )


async def test_withdrawn_question_is_cancelled_and_its_late_response_consumed(tmp_path):
    go = tmp_path / "go"
    async with asking_proxy(log=str(tmp_path / "log")) as editor:
        await editor.open("/tmp")
        respond = silent(editor)
        # The first request of the scripted agent has the id 1.
        cancel = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}}
        begin = {"do": "start", "method": "terminal/create", "as": "x"}
        turn = await editor.begin(
            {**begin, "params": {"command": "echo ask-first"}},
            until(go),
            {"do": "line", "text": json.dumps(cancel)},
            {"do": "await", "as": "?x", "report": True} | {"as": "x", "report": True},
            say("done"),
        )
        (request,) = await editor.until(lambda: requests(editor))
        go.touch()
        (cancelled,) = await editor.until(lambda: requests(editor, "$/cancel_request"))
        assert cancelled["params"] == {"requestId": request["id"]}
        await respond(request, choosing("allow_once")(request))
        await editor.result(turn)
        assert "cancelled" in editor.texts_sent[0]
        await editor.notify("_mark", {})
        await editor.until(lambda: requests(editor, "_echo"))
    assert request["id"] not in "".join(
        line for line in (tmp_path / "log").read_text().splitlines() if '"proxy->agent"' in line
    )


async def test_cancelled_turn_withdraws_its_question():
    async with asking_proxy() as editor:
        await editor.open("/tmp")
        silent(editor)
        turn = await editor.begin(ask("echo ask-first"))
        (request,) = await editor.until(lambda: requests(editor))
        await editor.notify("session/cancel", {"sessionId": editor.session})
        assert (await editor.result(turn))["stopReason"] == "cancelled"
        await editor.until(lambda: requests(editor, "$/cancel_request"))
        call = request["params"]["toolCall"]["toolCallId"]
        await editor.until(lambda: editor.calls(call))
        assert editor.calls(call)[0]["status"] == "failed"


async def test_agent_cannot_answer_through_the_proxy(tmp_path):
    """The proxy passes its requests on to the editor, like any unknown one; never to the host."""
    async with asking_proxy() as editor:
        await editor.open("/tmp")
        silent(editor)
        approving = [
            {
                "do": "start",
                "method": method,
                "params": {"decision": "allow", "token": "t", "cwd": "/"},
                "as": n,
            }
            for n, method in enumerate(
                (
                    "_acpterm/approval/answer",
                    "_acpterm/approval/decline",
                    "_acpterm/approval/list",
                    "_acpterm/approver",
                    "_acpterm/session/open",
                    "initialize",
                )
            )
        ]
        approving = [{**step, "as": str(step["as"])} for step in approving]
        turn = await editor.begin(
            {**create(f"echo ask-first > {tmp_path}/ran"), "do": "start"},
            *approving,
            until(tmp_path / "go"),
        )
        await editor.until(lambda: requests(editor))
        for step in approving:
            await editor.until(functools.partial(requests, editor, step["method"]))
        (tmp_path / "go").touch()
        await editor.result(turn)
        assert not (tmp_path / "ran").exists()
        assert not requests(editor, "$/cancel_request")


@asynccontextmanager
async def asking_daemon(tmp_path, **values):
    env = environment(**asking_variables(tmp_path, **values))
    async with daemon(tmp_path, env=env, terminate=True) as running:
        yield running


@pytest.mark.long
async def test_editor_and_commands_answer_questions_of_a_daemon(tmp_path):
    async with asking_daemon(tmp_path) as daemon, editor_of(tmp_path, daemon.path) as editor:
        await editor.open("/tmp")
        editor.on_request = choosing("allow_once")
        await editor.prompt(ask("echo ask-first"))
        assert "terminalId" in editor.texts_sent[0]
        # The first answer counts: acpterm deny is faster than the editor.
        silent(editor)
        turn = await editor.begin(ask("echo ask-first"))
        await editor.until(lambda: requests(editor)[1:])
        listed = await run(daemon.path, "approvals", "--json")
        (question,) = json.loads(listed.out)
        assert question["agent"] == "scripted"
        denied = await run(daemon.path, "deny", question["approvalId"][:4], "--reason", "not now")
        assert denied.status == 0, denied.err
        await editor.result(turn)
        assert "the user has refused the command: not now" in editor.texts_sent[1]
        cancelled = await editor.until(lambda: requests(editor, "$/cancel_request"))
        assert cancelled[0]["params"]["requestId"] == requests(editor)[1]["id"]


@pytest.mark.long
async def test_editors_answer_counts_after_the_worker_was_killed(tmp_path):
    async with asking_daemon(tmp_path) as daemon, editor_of(tmp_path, daemon.path) as editor:
        await editor.open("/tmp")
        respond = silent(editor)
        script = recording_script(tmp_path)
        turn = await editor.begin(ask(f"{script} once"), of("wait_for_exit"))
        (request,) = await editor.until(lambda: requests(editor))
        await daemon.kill_worker()
        await daemon.status()
        await respond(request, choosing("allow_always")(request))
        assert (await editor.result(turn))["stopReason"] == "end_turn"
        assert ran(tmp_path) == "once\n"
        assert len(requests(editor)) == 1
        assert not requests(editor, "$/cancel_request")


@pytest.mark.long
async def test_token_is_neither_in_a_log_nor_in_the_agents_environment(tmp_path):
    log = tmp_path / "wire"
    async with (
        asking_daemon(tmp_path) as daemon,
        editor_of(tmp_path, daemon.path, options=["--log", str(log)]) as editor,
    ):
        await editor.open("/tmp")
        editor.on_request = choosing("allow_once")
        await editor.prompt(create("env"), of("wait_for_exit"), of("output", report=True))
        environment_of_agent = editor.texts_sent[0]
    written = log.read_text() + daemon.process.logged() + environment_of_agent
    assert "terminal/create" in written
    assert "approver" not in written.lower()


@pytest.mark.long
async def test_agent_in_its_terminal_cannot_approve_with_the_users_commands(tmp_path):
    # The attempt itself, a script, is not asked about.
    values = {"unknown": "allow", "dangerous_timeout": 0.0}
    async with (
        asking_daemon(tmp_path, **values) as daemon,
        editor_of(tmp_path, daemon.path) as editor,
    ):
        await editor.open("/tmp")
        silent(editor)
        acpterm = f"{sys.executable} -m acpterm"
        where = f"--socket {daemon.path}"
        attempt = tmp_path / "attempt"
        attempt.write_text(
            f"for c in approvals 'approve ab' 'deny ab'; do {acpterm} $c {where} 2>&1; done\n"
        )
        begin = {**create(f"printf 1 > {tmp_path}/ran", "asked"), "do": "start"}
        await editor.begin(
            begin, create(f"sh {attempt}"), of("wait_for_exit"), of("output", report=True)
        )
        output = (await reported(editor))["output"]
        assert output.count("this is the user's endpoint: you run in an agent's terminal") == 3
        assert not (tmp_path / "ran").exists()


APPROVE = r"""
import json, socket, sys
user, agents = sys.argv[1:]
def request(path, method, params, id_=1):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        line = json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})
        sock.sendall(line.encode() + b"\n")
        print(sock.makefile().readline(), end="")
request(user, "_acpterm/approver", {"kind": "editor"})
request(user, "_acpterm/approval/list", {})
request(user, "_acpterm/approval/subscribe", {"token": "t"})
request(agents, "_acpterm/approval/answer", {"approvalId": "ab", "decision": "allow"})
request(agents, "_acpterm/approver", {"kind": "editor"})
"""


@pytest.mark.long
async def test_agent_process_cannot_approve_over_any_socket(tmp_path):
    """The agent itself, which is a child of the proxy, connects to both sockets."""
    script = tmp_path / "approve.py"
    script.write_text(APPROVE)
    async with asking_daemon(tmp_path) as daemon, editor_of(tmp_path, daemon.path) as editor:
        await editor.open("/tmp")
        output = tmp_path / "output"
        words = [sys.executable, str(script), daemon.user_path, daemon.path]
        redirected = [
            "/bin/sh",
            "-c",
            f'"$@" > {output}.part 2>&1; mv {output}.part {output}',
            "sh",
        ]
        await editor.prompt({"do": "spawn", "argv": [*redirected, *words]})
        await poll(output.exists)
        lines = [json.loads(line)["error"]["message"] for line in output.read_text().splitlines()]
        assert len(lines) == 5
        for line in lines[:3]:
            assert "this is the user's endpoint: you descend from process" in line
        assert "an agent cannot answer questions about its own commands" in lines[3]
        assert "no method '_acpterm/approver'" in lines[4]
