"""How `acpterm prompt` ends: causes, exit statuses and leftover processes."""

import errno
import json
import os
import re
import signal
import subprocess
import sys

import pytest
import trio

from acpterm.agents.prompt.run import RunOutcome
from acpterm.runtime.send_queue import SendQueue
from tests.support.depth import DEADLINE_S
from tests.support.editor import create, embed, of, say, tool_call, until
from tests.support.polling import poll
from tests.support.processes import alive
from tests.support.prompts import (
    CANCELLED,
    agent_with,
    at_a_terminal,
    command_line,
    permission,
    prompt_environment,
    prompted,
    prompting,
    sleep,
    spawn,
    start,
)

# Survives SIGHUP and SIGTERM, and prints its pid first.
TOUGH = "trap '' HUP TERM; echo $$; while :; do sleep 0.1; done"


async def timed_out(tmp_path, *steps, option, reached, options=(), **more):
    """Run `prompted` with the timeout `option`; return exit status, run and timeout.

    While `reached(run)` is false, repeat it with a longer timeout: on a busy machine, the agent may
    start too late for a short one.
    """
    for seconds in ("1", "4", "15"):
        chosen = [option, seconds, *options]
        status, run = await prompted(tmp_path, *steps, options=chosen, **more)
        if reached(run):
            break
    return status, run, seconds


# Normal end of a turn


@pytest.mark.costly
@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("end_turn", 0),
        ("refusal", 1),
        ("max_tokens", 1),
        ("max_turn_requests", 1),
        ("cancelled", 130),
    ],
)
async def test_status_follows_from_the_stop_reason(tmp_path, reason, status):
    done, run = await prompted(tmp_path, say("hi"), {"do": "stop", "reason": reason})
    assert (done, run.out) == (status, "hi\n")
    expected = f"acpterm: the turn ended with {reason}\n"
    if reason == "cancelled":
        expected = "acpterm: the agent says that the turn was cancelled\n"
    assert run.err == (expected if status else "")


async def test_error_response_to_the_prompt_is_printed(tmp_path):
    status, run = await prompted(tmp_path, {"do": "say"})
    assert (status, run.err) == (1, "acpterm: KeyError: 'text'\n")


async def test_invalid_response_to_the_prompt_is_an_error(tmp_path):
    status, run = await prompted(tmp_path, {"do": "stop", "reason": "whim"})
    assert status == 1
    assert "the result of session/prompt" in run.err
    assert "whim" in run.err


# Broken agents


async def test_missing_agent_is_an_error(tmp_path):
    status, run = await prompted(tmp_path, agent=["/no/such/agent"])
    assert (status, run.out) == (1, "")
    assert run.err == (
        "acpterm: the agent '/no/such/agent' cannot be started: there is no such file\n"
    )


async def test_non_executable_agent_is_an_error(tmp_path):
    (tmp_path / "agent").touch()
    status, run = await prompted(tmp_path, agent=["./agent"])
    assert status == 1
    assert "it is no program that may be executed" in run.err


async def test_stderr_tail_is_printed_when_the_agent_exits_at_once(tmp_path):
    status, run = await prompted(tmp_path, agent=["--die"])
    assert status == 1
    assert (
        "exited with status 7; its last words: no key in the environment: set AGENT_KEY" in run.err
    )


async def test_stderr_tail_is_printed_when_the_agent_exits_in_its_turn(tmp_path):
    steps = [say("so far"), {"do": "stderr", "text": "out of luck"}, {"do": "exit", "code": 9}]
    status, run = await prompted(tmp_path, *steps)
    assert (status, run.out) == (1, "so far\n")
    assert "exited with status 9; its last words: out of luck" in run.err


async def test_signal_is_printed_when_the_agent_is_killed(tmp_path):
    agent = agent_with(tmp_path, "scripted.Turn.do_die = lambda *_: scripted.os.kill(0, 9)")
    status, run = await prompted(tmp_path, {"do": "die"}, agent=agent)
    assert status == 1
    assert "was ended by SIGKILL" in run.err


async def test_other_protocol_version_is_an_error(tmp_path):
    status, run = await prompted(tmp_path, say("hi"), agent=["--v2"])
    assert (status, run.out) == (1, "")
    assert "the agent speaks version 2 of the Agent Client Protocol alone" in run.err


async def test_agent_that_refuses_the_version_is_said_to_speak_its_own(tmp_path):
    data = {"requested": 1, "supported": [2, 3]}
    error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
    answer = f"{{'id': i, 'error': {error}}}"
    code = f"scripted.ANSWERS['initialize'] = lambda i, _: scripted.send({answer})"
    status, run = await prompted(tmp_path, say("hi"), agent=agent_with(tmp_path, code))
    assert status == 1
    assert "the agent speaks version 2 and 3 of the Agent Client Protocol alone" in run.err


