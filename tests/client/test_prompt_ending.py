"""How `acpterm prompt` ends: early or late, by whom, with which status, and what it leaves."""

import errno
import json
import os
import signal
import subprocess

import pytest
import trio

from acpterm.client.prompt.outcome import Outcome
from acpterm.runtime.send_queue import SendQueue
from tests.support.editor import create, embed, of, say, tool_call
from tests.support.hosts import alive, poll
from tests.support.prompts import (
    GIVEN_UP,
    agent_with,
    at_a_terminal,
    clean,
    command,
    permission,
    prompted,
    prompting,
    sleep,
    spawn,
    start,
)

# What survives a hangup and SIGTERM, and says its pid first.
TOUGH = "trap '' HUP TERM; echo $$; while :; do sleep 0.1; done"


# How a turn ends by itself


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
async def test_the_status_says_how_the_turn_ended(tmp_path, reason, status):
    done, run = await prompted(tmp_path, say("hi"), {"do": "stop", "reason": reason})
    assert (done, run.out) == (status, "hi\n")
    told = f"acpterm: the turn ended with {reason}\n"
    if reason == "cancelled":
        told = "acpterm: the agent says that the turn was cancelled\n"
    assert run.err == (told if status else "")


async def test_a_turn_that_is_answered_with_an_error_says_it(tmp_path):
    status, run = await prompted(tmp_path, {"do": "say"})
    assert (status, run.err) == (1, "acpterm: KeyError: 'text'\n")


async def test_a_turn_that_is_answered_with_nonsense_says_so(tmp_path):
    status, run = await prompted(tmp_path, {"do": "stop", "reason": "whim"})
    assert status == 1
    assert "the result of session/prompt" in run.err
    assert "whim" in run.err


# An agent that is not as it should be


async def test_an_agent_that_is_not_found_is_an_error(tmp_path):
    status, run = await prompted(tmp_path, agent=["/no/such/agent"])
    assert (status, run.out) == (1, "")
    assert run.err == (
        "acpterm: the agent '/no/such/agent' cannot be started: there is no such file\n"
    )


async def test_an_agent_that_is_no_program_is_an_error(tmp_path):
    (tmp_path / "agent").touch()
    status, run = await prompted(tmp_path, agent=["./agent"])
    assert status == 1
    assert "it is no program that may be executed" in run.err


async def test_an_agent_that_exits_at_once_has_its_last_words_told(tmp_path):
    status, run = await prompted(tmp_path, agent=["--die"])
    assert status == 1
    assert (
        "exited with status 7; its last words: no key in the environment: set AGENT_KEY" in run.err
    )


async def test_an_agent_that_exits_in_its_turn_has_its_last_words_told(tmp_path):
    steps = [say("so far"), {"do": "stderr", "text": "out of luck"}, {"do": "exit", "code": 9}]
    status, run = await prompted(tmp_path, *steps)
    assert (status, run.out) == (1, "so far\n")
    assert "exited with status 9; its last words: out of luck" in run.err


async def test_an_agent_that_is_killed_has_the_signal_told(tmp_path):
    agent = agent_with(tmp_path, "scripted.Turn.do_die = lambda *_: scripted.os.kill(0, 9)")
    status, run = await prompted(tmp_path, {"do": "die"}, agent=agent)
    assert status == 1
    assert "was ended by SIGKILL" in run.err


async def test_an_agent_that_only_speaks_another_version_is_an_error(tmp_path):
    status, run = await prompted(tmp_path, say("hi"), agent=["--v2"])
    assert (status, run.out) == (1, "")
    assert "the agent speaks version 2 of the Agent Client Protocol alone" in run.err


async def test_a_program_that_is_no_agent_has_what_it_says_told(tmp_path):
    status, run = await prompted(tmp_path, agent=["/bin/echo", "Usage: something else"])
    assert status == 1
    assert "what it wrote on stdout is no message" in run.err
    assert "Usage: something else" in run.err


