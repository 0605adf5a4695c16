"""Scenarios of trees by descent, each for a process of its own: being a subreaper is for ever.

`python -m tests.pty.scenarios NAME` runs one; what it asserts, it asserts there. Little is
imported, for the start of these processes to be quick.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import trio
import trio.testing

from acpterm.pty import linux, processes
from acpterm.pty.tracking import marks
from acpterm.pty.tracking.cgroup import Cgroups
from acpterm.pty.tracking.origin import find_origin
from acpterm.pty.tracking.subreaper import Subreaper
from acpterm.pty.tracking.tree import end
from acpterm.pty.tracking.trees import Trees
from tests.pty.scarcity import no_descriptors
from tests.support import bounded

SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


async def poll(look):
    with trio.fail_after(10):
        while (found := look()) is None or found is False:
            await trio.sleep(0.005)
    return found


def alive(pid):
    found = linux.read_stat(pid)
    return found is not None and not found.zombie


def new(subreaper, name):
    """Make a tree whose program begins now."""
    tree = subreaper.new(name)
    tree.begins()
    return tree


def start(tree, line, marker="ACPTERM_TERMINAL_ID=one"):
    """Start a shell line as the tree's first child: a session leader, with the tree's mark."""
    name, _, value = marker.partition("=")
    process = subprocess.Popen(
        ["/bin/sh", "-c", line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={"PATH": os.environ["PATH"], name: value},
    )
    tree.started(process.pid)
    return process


def start_marked(tree, line):
    """Start a shell line as a terminal's program: in its control group, with all marks."""
    tree.begins()
    join = "" if tree.join is None else f"echo 0 > {tree.join}; "
    with marks.inherited(tree.rlimits):
        process = subprocess.Popen(
            ["/bin/sh", "-c", join + line],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={"PATH": os.environ["PATH"], **tree.environment},
        )
    tree.started(process.pid)
    return process


def pids(process, count):
    return [int(process.stdout.readline()) for _ in range(count)]


async def wiped(pid):
    """Wait until a `env -i setsid sleep` has left its environment and session behind."""

    def is_sleep():
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            return line.read().startswith(b"sleep")

    await poll(is_sleep)


async def reap(tree, process):
    """Take the first child's status, and say so to the tree."""
    code = await poll(process.poll)
    tree.reaped()
    return code


@scenario
async def descendants():
    tree = new(Subreaper(), "one")
    process = start(tree, "sleep 60 & echo $!; setsid sleep 60 & echo $!; echo $$; wait")
    three = pids(process, 3)
    await tree.kill()
    assert await tree.empty()
    assert not any(alive(pid) for pid in three)
    assert await reap(tree, process) == -signal.SIGKILL


@scenario
async def orphans_that_left_the_session():
    tree = new(Subreaper(), "one")
    process = start(tree, "(setsid sleep 60 & echo $!); echo done")
    (orphan,) = pids(process, 1)
    assert await reap(tree, process) == 0
    assert linux.read_stat(orphan).ppid == os.getpid()
    assert not await tree.empty()
    await end(tree, 5)
    assert not alive(orphan)


@scenario
async def orphans_that_wiped_their_environment():
    tree = new(Subreaper(), "one")
    process = start(tree, "(env -i setsid sleep 60 & echo $!); echo done")
    (orphan,) = pids(process, 1)
    assert await reap(tree, process) == 0
    await end(tree, 5)
    assert not alive(orphan)


@scenario
async def orphans_of_two_trees_that_say_whose_they_are():
    subreaper = Subreaper()
    one, two = new(subreaper, "one"), new(subreaper, "two")
    first = start(one, "(setsid sleep 60 & echo $!); echo done")
    second = start(two, "(setsid sleep 60 & echo $!); echo done", "ACPTERM_TERMINAL_ID=two")
    (orphan,), (stranger,) = pids(first, 1), pids(second, 1)
    await reap(one, first)
    await reap(two, second)
    await one.kill()
    assert not alive(orphan)
    assert alive(stranger)
    await two.kill()
    assert not alive(stranger)


