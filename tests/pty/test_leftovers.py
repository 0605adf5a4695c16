"""Processes that a gone daemon has left are killed, and no others."""

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest
import trio

from acpterm.pty import linux, processes
from acpterm.pty.tracking import cgroup, marks
from acpterm.pty.tracking.cgroup import Cgroups
from acpterm.pty.tracking.marks import Daemon
from acpterm.pty.tracking.trees import end_leftovers
from tests.support.agent import agent_at
from tests.support.daemon import daemon, user_socket
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.processes import alive, environment
from tests.support.user import user_at

pytestmark = pytest.mark.skipif(not linux.AVAILABLE, reason="the marks are read from /proc")

GONE = 2**22 + 1


@pytest.fixture
def own_daemon():
    # A socket path of its own, because other processes run these tests at the same time.
    return Daemon.of(os.getpid(), f"/nowhere/{os.urandom(8).hex()}")


@pytest.fixture
def left():
    """Start processes that a daemon may have left, with environment variables: `left(A="b")`."""
    started = []

    def start(**variables):
        process = start_echo(["cat"], env={**os.environ, **variables})
        started.append(process)
        # Right after an exec the environment is not there yet.
        assert is_spared(process)
        return process

    yield start
    for process in started:
        end_echo(process)


def start_echo(command, **more):
    """Start a program that echoes its stdin."""
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **more)


def end_echo(process):
    process.kill()
    process.communicate()


def is_spared(process):
    """Return whether a program still echoes its input.

    One check is enough: a program that was sent SIGKILL stops at once.
    """
    try:
        process.stdin.write(b"still here\n")
        process.stdin.flush()
    except BrokenPipeError:
        return False
    return process.stdout.readline() == b"still here\n"


def marker_environment(daemon, terminal="term_1"):
    return marks.environment(terminal, daemon)


@pytest.mark.long
@pytest.mark.parametrize("place", ["own", "none"])
async def test_processes_of_a_gone_daemon_are_killed(own_daemon, left, place):
    gone = own_daemon._replace(pid=GONE, place=own_daemon.place if place == "own" else 0)
    process = left(**marker_environment(gone))
    await end_leftovers(own_daemon)
    assert await poll(process.poll) == -signal.SIGKILL


@pytest.mark.long
async def test_processes_are_killed_when_no_descriptor_is_left_at_first(
    own_daemon, left, monkeypatch
):
    failures = [OSError(errno.EMFILE, "no descriptor is left")]
    send = processes.send

    def send_later(process, number):
        if failures:
            raise failures.pop()
        return send(process, number)

    monkeypatch.setattr(processes, "send", send_later)
    process = left(**marker_environment(own_daemon._replace(pid=GONE)))
    await end_leftovers(own_daemon)
    assert not failures
    assert await poll(process.poll) == -signal.SIGKILL


@pytest.mark.long
async def test_processes_are_killed_when_the_pid_of_their_daemon_was_reused(own_daemon, left):
    process = left(**marker_environment(own_daemon._replace(ticks=own_daemon.ticks - 1)))
    await end_leftovers(own_daemon)
    assert await poll(process.poll) == -signal.SIGKILL


async def test_processes_that_are_not_leftovers_of_this_socket_are_spared(own_daemon, left):
    gone = own_daemon._replace(pid=GONE)
    others = [
        left(),
        left(ACPTERM_TERMINAL_ID="term_1"),
        left(ACPTERM_TERMINAL_ID="term_1", ACPTERM_DAEMON="what"),
        left(**marker_environment(own_daemon)),
        left(**marker_environment(gone, "term_held")),
        left(**marker_environment(gone._replace(namespace=1))),
        left(**marker_environment(gone._replace(place=own_daemon.place + 1))),
    ]
    await end_leftovers(own_daemon, {"term_held"})
    assert [is_spared(process) for process in others] == [True] * len(others)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
async def test_processes_of_another_user_are_spared(own_daemon):
    gone = own_daemon._replace(pid=GONE)
    process = start_echo(["cat"], env=marker_environment(gone), user=2_147_000_000)
    try:
        await end_leftovers(own_daemon)
        assert is_spared(process)
    finally:
        end_echo(process)