async def test_an_agent_that_does_not_begin_is_not_waited_for(tmp_path):
    status, run = await prompted(tmp_path, options=["--start-timeout", "0.5"], agent=["--silent"])
    assert (status, run.out) == (124, "")
    assert "did not answer initialize within 0.5 s (--start-timeout)" in run.err


async def test_what_an_agent_says_instead_of_beginning_is_told(tmp_path):
    code = "print('no key: set AGENT_KEY', file=scripted.sys.stderr, flush=True)"
    agent = [*agent_with(tmp_path, code), "--silent", "--rubbish"]
    status, run = await prompted(tmp_path, options=["--start-timeout", "1"], agent=agent)
    assert status == 124
    assert "what it wrote on stdout is no message" in run.err
    assert "Welcome to the agent!" in run.err
    assert "its last words: no key: set AGENT_KEY" in run.err


async def test_an_agent_that_gives_no_session_is_not_waited_for(tmp_path):
    agent = agent_with(tmp_path, "scripted.ANSWERS['session/new'] = lambda *_: None")
    status, run = await prompted(tmp_path, options=["--start-timeout", "0.5"], agent=agent)
    assert status == 124
    assert "did not answer the session's beginning within 0.5 s" in run.err


# Ctrl-C


async def test_ctrl_c_has_the_agent_cancel(tmp_path):
    async with prompting(tmp_path, say("begun"), sleep(), say("no more")) as run:
        await run.seen("begun")
        run.interrupt()
        assert await run.wait(5) == 130
    assert run.out == "begun\n"
    assert run.err == "acpterm: cancelled; Ctrl-C once more ends the agent\n"
    assert run.log.methods()[-1] == "session/cancel"
    assert run.log.params("session/cancel") == {"sessionId": "s1"}


async def test_ctrl_c_answers_open_permissions_and_later_ones_cancelled(tmp_path):
    steps = [start("session/request_permission", "p", **permission()["params"]), sleep()]
    async with at_a_terminal(tmp_path, *steps, agent=["--stubborn"]) as person:
        await person.sees("1 to 3: ")
        await person.types("\x03")
        await poll(lambda: person.log.answers("session/request_permission") or None)
        assert person.log.answers("session/request_permission") == [GIVEN_UP]
        await person.types("\x03")
        _, status = await person.end()
        assert status == 130


async def test_a_permission_that_is_asked_after_ctrl_c_is_answered_cancelled(tmp_path):
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
        await run.seen("begun")
        run.interrupt()
        assert await run.wait() == 130
    assert run.log.answers("session/request_permission") == [GIVEN_UP]


async def test_ctrl_c_kills_the_turns_programs(tmp_path):
    steps = [create("echo $$; sleep 60"), tool_call(content=[embed()]), of("wait_for_exit")]
    async with prompting(tmp_path, *steps) as run:
        await run.seen("│ ")
        pid = int(run.out.split("│ ")[1].split()[0])
        run.interrupt()
        assert await run.wait() == 130
        assert not alive(pid)
    assert "[ended by SIG" in run.out


async def test_what_the_agent_says_after_ctrl_c_is_printed(tmp_path):
    code = """
def do_last(turn, step):
    turn.say("begun\\n")
    scripted.cancelled.wait(60)
    turn.say("I have stopped")
scripted.Turn.do_last = do_last
"""
    agent = agent_with(tmp_path, code)
    async with prompting(tmp_path, {"do": "last"}, agent=agent) as run:
        await run.seen("begun")
        run.interrupt()
        assert await run.wait() == 130
    assert run.out == "begun\nI have stopped\n"


async def test_a_second_ctrl_c_ends_an_agent_that_takes_no_notice(tmp_path):
    steps = [say("begun"), sleep()]
    async with prompting(tmp_path, *steps, agent=["--stubborn", "--stay", "--deaf"]) as run:
        await run.seen("begun")
        run.interrupt()
        await poll(lambda: "once more ends the agent" in run.err)
        with trio.move_on_after(0.5):
            await run.wait()
        assert run.process.poll() is None
        run.interrupt()
        assert await run.wait(10) == 130
    assert run.log.methods().count("session/cancel") == 1


