"""Control groups of terminals: membership, signals, cleanup and discovery."""

import fcntl
import os
import signal
import subprocess
from contextlib import suppress

import pytest
import trio
import trio.testing

from acpterm.pty import processes
from acpterm.pty.tracking import cgroup
from acpterm.pty.tracking.cgroup import Cgroups
from acpterm.pty.tracking.tree import end, wait_empty
from tests.pty.scarcity import no_descriptors
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.processes import alive

_found = Cgroups.find()
if _found is None:
    pytest.skip("this process may make no control groups", allow_module_level=True)
_found.close()


@pytest.fixture
async def groups():
    groups = Cgroups.find()
    yield groups
    groups.close()


@pytest.fixture
async def tree(groups):
    tree = groups.new(f"test-{os.urandom(8).hex()}")
    yield tree
    await tree.kill()
    await tree.close()


def start(tree, line):
    """Start a shell line in the tree; its output is a pipe."""
    joined = f"echo 0 > {tree.join}; {line}"
    return subprocess.Popen(["/bin/sh", "-c", joined], stdout=subprocess.PIPE)


def pids(process, count):
    return [int(process.stdout.readline()) for _ in range(count)]


def stopped(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


async def reaped(process):
    process.stdout.close()
    return await poll(process.poll)


async def test_new_tree_is_empty_and_close_removes_its_directory(groups):
    tree = groups.new("empty")
    assert tree.is_empty()
    await tree.close()
    assert not os.listdir(groups.base) or "empty" not in os.listdir(groups.base)


async def test_tree_is_created_when_another_pool_has_removed_the_base_directory(groups):
    Cgroups.find().close()
    tree = groups.new("alone")
    assert tree.is_empty()
    await tree.close()


async def test_directory_is_open_until_the_first_child_has_started(tree):
    fd = tree.cgroup
    assert os.path.samestat(os.fstat(fd), os.stat(os.path.dirname(tree.join)))
    tree.started()
    assert tree.cgroup is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


async def test_processes_that_leave_the_session_stay_in_the_tree(tree):
    process = start(tree, "(setsid sleep 60 & echo $!); (env -i setsid sleep 60 & echo $!)")
    two = pids(process, 2)
    assert await reaped(process) == 0
    assert not tree.is_empty()
    await tree.kill()
    assert tree.is_empty()
    assert not any(alive(pid) for pid in two)


async def test_signal_reaches_all_processes_including_those_of_subgroups(tree):
    below = f"{os.path.dirname(tree.join)}/below"
    line = (
        f"sleep 60 & echo $!; mkdir {below}; echo 0 > {below}/cgroup.procs; echo $$; exec sleep 60"
    )
    process = start(tree, line)
    two = pids(process, 2)
    await tree.signal(signal.SIGTERM)
    with trio.fail_after(DEADLINE_S):
        await wait_empty(tree)
    assert await reaped(process) == -signal.SIGTERM
    assert not any(alive(pid) for pid in two)


async def test_end_gives_programs_the_grace_period(tree):
    line = "trap 'sleep 0.15; exit 7' TERM; echo $$; while :; do sleep 0.01; done"
    process = start(tree, line)
    pids(process, 1)
    await end(tree, 5)
    assert await reaped(process) == 7


async def test_end_kills_programs_that_ignore_sigterm(tree):
    process = start(tree, "trap '' TERM HUP; echo $$; while :; do sleep 0.01; done")
    pids(process, 1)
    with trio.fail_after(DEADLINE_S):
        await end(tree, 0.05)
    assert await reaped(process) == -signal.SIGKILL


async def test_end_reaches_stopped_processes(tree):
    process = start(tree, "trap 'exit 7' TERM; echo $$; kill -STOP $$; sleep 60")
    (pid,) = pids(process, 1)
    await poll(lambda: stopped(pid))
    with trio.fail_after(DEADLINE_S):
        await end(tree, 5)
    assert await reaped(process) == 7


async def test_kill_signals_each_process_when_the_kernel_has_no_cgroup_kill(tree, monkeypatch):
    process = start(tree, "(setsid sleep 60 & echo $!); echo $$; exec sleep 60")
    two = pids(process, 2)
    monkeypatch.setattr(tree, "kill_at_once", lambda: False)
    with trio.fail_after(DEADLINE_S):
        await tree.kill()
    assert await reaped(process) == -signal.SIGKILL
    assert not any(alive(pid) for pid in two)


@pytest.mark.parametrize("at_once", [True, False])
async def test_end_succeeds_when_there_are_no_descriptors_for_a_while(tree, monkeypatch, at_once):
    if not at_once:
        monkeypatch.setattr(tree, "kill_at_once", lambda: False)
    process = start(tree, "trap '' TERM; echo $$; while :; do sleep 0.01; done")
    pids(process, 1)
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            with no_descriptors():
                nursery.start_soon(end, tree, 0)
                await trio.testing.wait_all_tasks_blocked(0.02)
                assert process.poll() is None
    assert await reaped(process) == -signal.SIGKILL


async def test_signal_reads_the_group_only_twice_for_many_processes(tree, monkeypatch):
    line = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 60 & done; echo $$; wait"
    process = start(tree, line)
    pids(process, 1)
    reads = []
    real = tree.pids
    monkeypatch.setattr(tree, "pids", lambda: reads.append(1) or real())
    await tree.signal(signal.SIGTERM)
    assert len(reads) == 2
    with trio.fail_after(DEADLINE_S):
        await wait_empty(tree)
    assert await reaped(process) == -signal.SIGTERM


@pytest.mark.parametrize("pidfds", [True, False])
async def test_signal_uses_smaller_batches_when_descriptors_are_scarce(tree, monkeypatch, pidfds):
    monkeypatch.setattr(processes, "_HAS_PIDFD", pidfds)
    line = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 60 & done; echo $$; wait"
    process = start(tree, line)
    pids(process, 1)
    with no_descriptors(but=4):
        await tree.signal(signal.SIGTERM)
    with trio.fail_after(DEADLINE_S):
        await wait_empty(tree)
    assert await reaped(process) == -signal.SIGTERM


async def test_close_removes_the_groups_that_programs_created(groups):
    tree = groups.new("nested")
    directory = os.path.dirname(tree.join)
    os.makedirs(f"{directory}/a/b")
    await tree.close()
    assert not os.path.exists(directory)  # noqa: ASYNC240


def test_find_removes_directories_of_killed_daemons_only():
    own = os.path.dirname(Cgroups.find().base)
    # Another test's daemon, which starts meanwhile, may remove it first.
    with suppress(FileNotFoundError):
        os.makedirs(f"{own}/acpterm-{os.getpid()}-dead/term_x")
    living = Cgroups.find()
    tree = living.new("term_y")
    try:
        Cgroups.find().close()
        assert not os.path.exists(f"{own}/acpterm-{os.getpid()}-dead")
        assert os.path.exists(f"{living.base}/term_y")
    finally:
        trio.run(tree.close)
        living.close()
    assert not os.path.exists(living.base)


def test_find_returns_none_when_nothing_was_delegated_to_root(monkeypatch, tmp_path):
    (tmp_path / "cgroup.procs").touch()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(cgroup, "_own_directory", lambda: str(tmp_path))
    real = open

    def not_the_root(path, *args, **more):
        if path == "/proc/self/cgroup":
            path = tmp_path / "cgroup"
        return real(path, *args, **more)

    (tmp_path / "cgroup").write_text("0::/user.slice/session.scope\n")
    monkeypatch.setattr("builtins.open", not_the_root)
    assert Cgroups.find() is None


def test_find_returns_none_without_version_2(monkeypatch):
    monkeypatch.setattr(cgroup, "_own_directory", lambda: None)
    assert Cgroups.find() is None


def test_find_retries_when_another_daemon_locks_the_new_directory_as_stale(monkeypatch):
    locked, created, locks = [], [], []
    mkdir = os.mkdir

    def mkdir_and_lose_race(path, mode=0o777):
        mkdir(path, mode)
        if locks:
            created.append(path)
            return
        # `clear_stale` in another process locks the directory between our mkdir and our lock. A
        # daemon of another test may be faster: then `find` tries again, and so does this.
        locks.append(cgroup._lock(path, fcntl.LOCK_EX))
        locked.append(path)

    monkeypatch.setattr(os, "mkdir", mkdir_and_lose_race)
    groups = Cgroups.find()
    os.close(locks[0])
    # Daemons of other tests may do the same, and may remove the directory once it is unlocked.
    with suppress(FileNotFoundError):
        os.rmdir(locked[0])
    assert groups is not None
    assert groups.base in created
    groups.close()


@pytest.fixture
def stale(tmp_path, monkeypatch):
    """An empty directory of a killed daemon, in which each process seems to be."""
    base = tmp_path / "acpterm-1-dead"
    base.mkdir()
    monkeypatch.setattr(cgroup, "_path_of", lambda _: f"/{base.name}/term_x")
    return base


def test_stale_directory_of_a_process_is_an_error_without_descriptors(stale, monkeypatch):
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        cgroup.stale_base_of(1)
    monkeypatch.setattr(cgroup, "_directory_of", lambda _: str(stale))
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        cgroup.stale_base_of(1)
    assert cgroup.stale_base_of(1) == str(stale)


def test_stale_directory_is_cleared_later_without_descriptors(stale, monkeypatch):
    # In a directory of another kind, it would create the file `cgroup.kill`.
    monkeypatch.setattr(cgroup.CgroupTree, "kill_at_once", lambda _: True)
    with no_descriptors():
        assert not cgroup.clear_stale(str(stale))
    assert cgroup.clear_stale(str(stale))
    assert not stale.exists()