@scenario
async def an_orphan_that_two_trees_may_own_waits_for_the_last():
    subreaper = Subreaper()
    one, two = new(subreaper, "one"), new(subreaper, "two")
    process = start(one, "(env -i setsid sleep 60 & echo $!); echo done")
    (orphan,) = pids(process, 1)
    await wiped(orphan)
    await reap(one, process)
    await one.kill()
    await one.close()
    assert alive(orphan)
    await two.kill()
    assert not alive(orphan)


@scenario
async def an_orphan_that_two_trees_may_own_ends_however_their_ends_interleave():
    subreaper = Subreaper()
    one, two = new(subreaper, "one"), new(subreaper, "two")
    process = start(one, "(env -i setsid sleep 60 & echo $!); echo done")
    (orphan,) = pids(process, 1)
    await wiped(orphan)
    await reap(one, process)
    # Each leaves it to the other, which is still open.
    await one.kill()
    await two.kill()
    assert alive(orphan)
    await one.close()
    assert alive(orphan)
    await two.close()
    assert not alive(orphan)


@scenario
async def many_who_look_at_once_share_what_they_see_and_see_what_was_there_before():
    looks = 0
    real = processes.read_all

    def count():
        nonlocal looks
        looks += 1
        return real()

    async def look():
        own = subprocess.Popen(["sleep", "60"])
        found = await subreaper.scan()
        assert own.pid in {process.pid for process in found}
        own.kill()
        own.wait()

    processes.read_all = count
    subreaper = Subreaper()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(look)
    assert looks < 10


@scenario
async def one_seen_while_its_parent_lived_is_known_for_good():
    subreaper = Subreaper()
    one, _two = new(subreaper, "one"), new(subreaper, "two")
    process = start(one, "env -i setsid sleep 60 & echo $!; read x; exit 0")
    (orphan,) = pids(process, 1)
    # As a signal does, while the parent lives.
    assert orphan in {member.pid for member in await one.members()}
    process.stdin.close()
    assert await reap(one, process) == 0
    await one.kill()
    assert not alive(orphan)


@scenario
async def children_that_are_no_trees_are_left_alone():
    subreaper = Subreaper()
    own = subprocess.Popen(["sleep", "60"])
    subreaper.exclude(lambda: [own.pid])
    tree = new(subreaper, "one")
    process = start(tree, "sleep 60")
    await tree.kill()
    assert own.poll() is None
    await reap(tree, process)
    own.kill()
    own.wait()


@scenario
async def a_process_older_than_the_tree_is_left_alone():
    subreaper = Subreaper()
    line = "(env -i setsid sleep 60 & echo $!)"
    first = subprocess.Popen(["/bin/sh", "-c", line], stdout=subprocess.PIPE)
    (older,) = pids(first, 1)
    first.wait()
    born = linux.read_stat(older).started
    await poll(lambda: processes.now() > born + 0.1)
    tree = new(subreaper, "one")
    process = start(tree, "sleep 60")
    await tree.kill()
    await reap(tree, process)
    assert alive(older)
    os.kill(older, signal.SIGKILL)


@scenario
async def whoever_has_the_first_childs_pid_later_is_a_stranger():
    subreaper = Subreaper()
    tree = new(subreaper, "one")
    process = start(tree, "exit 0")
    await reap(tree, process)
    gone = tree._reaped_at
    await poll(lambda: processes.now() > gone + 0.1)
    # A later session of the same id: as if the pid had come round.
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    tree._pid = stranger.pid
    subreaper.exclude(lambda: [stranger.pid])
    assert await tree.empty()
    await tree.kill()
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


@scenario
async def orphans_that_end_are_reaped_and_nobody_else():
    subreaper = Subreaper()
    busy = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(subreaper.run, lambda: busy)
        await trio.testing.wait_all_tasks_blocked()
        tree = new(subreaper, "one")
        root = start(tree, "(setsid sh -c 'echo $$' &); exit 5")
        (orphan,) = pids(root, 1)
        await poll(lambda: linux.read_stat(orphan) is None or not alive(orphan))
        assert linux.read_stat(orphan) is not None, "reaped while a child may not be known"
        busy = False
        # Any later death tells it to look.
        own = start(new(subreaper, "two"), "exit 0")
        await poll(lambda: linux.read_stat(orphan) is None)
        assert linux.read_stat(root.pid).zombie
        assert await poll(root.poll) == 5
        assert await poll(own.poll) == 0
        nursery.cancel_scope.cancel()