async def test_ctrl_c_before_there_is_a_session_ends_it(tmp_path):
    async with prompting(tmp_path, agent=["--silent"]) as run:
        await poll(lambda: run.log.methods() == ["initialize"])
        run.interrupt()
        assert await run.wait(5) == 130
    assert run.err == "acpterm: ended by SIGINT\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_other_signals_end_it_and_say_so(tmp_path, number, status):
    async with prompting(tmp_path, say("begun"), sleep()) as run:
        await run.seen("begun")
        run.process.send_signal(number)
        assert await run.wait(5) == status
    assert run.out == "begun\n"
    assert run.err == f"acpterm: ended by {number.name}\n"


# The time


async def test_a_turn_that_takes_too_long_is_cancelled(tmp_path):
    status, run = await prompted(tmp_path, say("begun"), sleep(), options=["--timeout", "1.5"])
    assert (status, run.out) == (124, "begun\n")
    assert run.err == "acpterm: timed out after 1.5 s (--timeout)\n"
    assert run.log.methods()[-1] == "session/cancel"


async def test_an_agent_that_takes_no_notice_of_the_time_is_ended(tmp_path):
    async with prompting(
        tmp_path, spawn("sleep", "60"), sleep(), options=["--timeout", "1.5"], agent=["--stubborn"]
    ) as run:
        pid = await run.pid()
        assert await run.wait(10) == 124
        assert not alive(pid)


async def test_the_time_counts_from_the_start(tmp_path):
    status, run = await prompted(tmp_path, options=["--timeout", "0.5"], agent=["--silent"])
    assert status == 124
    assert run.err == "acpterm: timed out after 0.5 s (--timeout)\n"


async def test_as_json_the_end_says_that_it_timed_out(tmp_path):
    options = ["--timeout", "1.5", "--json"]
    _, run = await prompted(tmp_path, sleep(), options=options)
    assert run.of("end") == [
        {"stopReason": "cancelled", "status": 124, "error": "timed out after 1.5 s (--timeout)"}
    ]


# Nobody reads


@pytest.mark.parametrize("json_", [[], ["--json"]])
async def test_an_end_of_stdout_ends_it_soon(tmp_path, json_):
    steps = [{"do": "many", "times": 100_000, "text": "\n"}, sleep()]
    words = command(json.dumps(steps), json_)
    with subprocess.Popen(
        ["/bin/sh", "-c", '"$@" | head -1', "sh", *words],
        cwd=tmp_path,
        env=clean(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as shell:
        with trio.fail_after(20):
            out, err = await trio.to_thread.run_sync(shell.communicate)
    assert (out.count(b"\n"), err) == (1, b"")


async def test_a_stdout_that_cannot_be_written_ends_it_with_an_error_status(tmp_path):
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        async with prompting(tmp_path, say("hi\n"), sleep(), stdout=full) as run:
            assert await run.wait(5) == 1
    finally:
        os.close(full)


async def test_a_reader_that_is_slow_gets_all(tmp_path):
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
async def test_what_was_closed_from_the_start_is_no_trouble(tmp_path, closed):
    done = await trio.run_process(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command(json.dumps([say("hi")]))],
        cwd=tmp_path,
        env=clean(tmp_path),
        capture_stdout=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"hi\n")


# What it leaves: nothing


@pytest.mark.parametrize("agent", [[], ["--stay", "--deaf"]])
async def test_the_agent_and_all_that_it_started_are_gone_at_the_end(tmp_path, agent):
    code = "scripted.Turn.do_pid = lambda turn, _: turn.say(f' {scripted.os.getpid()} ')"
    steps = [{"do": "pid"}, spawn("sh", "-c", TOUGH)]
    agent = [*agent_with(tmp_path, code), *agent]
    async with prompting(tmp_path, *steps, agent=agent) as run:
        assert await run.wait() == 0
    itself, child = map(int, run.out.split())
    assert not alive(itself)
    assert not alive(child)


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "exit"])
async def test_all_is_gone_too_when_it_ends_early(tmp_path, how):
    last = {"do": "exit", "code": 1} if how == "exit" else sleep()
    steps = [
        create(TOUGH),
        tool_call(content=[embed()]),
        spawn("sh", "-c", TOUGH),
        sleep(0.5),
        last,
    ]
    async with prompting(tmp_path, *steps) as run:
        await poll(lambda: sum(word.isdigit() for word in run.out.split()) == 2)
        pids = [int(word) for word in run.out.split() if word.isdigit()]
        assert all(map(alive, pids))
        if how != "exit":
            run.process.send_signal(getattr(signal, how))
        await run.wait()
        assert not any(map(alive, pids))


