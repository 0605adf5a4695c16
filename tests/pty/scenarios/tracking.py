"""Scenarios of marks, control groups, successors and a full table of processes."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import trio
import trio.testing

from acpterm.pty import linux, processes
from acpterm.pty.tracking.cgroup import Cgroups
from acpterm.pty.tracking.origin import find_origin
from acpterm.pty.tracking.subreaper import Subreaper
from acpterm.pty.tracking.tree import empty, end
from acpterm.pty.tracking.trees import Trees
from tests.pty.scenarios.harness import (
    VANISH,
    alive,
    new,
    pids,
    poll,
    reap,
    require_cgroups,
    scenario,
    start,
    start_marked,
)
from tests.support import bounded
from tests.support.depth import DEADLINE_S


@scenario
async def detached_orphan_is_recognised_by_its_resource_limit_when_other_trees_are_open():
    subreaper = Subreaper()
    before, one, after = (subreaper.new(name) for name in ("before", "one", "after"))
    stranger = start_marked(before, VANISH)
    process = start_marked(one, VANISH)
    other = start_marked(after, VANISH)
    own, *others = (pids(process, 1)[0] for process in (process, stranger, other))
    for tree, first in ((one, process), (before, stranger), (after, other)):
        await reap(tree, first)
    found = find_origin(own, parent=subreaper.parent, trees=subreaper.trees, base=None)
    assert (found.terminals, found.is_foreign) == ({"one"}, False)
    await end(one, 5)
    assert not alive(own)
    assert all(alive(pid) for pid in others)
    await end(before, 5)
    await end(after, 5)
    assert not any(alive(pid) for pid in others)


def members_of(group):
    with open(f"{group}/cgroup.procs") as file:
        return [int(pid) for pid in file.read().split()]


@scenario
async def process_that_moved_to_another_control_group_is_killed_with_its_tree():
    require_cgroups()
    groups = Cgroups.find()
    elsewhere = f"{os.path.dirname(groups.base)}/elsewhere-of-tests-{os.getpid()}"
    groups.close()
    trees = Trees("cgroup")
    one, _other = trees.new("one"), trees.new("other")
    os.mkdir(elsewhere)
    try:
        move = f"echo 0 > {elsewhere}/cgroup.procs"
        stays = "echo $$; while :; do sleep 0.05; done"
        line = f"trap '' TERM; {VANISH}; (env -i setsid sh -c '{move}; {stays}' &); {move}; {stays}"
        process = start_marked(one, line)
        all_three = sorted(pids(process, 3))
        assert len(set(all_three) & set(members_of(elsewhere))) == 2
        assert [trees.origin(pid).terminals for pid in all_three] == [{"one"}] * 3
        assert not await empty(one)
        await end(one, 0.1)
        assert not any(alive(pid) for pid in all_three)
        await reap(one, process)
        await one.close()
        await _other.close()
        trees.close()
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(elsewhere)


# Counts SIGRTMIN until the next signal arrives. Real-time signals are queued, each of them, and the
# lower number is delivered first.
COUNT = """
import os, signal
first, last = signal.SIGRTMIN, signal.SIGRTMIN + 1
signal.pthread_sigmask(signal.SIG_BLOCK, {first, last})
print(os.getpid(), flush=True)
count = 0
while signal.sigwaitinfo({first, last}).si_signo == first:
    count += 1