@scenario
async def a_tree_ends_and_orphans_are_reaped_though_there_are_no_descriptors_for_a_while():
    subreaper = Subreaper()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(subreaper.run, lambda: False)
        tree = new(subreaper, "one")
        process = start(tree, "(setsid sleep 60 & echo $!); echo $$; exec sleep 60")
        orphan, _ = pids(process, 2)
        with no_descriptors():
            nursery.start_soon(end, tree, 0)
            # Tells it to look, in a second.
            os.kill(os.getpid(), signal.SIGCHLD)
            await trio.sleep(1.2)
            assert process.poll() is None
        assert await reap(tree, process) in (-signal.SIGTERM, -signal.SIGKILL)
        await poll(lambda: linux.read_stat(orphan) is None)
        nursery.cancel_scope.cancel()


@scenario
async def a_tree_that_keeps_forking_ends():
    tree = new(Subreaper(), "one")
    line = "trap '' TERM; echo $$; while :; do (setsid sleep 0.05 &); done"
    process = start(tree, line)
    pids(process, 1)
    with trio.fail_after(15):
        await end(tree, 0.05)
    await reap(tree, process)
    assert await tree.empty()


# Forks and ends, again and again for two seconds: one process at a time.
HOP = """
import os, time
end = time.monotonic() + 2
if os.fork():
    os._exit(0)
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
"""


@scenario
async def a_process_that_forks_and_ends_all_the_time_is_never_overlooked():
    tree = new(Subreaper(), "one")
    process = start(tree, f"exec {sys.executable} -I -S -c '{HOP}'")
    await reap(tree, process)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        assert not await tree.empty()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # noqa: ASYNC222  it does not block
                pass
    await tree.kill()
    assert await tree.empty()


# Leaves its session, its parent and its environment behind, and says so.
VANISH = "(env -i setsid sh -c 'echo $$; exec sleep 60' &)"


@scenario
async def one_that_left_all_behind_is_known_with_other_trees_open():
    subreaper = Subreaper()
    before, one, after = (subreaper.new(name) for name in ("before", "one", "after"))
    stranger = start_marked(before, VANISH)
    process = start_marked(one, VANISH)
    other = start_marked(after, VANISH)
    mine, *others = (pids(process, 1)[0] for process in (process, stranger, other))
    for tree, first in ((one, process), (before, stranger), (after, other)):
        await reap(tree, first)
    found = find_origin(mine, parent=subreaper.parent, trees=subreaper.trees, base=None)
    assert (found.terminals, found.is_foreign) == ({"one"}, False)
    await end(one, 5)
    assert not alive(mine)
    assert all(alive(pid) for pid in others)
    await end(before, 5)
    await end(after, 5)
    assert not any(alive(pid) for pid in others)


def members_of(group):
    with open(f"{group}/cgroup.procs") as file:
        return [int(pid) for pid in file.read().split()]


@scenario
async def one_that_moved_to_another_control_group_is_killed_with_its_tree():
    groups = Cgroups.find()
    if groups is None:
        return
    elsewhere = f"{os.path.dirname(groups._base)}/elsewhere-of-tests-{os.getpid()}"
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
        assert not await one.empty()
        await end(one, 0.1)
        assert not any(alive(pid) for pid in all_three)
        await reap(one, process)
        await one.close()
        await _other.close()
        trees.close()
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(elsewhere)


@scenario
async def one_that_moved_is_signalled_once():
    if (groups := Cgroups.find()) is None:
        return
    groups.close()
    trees = Trees("cgroup")
    tree = trees.new("one")
    count = "trap 'n=${n}x; echo $n' TERM; echo $$; while :; do sleep 0.02; done"
    process = start_marked(tree, count)
    pids(process, 1)
    await tree.signal(signal.SIGTERM)
    assert process.stdout.readline() == b"x\n"
    await trio.sleep(0.1)
    await tree.signal(signal.SIGTERM)
    assert process.stdout.readline() == b"xx\n"
    await tree.kill()
    await reap(tree, process)
    await tree.close()
    trees.close()


