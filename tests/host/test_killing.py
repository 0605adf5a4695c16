"""Kill and release end the whole process tree quickly, whatever its programs do.

Each case runs against one daemon for each way of tracking processes. The daemons are shared by the
tests of this module.
"""

import functools
import shutil
import signal
from contextlib import ExitStack

import pytest
import trio

from acpterm.pty.tracking.cgroup import Cgroups
from tests.support.agent import agent_at
from tests.support.daemon import listens
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_here
from tests.support.polling import poll, poll_blocking
from tests.support.processes import alive, environment
from tests.support.starting import start

GRACE = 0.6
WAYS = ["cgroup", "subreaper"]


def skip_without(tracking):
    if tracking == "cgroup":
        groups = Cgroups.find()
        if groups is None:
            pytest.skip("this process may make no control groups")
        groups.close()


@pytest.fixture(scope="module", params=WAYS)
def socket(request, tmp_path_factory):
    """Run a daemon; yield the path of its socket."""
    tracking = request.param
    skip_without(tracking)
    directory = tmp_path_factory.mktemp("daemon")
    path = str(directory / "agent.sock")
    env = environment(
        XDG_CONFIG_HOME=str(directory),
        ACPTERM_TRACKING=tracking,
        ACPTERM_KILL_GRACE=str(GRACE),
    )
    with ExitStack() as stack:
        log = stack.enter_context(open(directory / "log", "wb"))
        daemon = stack.enter_context(start(["serve", "--socket", path], env=env, stderr=log))
        stack.callback(daemon.kill)
        poll_blocking(lambda: daemon.poll() is not None or listens(path))
        assert daemon.poll() is None, (directory / "log").read_text()
        yield path
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(DEADLINE_S) == 0
        assert "Traceback" not in (directory / "log").read_text()


@pytest.fixture
async def agent(socket):
    async with agent_at(socket) as agent:
        yield agent


@pytest.fixture(params=WAYS)
async def patient(request):
    """Connect an agent to a host with a longer grace than any program needs to end."""
    skip_without(request.param)
    async with agent_here(tracking=request.param, kill_grace=DEADLINE_S) as agent:
        yield agent


async def wait_for_pids(directory, count):
    """Wait until programs have written `count` pids to files in the directory; return the pids."""

    def read():
        pids = [int(path.read_text() or 0) for path in directory.glob("pid.*")]
        return pids if len(pids) >= count and all(pids) else None

    return await poll(read)


@pytest.fixture
def pids_in_files(tmp_path):
    """Set up a directory for pid files; the result waits for a number of pids and returns them."""
    return functools.partial(wait_for_pids, tmp_path)