async def test_terminals_that_are_left_over_are_killed_and_their_end_is_shown(tmp_path):
    steps = [
        create("echo $$; exec sleep 60"),
        tool_call(title="server", content=[embed()]),
        sleep(0.5),
        say("done"),
    ]
    async with prompting(tmp_path, *steps) as run:
        await run.seen("│ ")
        pid = int(run.out.split("│ ")[1].split()[0])
        assert await run.wait(5) == 0
        assert not alive(pid)
    assert "done\n  │ [ended by SIG" in run.out


async def test_a_program_that_is_left_over_does_not_keep_it(tmp_path):
    steps = [create(TOUGH), tool_call(content=[embed()]), sleep(0.3)]
    async with prompting(tmp_path, *steps) as run:
        assert await run.wait(8) == 0


async def test_when_it_is_killed_its_agent_and_terminals_do_not_stay_for_good(tmp_path):
    steps = [create("echo $$; sleep 60"), tool_call(content=[embed()]), sleep()]
    async with prompting(tmp_path, *steps) as run:
        await run.seen("│ ")
        pid = int(run.out.split("│ ")[1].split()[0])
        run.process.kill()
        await run.wait()
        # Its terminal is hung up.
        await poll(lambda: not alive(pid))


# What is known stays known


async def test_a_turn_that_ended_in_time_has_ended_well_however_long_the_agent_stays(tmp_path):
    status, run = await prompted(
        tmp_path, say("done\n"), agent=["--stay"], options=["--timeout", "1"]
    )
    assert (status, run.out, run.err) == (0, "done\n", "")


async def test_a_hangup_is_nothing_under_nohup(tmp_path):
    words = ["/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh"]
    words += command(json.dumps([say("begun\n"), sleep(1), say("over\n")]))
    with subprocess.Popen(
        words, cwd=tmp_path, env=clean(tmp_path), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert await trio.to_thread.run_sync(process.stdout.readline) == b"begun\n"
        process.send_signal(signal.SIGHUP)
        assert await trio.to_thread.run_sync(process.stdout.read) == b"over\n"
        assert await trio.to_thread.run_sync(process.wait) == 0


async def test_what_is_lost_for_want_of_room_is_an_error_also_when_the_turn_has_ended(tmp_path):
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        async with prompting(tmp_path, say("hi\n"), stdout=full) as run:
            assert await run.wait(5) == 1
            assert "cannot be written" in run.err
            assert "No space left on device" in run.err
    finally:
        os.close(full)


class FullDisk(trio.abc.SendStream):
    """Where nothing can be written."""

    async def send_all(self, _):
        raise trio.BrokenResourceError from OSError(errno.ENOSPC, "No space left on device")

    async def wait_send_all_might_not_block(self):
        pass

    async def aclose(self):
        pass


async def test_a_turn_that_ends_when_nothing_can_be_printed_any_more_has_failed():
    outcome = Outcome(lambda _: None)
    outbox = SendQueue(FullDisk(), 1000)
    outbox.put(b"hi")
    await outcome.write(outbox, trio.Event())
    outcome.turn_ended("end_turn")
    assert (outcome.status, outcome.stop_reason) == (1, "end_turn")


@pytest.mark.parametrize("option", ["--timeout", "--start-timeout"])
@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1", "x"])
async def test_a_time_that_is_none_is_a_wrong_command_line(tmp_path, option, value):
    status, run = await prompted(tmp_path, say("hi"), options=[option, value])
    assert status == 2
    assert "Usage:" in run.err
