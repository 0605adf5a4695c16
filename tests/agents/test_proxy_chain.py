"""The proxy in a chain: a conductor starts it, and the agent is its successor."""

import json
import subprocess
from contextlib import asynccontextmanager

import pytest
import trio

from tests.support.asking import asking_settings
from tests.support.commands import command_environment, run_here
from tests.support.conductor import ENVELOPE, chained, proxy_in_chain
from tests.support.editor import create, of, say, shown
from tests.support.polling import poll
from tests.support.processes import alive
from tests.support.rpc import MessageStream
from tests.support.starting import ACPTERM

# A chain, with the conductor of `tests.support.conductor`


async def test_agent_of_a_chain_has_terminals_and_the_client_sees_them(tmp_path):
    async with chained({}) as (client, conductor):
        result = await client.open(str(tmp_path))
        assert result["protocolVersion"] == 1
        assert result["agentInfo"]["name"] == "scripted"
        # What the agent got has terminals added.
        assert result["_meta"]["clientCapabilities"]["terminal"] is True
        assert await client.prompt(say("hello"), *shown("pwd")) == "end_turn"
        assert "hello" in client.texts_sent
        assert str(tmp_path) in client.texts()[-1]
        assert json.loads(client.texts_sent[1])["exitCode"] == 0
        # The proxy has initialized its successor before it has answered.
        assert [len(conductor.to(n, "initialize")) for n in (1, 2)] == [0, 1]
        assert len(conductor.to(1, "proxy/initialize")) == 1


async def test_chain_of_two_proxies_passes_both_directions_unchanged(tmp_path):
    async with chained({"terminals": "editor", "chat": False}, {}) as (client, conductor):
        await client.open(str(tmp_path))
        echoed = await client.request("_vendor/x", {"deep": [1.50, None], "_meta": {"a": "é"}})
        assert echoed["echo"]["params"] == {"deep": [1.5, None], "_meta": {"a": "é"}}
        client.on_request = lambda request: {"content": request["params"]["path"]}
        read = {
            "do": "ask",
            "method": "fs/read_text_file",
            "params": {"path": "/x"},
            "report": True,
        }
        assert await client.prompt(read, *shown("echo one")) == "end_turn"
        assert json.loads(client.texts_sent[0]) == {"content": "/x"}
        assert "one" in client.texts()[-1]
        assert len(conductor.to(2, "proxy/initialize")) == 1


async def test_clients_own_terminals_are_used_as_without_a_conductor(tmp_path):
    async with chained({}) as (client, _):
        result = await client.open(str(tmp_path), terminal=True)
        assert result["_meta"]["clientCapabilities"]["terminal"] is True
        client.on_request = lambda request: {"terminalId": f"of {request['method']}"}
        assert await client.prompt({**create("pwd"), "report": True}) == "end_turn"
        assert json.loads(client.texts_sent[0]) == {"terminalId": "of terminal/create"}


async def test_chat_and_questions_work_in_a_chain(tmp_path):
    async with chained({"settings": asking_settings()}) as (client, _):
        await client.open(str(tmp_path))
        client.on_request = lambda request: {
            "outcome": {
                "outcome": "selected",
                "optionId": request["params"]["options"][0]["optionId"],
            }
        }
        steps = create("touch made"), of("wait_for_exit", report=True)
        assert await client.prompt(*steps) == "end_turn"
        assert (tmp_path / "made").exists()
        assert any(m.get("method") == "session/request_permission" for m in client.messages)
        prompt = {
            "sessionId": client.session,
            "prompt": [{"type": "text", "text": "/terminal list"}],
        }
        assert (await client.request("session/prompt", prompt))["stopReason"] == "end_turn"
        assert "touch made" in client.texts_sent[-1]


async def test_cancel_of_a_request_names_the_id_that_the_successor_got(tmp_path):
    async with chained({}) as (client, conductor):
        await client.open(str(tmp_path))
        id_ = await client.begin({"do": "until", "path": str(tmp_path / "go")})
        await client.until(lambda: conductor.to(2, "session/prompt"))
        await client.cancel(id_)
        (asked,) = conductor.to(2, "session/prompt")
        cancel = (await client.until(lambda: conductor.to(2, "$/cancel_request")))[0]
        assert cancel["params"] == {"requestId": asked["id"]}
        (tmp_path / "go").touch()
        assert (await client.result(id_))["stopReason"] == "end_turn"


# A test as the conductor


@asynccontextmanager
async def conducted(**options):
    ours, theirs = trio.socket.socketpair()
    stream = MessageStream(trio.SocketStream(ours))
    stream.status = None

    async def run():
        stream.status = await proxy_in_chain(trio.SocketStream(theirs), **options)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield stream
        await stream.stream.aclose()
        with trio.fail_after(10):
            while nursery.child_tasks:
                await trio.sleep(0.01)


INITIALIZE = {"protocolVersion": 1, "clientCapabilities": {}, "_meta": {"a": 1}}


async def initialized(conductor):
    await conductor.send_message(id="i", method="proxy/initialize", params=INITIALIZE)
    sent = await conductor.receive()
    assert sent["method"] == ENVELOPE
    assert sent["params"]["method"] == "initialize"
    await conductor.respond(sent, {"protocolVersion": 1, "agentCapabilities": {}})
    return await conductor.receive()


async def test_initialize_is_answered_with_the_successors_result_as_it_was():
    async with conducted() as conductor:
        await conductor.send_message(id=7, method="proxy/initialize", params=INITIALIZE)
        sent = await conductor.receive()
        assert sent["params"]["params"]["_meta"] == {"a": 1}
        assert sent["params"].keys() == {"method", "params"}
        line = b'{"jsonrpc": "2.0","id":7, "result":{"protocolVersion" : 1, "x": 1.50}}'
        await conductor.send(line + b"\n")
        assert await conductor.receive_line() == line
    assert conductor.status == 0