async def test_program_that_sends_back_what_it_is_sent_is_said_to_speak_no_acp(tmp_path):
    status, run = await prompted(tmp_path, agent=["/bin/cat"])
    assert status == 1
    assert run.err == "acpterm: the agent speaks no ACP: it sends back what it is sent\n"


async def test_output_of_a_program_that_is_not_an_agent_is_printed(tmp_path):
    status, run = await prompted(tmp_path, agent=["/bin/echo", "Usage: something else"])
    assert status == 1
    assert "what it wrote on stdout is no message" in run.err
    assert "Usage: something else" in run.err


async def test_start_timeout_ends_an_agent_without_initialize(tmp_path):
    status, run = await prompted(tmp_path, options=["--start-timeout", "0.5"], agent=["--silent"])
    assert (status, run.out) == (124, "")
    assert "did not answer initialize within 0.5 s (--start-timeout)" in run.err


async def test_start_timeout_prints_the_agents_output(tmp_path):
    code = "print('no key: set AGENT_KEY', file=scripted.sys.stderr, flush=True)"
    agent = [*agent_with(tmp_path, code), "--silent", "--garbage"]
    status, run, _ = await timed_out(
        tmp_path,
        option="--start-timeout",
        agent=agent,
        reached=lambda run: "no key" in run.err and "Welcome" in run.err,
    )
    assert status == 124
    assert "what it wrote on stdout is no message" in run.err
    assert "Welcome to the agent!" in run.err
    assert "its last words: no key: set AGENT_KEY" in run.err


async def test_start_timeout_ends_an_agent_without_a_session(tmp_path):
    agent = agent_with(tmp_path, "scripted.ANSWERS['session/new'] = lambda *_: None")
    status, run, seconds = await timed_out(
        tmp_path,
        option="--start-timeout",
        agent=agent,
        reached=lambda run: "session/new" in run.log.methods(),
    )
    assert status == 124
    assert f"did not answer the session's beginning within {seconds} s" in run.err


# Ctrl-C


async def test_ctrl_c_cancels_the_turn(tmp_path):
    async with prompting(tmp_path, say("begun"), sleep(), say("no more")) as run:
        await run.until_printed("begun")
        run.interrupt()
        assert await run.wait() == 130
    assert run.out == "begun\n"
    assert run.err == "acpterm: cancelled; Ctrl-C once more ends the agent\n"
    assert run.log.methods()[-1] == "session/cancel"
    assert run.log.params("session/cancel") == {"sessionId": "s1"}


@pytest.mark.long
async def test_ctrl_c_cancels_pending_and_later_permissions(tmp_path):
    steps = [start("session/request_permission", "p", **permission()["params"]), sleep()]
    async with at_a_terminal(tmp_path, *steps, agent=["--stubborn"]) as user:
        await user.sees("1 to 3: ")
        await user.types("\x03")
        await poll(lambda: user.log.answers("session/request_permission") or None)
        assert user.log.answers("session/request_permission") == [CANCELLED]
        await user.types("\x03")
        _, status = await user.end()
        assert status == 130


@pytest.mark.long
async def test_permission_requested_after_ctrl_c_is_answered_cancelled(tmp_path):
    code = """
def do_late(turn, step):
    turn.say("begun")
    scripted.cancelled.wait(60)
    params = {"sessionId": turn.session, **step["params"]}
    id_ = scripted.ask("session/request_permission", params)
    while id_ not in scripted.answers:
        scripted.time.sleep(0.01)
scripted.Turn.do_late = do_late
"""
    late = {"do": "late", "params": permission()["params"]}
    agent, options = agent_with(tmp_path, code), ["--allow", "all"]
    async with prompting(tmp_path, late, options=options, agent=agent) as run:
        await run.until_printed("begun")
        run.interrupt()
        assert await run.wait() == 130
    assert run.log.answers("session/request_permission") == [CANCELLED]


@pytest.mark.long
async def test_ctrl_c_kills_the_turns_programs(tmp_path):
    steps = [create("echo $$; sleep 60"), tool_call(content=[embed()]), of("wait_for_exit")]
    async with prompting(tmp_path, *steps) as run:
        await run.until_printed("│ ")
        pid = int(run.out.split("│ ")[1].split()[0])
        run.interrupt()
        assert await run.wait() == 130
        assert not alive(pid)
    assert "[ended by SIG" in run.out


