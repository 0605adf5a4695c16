"""Scenarios of trees that are tracked by descent."""

import contextlib
import ctypes
import inspect
import os
import signal
import subprocess
import sys
import time

import trio
import trio.testing

from acpterm.pty import linux, processes
from acpterm.pty.tracking import subreaper as subreapers
from acpterm.pty.tracking.subreaper import Subreaper
from acpterm.pty.tracking.tree import empty, end
from tests.pty.scarcity import no_descriptors
from tests.pty.scenarios.harness import (
    alive,
    executes_sleep,
    new,
    pids,
    poll,
    reap,
    scenario,
    start,
)
from tests.support.depth import DEADLINE_S


@scenario
async def tree_kills_descendants():
    tree = new(Subreaper(), "one")
    process = start(tree, "sleep 60 & echo $!; setsid sleep 60 & echo $!; echo $$; wait")
    three = pids(process, 3)
    await tree.kill()
    assert await empty(tree)
    assert not any(alive(pid) for pid in three)
    assert await reap(tree, process) == -signal.SIGKILL


@scenario
async def end_kills_orphans_that_left_the_session():
    tree = new(Subreaper(), "one")
    process = start(tree, "(setsid sleep 60 & echo $!); echo done")
    (orphan,) = pids(process, 1)
    assert await reap(tree, process) == 0
    assert linux.read_stat(orphan).ppid == os.getpid()
    assert not await empty(tree)
    await end(tree, 5)
    assert not alive(orphan)


@scenario
async def end_kills_orphans_that_cleared_their_environment():
    tree = new(Subreaper(), "one")
    process = start(tree, "(env -i setsid sleep 60 & echo $!); echo done")
    (orphan,) = pids(process, 1)
    assert await reap(tree, process) == 0
    await end(tree, 5)
    assert not alive(orphan)


@scenario
async def kill_spares_orphans_with_the_mark_of_another_tree():
    subreaper = Subreaper()
    one, two = new(subreaper, "one"), new(subreaper, "two")
    first = start(one, "(setsid sleep 60 & echo $!); echo done")
    second = start(two, "(setsid sleep 60 & echo $!); echo done", "ACPTERM_TERMINAL_ID=two")
    (orphan,), (stranger,) = pids(first, 1), pids(second, 1)
    for pid in orphan, stranger:
        await executes_sleep(pid)
    await reap(one, first)
    await reap(two, second)
    await one.kill()
    assert not alive(orphan)
    assert alive(stranger)
    await two.kill()
    assert not alive(stranger)


@scenario
async def ambiguous_orphan_is_killed_with_the_last_candidate_tree():
    subreaper = Subreaper()
    one, two = new(subreaper, "one"), new(subreaper, "two")
    process = start(one, "(env -i setsid sleep 60 & echo $!); echo done")
    (orphan,) = pids(process, 1)
    await executes_sleep(orphan)
    await reap(one, process)
    await one.kill()
    await one.close()
    assert alive(orphan)
    await two.kill()
    assert not alive(orphan)


@scenario
async def orphan_is_not_ambiguous_because_of_a_tree_of_an_earlier_parent():
    subreaper = Subreaper()
    left, one = subreaper.new("left"), new(subreaper, "one")
    before = linux.read_stat(os.getpid()).started - 1
    ended = subprocess.Popen(["true"])
    ended.wait()
    left.restore(ended.pid, before, reaped_at=before)
    process = start(one, "(env -i setsid sleep 60 & echo $!); echo done")
    (orphan,) = pids(process, 1)
    await executes_sleep(orphan)
    await reap(one, process)
    await one.kill()
    assert not alive(orphan)
    assert await left.members() == []


@scenario
async def ambiguous_orphan_is_killed_however_the_ends_of_its_candidates_interleave():
    subreaper = Subreaper()
    one, two = new(subreaper, "one"), new(subreaper, "two")
    process = start(one, "(env -i setsid sleep 60 & echo $!); echo done")
    (orphan,) = pids(process, 1)
    await executes_sleep(orphan)
    await reap(one, process)
    # Each tree spares the orphan, because the other tree is still open.
    await one.kill()
    await two.kill()
    assert alive(orphan)
    await one.close()
    assert alive(orphan)
    await two.close()
    assert not alive(orphan)


@scenario
async def concurrent_scans_are_shared_and_contain_earlier_processes():
    reads = 0
    real = processes.read_all

    def count():
        nonlocal reads
        reads += 1
        return real()

    async def scan():
        own = subprocess.Popen(["sleep", "60"])
        found = await subreaper.scan()
        assert own.pid in {process.pid for process in found}
        own.kill()
        own.wait()

    processes.read_all = count
    subreaper = Subreaper()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(scan)
    assert reads < 10