@pytest.mark.long
async def test_this_process_and_its_ancestors_are_spared(own_daemon):
    code = (
        "import trio; from acpterm.pty.tracking.trees import end_leftovers;"
        "from acpterm.pty.tracking.marks import Daemon;"
        f"trio.run(end_leftovers, Daemon.parse('{own_daemon}')); print('here')"
    )
    gone = own_daemon._replace(pid=GONE)
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", code]
    done = await trio.run_process(
        shell, env={**os.environ, **marker_environment(gone)}, capture_stdout=True
    )
    assert done.stdout == b"here\n"


def locked_base(parent):
    """Create the directory of a daemon's control groups; return its path and its lock.

    Daemons of other tests remove such a directory if they find it before it is locked.
    """
    while True:
        base = f"{parent}/acpterm-{os.getpid()}-{os.urandom(4).hex()}"
        os.mkdir(base)
        with contextlib.suppress(OSError):
            return base, cgroup._lock(base, fcntl.LOCK_SH)


async def test_control_groups_of_a_gone_daemon_are_killed_and_removed(own_daemon):
    if (groups := Cgroups.find()) is None:
        pytest.skip("this process may make no control groups")
    own = os.path.dirname(groups.base)
    groups.close()
    base, lock = locked_base(own)
    os.makedirs(f"{base}/term_1/below")
    join = f"echo 0 > {base}/term_1/below/cgroup.procs; echo; exec env -i sleep 60"
    process = subprocess.Popen(["/bin/sh", "-c", join], stdout=subprocess.PIPE)
    process.stdout.readline()
    os.close(lock)
    await end_leftovers(own_daemon)
    assert await poll(process.poll) == -signal.SIGKILL
    process.stdout.close()

    def removed():
        # Another test may have killed the process. Then the next search removes the group.
        Cgroups.find().close()
        return not os.path.exists(base)

    await poll(removed)


async def test_control_groups_of_running_daemons_and_of_units_are_spared(own_daemon):
    if (groups := Cgroups.find()) is None:
        pytest.skip("this process may make no control groups")
    base = groups.base
    unit = f"{os.path.dirname(base)}/acpterm-{os.getpid()}.service"
    os.makedirs(unit)
    tree = groups.new("term_1")
    kept = []
    try:
        for directory in (unit, os.path.dirname(tree.join)):
            join = f"echo 0 > {directory}/cgroup.procs; echo; exec env -i cat"
            kept.append(start_echo(["/bin/sh", "-c", join]))
            kept[-1].stdout.readline()
        await end_leftovers(own_daemon)
        assert [is_spared(process) for process in kept] == [True, True]
    finally:
        for process in kept:
            end_echo(process)
        await tree.close()
        groups.close()
        os.rmdir(unit)


@pytest.mark.parametrize("tracking", ["cgroup", "subreaper"])
@pytest.mark.long
async def test_next_daemon_kills_processes_that_a_killed_daemon_left(tmp_path, tracking):
    if tracking == "cgroup":
        if (groups := Cgroups.find()) is None:
            pytest.skip("this process may make no control groups")
        groups.close()
    env = environment(XDG_CONFIG_HOME=str(tmp_path), ACPTERM_TRACKING=tracking)
    line = "trap '' HUP; echo $$; (setsid sh -c 'echo $$; exec sleep 60' &); exec sleep 60"
    async with daemon(tmp_path, env=env) as (running, path), agent_at(path) as agent:
        terminal = await agent.create(line)
        two = [int(pid) for pid in await poll_lines(agent, terminal, 2)]
        async with user_at(user_socket(path)) as user:
            worker = (await user.request("status"))["workerPid"]
        # Kill both at once: a survivor would kill the leftovers itself.
        os.kill(worker, signal.SIGSTOP)
        running.process.kill()
        os.kill(worker, signal.SIGKILL)
        await running.wait()
    if tracking == "subreaper":
        # Any daemon that starts kills the processes in groups of daemons that are gone.
        assert any(alive(pid) for pid in two)
    async with daemon(tmp_path, env=env):
        await poll(lambda: not any(alive(pid) for pid in two))


async def poll_lines(agent, terminal, count):
    with trio.fail_after(DEADLINE_S):
        while True:
            output = (await agent.request("terminal/output", agent.of(terminal)))["output"]
            if len(lines := output.split()) >= count:
                return lines
            await trio.sleep(0.01)
