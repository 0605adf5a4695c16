"""The end of programs as agents see it: exit status, complete output, order of requests."""

import sys

import pytest
import trio

from acpterm.jsonrpc import RESOURCE_NOT_FOUND, RpcError
from tests.support.cases import each_case
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_here
from tests.support.polling import poll
from tests.support.processes import alive

WAYS = [
    pytest.param({"tracking": "auto"}, id="auto"),
    pytest.param({"tracking": "subreaper"}, id="subreaper"),
]


@pytest.fixture(params=WAYS)
async def each_way(request):
    async with agent_here(**request.param) as agent:
        yield agent


def own(status):
    return status["_meta"]["acpterm"]


# Complete output.


@pytest.mark.long
async def test_output_of_fast_programs_is_complete_when_wait_responds(each_way):
    for number in range(20):
        terminal = await each_way.create(f"echo line {number}")
        assert (await each_way.wait(terminal))["exitCode"] == 0
        assert (await each_way.output(terminal))["output"] == f"line {number}\n"
        await each_way.release(terminal)


@pytest.mark.long
async def test_output_of_concurrent_fast_programs_is_complete_when_wait_responds(each_way):
    terminals = [await each_way.create(f"echo line {number}") for number in range(20)]
    waiting = [
        await each_way.start("terminal/wait_for_exit", each_way.of(terminal))
        for terminal in terminals
    ]
    for number, terminal in enumerate(terminals):
        assert (await each_way.result(waiting[number]))["exitCode"] == 0
        assert (await each_way.output(terminal))["output"] == f"line {number}\n"


@pytest.mark.long
async def test_large_output_before_the_exit_is_complete(each_way):
    code = (
        "import os, sys; data = b''.join(b'%d\\n' % n for n in range(40000))[:200_000]; "
        "data = memoryview(data)\nwhile data: data = data[os.write(1, data):]\nos._exit(3)"
    )
    expected = "".join(f"{number}\n" for number in range(40_000))[:200_000]
    for _ in range(5):
        output, status = await each_way.run(sys.executable, args=["-S", "-c", code])
        assert status["exitCode"] == 3
        assert output == expected


async def test_raw_output_before_the_exit_is_complete(agent):
    terminal = await agent.create("seq 30000", own={"format": "raw"})
    await agent.wait(terminal)
    output = (await agent.output(terminal))["output"]
    assert output == "".join(f"{number}\r\n" for number in range(1, 30_001))


async def test_output_before_death_by_a_signal_is_complete(agent):
    output, status = await agent.run("seq 20000; kill -KILL $$")
    assert status["signal"] == "SIGKILL"
    assert output.endswith("\n20000\n")
    assert output.count("\n") == 20_000


# Processes that hold the terminal open.


@pytest.mark.costly
async def test_background_child_does_not_delay_the_exit_and_ends_with_a_kill(each_way):
    terminal = await each_way.create("sleep 60 & echo $! done")
    with trio.fail_after(DEADLINE_S):
        assert (await each_way.wait(terminal))["exitCode"] == 0
    pid, done = (await each_way.output(terminal))["output"].split()
    assert done == "done"
    assert alive(int(pid))
    await each_way.kill(terminal)
    await poll(lambda: not alive(int(pid)))


async def test_program_has_exited_while_its_child_keeps_writing(agent):
    line = "trap '' HUP; (while :; do echo tick; sleep 0.01; done) & echo leader; exit 4"
    terminal = await agent.create(line)
    with trio.fail_after(DEADLINE_S):
        assert (await agent.wait(terminal))["exitCode"] == 4
    before = (await agent.output(terminal))["output"]
    assert "leader\n" in before
    # What it writes later is read as well.
    await agent.until_output(terminal, "tick\n" * 3)
    ticks = before.count("tick")
    while (output := await agent.output(terminal))["output"].count("tick") < ticks + 3:
        assert output["exitStatus"]["exitCode"] == 4
    await agent.release(terminal)


async def test_program_has_exited_while_its_child_floods_the_terminal(agent):
    terminal = await agent.create("trap '' HUP; yes & exit 4")
    with trio.fail_after(DEADLINE_S):
        assert (await agent.wait(terminal))["exitCode"] == 4
        await agent.release(terminal)
        assert (await agent.run("echo next"))[0] == "next\n"