@scenario
async def orphan_is_recognised_when_a_scan_saw_it_while_its_parent_lived():
    subreaper = Subreaper()
    one, _two = new(subreaper, "one"), new(subreaper, "two")
    process = start(one, "env -i setsid sleep 60 & echo $!; read x; exit 0")
    (orphan,) = pids(process, 1)
    # Sending a signal reads the members, too, while the parent is alive.
    assert orphan in {member.pid for member in await one.members()}
    process.stdin.close()
    assert await reap(one, process) == 0
    await one.kill()
    assert not alive(orphan)


@scenario
async def orphan_older_than_the_tree_is_spared():
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
async def process_that_reuses_the_pid_of_the_reaped_first_child_is_spared():
    tree = new(Subreaper(sole_parent=False), "one")
    process = start(tree, "exit 0")
    await reap(tree, process)
    reaped_at = tree._reaped_at
    await poll(lambda: processes.now() > reaped_at + 0.1)
    # Simulate a reused pid: a later session with the same id.
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    tree._pid = stranger.pid
    assert await empty(tree)
    await tree.kill()
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


@scenario
async def run_reaps_orphans_and_no_first_children():
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
        # Any later death triggers a round.
        own = start(new(subreaper, "two"), "exit 0")
        await poll(lambda: linux.read_stat(orphan) is None)
        assert linux.read_stat(root.pid).zombie
        assert await poll(root.poll) == 5
        assert await poll(own.poll) == 0
        nursery.cancel_scope.cancel()


def record_failures(target, name, failed):
    """Patch the method `name` of `target`, to add `name` to `failed` when it raises `OSError`."""
    method = getattr(target, name)

    @contextlib.contextmanager
    def recorded():
        try:
            yield
        except OSError:
            failed.add(name)
            raise

    def call():
        with recorded():
            return method()

    async def call_async():
        with recorded():
            return await method()

    setattr(target, name, call_async if inspect.iscoroutinefunction(method) else call)


@scenario
async def tree_ends_and_orphans_are_reaped_when_there_are_no_descriptors_for_a_while():
    subreaper = Subreaper()
    # Shortens this scenario, which takes several rounds.
    subreapers._REAP_INTERVAL_S = 0.2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(subreaper.run, lambda: False)
        await trio.testing.wait_all_tasks_blocked()
        tree = new(subreaper, "one")
        process = start(tree, "(setsid sleep 60 & echo $!); echo $$; exec sleep 60")
        orphan, _ = pids(process, 2)
        failed = set()
        with no_descriptors():
            record_failures(tree, "is_empty", failed)
            record_failures(subreaper, "_orphans_now", failed)
            nursery.start_soon(end, tree, 0)
            # Triggers a round.
            os.kill(os.getpid(), signal.SIGCHLD)
            await poll(lambda: failed == {"is_empty", "_orphans_now"})
            assert process.poll() is None
        assert await reap(tree, process) in (-signal.SIGTERM, -signal.SIGKILL)
        await poll(lambda: linux.read_stat(orphan) is None)
        nursery.cancel_scope.cancel()


@scenario
async def child_that_ends_when_reaping_does_causes_no_error():
    """Simulate a child that ends while the earlier handler of SIGCHLD is restored.

    If there was no handler at that moment, Python would report an error.
    """
    errors = []
    sys.unraisablehook = lambda error: errors.append(error.exc_value)
    interrupt = ctypes.pythonapi.PyErr_SetInterruptEx
    interrupt_again = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.py_object)(
        ("PyErr_SetInterruptEx", ctypes.pythonapi)
    )
    install = signal.signal

    def install_during_a_signal(number, handler):
        install(number, interrupt_again)
        interrupt(number)
        return install(number, handler)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Subreaper().run, lambda: False)
        await trio.testing.wait_all_tasks_blocked()
        signal.signal = install_during_a_signal
        nursery.cancel_scope.cancel()
    signal.signal = install
    assert errors == []


@scenario
async def tree_that_keeps_forking_ends():
    tree = new(Subreaper(), "one")
    line = "trap '' TERM; echo $$; while :; do (setsid sleep 0.05 &); done"
    process = start(tree, line)
    pids(process, 1)
    with trio.fail_after(DEADLINE_S):
        await end(tree, 0.05)
    await reap(tree, process)
    assert await empty(tree)


# Forks and ends repeatedly until stdin is closed, at most for 20 seconds: one process at a time.
HOP = """
import os, select, time
end = time.monotonic() + 20
if os.fork():
    os._exit(0)
while time.monotonic() < end and not select.select([0], [], [], 0)[0]:
    if os.fork():
        os._exit(0)
"""


@scenario
async def tree_is_not_empty_while_its_process_keeps_forking_and_ending():
    tree = new(Subreaper(), "one")
    process = start(tree, f"exec {sys.executable} -I -S -c '{HOP}'")
    await reap(tree, process)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        assert not await empty(tree)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # noqa: ASYNC222  it does not block
                pass
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tree.kill)
        await trio.testing.wait_all_tasks_blocked()
        process.stdin.close()
    assert await empty(tree)