@scenario
async def what_a_closed_tree_left_is_killed_when_it_is_seen():
    subreaper = Subreaper()
    one, two = subreaper.new("one"), subreaper.new("two")
    process = start_marked(one, VANISH)
    (stray,) = pids(process, 1)
    await reap(one, process)
    subreaper.discard(one)  # as if it had not been there yet when the tree was closed
    assert alive(stray)
    await two.members()
    await poll(lambda: not alive(stray))


@scenario
async def a_worker_of_the_parents_is_no_orphan():
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
async def a_process_that_has_the_first_childs_pid_before_its_end_is_noted_is_a_stranger():
    subreaper = Subreaper()
    tree = new(subreaper, "one")
    process = start(tree, "exit 0")
    await poll(process.poll)
    # The parent has reaped it, and has not said so; the pid has come round.
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    tree._pid, tree._pid_started = stranger.pid, linux.read_stat(stranger.pid).started - 1
    subreaper.exclude(lambda: [stranger.pid])
    await tree.signal(signal.SIGKILL)
    assert await tree.empty()
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


@scenario
async def a_successor_ends_a_tree_that_it_has_adopted():
    # This process is the parent of programs, as the keeper is; the worker is a child of it.
    subreaper = Subreaper()
    gone, runs, other = (subreaper.new(name) for name in ("gone", "runs", "other"))
    first = start_marked(gone, VANISH)
    second = start_marked(runs, VANISH + "; echo $$; exec sleep 60")
    third = start_marked(other, VANISH + "; echo $$; exec sleep 60")
    mine = [*pids(first, 1), *pids(second, 2)]
    others = pids(third, 2)
    await reap(gone, first)
    facts = f"{second.pid} {linux.read_stat(second.pid).started} {first.pid} {processes.now()}"
    await trio.run_process([sys.executable, __file__, "worker", *facts.split()])
    assert not any(alive(pid) for pid in mine)
    assert all(alive(pid) for pid in others)
    await reap(runs, second)
    await other.kill()
    await reap(other, third)


async def _worker(pid, started, gone, gone_at):
    trees = Trees("subreaper", parent=os.getppid())
    runs = trees.adopt("runs", int(pid), float(started))
    gone = trees.adopt("gone", int(gone), 0.0, reaped_at=float(gone_at))
    trees.adopt("other", 2**22, 0.0)
    assert not await gone.empty()
    await end(gone, 5)
    assert await gone.empty()
    assert not await runs.empty()
    await end(runs, 5)
    assert await runs.empty()


@scenario
async def control_groups_are_handed_over_with_their_lock():
    if (groups := Cgroups.find()) is None:
        return
    groups.close()
    trees = Trees("cgroup")
    tree = trees.new("one")
    process = start_marked(tree, VANISH + "; echo $$; exec sleep 60")
    two = pids(process, 2)
    handover = trees.handover()
    kept = handover._replace(fds=tuple(os.dup(fd) for fd in handover.fds))
    os.close(handover.fds[0])  # as the death of the first worker does
    Cgroups.find().close()  # somebody else looks for stale groups
    assert all(alive(pid) for pid in two)
    successor = Trees("cgroup", inherited=kept)
    adopted = successor.adopt("one", process.pid, linux.read_stat(process.pid).started)
    assert adopted.cgroup is None
    assert not await adopted.empty()
    await end(adopted, 5)
    assert not any(alive(pid) for pid in two)
    adopted.reaped()
    process.wait()
    await adopted.close()
    successor.close()
    assert not os.path.exists(os.fsdecode(kept.value))  # noqa: ASYNC240


@scenario
async def a_tree_that_uses_up_all_processes_is_known_and_ends():
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
    assert not await tree.empty()
    with trio.fail_after(10):
        await end(tree, 0.2)
    assert await tree.empty()
    assert quiet.poll() is None
    await other.kill()


STORM = 40


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        trio.run(_worker, *sys.argv[2:])
    else:
        trio.run(SCENARIOS[sys.argv[1]])