print(count, flush=True)
"""


@scenario
async def signal_reaches_a_process_in_the_control_group_only_once():
    require_cgroups()
    trees = Trees("cgroup")
    tree = trees.new("one")
    process = start_marked(tree, f"exec {sys.executable} -I -S -c '{COUNT}'")
    (pid,) = pids(process, 1)
    await tree.signal(signal.SIGRTMIN)
    await tree.signal(signal.SIGRTMIN)
    os.kill(pid, signal.SIGRTMIN + 1)
    assert process.stdout.readline() == b"2\n"
    await reap(tree, process)
    await tree.close()
    trees.close()


@scenario
async def stray_of_a_discarded_tree_is_killed_when_a_scan_finds_it():
    subreaper = Subreaper()
    one, two = subreaper.new("one"), subreaper.new("two")
    process = start_marked(one, VANISH)
    (stray,) = pids(process, 1)
    await reap(one, process)
    subreaper.discard(one)  # as if the process had appeared after the tree was closed
    assert alive(stray)
    await two.members()
    await poll(lambda: not alive(stray))


@scenario
async def worker_of_the_parent_is_not_an_orphan():
    subreaper = Subreaper()
    tree = new(subreaper, "one")
    worker = subprocess.Popen(["sleep", "60"], env={**os.environ, "ACPTERM_KEEPER_FD": "3"})
    process = start(tree, "sleep 60")
    await tree.kill()
    await reap(tree, process)
    await tree.close()
    assert worker.poll() is None
    worker.kill()
    worker.wait()


@scenario
async def process_that_reuses_the_pid_of_the_first_child_before_its_report_is_spared():
    tree = new(Subreaper(sole_parent=False), "one")
    process = start(tree, "exit 0")
    await poll(process.poll)
    # The parent has reaped the child but not reported that yet, and the pid was reused.
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    tree._pid, tree._pid_started = stranger.pid, linux.read_stat(stranger.pid).started - 1
    await tree.signal(signal.SIGKILL)
    assert await empty(tree)
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


@scenario
async def successor_ends_a_tree_that_it_adopted():
    # This process is the parent of programs, like the keeper. The worker is its child.
    subreaper = Subreaper()
    gone, runs, other = (subreaper.new(name) for name in ("gone", "runs", "other"))
    first = start_marked(gone, VANISH)
    second = start_marked(runs, VANISH + "; echo $$; exec sleep 60")
    third = start_marked(other, VANISH + "; echo $$; exec sleep 60")
    own = [*pids(first, 1), *pids(second, 2)]
    others = pids(third, 2)
    await reap(gone, first)
    facts = f"{second.pid} {linux.read_stat(second.pid).started} {first.pid} {processes.now()}"
    await trio.run_process([sys.executable, "-m", "tests.pty.scenarios", "worker", *facts.split()])
    assert not any(alive(pid) for pid in own)
    assert all(alive(pid) for pid in others)
    await reap(runs, second)
    await other.kill()
    await reap(other, third)


async def run_worker(pid, started, gone, gone_at):
    trees = Trees("subreaper", parent=os.getppid())
    runs = trees.adopt("runs", int(pid), float(started))
    gone = trees.adopt("gone", int(gone), 0.0, reaped_at=float(gone_at))
    trees.adopt("other", 2**22, 0.0)
    assert not await empty(gone)
    await end(gone, 5)
    assert await empty(gone)
    assert not await empty(runs)
    await end(runs, 5)
    assert await empty(runs)


@scenario
async def handover_passes_the_control_groups_and_their_lock():
    require_cgroups()
    trees = Trees("cgroup")
    tree = trees.new("one")
    process = start_marked(tree, VANISH + "; echo $$; exec sleep 60")
    two = pids(process, 2)
    handover = trees.handover()
    kept = handover._replace(fds=tuple(os.dup(fd) for fd in handover.fds))
    os.close(handover.fds[0])  # as when the first worker dies
    Cgroups.find().close()  # another daemon searches for stale groups
    assert all(alive(pid) for pid in two)
    successor = Trees("cgroup", inherited=kept)
    adopted = successor.adopt("one", process.pid, linux.read_stat(process.pid).started)
    assert adopted.cgroup is None
    assert not await empty(adopted)
    await end(adopted, 5)
    assert not any(alive(pid) for pid in two)
    adopted.reaped()
    process.wait()
    await adopted.close()
    successor.close()
    assert not os.path.exists(os.fsdecode(kept.value))  # noqa: ASYNC240


@scenario
async def tree_that_uses_up_all_processes_is_tracked_and_ends():
    bounded.check(STORM)
    trees = Trees("subreaper")
    tree, other = trees.new("one"), trees.new("other")
    quiet = start_marked(other, "echo $$; exec sleep 60")
    pids(quiet, 1)
    storm = f"exec {sys.executable} -m tests.support.storm {STORM} 30"
    process = start_marked(tree, storm)
    assert process.stdout.readline() == b"full\n"
    try:
        threading.Thread(target=lambda: None).start()
    except RuntimeError:
        pass
    else:
        raise AssertionError("a thread could be started")
    assert trees.origin(process.pid).terminals == {"one"}
    assert trees.origin(quiet.pid).terminals == {"other"}
    assert not await empty(tree)
    with trio.fail_after(DEADLINE_S):
        await end(tree, 0.2)
    assert await empty(tree)
    assert quiet.poll() is None
    await other.kill()


STORM = 40
