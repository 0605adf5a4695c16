"""The keeper and its workers: start, restart, replacement and shutdown."""

import os
import resource
import signal
from contextlib import contextmanager
from functools import partial

import pytest
import trio
import trio.testing

from acpterm.keeper import ring_file
from acpterm.keeper.reports import RestartError
from tests.keeper.daemon import children_of, daemon
from tests.keeper.terminals import is_alive, poll, read_ring, run, spawn
from tests.pty.scarcity import no_descriptors
from tests.support.depth import DEADLINE_S

NUMBERS = "i=0; while :; do echo line $i; i=$((i+1)); done"


def numbers_of(output):
    lines = output.split(b"\r\n")[:-1]
    return [int(line.removeprefix(b"line ")) for line in lines]


async def test_first_worker_is_a_child_of_the_keeper_and_serves(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        assert worker.keeper.pid == started.pid
        assert worker.keeper.takeovers == 0
        assert not worker.keeper.embedded
        assert worker.pid in children_of(started.pid)
        assert (await run(worker.keeper, "echo", "x")).output == "x\n"


@pytest.mark.long
async def test_successor_finds_programs_rings_and_entries_of_a_killed_worker(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        flood = await spawn(first.keeper, NUMBERS, record=b"first record")
        await spawn(first.keeper, "read x; echo got $x; exit 7; :", name="quiet")
        over = await spawn(first.keeper, "echo over; exit 5; :", record=b"of the one that is over")
        await over.wait_closed()
        reader, writer = os.pipe()
        first.keeper.put("t/" + flood.name, b"second record")
        first.keeper.put("pipe", b"a value", [writer])
        first.keeper.put("gone", b"x")
        first.keeper.delete("gone")
        removed = await spawn(first.keeper, "sleep 60; :")
        for terminal in (flood, removed):
            first.keeper.put_screen(terminal.name, 1 << 40, b"state")
        first.keeper.forget(removed.name)
        os.close(writer)
        await first.keeper.flushed()
        await flood.wait_for(lambda self: len(self.output) > 100_000)
        first.kill()
        before = bytes(flood.output)

        second = await started.serving()
        assert second.keeper.takeovers == 1
        terminals = second.watch_all()
        assert set(terminals) == {flood.name, "quiet", over.name}
        entries = second.keeper.entries
        assert entries["t/" + flood.name].value == b"second record"
        assert entries["t/quiet"].value == b""
        assert second.keeper.stored_screen(flood.name) == (1 << 40, b"state")
        assert second.keeper.stored_screen("quiet") == (0, b"")
        assert set(entries) == {*(f"t/{name}" for name in terminals), f"e/{flood.name}", "pipe"}
        [passed] = entries["pipe"].fds
        os.write(passed, b"through it")
        assert os.read(reader, 100) == b"through it"
        os.close(passed)
        os.close(reader)

        again = terminals[flood.name]
        assert again.pid == flood.pid
        assert is_alive(flood.pid)
        assert again.ring.record() == b"second record"
        await again.wait_for(lambda self: len(self.output) > 100_000)
        numbers = numbers_of(before + again.output)
        assert numbers == list(range(len(numbers)))

        os.write(terminals["quiet"].master, b"word\n")
        assert b"got word" in await terminals["quiet"].wait_closed()
        assert os.waitstatus_to_exitcode(terminals["quiet"].report.status) == 7
        ended = terminals[over.name]
        assert (ended.report, ended.end) == (over.report._replace(orphans=None), over.end)
        assert ended.master is None
        assert read_ring(ended.ring, 0, 100) == (0, b"over\r\n")


@pytest.mark.costly
@pytest.mark.parametrize(
    ("number", "stays"),
    [
        (signal.SIGKILL, False),
        (signal.SIGTERM, False),
        (signal.SIGSEGV, True),
        (signal.SIGABRT, True),
    ],
)
async def test_emulator_mark_stays_only_after_a_crash(tmp_path, number, stays):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        running = await spawn(first.keeper, "read x; :", name="running")
        over = await spawn(first.keeper, "exit 5; :", name="over")
        await over.wait_closed()
        for terminal in (running, over):
            terminal.ring.header[ring_file.EMULATOR] = 1
        first.kill(number)
        second = await started.serving()
        marks = {
            name: found.ring.header[ring_file.EMULATOR]
            for name, found in second.watch_all().items()
        }
        assert marks == {"running": stays, "over": stays}


@pytest.mark.long
async def test_emulator_mark_stays_after_repeated_kills_of_the_worker(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        terminal = await spawn(worker.keeper, "read x; :")
        marks = []
        for _ in range(3):
            terminal.ring.header[ring_file.EMULATOR] = 1
            worker.kill()
            worker = await started.serving()
            [terminal] = worker.watch_all().values()
            marks.append(terminal.ring.header[ring_file.EMULATOR])
        assert marks == [0, 0, 1]


async def test_emulator_mark_is_cleared_after_a_restart(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        terminal = await spawn(first.keeper, "read x; :")
        terminal.ring.header[ring_file.EMULATOR] = 1
        first.nursery.start_soon(restarted, first)
        second = await started.worker()
        with trio.fail_after(DEADLINE_S):
            await second.keeper.connect()
        first.leave()
        [found] = second.watch_all().values()
        assert found.ring.header[ring_file.EMULATOR]
        await second.keeper.ready()
        assert not found.ring.header[ring_file.EMULATOR]


async def test_exit_is_reported_to_the_successor_when_no_worker_ran(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        terminal = await spawn(first.keeper, "read x; echo last words; exit 9; :")
        first.kill()
        os.write(terminal.master, b"\n")
        await poll(lambda: not is_alive(terminal.pid))
        second = await started.serving()
        again = second.watch_all()[terminal.name]
        await again.wait_closed()
        assert read_ring(again.ring, 0, 100)[1].endswith(b"last words\r\n")
        assert os.waitstatus_to_exitcode(again.report.status) == 9


async def test_spawn_is_executed_once_with_its_record_when_the_worker_dies_after_sending_it(
    tmp_path,
):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        mark = tmp_path / "mark"
        line = f"echo once >> {mark}; sleep 60; :"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(spawn, first.keeper, line, name="one", record=b"its record"))
            await trio.testing.wait_all_tasks_blocked()
            first.kill()
            nursery.cancel_scope.cancel()
        second = await started.serving()
        [found] = second.keeper.terminals
        assert found.name == "one"
        assert second.keeper.entries["t/one"].value == b"its record"
        assert await poll(lambda: mark.exists() and mark.read_text()) == "once\n"


async def test_entry_stays_when_the_keeper_has_no_descriptor_for_its_new_value(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        first.keeper.put("key", b"old", [0])
        await first.keeper.flushed()
        await run(first.keeper, "true")
        limits = resource.prlimit(started.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(started.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        first.keeper.put("key", b"new", [0])
        await poll(lambda: "key was not stored" in started.log())
        resource.prlimit(started.pid, resource.RLIMIT_NOFILE, limits)
        first.kill()
        second = await started.serving()
        entry = second.keeper.entries["key"]
        assert (entry.value, len(entry.fds)) == (b"old", 1)


async def test_worker_refuses_to_take_over_when_it_has_no_descriptor_for_the_state(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        first.kill()
        second = await started.worker()
        reason = "the worker has no descriptor left for the state of the daemon"
        with no_descriptors(), pytest.raises(OSError, match=reason):
            await second.keeper.connect()
        await second.exit(1)
        await poll(lambda: reason in started.log())


@contextmanager
def stopped(pid):
    """Stop a process during the block, and continue it afterwards."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


KEYS = [f"key {number}" for number in range(100)]


async def test_messages_are_handled_when_the_worker_dies_after_sending_them(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        with stopped(started.pid):
            for key in KEYS:
                first.keeper.put(key, b"x")
            await first.keeper.flushed()
            first.kill()
            await poll(lambda: not is_alive(first.pid))
        second = await started.serving()
        assert list(second.keeper.entries) == KEYS


async def test_messages_are_handled_when_the_worker_is_replaced_after_sending_them(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        first.nursery.start_soon(restarted, first)
        second = await started.worker()
        async with trio.open_nursery() as nursery:
            with stopped(started.pid):
                nursery.start_soon(second.keeper.connect)
                await trio.testing.wait_all_tasks_blocked()
                for key in KEYS:
                    first.keeper.put(key, b"x")
                await first.keeper.flushed()
        assert list(second.keeper.entries) == KEYS


async def test_successor_starts_when_the_last_messages_of_a_worker_are_invalid(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        with stopped(started.pid):
            for _ in range(3):
                first.keeper._socket.send("put")
            first.keeper.put("key", b"x")
            await first.keeper.flushed()
            first.kill()
            await poll(lambda: not is_alive(first.pid))
        second = await started.serving()
        assert list(second.keeper.entries) == ["key"]


async def test_programs_run_until_their_rings_are_full_while_no_worker_runs(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        terminal = await spawn(first.keeper, NUMBERS)
        first.kill()
        await started.worker()
        await poll(lambda: terminal.ring.header[ring_file.STALLED])
        assert is_alive(terminal.pid)


async def test_stopped_worker_resumes_without_loss_of_output(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        terminal = await spawn(worker.keeper, NUMBERS)
        os.kill(worker.pid, signal.SIGSTOP)
        worker.scope.cancel()
        await poll(lambda: terminal.ring.header[ring_file.STALLED])
        worker.scope = trio.CancelScope()
        os.kill(worker.pid, signal.SIGCONT)
        worker.run()
        size = len(terminal.output)
        terminal.consume_all()
        await terminal.wait_for(lambda self: len(self.output) > size + 200_000)
        numbers = numbers_of(terminal.output)
        assert numbers == list(range(len(numbers)))


async def test_daemon_exits_with_the_first_workers_status_when_it_fails(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.worker()
        await worker.exit(3)
        assert await started.wait() == 3


async def test_daemon_exits_with_a_shell_status_when_the_first_worker_is_killed(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.worker()
        worker.kill()
        assert await started.wait() == 128 + signal.SIGKILL


async def put_lock(worker, path):
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    worker.keeper.put("lock", b"", [fd])
    os.close(fd)
    await worker.keeper.flushed()


@pytest.mark.long
async def test_keeper_gives_up_after_five_deaths_until_a_restart_is_requested(tmp_path):
    async with daemon(tmp_path, mode="fail") as started:
        first = await started.serving()
        lock = tmp_path / "lock"
        await put_lock(first, lock)
        terminal = await spawn(first.keeper, "sleep 60; :")
        first.kill()
        await poll(lambda: "given up" in started.log())
        # Delays of 0, 0.1, 0.5 and 2 s; the first worker's death is one of the five.
        assert started.log().count("starting another") == 4
        pid, message = lock.read_text().splitlines()
        assert int(pid) == started.pid
        assert "the worker ended with status 7, 5 times within a minute" in message
        assert "acpterm restart" in message
        assert f"{tmp_path}" in message
        assert is_alive(terminal.pid)
        started.signal(signal.SIGUSR1)
        await poll(lambda: started.log().count("starting another") > 4)


async def test_lock_file_has_the_pid_and_no_error_when_a_worker_serves(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        lock = tmp_path / "lock"
        await put_lock(first, lock)
        first.kill()
        await started.serving()
        await poll(lambda: lock.read_text() == f"{started.pid}\n\n")


async def test_worker_that_dies_before_it_is_ready_is_not_counted_as_a_takeover(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        first.kill()
        second = await started.worker()
        second.kill()
        third = await started.serving()
        assert third.keeper.takeovers == 1


async def restarted(worker):
    """Request a restart; return the error, or None if the worker was killed."""
    with trio.move_on_after(2 * DEADLINE_S):
        try:
            await worker.keeper.restart()
        except RestartError as error:
            return str(error)
    return None


@pytest.mark.long
async def test_restart_replaces_the_worker_without_loss(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        terminal = await spawn(first.keeper, NUMBERS)
        await terminal.wait_for(lambda self: len(self.output) > 100_000)
        first.nursery.start_soon(restarted, first)
        second = await started.worker()
        # The old worker continues while the candidate starts.
        assert (await run(first.keeper, "echo", "x")).output == "x\n"
        with trio.fail_after(DEADLINE_S):
            await second.keeper.connect()
        # The old worker does nothing from here on, like a stopped process. Otherwise it could take
        # a wake-up that is meant for the new one.
        first.leave()
        await poll(lambda: not first.running)
        output = bytes(terminal.output)
        assert second.keeper.takeovers == 1
        terminals = second.watch_all()
        assert is_alive(first.pid)
        await second.keeper.ready()
        second.run()
        await poll(lambda: not is_alive(first.pid))
        again = terminals[terminal.name]
        await again.wait_for(lambda self: len(self.output) > 100_000)
        numbers = numbers_of(output + again.output)
        assert numbers == list(range(len(numbers)))
        assert (await run(second.keeper, "echo", "x")).output == "x\n"


@pytest.mark.long
async def test_candidate_that_fails_leaves_the_old_worker_in_place(tmp_path):
    async with daemon(tmp_path, mode="fail") as started:
        first = await started.serving()
        terminal = await spawn(first.keeper, NUMBERS)
        error = await restarted(first)
        assert error == "the new worker ended with status 7 before it was ready: see its log"
        assert (await run(first.keeper, "echo", "x")).output == "x\n"
        size = len(terminal.output)
        await terminal.wait_for(lambda self: len(self.output) > size + 100_000)
        numbers = numbers_of(terminal.output)
        assert numbers == list(range(len(numbers)))


async def test_candidate_that_dies_after_it_has_the_state_leaves_the_old_worker_in_place(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        ends = await spawn(first.keeper, "read x; exit 4; :")
        errors = []

        async def restart():
            errors.append(await restarted(first))

        first.nursery.start_soon(restart)
        second = await started.worker()
        await second.keeper.connect()
        await poll(lambda: is_stopped(first.pid))
        # Events in the meantime are reported to the old worker when it continues.
        os.write(ends.master, b"\n")
        await poll(lambda: not os.path.exists(f"/proc/{ends.pid}"))
        second.kill()
        await poll(lambda: errors)
        assert "was killed by signal 9" in errors[0]
        assert not is_stopped(first.pid)
        assert os.waitstatus_to_exitcode((await ends.wait_exited()).status) == 4
        assert (await run(first.keeper, "echo", "x")).output == "x\n"


async def test_reason_of_a_candidate_that_refuses_is_reported(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        errors = []

        async def restart():
            errors.append(await restarted(first))

        first.nursery.start_soon(restart)
        second = await started.worker()
        await second.keeper.connect()
        second.keeper.refuse("refuses: the state is of a newer version")
        await second.exit(1)
        await poll(lambda: errors)
        assert errors == ["the new worker refuses: the state is of a newer version"]
        assert (await run(first.keeper, "echo", "x")).output == "x\n"


def is_stopped(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


@pytest.mark.exhaustive
@pytest.mark.long
async def test_candidate_that_is_not_ready_in_time_leaves_the_old_worker_in_place(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        error = await restarted(first)
        second = await started.worker()
        assert error == "the new worker was not ready within 30 s"
        await poll(lambda: not is_alive(second.pid))
        assert (await run(first.keeper, "echo", "x")).output == "x\n"


async def test_candidate_is_the_successor_when_the_old_worker_dies(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        terminal = await spawn(first.keeper, "sleep 60; :")
        first.nursery.start_soon(restarted, first)
        second = await started.worker()
        first.kill()
        await second.serve()
        assert [found.name for found in second.keeper.terminals] == [terminal.name]
        assert (await run(second.keeper, "echo", "x")).output == "x\n"
        assert "starting another" not in started.log()


async def test_second_restart_at_once_is_refused(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        first.nursery.start_soon(restarted, first)
        await started.worker()
        assert await restarted(first) == "another restart is under way"


async def test_restart_is_refused_while_the_daemon_ends(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        first.keeper.end()
        assert await restarted(first) == "the daemon ends"


async def test_candidate_is_killed_when_the_daemon_ends(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        first.nursery.start_soon(restarted, first)
        candidate = await started.worker()
        first.keeper.end()
        await poll(lambda: not is_alive(candidate.pid))


async def test_keeper_restarts_the_worker_at_sigusr1(tmp_path):
    async with daemon(tmp_path) as started:
        first = await started.serving()
        started.signal(signal.SIGUSR1)
        second = await started.serving()
        await poll(lambda: not is_alive(first.pid))
        assert second.keeper.takeovers == 1


@pytest.mark.costly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
async def test_worker_shuts_the_daemon_down_at_a_signal(tmp_path, number):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        line = "trap '' HUP TERM; (setsid sleep 60 & echo $!); wait; sleep 60"
        terminal = await spawn(worker.keeper, line)
        await terminal.wait_for(lambda self: b"\n" in self.output)
        strays = [terminal.pid, int(terminal.output)]
        started.signal(number)
        await worker.terminate_requested.wait()
        worker.keeper.end()
        await worker.exit(0)
        assert await started.wait() == 0
        assert not any(map(is_alive, strays))


async def test_signal_shuts_the_daemon_down_while_no_worker_serves(tmp_path):
    async with daemon(tmp_path, mode="fail") as started:
        worker = await started.serving()
        terminal = await spawn(worker.keeper, "sleep 60; :")
        worker.kill()
        await poll(lambda: "in 0.5 s" in started.log())
        started.signal(signal.SIGTERM)
        assert await started.wait() == 0
        assert not is_alive(terminal.pid)


@pytest.mark.exhaustive
@pytest.mark.long
async def test_worker_and_programs_are_killed_when_shutdown_times_out(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        terminal = await spawn(worker.keeper, "sleep 60; :")
        started.signal(signal.SIGTERM)
        assert await started.wait() == 0
        assert not is_alive(worker.pid)
        assert not is_alive(terminal.pid)


async def test_daemon_ignores_sighup_under_nohup(tmp_path):
    async with daemon(tmp_path, prefix=["nohup"]) as started:
        worker = await started.serving()
        started.signal(signal.SIGHUP)
        assert (await run(worker.keeper, "echo", "x")).output == "x\n"
        assert not worker.terminate_requested.is_set()


@pytest.mark.long
async def test_reports_are_queued_while_the_worker_does_not_read(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        terminals = [await spawn(worker.keeper, "read x; exit 1; :") for _ in range(150)]
        big = b"x" * 200_000
        worker.keeper.put("big", big)
        worker.scope.cancel()
        for terminal in terminals:
            os.write(terminal.master, b"\n")
        await poll(lambda: not any(os.path.exists(f"/proc/{t.pid}") for t in terminals))
        worker.scope = trio.CancelScope()
        worker.run()
        for terminal in terminals:
            await terminal.wait_closed()
        worker.kill()
        second = await started.serving()
        assert len(second.watch_all()) == 150
        assert second.keeper.entries["big"].value == big