@pytest.mark.costly
async def test_program_that_closes_its_terminal_has_not_exited(each_way, tmp_path):
    line = (
        "exec 0<&- 1>&- 2>&-; : >closed; until [ -e go ]; do sleep 0.01; done; "
        "echo back >/dev/tty; exit 3"
    )
    terminal = await each_way.create(f"echo first; {line}", cwd=str(tmp_path))
    waiting = await each_way.start("terminal/wait_for_exit", each_way.of(terminal))
    await poll((tmp_path / "closed").exists)
    with trio.move_on_after(0.2):
        await each_way.result(waiting)
    assert not each_way.has_response(waiting)
    output = await each_way.output(terminal)
    assert output["output"] == "first\n"
    assert "exitStatus" not in output
    (tmp_path / "go").touch()
    with trio.fail_after(DEADLINE_S):
        assert (await each_way.result(waiting))["exitCode"] == 3
    # The program has opened its terminal again.
    assert (await each_way.output(terminal))["output"] == "first\nback\n"


async def test_program_that_closed_its_terminal_can_be_killed(agent, tmp_path):
    line = "exec 0<&- 1>&- 2>&-; : >closed; exec sleep 60"
    terminal = await agent.create(line, cwd=str(tmp_path))
    await poll((tmp_path / "closed").exists)
    with trio.fail_after(DEADLINE_S):
        await agent.kill(terminal)
        assert (await agent.wait(terminal))["signal"] == "SIGTERM"


async def test_stopped_program_has_not_exited(agent):
    terminal = await agent.create("echo $$; kill -STOP $$; exit 6")
    waiting = await agent.start("terminal/wait_for_exit", agent.of(terminal))
    await agent.until_output(terminal, "\n")
    with trio.move_on_after(0.05):
        await agent.result(waiting)
    assert not agent.has_response(waiting)
    await agent.kill(terminal)
    with trio.fail_after(DEADLINE_S):
        assert (await agent.result(waiting))["signal"] == "SIGTERM"


# The exit status.


@pytest.mark.parametrize("code", [0, 1, 2, 126, 127, 128, 255])
async def test_exit_status_has_the_exit_code(each_way, code):
    _, status = await each_way.run(f"exit {code}")
    assert (status["exitCode"], status["signal"]) == (code, None)
    assert own(status)["endedBy"] == "exited"


SIGNALS = ["SIGTERM", "SIGKILL", "SIGINT", "SIGSEGV", "SIGHUP", "SIGPIPE", "SIGRTMIN+3", "SIGRTMAX"]


def kills_itself(name):
    """Return a program that kills itself with the signal."""
    first, _, offset = name.partition("+")
    number = f"signal.{first}" + (f" + {offset}" if offset else "")
    return {"args": ["-S", "-c", f"import os, signal; os.kill(os.getpid(), {number})"]}


@each_case("name", SIGNALS)
async def test_exit_status_has_the_name_of_the_signal(agent, name):
    code = kills_itself(name)["args"][-1].replace("import os, signal;", "")
    reset = "import os, signal; [signal.signal(n, signal.SIG_DFL) for n in (2, 13)];"
    _, status = await agent.run(sys.executable, args=["-S", "-c", reset + code])
    expected = {"SIGRTMAX": "SIGRTMIN+30"}.get(name, name)
    assert (status["exitCode"], status["signal"]) == (None, expected)
    # The agent did not end it.
    assert own(status)["endedBy"] == "exited"


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("KILL", 137), ("INT", 130)])
async def test_signal_exit_code_setting_adds_an_exit_code(name, code):
    async with agent_here(signal_exit_code=True) as agent:
        _, status = await agent.run(f"kill -{name} $$")
        assert (status["exitCode"], status["signal"]) == (code, f"SIG{name}")
        _, status = await agent.run("exit 5")
        assert (status["exitCode"], status["signal"]) == (5, None)


