"""Logs: valid lines on stderr, without secrets, which neither hold up nor break the host."""

import json
import os
import subprocess
import sys

import pytest
import trio

from acpterm.jsonrpc import RpcError
from tests.support.hosts import ACPTERM, agent_at, agent_on_stdio, daemon, environment, poll

SECRETS = ["s3cr3t-argument", "s3cr3t-value", "s3cr3t-output", "s3cr3t-input", "s3cr3t-wrong"]
ARGUMENT, VALUE, OUTPUT, INPUT, WRONG = SECRETS


def start(*arguments, **more):
    """Run `acpterm` with the standard descriptors that a test wants it to have."""
    return subprocess.Popen([*ACPTERM, *arguments], env=environment(), **more)


async def say_all(agent):
    """Have secrets pass through a host in every way they can."""
    env = [{"name": "TOKEN", "value": VALUE}]
    await agent.run("echo", args=[ARGUMENT], env=env)
    await agent.run(f"printf '%s-%s' {OUTPUT.partition('-')[0]} output; sh -c 'echo {ARGUMENT}'")
    terminal = await agent.create("cat")
    await agent.type(terminal, f"{INPUT}\n")
    await agent.until_output(terminal, INPUT)
    await agent.send(f'{{"jsonrpc":"2.0","params":{{"command":"{WRONG}\n'.encode())
    await agent.send(f'{{"jsonrpc":"1.0","params":{{"command":"{WRONG}"}}}}\n'.encode())
    await agent.notify("session/update", {"sessionId": "session-1", "update": WRONG})
    await agent.notify("session/cancel", {"sessionId": {"x": WRONG}})
    for method, params in (
        ("terminal/output", {"sessionId": "s", "terminalId": WRONG}),
        ("terminal/create", {"sessionId": "s", "command": [WRONG]}),
        ("terminal/create", {"sessionId": "s", "command": WRONG, "cwd": f"/{WRONG}"}),
        (f"_{WRONG}", {}),
    ):
        with pytest.raises(RpcError):
            await agent.request(method, params)


async def test_json_logs_are_one_object_a_line_and_hold_no_secrets(tmp_path):
    arguments = ("--log-format", "json", "--log-level", "debug")
    async with agent_on_stdio(tmp_path, *arguments) as (process, agent):
        await say_all(agent)
        process.terminate()
        await process.wait()
    lines = [json.loads(line) for line in process.logged().splitlines()]
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    assert [line["code"] for line in lines if line["event"] == "message refused"] == [
        -32700,
        -32600,
    ]
    assert len([line for line in lines if line["event"] == "notification ignored"]) == 2
    assert not [secret for secret in SECRETS if secret in process.logged()]


async def test_text_logs_hold_no_secrets_either(tmp_path):
    async with agent_on_stdio(tmp_path, "--log-level", "debug") as (process, agent):
        await say_all(agent)
        process.terminate()
        await process.wait()
    assert "message refused" in process.logged()
    assert not [secret for secret in SECRETS if secret in process.logged()]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_has_no_local_variables(form):
    # No request is known to make a handler fail, so what would be logged is made here.
    code = f"""
import structlog
from acpterm.host import logs
logs.configure("info", {form!r})
def handle(argument):
    raise ArithmeticError
try:
    handle({ARGUMENT.replace("s3", "s" + "3")!r} + "-1")
except ArithmeticError as error:
    structlog.get_logger("acpterm").error("a handler failed", exc_info=error)
"""
    done = subprocess.run(
        [sys.executable, "-"], input=code, capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert "ArithmeticError" in done.stderr
    assert "a handler failed" in done.stderr
    assert f"{ARGUMENT}-1" not in done.stderr
    assert "handle" in done.stderr
    if form == "json":
        assert [json.loads(line)["level"] for line in done.stderr.splitlines()] == ["error"]


async def test_the_level_is_the_least_that_is_logged(tmp_path):
    async with agent_on_stdio(tmp_path, "--log-level", "error") as (process, agent):
        await agent.send(b"nonsense\n")
        await agent.run("true")
        process.terminate()
        await process.wait()
    assert process.logged() == ""


async def test_a_stderr_that_nobody_reads_holds_up_nobody():
    theirs, ours = os.pipe()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": ours}
    try:
        with start("stdio", "--embedded", "--log-format", "json", **pipes) as process:
            os.close(ours)
            good = b'{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":1}}'
            process.stdin.write(b"nonsense\n" * 2000 + good + b"\n")
            process.stdin.close()
            answers = await trio.to_thread.run_sync(process.stdout.read)
            assert json.loads(answers.splitlines()[-1])["id"] == 7
            assert len(answers.splitlines()) == 2001
            assert await poll(process.poll) == 0
        logged = os.read(theirs, 1 << 20).splitlines()
        assert all(json.loads(line) for line in logged)
        assert 1 < len(logged) < 2000
    finally:
        os.close(theirs)


async def test_a_stderr_whose_reader_has_gone_breaks_nothing(tmp_path):
    theirs, ours = os.pipe()
    os.close(theirs)
    path = str(tmp_path / "agent.sock")
    with start("serve", "--socket", path, stderr=ours) as process:
        os.close(ours)
        try:
            await poll(lambda: os.path.exists(path))
            for _ in range(2):
                async with agent_at(path) as agent:
                    await agent.send(b"nonsense\n")
                    assert (await agent.run("echo well"))[0] == "well\n"
            process.terminate()
            assert await poll(process.poll) == 0
        finally:
            process.kill()


async def test_the_daemon_logs_what_it_does_under_names_of_its_own(tmp_path):
    async with daemon(tmp_path, "--log-format", "json") as (process, path):
        async with agent_at(path) as one, agent_at(path) as two:
            await one.run("true")
            await two.run("true")
        process.terminate()
        await process.wait()
    lines = [json.loads(line) for line in process.logged().splitlines()]
    events = [line["event"] for line in lines]
    assert (events[0], events[-1]) == ("listening", "ended")
    assert lines[0]["socket"] == path
    assert lines[0]["pid"] == process.pid
    opened = [line["connection"] for line in lines if line["event"] == "connection opened"]
    closed = [line["connection"] for line in lines if line["event"] == "connection closed"]
    assert len(opened) == len(set(opened)) >= 2
    assert sorted(opened) == sorted(closed)