def stopped(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


async def all_gone(pids):
    await poll(lambda: not any(alive(pid) for pid in pids))


# Programs that are hard to end, and how many pids each writes to files with `say`.
SAY = 'say() { echo "$1" >tmp.$1; mv tmp.$1 "pid.$1"; }; '
TREES = {
    "one process": (1, "say $$; exec sleep 60"),
    "grandchild": (2, "sh -c 'sleep 60 & echo $! >pid.a; wait' & say $$; wait"),
    "great-grandchildren": (
        4,
        (
            "say $$; (sh -c 'echo $$ >pid.a; (sleep 60 & echo $! >pid.b; "
            "sleep 60 & echo $! >pid.c; wait)'; true)"
        ),
    ),
    "setsid": (2, "setsid sleep 60 & say $!; say $$; wait"),
    "double fork": (2, "(sleep 60 & say $!); say $$; sleep 60"),
    "double fork and setsid": (2, "(setsid sleep 60 & say $!); say $$; sleep 60"),
    "double fork, setsid, and its environment wiped": (
        2,
        "(env -i setsid sleep 60 & say $!); say $$; sleep 60",
    ),
    "a daemon of a daemon": (
        3,
        (
            "(setsid sh -c '(setsid sleep 60 & echo $! >pid.b); echo $$ >pid.a; exec sleep 60' &); "
            "say $$; sleep 60"
        ),
    ),
    "ignores SIGTERM": (1, "trap '' TERM; say $$; while :; do sleep 0.05; done"),
    "ignores SIGHUP": (1, "trap '' HUP; say $$; sleep 60"),
    "nohup in the background": (2, "nohup sleep 60 >/dev/null 2>&1 & say $!; say $$; sleep 60"),
    "ignores all that can be ignored": (
        2,
        (
            "trap '' HUP TERM INT QUIT USR1 USR2 CONT TSTP TTIN TTOU PIPE; "
            "(setsid sh -c 'echo $$ >pid.a; while :; do sleep 0.05; done' &); say $$; "
            "while :; do sleep 0.05; done"
        ),
    ),
    "stopped": (1, "say $$; kill -STOP $$; sleep 60"),
    "stopped and ignores SIGTERM": (1, "trap '' TERM; say $$; kill -STOP $$; sleep 60"),
    "stopped grandchild of its own session": (
        2,
        "setsid sh -c 'echo $$ >pid.a; kill -STOP $$; sleep 60' & say $$; wait",
    ),
    "closed its terminal": (1, "exec <&- >&- 2>&-; say $$; exec sleep 60"),
    "reads in the foreground": (1, "say $$; read x; sleep 60"),
    "starts another in a new session on SIGTERM": (
        1,
        (
            'trap \'setsid sh -c "echo \\$\\$ >pid.late; trap \\"\\" TERM; sleep 60; sleep 60" & '
            "' TERM; say $$; while :; do sleep 0.02; done"
        ),
    ),
}


RELEASED = ["one process", "setsid", "double fork", "ignores SIGTERM", "stopped", "grandchild"]


@pytest.mark.costly
@pytest.mark.parametrize(
    ("method", "name"),
    [*(("kill", name) for name in TREES), *(("release", name) for name in RELEASED)],
)
@pytest.mark.long
async def test_kill_and_release_end_the_whole_tree(agent, pids_in_files, tmp_path, method, name):
    count, line = TREES[name]
    terminal = await agent.create(SAY + line, cwd=str(tmp_path))
    pids = await pids_in_files(count)
    assert all(alive(pid) for pid in pids)
    if name.startswith("stopped"):
        await poll(lambda: any(stopped(pid) for pid in pids))
    waiting = await agent.start("terminal/wait_for_exit", agent.of(terminal))
    with trio.fail_after(DEADLINE_S):
        assert await getattr(agent, method)(terminal) == {}
        status = await agent.result(waiting)
    assert status["_meta"]["acpterm"]["endedBy"] == "agent"
    if name == "stopped":
        # It was continued and received SIGTERM.
        assert status["signal"] == "SIGTERM"
    await all_gone(pids)
    # A process started later ends as well.
    late = [int(path.read_text()) for path in tmp_path.glob("pid.late")]
    await all_gone(late)
    if method == "kill":
        await agent.release(terminal)


@pytest.mark.parametrize("name", ["double fork", "double fork and setsid"])
@pytest.mark.long
async def test_orphans_of_an_exited_command_end_with_a_kill(agent, pids_in_files, tmp_path, name):
    line = TREES[name][1].removesuffix("say $$; sleep 60")
    terminal = await agent.create(f"{SAY} {line} echo done", cwd=str(tmp_path))
    with trio.fail_after(DEADLINE_S):
        assert (await agent.wait(terminal))["exitCode"] == 0
    pids = await pids_in_files(1)
    assert all(alive(pid) for pid in pids)
    await agent.kill(terminal)
    await all_gone(pids)


@pytest.mark.long
async def test_background_processes_end_with_a_kill_after_the_exit(agent, pids_in_files, tmp_path):
    line = f"{SAY} (setsid sleep 60 & say $!); exit 4"
    terminal = await agent.create(line, cwd=str(tmp_path))
    assert (await agent.wait(terminal))["exitCode"] == 4
    pids = await pids_in_files(1)
    assert await agent.kill(terminal) == {}
    await all_gone(pids)
    assert (await agent.wait(terminal))["exitCode"] == 4


@pytest.mark.long
@pytest.mark.parametrize("method", ["kill", "release"])
async def test_program_gets_grace_after_sigterm(patient, pids_in_files, tmp_path, method):
    line = "trap 'sleep 0.15; : >tidy; exit 7' TERM; say $$; while :; do sleep 0.02; done"
    terminal = await patient.create(SAY + line, cwd=str(tmp_path))
    pids = await pids_in_files(1)
    waiting = await patient.start("terminal/wait_for_exit", patient.of(terminal))
    await getattr(patient, method)(terminal)
    assert (await patient.result(waiting))["exitCode"] == 7
    assert (tmp_path / "tidy").exists()
    await all_gone(pids)


@pytest.mark.parametrize("shell", ["bash --norc", "dash -i", "zsh -f"])
async def test_interactive_shell_ends_at_once(patient, tmp_path, shell):
    if shutil.which(shell.split()[0]) is None:
        pytest.skip("there is no such shell")
    terminal = await patient.create(f"PS1='read''y> ' exec {shell}", cwd=str(tmp_path))
    await patient.until_output(terminal, "ready> ")
    await patient.kill(terminal)
    # zsh catches SIGHUP, and exits.
    assert (await patient.wait(terminal))["signal"] != "SIGKILL"


async def test_job_of_an_interactive_shell_gets_grace_after_sigterm(
    patient, pids_in_files, tmp_path
):
    job = "trap 'sleep 0.15; : >tidy; exit' TERM; say $$; while :; do sleep 0.02; done"
    (tmp_path / "job").write_text(SAY + job)
    line = "PS1='read''y> ' exec bash --norc -i"
    terminal = await patient.create(line, cwd=str(tmp_path))
    await patient.until_output(terminal, "ready> ")
    await patient.request("_acpterm/terminal/write", {**patient.of(terminal), "data": "sh job\n"})
    pids = await pids_in_files(1)
    await patient.kill(terminal)
    assert (await patient.wait(terminal))["signal"] == "SIGHUP"
    assert (tmp_path / "tidy").exists()
    await all_gone(pids)


@pytest.mark.costly
async def test_grandchild_gets_grace_after_sigterm(patient, pids_in_files, tmp_path):
    child = 'trap "sleep 0.15; : >tidy; exit" TERM; echo $$ >pid.a; while :; do sleep 0.02; done'
    line = f"setsid sh -c '{child}' & say $$; wait"
    terminal = await patient.create(SAY + line, cwd=str(tmp_path))
    pids = await pids_in_files(2)
    await patient.kill(terminal)
    await all_gone(pids)
    assert (tmp_path / "tidy").exists()


async def test_program_that_ignores_sigterm_is_killed_after_the_grace(
    agent, pids_in_files, tmp_path
):
    name = "ignores SIGTERM"
    terminal = await agent.create(SAY + TREES[name][1], cwd=str(tmp_path))
    await pids_in_files(1)
    started = trio.current_time()
    await agent.kill(terminal)
    status = await agent.wait(terminal)
    assert trio.current_time() - started >= GRACE - 0.05
    assert status["signal"] == "SIGKILL"


@pytest.mark.costly
@pytest.mark.parametrize(
    "name", ["one process", "ignores SIGTERM", "ignores all that can be ignored"]
)
@pytest.mark.parametrize("method", ["kill", "release"])
async def test_kill_and_release_respond_within_half_a_second(agent, tmp_path, method, name):
    # The machine may be busy: take the best of ten.
    best = 10.0
    count, line = TREES[name]
    for turn in range(10):
        directory = tmp_path / str(turn)
        directory.mkdir()
        terminal = await agent.create(SAY + line, cwd=str(directory))
        await wait_for_pids(directory, count)
        started = trio.current_time()
        await getattr(agent, method)(terminal)
        best = min(best, trio.current_time() - started)
        await agent.release(terminal)
        if best < 0.5:
            break
    assert best < 0.5


@pytest.mark.long
async def test_ten_concurrent_kills_respond_within_a_second(agent, tmp_path):
    # The machine may be busy: take the best of three.
    best = 10.0
    line = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    for _ in range(3):
        terminals = [await agent.create(line, cwd=str(tmp_path)) for _ in range(10)]
        for terminal in terminals:
            await agent.until_output(terminal, "up")
        started = trio.current_time()
        requests = [
            await agent.start("terminal/release", agent.of(terminal)) for terminal in terminals
        ]
        for id_ in requests:
            assert await agent.result(id_) == {}
        best = min(best, trio.current_time() - started)
        if best < 2.5:
            break
    assert best < 2.5


@pytest.mark.long
async def test_other_processes_survive_a_kill(agent, pids_in_files, tmp_path):
    other = "(setsid sleep 60 & say $!); say $$; exec sleep 60"
    other = await agent.create(SAY + other, cwd=str(tmp_path))
    pids = await pids_in_files(2)
    for method in "kill", "release":
        for tree in "double fork and setsid", "ignores SIGTERM", "setsid":
            count, line = TREES[tree]
            directory = tmp_path / f"{method} {tree}"
            directory.mkdir()
            terminal = await agent.create(SAY + line, cwd=str(directory))
            await wait_for_pids(directory, count)
            await getattr(agent, method)(terminal)
            await agent.release(terminal)
    assert all(alive(pid) for pid in pids)
    assert "exitStatus" not in await agent.output(other)
    await agent.release(other)
    await all_gone(pids)


@pytest.mark.parametrize("name", ["double fork and setsid", "ignores SIGTERM", "stopped"])
async def test_closing_the_connection_ends_the_whole_tree(socket, pids_in_files, tmp_path, name):
    count, line = TREES[name]
    async with agent_at(socket) as agent:
        await agent.create(SAY + line, cwd=str(tmp_path))
        pids = await pids_in_files(count)
    await all_gone(pids)


@pytest.mark.parametrize("name", ["double fork and setsid", "ignores SIGTERM"])
@pytest.mark.long
async def test_end_of_the_lifetime_ends_the_whole_tree(agent, tmp_path, name):
    count, line = TREES[name]
    # On a slow machine, a short lifetime may end before the whole tree has started.
    for lifetime in (400, 2000, 10_000):
        directory = tmp_path / str(lifetime)
        directory.mkdir()
        own = {"timeoutMs": lifetime}
        terminal = await agent.create(SAY + line, cwd=str(directory), own=own)
        status = await agent.wait(terminal)
        assert status["_meta"]["acpterm"]["endedBy"] == "timeout"
        pids = [int(path.read_text()) for path in directory.glob("pid.*")]
        await all_gone(pids)
        if len(pids) == count:
            break
    assert len(pids) == count


@pytest.mark.parametrize("name", ["double fork and setsid", "ignores SIGTERM"])
@pytest.mark.long
async def test_cancelled_turn_ends_the_whole_tree(agent, pids_in_files, tmp_path, name):
    count, line = TREES[name]
    terminal = await agent.create(SAY + line, cwd=str(tmp_path))
    pids = await pids_in_files(count)
    await agent.notify("session/cancel", {"sessionId": agent.session})
    assert (await agent.wait(terminal))["_meta"]["acpterm"]["endedBy"] == "agent"
    await all_gone(pids)


@pytest.mark.costly
@pytest.mark.parametrize("own", ["named", "invalid"])
async def test_cancelled_turn_ends_only_the_terminals_that_it_names(agent, own):
    older, named = await agent.create("exec sleep 60"), await agent.create("exec sleep 60")
    meta = {"acpterm": {"terminals": [named] if own == "named" else [7]}}
    await agent.notify("session/cancel", {"sessionId": agent.session, "_meta": meta})
    with trio.fail_after(DEADLINE_S):
        assert (await agent.wait(named))["signal"] == "SIGTERM"
        if own == "invalid":
            # The turn is cancelled all the same.
            await agent.wait(older)
    output = await agent.output(older)
    assert ("exitStatus" in output) == (own == "invalid")