@pytest.mark.parametrize(
    ("agent_name", "setting", "code"),
    [
        ("@mistralai/mistral-vibe", "auto", 137),
        ("mistral-vibe", "auto", 137),
        ("kimi-cli", "auto", None),
        ("@mistralai/mistral-vibe", False, None),
    ],
)
async def test_signal_exit_code_follows_the_agents_name(agent_name, setting, code):
    async with agent_here(signal_exit_code=setting) as agent:
        info = {"name": agent_name, "version": "1"}
        await agent.request("initialize", {"protocolVersion": 1, "clientInfo": info})
        terminal = await agent.create("kill -KILL $$")
        assert (await agent.wait(terminal))["exitCode"] == code
        assert (await agent.output(terminal))["exitStatus"]["exitCode"] == code
        assert (await agent.read_from(terminal))["exitStatus"]["exitCode"] == code


async def test_exit_status_is_absent_before_the_exit_and_constant_after(agent):
    terminal = await agent.create("read x; exit 3")
    assert "exitStatus" not in await agent.output(terminal)
    await agent.type(terminal, "\n")
    first = await agent.wait(terminal)
    for _ in range(2):
        assert await agent.wait(terminal) == first
        assert (await agent.output(terminal))["exitStatus"] == first
    assert (await agent.read_from(terminal))["exitStatus"] == first


async def test_every_pending_wait_gets_the_exit_status(agent):
    terminal = await agent.create("read x; exit 3")
    waiting = [await agent.start("terminal/wait_for_exit", agent.of(terminal)) for _ in range(10)]
    await agent.type(terminal, "\n")
    with trio.fail_after(DEADLINE_S):
        for id_ in waiting:
            assert (await agent.result(id_))["exitCode"] == 3


@pytest.mark.costly
async def test_exit_status_has_the_resource_usage(each_way):
    code = "x = bytearray(40_000_000); sum(range(3_000_000)); input()"
    began = trio.current_time()
    terminal = await each_way.create(sys.executable, args=["-S", "-c", code])
    with trio.move_on_after(0.1):
        await each_way.wait(terminal)
    await each_way.type(terminal, "\n")
    used = own(await each_way.wait(terminal))
    took = 1000 * (trio.current_time() - began)
    assert 100 <= used["wallMs"] <= took + 200
    assert 10 <= used["cpuMs"] <= 30_000
    assert 40_000_000 < used["maxRssBytes"] < 400_000_000


# Who ended the program.


async def test_kill_is_ended_by_agent(each_way):
    terminal = await each_way.create("sleep 60")
    assert await each_way.kill(terminal) == {}
    status = await each_way.wait(terminal)
    assert (status["exitCode"], status["signal"]) == (None, "SIGTERM")
    assert own(status)["endedBy"] == "agent"


async def test_release_is_ended_by_agent(agent):
    terminal = await agent.create("sleep 60")
    waiting = await agent.start("terminal/wait_for_exit", agent.of(terminal))
    await agent.release(terminal)
    assert own(await agent.result(waiting))["endedBy"] == "agent"


# A slow program may have done nothing yet at the end of a short lifetime: a longer one follows.
LIFETIMES_MS = (100, 1000, 10_000)


async def test_program_is_ended_by_timeout_after_its_lifetime(each_way):
    for lifetime in LIFETIMES_MS:
        terminal = await each_way.create("echo up; sleep 60", own={"timeoutMs": lifetime})
        status = await each_way.wait(terminal)
        assert (status["exitCode"], status["signal"]) == (None, "SIGTERM")
        assert own(status)["endedBy"] == "timeout"
        assert own(status)["wallMs"] >= lifetime
        if output := (await each_way.output(terminal))["output"]:
            break
    assert output == "up\n"


async def test_program_within_its_lifetime_runs_on(agent):
    _, status = await agent.run("exit 3", own={"timeoutMs": 60_000})
    assert status["exitCode"] == 3
    assert own(status)["endedBy"] == "exited"


async def test_program_that_handles_sigterm_sets_its_own_exit_code_at_the_end_of_its_lifetime(
    agent,
):
    line = "trap 'echo tidy; exit 9' TERM; while :; do sleep 0.01; done"
    for lifetime in LIFETIMES_MS:
        output, status = await agent.run(line, own={"timeoutMs": lifetime})
        assert own(status)["endedBy"] == "timeout"
        if status["exitCode"] is not None:
            break
    assert status["exitCode"] == 9
    assert output.endswith("tidy\n")