@pytest.mark.long
async def test_messages_after_ctrl_c_are_printed(tmp_path):
    code = """
def do_last(turn, step):
    turn.say("begun\\n")
    scripted.cancelled.wait(60)
    turn.say("I have stopped")
scripted.Turn.do_last = do_last
"""
    agent = agent_with(tmp_path, code)
    async with prompting(tmp_path, {"do": "last"}, agent=agent) as run:
        await run.until_printed("begun")
        run.interrupt()
        assert await run.wait() == 130
    assert run.out == "begun\nI have stopped\n"


@pytest.mark.long
async def test_second_ctrl_c_ends_an_agent_that_ignores_the_cancel(tmp_path):
    steps = [say("begun"), sleep()]
    async with prompting(tmp_path, *steps, agent=["--stubborn", "--stay", "--deaf"]) as run:
        await run.until_printed("begun")
        run.interrupt()
        await poll(lambda: "once more ends the agent" in run.err)
        with trio.move_on_after(0.5):
            await run.wait()
        assert run.process.poll() is None
        run.interrupt()
        assert await run.wait() == 130
    assert run.log.methods().count("session/cancel") == 1


@pytest.mark.long
async def test_ctrl_c_before_the_session_ends_the_run(tmp_path):
    async with prompting(tmp_path, agent=["--silent"]) as run:
        await poll(lambda: run.log.methods() == ["initialize"])
        run.interrupt()
        assert await run.wait() == 130
    assert run.err == "acpterm: ended by SIGINT\n"


@pytest.mark.costly
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_other_signals_end_the_run_with_a_message(tmp_path, number, status):
    async with prompting(tmp_path, say("begun"), sleep()) as run:
        await run.until_printed("begun")
        run.process.send_signal(number)
        assert await run.wait() == status
    assert run.out == "begun\n"
    assert run.err == f"acpterm: ended by {number.name}\n"


# Timeouts


async def test_timeout_cancels_the_turn(tmp_path):
    status, run, seconds = await timed_out(
        tmp_path, say("begun"), sleep(), option="--timeout", reached=lambda run: run.out
    )
    assert (status, run.out) == (124, "begun\n")
    assert run.err == f"acpterm: timed out after {seconds} s (--timeout)\n"
    assert run.log.methods()[-1] == "session/cancel"


@pytest.mark.long
async def test_timeout_ends_an_agent_that_ignores_the_cancel(tmp_path):
    status, run, _ = await timed_out(
        tmp_path,
        spawn("sleep", "60"),
        sleep(),
        option="--timeout",
        agent=["--stubborn"],
        reached=lambda run: run.out,
    )
    assert status == 124
    assert not alive(int(run.out))


async def test_timeout_counts_from_the_start(tmp_path):
    status, run = await prompted(tmp_path, options=["--timeout", "0.5"], agent=["--silent"])
    assert status == 124
    assert run.err == "acpterm: timed out after 0.5 s (--timeout)\n"


@pytest.mark.long
async def test_json_end_event_reports_the_timeout(tmp_path):
    _, run, seconds = await timed_out(
        tmp_path,
        sleep(),
        option="--timeout",
        options=["--json"],
        reached=lambda run: "session/prompt" in run.log.methods(),
    )
    error = f"timed out after {seconds} s (--timeout)"
    assert run.of("end") == [{"stopReason": "cancelled", "status": 124, "error": error}]


# Closed or slow readers


@pytest.mark.parametrize("json_", [[], ["--json"]])
@pytest.mark.long
async def test_closed_stdout_ends_the_run_soon(tmp_path, json_):
    steps = [{"do": "many", "times": 100_000, "text": "\n"}, sleep()]
    words = command_line(json.dumps(steps), json_)
    with subprocess.Popen(
        ["/bin/sh", "-c", '"$@" | head -1', "sh", *words],
        cwd=tmp_path,
        env=prompt_environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as shell:
        with trio.fail_after(DEADLINE_S):
            out, err = await trio.to_thread.run_sync(shell.communicate)
    assert (out.count(b"\n"), err) == (1, b"")


async def test_unwritable_stdout_ends_the_run_with_an_error(tmp_path):
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        async with prompting(tmp_path, say("hi\n"), sleep(), stdout=full) as run:
            assert await run.wait() == 1
    finally:
        os.close(full)


@pytest.mark.long
async def test_slow_reader_gets_all_output(tmp_path):
    steps = [{"do": "many", "times": 15_000, "text": "x" * 200 + "\n"}]
    async with prompting(tmp_path, *steps, stdout=subprocess.PIPE) as run:
        assert run.process.stdout is not None
        got = 0
        with run.process.stdout as out:
            first = await trio.to_thread.run_sync(out.read, 10)
            await poll(lambda: len(run.log.entries()) > 1000)
            got = len(first) + len(await trio.to_thread.run_sync(out.read))
        assert await run.wait() == 0
    assert got == sum(len(f"{n} {'x' * 200}\n") for n in range(15_000))


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
@pytest.mark.long
async def test_descriptors_closed_from_the_start_are_harmless(tmp_path, closed):
    done = await trio.run_process(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command_line(json.dumps([say("hi")]))],
        cwd=tmp_path,
        env=prompt_environment(tmp_path),
        capture_stdout=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"hi\n")