async def test_error_of_the_successor_is_the_answer_to_the_client():
    async with conducted() as conductor:
        await conductor.send_message(id=7, method="proxy/initialize", params=INITIALIZE)
        sent = await conductor.receive()
        await conductor.respond_error(sent, "the successor has exited")
        answer = await conductor.receive()
        assert (answer["id"], answer["error"]["message"]) == (7, "the successor has exited")


@pytest.mark.parametrize("params", [None, [1], {"a": {"_meta": None}}])
async def test_notifications_of_both_sides_keep_their_params(params):
    extra = {} if params is None else {"params": params}
    async with conducted() as conductor:
        await initialized(conductor)
        await conductor.send_message(method="_down", **extra)
        sent = await conductor.receive()
        assert sent == {
            "jsonrpc": "2.0",
            "method": ENVELOPE,
            "params": {"method": "_down", **extra},
        }
        inner = {"method": "_up", "params": params, "_meta": {"of": "the envelope"}}
        await conductor.send_message(method=ENVELOPE, params=inner)
        assert await conductor.receive() == {"jsonrpc": "2.0", "method": "_up", **extra}


async def test_cancel_of_the_successor_reaches_the_client_or_the_host(tmp_path):
    async with conducted(settings=asking_settings()) as conductor:
        await initialized(conductor)
        inner = {"method": "fs/read_text_file", "params": {"sessionId": "s", "path": "/x"}}
        await conductor.send_message(id=5, method=ENVELOPE, params=inner)
        sent = await conductor.receive()
        assert (sent["method"], sent["params"]) == ("fs/read_text_file", inner["params"])
        await conductor.notify("$/cancel_request", {"requestId": 5})
        cancel = await conductor.receive()
        assert (cancel["method"], cancel["params"]) == (
            "$/cancel_request",
            {"requestId": sent["id"]},
        )
        await conductor.respond_error(sent, "cancelled", -32800)
        answer = await conductor.receive()
        assert (answer["id"], answer["error"]["code"]) == (5, -32800)
        # A create that waits for the user is the host's.
        params = {"sessionId": "s", "command": "touch x", "cwd": str(tmp_path)}
        await conductor.send_message(
            id=6, method=ENVELOPE, params={"method": "terminal/create", "params": params}
        )
        question = await conductor.receive()
        assert question["method"] == "session/request_permission"
        await conductor.notify("$/cancel_request", {"requestId": 6})
        answers = [await conductor.receive() for _ in range(3)]
        (cancelled,) = [one for one in answers if one.get("id") == 6]
        assert cancelled["error"]["code"] == -32800
        (withdrawn,) = [one for one in answers if one.get("method") == "$/cancel_request"]
        assert withdrawn["params"] == {"requestId": question["id"]}


@pytest.mark.parametrize("inner", [None, {}, {"method": 5}, {"method": "_x", "params": 5}])
async def test_invalid_envelope_is_an_error_and_nothing_is_passed_on(inner):
    async with conducted() as conductor:
        await initialized(conductor)
        await conductor.send_message(method=ENVELOPE, params=inner)
        await conductor.send(b'not JSON\n[1]\n{}\n{"jsonrpc":"2.0","result":1}\n')
        await conductor.send_message(id=9, method=ENVELOPE, params=inner)
        answer = await conductor.receive()
        assert (answer["id"], answer["error"]["code"]) == (9, -32602)
        assert "proxy/successor has a method, a string" in answer["error"]["message"]


async def test_client_that_is_no_conductor_learns_that_there_is_no_agent():
    async with conducted() as conductor:
        await conductor.send_message(id=1, method="initialize", params=INITIALIZE)
        answer = await conductor.receive()
        assert "there is no agent: without -- AGENT, proxy/initialize" in answer["error"]["message"]
    assert conductor.status == 1


async def test_terminals_end_with_the_conductor(tmp_path):
    pid = tmp_path / "pid"
    async with conducted(terminals="ours") as conductor:
        await initialized(conductor)
        command = "echo $$ >pid.new && mv pid.new pid && exec sleep 100"
        params = {"sessionId": "s", "command": command, "cwd": str(tmp_path)}
        inner = {"method": "terminal/create", "params": params}
        await conductor.send_message(id=6, method=ENVELOPE, params=inner)
        assert "terminalId" in (await conductor.receive())["result"]
        await poll(pid.exists)
    assert not alive(int(pid.read_text()))


def test_command_without_an_agent_is_a_proxy_in_a_chain(tmp_path):
    log = tmp_path / "log"
    message = {"jsonrpc": "2.0", "id": 1, "method": "proxy/initialize", "params": INITIALIZE}
    done = subprocess.run(
        [*ACPTERM, "proxy", "--embedded", "--log", str(log)],
        env=command_environment(str(tmp_path / "agent.sock")),
        input=json.dumps(message) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["params"]["method"] == "initialize"
    # The log has the messages as they are without a conductor.
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(one["dir"], one["msg"]["method"]) for one in logged] == [
        ("editor->proxy", "initialize"),
        ("proxy->agent", "initialize"),
    ]


def test_user_at_a_terminal_learns_that_the_agent_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("acpterm.cli._agent.os.isatty", lambda _: True)
    done = run_here(["proxy"], command_environment(str(tmp_path / "agent.sock")))
    assert done.status == 2
    assert "say which agent: end the line with -- AGENT" in done.err