async def test_kill_after_the_exit_changes_nothing(agent):
    terminal = await agent.create("exit 3", own={"timeoutMs": 100})
    before = await agent.wait(terminal)
    assert await agent.kill(terminal) == {}
    assert await agent.wait(terminal) == before


async def test_pending_waits_are_answered_when_the_connection_closes(host, agent):
    terminal = await agent.create("echo $$; exec sleep 60")
    pid = int(await agent.until_output(terminal, "\n"))
    waiting = await agent.start("terminal/wait_for_exit", agent.of(terminal))
    await agent.output(terminal)
    await agent.stream.send_eof()
    with trio.fail_after(DEADLINE_S):
        status = await agent.result(waiting)
        assert (status["signal"], own(status)["endedBy"]) == ("SIGTERM", "disconnect")
        await agent.closed.wait()
    await poll(lambda: not alive(pid))
    await poll(lambda: not host.terminals.pool.terminals)


# The order of requests.


@pytest.mark.parametrize("method", ["kill", "release"])
async def test_kill_and_release_answer_a_pending_wait(each_way, method):
    terminal = await each_way.create("sleep 60")
    waiting = await each_way.start("terminal/wait_for_exit", each_way.of(terminal))
    await each_way.output(terminal)
    assert not each_way.has_response(waiting)
    with trio.fail_after(DEADLINE_S):
        await getattr(each_way, method)(terminal)
        assert (await each_way.result(waiting))["signal"] == "SIGTERM"


async def test_release_answers_a_pending_wait_when_the_program_ignores_signals():
    async with agent_here(kill_grace=0.4) as agent:
        terminal = await agent.create("trap '' TERM; echo up; while :; do sleep 0.05; done")
        await agent.until_output(terminal, "up")
        waiting = await agent.start("terminal/wait_for_exit", agent.of(terminal))
        await agent.release(terminal)
        with trio.fail_after(DEADLINE_S):
            assert (await agent.result(waiting))["signal"] == "SIGKILL"


async def test_repeated_kill_succeeds_after_the_exit(agent):
    terminal = await agent.create("true")
    await agent.wait(terminal)
    for _ in range(3):
        assert await agent.kill(terminal) == {}
    assert (await agent.wait(terminal))["exitCode"] == 0


async def test_second_kill_succeeds_while_the_first_is_pending(agent):
    terminal = await agent.create("sleep 60")
    two = [await agent.start("terminal/kill", agent.of(terminal)) for _ in range(2)]
    for id_ in two:
        assert await agent.result(id_) == {}


async def test_killed_terminal_can_be_read_and_waited_for(agent):
    terminal = await agent.create("echo before; exec sleep 60")
    await agent.until_output(terminal, "before\n")
    await agent.kill(terminal)
    assert (await agent.wait(terminal))["signal"] == "SIGTERM"
    assert (await agent.output(terminal))["output"] == "before\n"
    assert await agent.release(terminal) == {}


@pytest.mark.parametrize("line", ["true", "sleep 60"])
async def test_second_release_succeeds(agent, line):
    terminal = await agent.create(line)
    for _ in range(3):
        assert await agent.release(terminal) == {}


REST = {
    "terminal/output": {},
    "terminal/wait_for_exit": {},
    "terminal/kill": {},
    "_acpterm/terminal/read": {},
    "_acpterm/terminal/write": {"data": "x"},
    "_acpterm/terminal/resize": {"cols": 80, "rows": 24},
    "_acpterm/terminal/signal": {"signal": "SIGINT"},
}


@pytest.mark.parametrize("line", ["true", "sleep 60"])
async def test_every_method_but_release_fails_after_a_release(agent, line):
    terminal = await agent.create(line)
    await agent.release(terminal)
    for method, more in REST.items():
        with pytest.raises(RpcError) as caught:
            await agent.request(method, agent.of(terminal, **more))
        assert caught.value.code == RESOURCE_NOT_FOUND
        assert terminal in caught.value.message
        assert "has been released" in caught.value.message


async def test_every_method_fails_for_an_unknown_id(agent):
    for method, more in {**REST, "terminal/release": {}}.items():
        with pytest.raises(RpcError) as caught:
            await agent.request(method, agent.of("term_none", **more))
        assert caught.value.code == RESOURCE_NOT_FOUND
        assert "term_none" in caught.value.message
        assert "released" not in caught.value.message