# No leftover processes


@pytest.mark.parametrize("released", [[], [of("release")]], ids=["held", "released"])
async def test_what_a_command_left_running_is_named_when_the_session_ends_it(tmp_path, released):
    (tmp_path / "server.py").write_text(
        "import pathlib, socket\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "pathlib.Path('up').touch()\n"
        "server.accept()\n"
    )
    command = f"nohup {sys.executable} server.py >log 2>&1 & echo $! >pid"
    steps = [create(command), of("wait_for_exit"), *released, until(tmp_path / "up")]
    status, run = await prompted(tmp_path, *steps)
    pid = int((tmp_path / "pid").read_text())
    assert status == 0
    assert re.fullmatch(
        rf"acpterm: ended with the session: server\.py \(pid {pid}, port \d+\)\n", run.err
    )
    assert not alive(pid)


@pytest.mark.costly
@pytest.mark.parametrize("agent", [[], ["--stay", "--deaf"]])
async def test_agents_process_tree_is_gone_at_the_end(tmp_path, agent):
    code = "scripted.Turn.do_pid = lambda turn, _: turn.say(f' {scripted.os.getpid()} ')"
    steps = [{"do": "pid"}, spawn("sh", "-c", TOUGH)]
    agent = [*agent_with(tmp_path, code), *agent]
    status, run = await prompted(tmp_path, *steps, agent=agent)
    assert status == 0
    itself, child = map(int, run.out.split())
    assert not alive(itself)
    assert not alive(child)


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "exit"])
@pytest.mark.long
async def test_agents_process_tree_is_gone_after_an_early_end(tmp_path, how):
    go = tmp_path / "go"
    steps = [
        create(TOUGH),
        tool_call(content=[embed()]),
        spawn("sh", "-c", TOUGH),
        until(go),
        {"do": "exit", "code": 1},
    ]
    async with prompting(tmp_path, *steps) as run:
        await poll(lambda: sum(word.isdigit() for word in run.out.split()) == 2)
        pids = [int(word) for word in run.out.split() if word.isdigit()]
        assert all(map(alive, pids))
        if how == "exit":
            go.touch()
        else:
            run.process.send_signal(getattr(signal, how))
        await run.wait()
        assert not any(map(alive, pids))


@pytest.mark.long
async def test_leftover_terminals_are_killed_and_their_exit_is_printed(tmp_path):
    go = tmp_path / "go"
    steps = [
        create("echo $$; exec sleep 60"),
        tool_call(title="server", content=[embed()]),
        until(go),
        say("done"),
    ]
    async with prompting(tmp_path, *steps) as run:
        await run.until_printed("│ ")
        pid = int(run.out.split("│ ")[1].split()[0])
        go.touch()
        assert await run.wait() == 0
        assert not alive(pid)
    assert "done\n  │ [ended by SIG" in run.out


async def test_leftover_program_does_not_delay_the_end(tmp_path):
    steps = [create(TOUGH), tool_call(content=[embed()]), sleep(0.3)]
    with trio.fail_after(DEADLINE_S):
        status, _ = await prompted(tmp_path, *steps)
    assert status == 0


@pytest.mark.long
async def test_agent_and_terminals_end_when_the_prompt_is_killed(tmp_path):
    steps = [create("echo $$; sleep 60"), tool_call(content=[embed()]), sleep()]
    async with prompting(tmp_path, *steps) as run:
        await run.until_printed("│ ")
        pid = int(run.out.split("│ ")[1].split()[0])
        run.process.kill()
        await run.wait()
        # Its terminal hangs up.
        await poll(lambda: not alive(pid))


# The first cause decides


async def test_slow_exit_of_the_agent_does_not_change_the_status(tmp_path):
    status, run, _ = await timed_out(
        tmp_path,
        say("done\n"),
        option="--timeout",
        agent=["--stay"],
        reached=lambda run: "end_turn" in run.log.path.read_text(),
    )
    assert (status, run.out, run.err) == (0, "done\n", "")


