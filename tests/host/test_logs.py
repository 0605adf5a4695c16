"""Logs: valid lines on stderr, without secrets, that neither delay nor break the host."""

import json
import os
import subprocess
import sys

import pytest
import structlog
import trio

from acpterm.jsonrpc import RpcError
from acpterm.runtime import logs
from tests.support.agent import agent_at
from tests.support.daemon import daemon, listens
from tests.support.hosts import agent_on_stdio
from tests.support.polling import poll
from tests.support.processes import environment
from tests.support.starting import ACPTERM

SECRETS = ["s3cr3t-argument", "s3cr3t-value", "s3cr3t-output", "s3cr3t-input", "s3cr3t-wrong"]
ARGUMENT, VALUE, OUTPUT, INPUT, WRONG = SECRETS


def start(*arguments, **more):
    """Run `acpterm` with the given standard descriptors."""
    return subprocess.Popen([*ACPTERM, *arguments], env=environment(), **more)


async def say_all(agent):
    """Pass secrets through a host in every possible way."""
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


async def test_json_logs_have_one_object_per_line_and_no_secrets(tmp_path):
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


async def test_text_logs_have_no_secrets(tmp_path):
    async with agent_on_stdio(tmp_path, "--log-level", "debug") as (process, agent):
        await say_all(agent)
        process.terminate()
        await process.wait()
    assert "message refused" in process.logged()
    assert not [secret for secret in SECRETS if secret in process.logged()]


@pytest.mark.long
@pytest.mark.costly
@pytest.mark.parametrize("form", ["text", "json"])
def test_traceback_has_no_local_variables(form):
    # No request is known to make a handler fail, so log such a failure here.
    code = f"""
import structlog
from acpterm.runtime import logs
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


@pytest.mark.long
async def test_messages_below_the_level_are_not_logged(tmp_path):
    async with agent_on_stdio(tmp_path, "--log-level", "error") as (process, agent):
        await agent.send(b"nonsense\n")
        await agent.run("true")
        process.terminate()
        await process.wait()
    assert process.logged() == ""


@pytest.mark.long
async def test_unread_stderr_delays_nothing():
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


@pytest.mark.long
async def test_broken_stderr_breaks_nothing(tmp_path):
    theirs, ours = os.pipe()
    os.close(theirs)
    path = str(tmp_path / "agent.sock")
    with start("serve", "--socket", path, stderr=ours) as process:
        os.close(ours)
        try:
            await poll(lambda: listens(path))
            for _ in range(2):
                async with agent_at(path) as agent:
                    await agent.send(b"nonsense\n")
                    assert (await agent.run("echo well"))[0] == "well\n"
            process.terminate()
            assert await poll(process.poll) == 0
        finally:
            process.kill()


@pytest.mark.long
async def test_daemon_logs_under_its_own_logger_names(tmp_path):
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


# Bounds


def test_repeated_warnings_are_limited_and_counted():
    now = 0.0
    limit = logs.RateLimit(lambda: now)

    def logged(event, **more):
        try:
            return limit(None, "warning", {"event": event, **more})
        except structlog.DropEvent:
            return None

    events = [logged("no connection", pid=number) for number in range(100)]
    assert sum(event is not None for event in events) == logs.EVENTS_MAX
    assert logged("something else") is not None
    now = logs.WINDOW_S
    assert logged("no connection") == {
        "event": "no connection",
        "not_logged": 100 - logs.EVENTS_MAX,
    }
    assert logged("no connection") == {"event": "no connection"}
    assert all(limit(None, "info", {"event": "opened"}) for _ in range(100))


@pytest.mark.long
async def test_repeated_errors_of_an_agent_do_not_fill_the_log(tmp_path):
    async with daemon(tmp_path, "--log-level", "warning") as (running, path):
        async with agent_at(path) as agent:
            await agent.send(b"[]\n" * 1000)
            await agent.run("true")
        assert running.logged().count("message refused") == logs.EVENTS_MAX


@pytest.mark.long
async def test_log_beside_the_socket_is_rotated(tmp_path):
    (tmp_path / "run").mkdir(mode=0o700)
    path = tmp_path / "run" / "agent.sock"
    log, before = tmp_path / "run" / "agent.sock.log", tmp_path / "run" / "agent.sock.log.1"
    log.write_bytes(b"x" * (logs.LOG_BYTES_MAX + 5) + b"the end\n")
    with log.open("ab") as stderr:
        running = start("serve", "--socket", str(path), stderr=stderr, stdin=subprocess.DEVNULL)
    try:
        await poll(lambda: listens(str(path)) and before.exists() and log.stat().st_size < 10_000)
        assert before.stat().st_size == logs.LOG_BYTES_MAX
        assert before.stat().st_mode & 0o777 == 0o600
        # From now on messages are logged at the beginning of the file, after the daemon's pid.
        await poll(
            lambda: b"connection opened" in log.read_bytes() and b"\0" not in log.read_bytes()
        )
        assert log.read_text().splitlines()[0] == str(running.pid)
    finally:
        running.terminate()
        running.wait()


def test_rotation_touches_only_the_open_log_file(tmp_path):
    own, other = tmp_path / "mine.log", tmp_path / "other.log"
    for file in (own, other):
        file.write_bytes(b"x" * (logs.LOG_BYTES_MAX + 1))
    with own.open("ab") as log:
        assert not logs.rotate(str(other), 17, log.fileno())
        assert other.stat().st_size == logs.LOG_BYTES_MAX + 1
        assert logs.rotate(str(own), 17, log.fileno())
        log.write(b"next")
    assert own.read_bytes() == b"17\nnext"


@pytest.mark.parametrize("is_replaced", [False, True])
def test_removed_log_is_truncated(tmp_path, is_replaced):
    path = tmp_path / "agent.sock.log"
    with path.open("ab", buffering=0) as log:
        log.write(b"x" * (logs.LOG_BYTES_MAX + 1))
        path.unlink()
        if is_replaced:
            path.write_bytes(b"another")
        assert logs.rotate(str(path), 17, log.fileno())
        assert os.fstat(log.fileno()).st_size == 0
    assert not is_replaced or path.read_bytes() == b"another"


def test_log_elsewhere_is_not_truncated(tmp_path):
    elsewhere = tmp_path / "elsewhere.log"
    elsewhere.write_bytes(b"x" * (logs.LOG_BYTES_MAX + 1))
    with elsewhere.open("ab") as log, pytest.raises(FileNotFoundError):
        logs.rotate(str(tmp_path / "agent.sock.log"), 17, log.fileno())
    assert elsewhere.stat().st_size == logs.LOG_BYTES_MAX + 1
