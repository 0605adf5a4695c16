"""User commands with a fake daemon, above all when its worker is replaced: the commands continue,
or report what is unknown."""

import base64
import json
import signal
import subprocess
from contextlib import asynccontextmanager

import pytest
import trio

from acpterm.jsonrpc import REQUEST_CANCELLED
from tests.support.commands import command_environment, running
from tests.support.depth import DEADLINE_S
from tests.support.fake_host import fake_host
from tests.support.polling import poll

INFO = {
    "terminalId": "term_0123456789abcdef",
    "name": "build",
    "state": "running",
    "owner": "user",
    "agent": None,
    "connection": None,
    "sessionId": None,
    "toolCalls": [],
    "command": "make",
    "cwd": "/",
    "pid": 10,
    "cols": 80,
    "rows": 24,
    "createdAt": 0,
    "lastOutputAt": None,
    "exitedAt": None,
    "position": 0,
    "attached": 0,
    "waitingForInput": None,
    "recording": None,
    "exitStatus": None,
}
EXIT = {"exitCode": 3, "signal": None, "endedBy": "exited", "wallMs": 5}
STATUS = {
    "version": "1.0",
    "pid": 100,
    "agentSocket": None,
    "userSocket": None,
    "uptimeMs": 0,
    "idleExitMs": None,
    "tracking": "cgroup",
    "running": 2,
    "exited": 0,
    "retained": 0,
    "agents": 0,
    "users": 1,
    "rssBytes": None,
    "outputBytes": 0,
    "keeperPid": 100,
    "workerPid": 101,
    "takeovers": 0,
}


@asynccontextmanager
async def command(tmp_path, *words, lock=None, env=None, **more):
    """Run a command with a fake daemon at its user socket; yield both.

    `lock` is the content of the daemon's lock file, with the keeper's message.
    """
    async with fake_host(tmp_path, "user.sock") as host:
        if lock is not None:
            host.lock(lock)
        path = host.path.replace("user.sock", "agent.sock")
        more["env"] = command_environment(path, **(env or {}))
        async with running(tmp_path, path, *words, **more) as process:
            yield process, host


async def send_output(worker, request, data, position, lost=0):
    """Send output in response to a `follow` request."""
    encoded = base64.b64encode(data).decode()
    params = {
        "token": request["params"]["token"],
        "data": encoded,
        "position": position,
        "lost": lost,
    }
    await worker.notify("_acpterm/terminal/followed", params)


async def answer_get(worker, name="build"):
    """Answer the command's first request, which looks up the terminal `name`."""
    request = await worker.expect("_acpterm/terminal/get")
    assert request["params"]["terminalId"] == name
    await worker.respond(request, INFO)


async def expect_follow(worker, output=None):
    """Receive the next request, which must be `follow`; return it.

    If `output` is given, the command also requests the text: answer that request with `output`.
    """
    follow = None
    for _ in range(1 if output is None else 2):
        request = await worker.receive()
        assert request["params"]["terminalId"] == INFO["terminalId"]
        if request["method"] == "_acpterm/terminal/output":
            await worker.respond(request, output)
        else:
            assert request["method"] == "_acpterm/terminal/follow"
            follow = request
    return follow


async def test_kill_of_many_terminals_reads_responses_before_it_sends_all_requests(tmp_path):
    names = [f"t{number}" for number in range(1000)]
    info = {**INFO, "command": "x" * 4000}
    async with command(tmp_path, "kill", "--no-wait", *names) as (kill, host):
        worker = await host.connected()
        with trio.fail_after(DEADLINE_S):
            for method, answer in (("get", info), ("kill", {})):
                for _ in names:
                    request = await worker.expect(f"_acpterm/terminal/{method}")
                    await worker.respond(request, answer)
        assert await kill.wait() == 0