@pytest.mark.long
async def test_sighup_is_ignored_under_nohup(tmp_path):
    words = ["/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh"]
    words += command_line(json.dumps([say("begun\n"), sleep(1), say("over\n")]))
    with subprocess.Popen(
        words,
        cwd=tmp_path,
        env=prompt_environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert await trio.to_thread.run_sync(process.stdout.readline) == b"begun\n"
        process.send_signal(signal.SIGHUP)
        assert await trio.to_thread.run_sync(process.stdout.read) == b"over\n"
        assert await trio.to_thread.run_sync(process.wait) == 0


@pytest.mark.long
async def test_output_lost_to_a_full_disk_is_an_error_after_the_turn(tmp_path):
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        async with prompting(tmp_path, say("hi\n"), stdout=full) as run:
            assert await run.wait() == 1
            assert "cannot be written" in run.err
            assert "No space left on device" in run.err
    finally:
        os.close(full)


class FullDisk(trio.abc.SendStream):
    """A stream on which every write fails."""

    async def send_all(self, _):
        raise trio.BrokenResourceError from OSError(errno.ENOSPC, "No space left on device")

    async def wait_send_all_might_not_block(self):
        pass

    async def aclose(self):
        pass


async def break_stdout(outcome):
    queue = SendQueue(FullDisk(), 1000)
    queue.put(b"hi")
    await outcome.write(queue, trio.Event())


async def test_turn_that_ends_after_stdout_broke_has_failed():
    outcome = RunOutcome(lambda _: None)
    await break_stdout(outcome)
    outcome.turn_ended("end_turn")
    assert (outcome.status, outcome.stop_reason) == (1, "end_turn")


async def receive(outcome, *numbers):
    send, signals = trio.open_memory_channel(len(numbers))
    for number in numbers:
        send.send_nowait(number)
    send.close()
    await outcome.watch(signals)


LATER_CAUSES = {
    "SIGINT": lambda outcome: receive(outcome, signal.SIGINT),
    "SIGTERM": lambda outcome: receive(outcome, signal.SIGTERM),
    "timeout": lambda outcome: outcome.expire(1),
    "broken stdout": break_stdout,
}


@pytest.mark.parametrize("cause", LATER_CAUSES)
async def test_status_stays_that_of_ctrl_c_when_another_cause_follows(cause, autojump_clock):
    outcome = RunOutcome(lambda _: None)
    cancels = []
    outcome.cancel = lambda: cancels.append("cancel")
    await receive(outcome, signal.SIGINT)
    assert (outcome.status, len(cancels), outcome.scope.cancel_called) == (130, 1, False)
    await LATER_CAUSES[cause](outcome)
    assert (outcome.status, outcome.scope.cancel_called) == (130, True)


@pytest.mark.parametrize("cause", LATER_CAUSES)
async def test_status_stays_that_of_the_timeout_when_another_cause_follows(cause, autojump_clock):
    outcome = RunOutcome(lambda _: None)
    await outcome.expire(1)
    await LATER_CAUSES[cause](outcome)
    outcome.turn_ended("cancelled")
    assert (outcome.status, outcome.error) == (124, "timed out after 1 s (--timeout)")


async def test_ctrl_c_ends_the_run_when_the_timeout_has_cancelled_the_turn(autojump_clock):
    outcome = RunOutcome(lambda _: None)
    outcome.cancel = lambda: None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outcome.expire, 1)
        await trio.sleep(2)
        assert not outcome.scope.cancel_called
        await receive(outcome, signal.SIGINT)
        assert (outcome.status, outcome.scope.cancel_called) == (124, True)


async def test_success_becomes_a_failure_when_the_output_cannot_be_written():
    outcome = RunOutcome(lambda _: None)
    outcome.turn_ended("end_turn")
    assert outcome.status == 0
    await break_stdout(outcome)
    assert outcome.status == 1


async def test_refusal_stays_the_status_when_the_output_cannot_be_written():
    outcome = RunOutcome(lambda _: None)
    outcome.turn_ended("end_turn", refusals=2)
    await break_stdout(outcome)
    assert outcome.status == 3


@pytest.mark.parametrize("option", ["--timeout", "--start-timeout"])
@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1", "x"])
async def test_invalid_timeout_is_a_usage_error(tmp_path, option, value):
    status, run = await prompted(tmp_path, say("hi"), options=[option, value])
    assert status == 2
    assert "Usage:" in run.err