async def test_shutdown_waits_when_the_daemon_is_ending_already(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as ending:
        try:
            async with command(tmp_path, "shutdown") as (shutdown, host):
                worker = await host.connected()
                status = {**STATUS, "pid": ending.pid}
                await worker.respond(await worker.expect("_acpterm/status"), status)
                request = await worker.expect("_acpterm/shutdown")
                await worker.respond_error(request, "the connection is closing", REQUEST_CANCELLED)
                await host.stop()
                await worker.lose()
                ending.kill()
                assert await shutdown.wait() == 0
                ended = f"ended the daemon (pid {ending.pid}) and 2 terminals that ran\n"
                assert (shutdown.out, shutdown.err) == (ended, "")
        finally:
            ending.kill()


async def test_run_reports_its_signal_when_the_terminal_was_removed_meanwhile(tmp_path):
    async with command(tmp_path, "run", "-n", "make") as (run, host):
        worker = await host.connected()
        await worker.respond(await worker.expect("_acpterm/terminal/create"), INFO)
        follow = await worker.expect("_acpterm/terminal/follow")
        run.process.send_signal(signal.SIGTERM)
        kill = await worker.expect("_acpterm/terminal/kill")
        await worker.respond_error(kill, "there is no terminal 'build'")
        await send_output(worker, follow, b"last\r\n", 6)
        await worker.respond(follow, {"position": 6, "exitStatus": EXIT})
        get = await worker.expect("_acpterm/terminal/get")
        await worker.respond_error(get, "there is no terminal 'build'")
        assert await run.wait() == 128 + signal.SIGTERM
    assert (run.out, run.err) == ("last\n", "")


async def test_logs_continues_at_its_position_when_the_worker_is_replaced(tmp_path):
    async with command(tmp_path, "logs", "-f", "build") as (logs, host):
        first = await host.connected()
        await answer_get(first)
        known = {"text": "one\ntw", "truncated": False, "position": 6, "exitStatus": None}
        request = await expect_follow(first, known)
        assert "since" not in request["params"]
        await send_output(first, request, b"one\ntw", 6)
        await poll(lambda: logs.out == "one\n")
        # The first half of the next notification.
        await first.send(b'{"jsonrpc":"2.0","method":"_acpterm/terminal/followed","params":{"tok')
        await first.lose()
        second = await host.connected()
        request = await expect_follow(second)
        assert request["params"]["since"] == 6
        await send_output(second, request, b"o\nthree\n", 14)
        await send_output(second, request, b"ur\nfive\n", 33, lost=11)
        await second.respond(request, {"position": 33, "exitStatus": EXIT})
        assert await logs.wait() == 0
    assert logs.out == "one\ntwo\nthree\nfive\n"
    assert logs.err == "[14 bytes are missing here]\n"


async def test_logs_repeats_its_output_request_when_the_worker_is_replaced(tmp_path):
    async with command(tmp_path, "logs", "build") as (logs, host):
        first = await host.connected()
        await answer_get(first)
        await first.expect("_acpterm/terminal/output")
        await first.lose()
        second = await host.connected()
        known = {"text": "one\n", "truncated": False, "position": 4, "exitStatus": EXIT}
        request = await expect_follow(second, known)
        await send_output(second, request, b"one\n", 4)
        await second.respond(request, {"position": 4, "exitStatus": EXIT})
        assert await logs.wait() == 0
    assert (logs.out, logs.err) == ("one\n", "")


async def test_wait_repeats_its_request_for_the_same_terminal_when_workers_are_lost(tmp_path):
    async with command(tmp_path, "wait", "@last") as (waiting, host):
        worker = await host.connected()
        await answer_get(worker, "@last")
        for _ in range(3):
            request = await worker.expect("_acpterm/terminal/wait")
            assert request["params"]["terminalId"] == INFO["terminalId"]
            await worker.lose()
            worker = await host.connected()
        request = await worker.expect("_acpterm/terminal/wait")
        await worker.respond(request, {**INFO, "state": "exited", "exitStatus": EXIT})
        assert await waiting.wait() == 3


async def test_wait_for_finds_a_match_that_spans_the_replacement_of_the_worker(tmp_path):
    async with command(tmp_path, "wait", "build", "--for", "^all tests passed$") as (waiting, host):
        first = await host.connected()
        await answer_get(first)
        known = {"text": "all te", "truncated": False, "position": 6, "exitStatus": None}
        request = await expect_follow(first, known)
        await send_output(first, request, b"all te", 6)
        await first.lose()
        second = await host.connected()
        request = await expect_follow(second)
        await send_output(second, request, b"sts passed\n", 17)
        assert await waiting.wait() == 0
    assert waiting.out == "all tests passed\n"


@pytest.mark.parametrize("as_json", [False, True])
async def test_events_reports_that_events_may_be_missing_when_the_worker_is_replaced(
    tmp_path, as_json
):
    words = ["events", "--json"] if as_json else ["events"]
    async with command(tmp_path, *words) as (events, host):

        async def publish(worker, event):
            request = await worker.expect("_acpterm/events")
            params = {"token": request["params"]["token"], "event": event, "at": 0}
            await worker.notify("_acpterm/event", params)

        first = await host.connected()
        await publish(first, "connected")
        await poll(lambda: events.lines)
        await first.lose()
        second = await host.connected()
        await publish(second, "disconnected")
        await poll(lambda: len(events.lines) == 3)
        events.interrupt()
        assert await events.wait() == 0
    if as_json:
        assert [json.loads(line)["event"] for line in events.lines] == [
            "connected",
            "reconnected",
            "disconnected",
        ]
        reconnected = json.loads(events.lines[1])
        assert reconnected["at"] > 0
        assert "terminal" not in reconnected
    else:
        assert "  reconnected" in events.lines[1]
        assert "the daemon's worker was replaced: events may be missing" in events.lines[1]


async def test_run_in_a_pipe_continues_its_output_when_the_worker_is_replaced(tmp_path):
    async with command(tmp_path, "run", "make") as (run, host):
        first = await host.connected()
        create = await first.expect("_acpterm/terminal/create")
        await first.respond(create, INFO)
        request = await expect_follow(first)
        assert (request["params"]["since"], request["params"]["hold"]) == (0, True)
        await send_output(first, request, b"one\r\n", 5)
        await poll(lambda: run.out == "one\n")
        await first.lose()
        second = await host.connected()
        request = await expect_follow(second)
        assert (request["params"]["since"], request["params"]["hold"]) == (5, True)
        await send_output(second, request, b"two\r\n", 10)
        await second.respond(request, {"position": 10, "exitStatus": EXIT})
        await answer_get(second, INFO["terminalId"])
        assert await run.wait() == 3
    assert (run.out.replace("\r", ""), run.err) == ("one\ntwo\n", "")


@pytest.mark.parametrize(
    ("words", "method"),
    [
        (["run", "-d", "make"], "terminal/create"),
        (["send", "build", "x"], "terminal/write"),
        (["rm", "build"], "terminal/release"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
async def test_request_with_side_effects_is_not_repeated_when_the_worker_is_lost(
    tmp_path, words, method
):
    async with command(tmp_path, *words) as (process, host):
        first = await host.connected()
        await first.expect(f"_acpterm/{method}")
        await first.lose()
        assert await process.wait() == 1
        assert f"it is unknown whether {method} was done" in process.err


async def test_idempotent_request_is_repeated_only_once_when_workers_are_lost(tmp_path):
    async with command(tmp_path, "ls") as (ls, host):
        for _ in range(2):
            worker = await host.connected()
            await worker.expect("_acpterm/terminal/list")
            await worker.lose()
        assert await ls.wait() == 1
        assert "it is unknown whether terminal/list was done" in ls.err


async def test_command_reports_that_the_daemon_has_ended_when_it_cannot_reconnect(tmp_path):
    async with command(tmp_path, "wait", "build") as (waiting, host):
        first = await host.connected()
        await first.expect("_acpterm/terminal/get")
        await host.stop()
        await first.lose()
        assert await waiting.wait() == 1
        assert waiting.err == f"acpterm: the daemon at {host.path} is gone: it has ended\n"


async def test_command_does_not_reconnect_with_a_resume_timeout_of_0(tmp_path):
    env = {"ACPTERM_RESUME_TIMEOUT": "0"}
    async with command(tmp_path, "wait", "build", env=env) as (waiting, host):
        first = await host.connected()
        await first.expect("_acpterm/terminal/get")
        await first.lose()
        assert await waiting.wait() == 1
        assert waiting.err == f"acpterm: the daemon at {host.path} is gone\n"


# Status


async def test_status_shows_keeper_worker_and_takeovers(tmp_path):
    async with command(tmp_path, "status") as (status, host):
        worker = await host.connected()
        await worker.respond(await worker.expect("_acpterm/status"), {**STATUS, "takeovers": 2})
        assert await status.wait() == 0
    assert "keeper          pid 100\n" in status.out
    assert "worker          pid 101, 2 takeovers\n" in status.out


@pytest.mark.long
async def test_status_prints_the_keepers_message_when_no_worker_answers(tmp_path):
    lock = "100\nthe worker failed five times in a minute: run acpterm restart\n"
    async with command(tmp_path, "status", lock=lock) as (status, host):
        await host.accept()
        assert await status.wait() == 1
    why = "the worker failed five times in a minute: run acpterm restart"
    assert status.out == f"no worker of the daemon answers (its keeper is pid 100): {why}\n"


@pytest.mark.long
async def test_status_json_has_no_worker_pid_when_no_worker_answers(tmp_path):
    async with command(tmp_path, "status", "--json", lock="100\n") as (status, host):
        await host.accept()
        assert await status.wait() == 1
    assert json.loads(status.out) == {"keeperPid": 100, "workerPid": None, "message": None}


@pytest.mark.long
async def test_command_prints_the_keepers_message_when_no_worker_answers(tmp_path):
    lock = "100\nthe worker failed five times: run acpterm restart\n"
    async with command(tmp_path, "ls", lock=lock) as (ls, host):
        await host.accept()
        assert await ls.wait() == 1
    why = "it does not answer within 3 s: the worker failed five times: run acpterm restart"
    assert ls.err == f"acpterm: the daemon at {host.path} cannot be used: {why}\n"


# Restart


async def test_restart_reports_the_old_and_the_new_worker(tmp_path):
    async with command(tmp_path, "restart") as (restart, host):
        first = await host.connected()
        await first.respond(await first.expect("_acpterm/status"), STATUS)
        await first.expect("_acpterm/restart")
        await first.lose()
        second = await host.connected()
        new = {**STATUS, "version": "2.0", "workerPid": 102, "takeovers": 1}
        await second.respond(await second.expect("_acpterm/status"), new)
        assert await restart.wait() == 0
    assert restart.out == (
        "replaced the worker, acpterm 1.0 (pid 101), by acpterm 2.0 (pid 102); 2 terminals run on\n"
    )


async def test_restart_json_has_the_old_and_the_new_worker(tmp_path):
    async with command(tmp_path, "restart", "--json") as (restart, host):
        first = await host.connected()
        await first.respond(await first.expect("_acpterm/status"), STATUS)
        # An old worker that answers before it is replaced.
        await first.respond(await first.expect("_acpterm/restart"))
        await first.respond(await first.expect("_acpterm/status"), STATUS)
        await first.lose()
        second = await host.connected()
        new = {**STATUS, "workerPid": 102, "takeovers": 1}
        await second.respond(await second.expect("_acpterm/status"), new)
        assert await restart.wait() == 0
    assert json.loads(restart.out) == {
        "old": {"version": "1.0", "pid": 101},
        "new": {"version": "1.0", "pid": 102},
        "keeperPid": 100,
        "takeovers": 1,
        "running": 2,
    }


async def test_restart_prints_the_reason_when_it_fails(tmp_path):
    async with command(tmp_path, "restart") as (restart, host):
        worker = await host.connected()
        await worker.respond(await worker.expect("_acpterm/status"), STATUS)
        why = "the new worker was not ready within 30 s: the old one goes on"
        await worker.respond_error(await worker.expect("_acpterm/restart"), why)
        assert await restart.wait() == 1
    assert restart.err == f"acpterm: {why}\n"


async def test_restart_advises_shutdown_when_the_daemon_lacks_the_method(tmp_path):
    async with command(tmp_path, "restart") as (restart, host):
        worker = await host.connected()
        await worker.respond(await worker.expect("_acpterm/status"), STATUS)
        await worker.respond_error(
            await worker.expect("_acpterm/restart"), "no such method", -32601
        )
        assert await restart.wait() == 1
    assert "cannot be replaced while it runs: acpterm shutdown ends it" in restart.err


@pytest.mark.long
async def test_restart_makes_the_keeper_start_a_worker_when_none_answers(tmp_path):
    async with command(tmp_path, "restart") as (restart, host):
        # A keeper that exits at the signal that requests a worker.
        with subprocess.Popen(
            ["/bin/sh", "-c", "trap 'kill $!; exit 7' USR1; sleep 1000 & echo; wait"],
            stdout=subprocess.PIPE,
        ) as keeper:
            assert keeper.stdout.readline()
            host.lock(f"{keeper.pid}\nthe worker failed\n")
            await host.accept()
            assert await poll(keeper.poll) == 7
            worker = await host.connected()
            new = {**STATUS, "workerPid": 102, "takeovers": 5}
            await worker.respond(await worker.expect("_acpterm/status"), new)
            assert await restart.wait() == 0
    assert restart.out == "started a worker, acpterm 1.0 (pid 102); 2 terminals run on\n"


@pytest.mark.parametrize(
    ("lock", "expected"),
    [(None, "does not say which process keeps"), ("999999999\n", "(pid 999999999) cannot be")],
    ids=["no lock", "no such process"],
)
@pytest.mark.long
async def test_restart_fails_without_a_worker_and_a_keeper(tmp_path, lock, expected):
    async with command(tmp_path, "restart", lock=lock) as (restart, host):
        await host.accept()
        assert await restart.wait() == 1
    assert expected in restart.err


async def test_restart_fails_without_a_daemon(tmp_path):
    path = str(tmp_path / "agent.sock")
    async with running(tmp_path, path, "restart") as restart:
        assert await restart.wait() == 1
    assert "no daemon listens at" in restart.err
