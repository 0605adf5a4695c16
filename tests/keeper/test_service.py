"""The keeper as a systemd service: notifications, stored descriptors and sockets."""

import os
import signal
import socket
import subprocess
from itertools import pairwise

import pytest

from acpterm.keeper import ring_file
from acpterm.keeper.encodings import encode_input
from acpterm.keeper.reports import UNKNOWN
from tests.keeper.daemon import daemon
from tests.keeper.manager import Manager
from tests.keeper.terminals import is_alive, not_left, poll, read_ring, run, spawn
from tests.keeper.test_encodings import CHINESE
from tests.keeper.test_supervisor import NUMBERS, numbers_of, restarted

# Lines in one read of 4 KiB, including the line that it cuts.
LOST_LINES_MAX = 4096 // len("0\r\n") + 2


@pytest.fixture
def manager(tmp_path):
    with Manager(tmp_path) as manager:
        yield manager


async def test_readiness_is_reported_once_a_worker_serves(tmp_path, manager):
    async with daemon(tmp_path, env=manager.environ()) as started:
        worker = await started.worker()
        await worker.keeper.connect()
        assert manager.receive() == []
        await worker.keeper.ready()
        await poll(lambda: manager.receive() == [{"READY": "1"}])


async def test_abstract_notify_socket_is_found(tmp_path):
    name = f"acpterm-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        async with daemon(tmp_path, env={"NOTIFY_SOCKET": f"@{name}"}) as started:
            await started.serving()
            assert listener.recv(100) == b"READY=1"


async def test_restart_is_reported_as_reloading(tmp_path, manager):
    async with daemon(tmp_path, mode="fail", env=manager.environ()) as started:
        worker = await started.serving()
        assert await restarted(worker)
        ready, reloading, again = manager.receive()
        assert (ready, again) == ({"READY": "1"}, {"READY": "1"})
        assert reloading["RELOADING"] == "1"
        assert int(reloading["MONOTONIC_USEC"]) > 0


async def test_status_and_watchdog_of_the_worker_are_forwarded(tmp_path, manager):
    environ = manager.environ(WATCHDOG_USEC="100000")
    async with daemon(tmp_path, env=environ) as started:
        worker = await started.serving()
        worker.keeper.status("2 terminals\nof one user")
        await poll(lambda: manager.has_received(STATUS="2 terminals of one user"))
        assert {"WATCHDOG": "1"} not in manager.receive()
        worker.keeper.alive()
        await poll(lambda: manager.has_received(WATCHDOG="1"))


async def test_shutdown_is_reported_and_empties_the_store(tmp_path, manager):
    async with daemon(tmp_path, env=manager.environ()) as started:
        worker = await started.serving()
        await spawn(worker.keeper, "sleep 60; :")
        manager.receive()
        assert len(manager.stored) == 3
        started.signal(signal.SIGTERM)
        await worker.terminate_requested.wait()
        worker.keeper.end()
        await worker.exit(0)
        await started.wait()
        assert manager.has_received(STOPPING="1")
        assert manager.stored == {}


async def test_terminal_leaves_the_store_when_it_is_closed_and_forgotten(tmp_path, manager):
    async with daemon(tmp_path, env=manager.environ()) as started:
        worker = await started.serving()
        assert worker.keeper.stored
        terminal = await spawn(worker.keeper, "read x; :", name="one")
        manager.receive()
        assert set(manager.stored) == {"ring.one", "master.one", "leader.one"}
        os.write(terminal.master, b"\n")
        await terminal.wait_closed()
        manager.receive()
        assert set(manager.stored) == {"ring.one"}
        worker.keeper.forget("one")
        await poll(lambda: manager.receive() and not manager.stored)


async def test_sockets_that_were_passed_are_entries_for_each_worker(tmp_path, manager):
    path = str(tmp_path / "agent.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        passing = manager.passing([listener.fileno()])
        async with daemon(tmp_path, **passing) as started:
            for _ in range(2):
                worker = await started.serving()
                entry = worker.keeper.entries["listen/0"]
                assert entry.value == b"acpterm.socket"
                with socket.socket(fileno=entry.fds[0]) as passed:
                    assert passed.getsockname() == path
                worker.kill()


@pytest.mark.long
async def test_programs_continue_when_the_keeper_is_killed(tmp_path, manager):
    async with daemon(tmp_path, env=manager.environ()) as started:
        worker = await started.serving()
        flood = await spawn(worker.keeper, NUMBERS, name="flood", record=b"first")
        worker.keeper.put("t/flood", b"record of flood")
        quiet = await spawn(worker.keeper, "read x; echo got $x; exit 7; :", name="quiet")
        known = await spawn(worker.keeper, "echo bye; exit 3; :", name="known", record=b"first")
        await known.wait_closed()
        worker.keeper.put("t/known", b"record of known")
        # The response shows that the keeper has handled the record too.
        meanwhile = await spawn(worker.keeper, "read x; exit 4; :", name="meanwhile")
        await flood.wait_for(lambda self: len(self.output) > 100_000)
        await poll(lambda: (manager.receive(), "leader.meanwhile" in manager.stored)[1])
        output, pids = bytes(flood.output), [flood.pid, quiet.pid, meanwhile.pid]
        os.kill(started.pid, signal.SIGKILL)
        worker.kill()
        await started.wait()
    with not_left(*pids):
        assert all(map(is_alive, pids))
        os.write(meanwhile.master, b"\n")
        await poll(lambda: not is_alive(meanwhile.pid))
        for terminal in (flood, quiet, meanwhile):
            os.close(terminal.master)
        async with daemon(tmp_path, **manager.passing()) as started:
            worker = await started.serving()
            terminals = worker.watch_all()
            assert set(terminals) == {"flood", "quiet", "known", "meanwhile"}
            for name in ("flood", "known"):
                assert worker.keeper.entries[f"t/{name}"].value == f"record of {name}".encode()

            ended = terminals["known"]
            assert os.waitstatus_to_exitcode(ended.report.status) == 3
            assert read_ring(ended.ring, 0, 100) == (0, b"bye\r\n")
            assert await terminals["meanwhile"].wait_closed() == b"\r\n"
            assert terminals["meanwhile"].report.status == UNKNOWN

            assert (terminals["quiet"].pid, terminals["flood"].pid) == (quiet.pid, flood.pid)
            os.write(terminals["quiet"].master, b"word\n")
            assert b"got word" in await terminals["quiet"].wait_closed()
            assert terminals["quiet"].report.status == UNKNOWN

            again = terminals["flood"]
            await again.wait_for(lambda self: len(self.output) > 100_000)
            # A keeper that is killed in the middle of a read loses the data of that read.
            first, second = numbers_of(output), numbers_of(again.output.partition(b"\n")[2])
            # The line of which each worker has read a part is in neither list.
            divided = [first[-1] + 1] if second[0] == first[-1] + 2 else []
            numbers = [*first, *divided, *second]
            gaps = [after - before for before, after in pairwise(numbers) if after != before + 1]
            assert numbers[0] == 0
            assert len(gaps) <= 1
            assert all(1 < gap <= LOST_LINES_MAX for gap in gaps)
            assert (await run(worker.keeper, "echo", "x")).output == "x\n"
            # Exited terminals can be forgotten, and running programs killed.
            for name in terminals:
                worker.keeper.forget(name)
            await poll(lambda: not is_alive(flood.pid))
            await poll(lambda: manager.receive() and not manager.stored)


async def test_encoding_that_was_found_is_known_to_the_next_keeper(tmp_path, manager):
    def octal(text):
        return "".join(f"\\{byte:03o}" for byte in text.encode("gb18030"))

    # The second line alone is too short to tell its encoding.
    line = f"printf '{octal(CHINESE)}'; read x; printf '{octal('错误')}\\n'; exec sleep 60"
    async with daemon(tmp_path, env=manager.environ()) as started:
        worker = await started.serving()
        terminal = await spawn(worker.keeper, line, name="one", encoding="auto")
        await terminal.wait_for(lambda self: self.output.endswith(b"\n"))
        assert terminal.output.decode().replace("\r", "") == CHINESE
        await poll(lambda: (manager.receive(), "leader.one" in manager.stored)[1])
        os.kill(started.pid, signal.SIGKILL)
        worker.kill()
        await started.wait()
    with not_left(terminal.pid):
        os.write(terminal.master, b"\n")
        os.close(terminal.master)
        async with daemon(tmp_path, **manager.passing()) as started:
            worker = await started.serving()
            again = worker.watch_all()["one"]
            await again.wait_for(lambda self: self.output.decode().endswith("错误\r\n"))
            word = again.ring.header[ring_file.ENCODING]
            assert encode_input("错误".encode(), word) == "错误".encode("gb18030")
            worker.keeper.forget("one")
            await poll(lambda: not is_alive(terminal.pid))


async def test_record_that_does_not_fit_into_its_ring_is_logged(tmp_path, manager):
    async with daemon(tmp_path, env=manager.environ()) as started:
        worker = await started.serving()
        await spawn(worker.keeper, "sleep 60; :", name="one")
        worker.keeper.put("t/one", bytes(ring_file.DATA_OFFSET))
        await poll(lambda: "the state of one does not fit into its ring" in started.log())


@pytest.mark.long
async def test_adopted_programs_are_killed_when_the_daemon_shuts_down(tmp_path, manager):
    async with daemon(tmp_path, env=manager.environ()) as started:
        worker = await started.serving()
        terminal = await spawn(worker.keeper, "trap '' HUP; set -m; sleep 60 & echo $!; wait; :")
        await terminal.wait_for(lambda self: b"\n" in self.output)
        pids = [terminal.pid, int(terminal.output)]
        manager.receive()
        os.kill(started.pid, signal.SIGKILL)
        worker.kill()
        await started.wait()
    with not_left(*pids):
        async with daemon(tmp_path, **manager.passing()) as started:
            worker = await started.serving()
            assert all(map(is_alive, pids))
            worker.keeper.end()
            await worker.exit(0)
            assert await started.wait() == 0
            # They are not this keeper's children, so it cannot wait for them.
            await poll(lambda: not any(map(is_alive, pids)))
            manager.receive()
            assert manager.stored == {}


@pytest.mark.long
async def test_adopted_program_is_watched_without_pidfds(tmp_path, manager):
    async with daemon(tmp_path, env=manager.environ()) as started:
        worker = await started.serving()
        terminal = await spawn(worker.keeper, "read x; echo got $x; :", name="one")
        manager.receive()
        os.kill(started.pid, signal.SIGKILL)
        worker.kill()
        await started.wait()
    os.close(terminal.master)
    with not_left(terminal.pid):
        async with daemon(tmp_path, mode="no pidfds", **manager.passing()) as started:
            worker = await started.serving()
            again = worker.watch_all()["one"]
            # The SIGCHLD of another program.
            await run(worker.keeper, "true")
            assert again.report is None
            os.write(again.master, b"word\n")
            assert b"got word" in await again.wait_closed()
            assert again.report.status == UNKNOWN


@pytest.mark.costly
@pytest.mark.parametrize("forgets", [True, False])
async def test_process_with_a_reused_pid_is_not_killed(tmp_path, manager, forgets):
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        async with daemon(tmp_path, env=manager.environ()) as started:
            worker = await started.serving()
            terminal = await spawn(worker.keeper, NUMBERS, consume=False)
            await poll(lambda: terminal.ring.header[ring_file.STALLED])
            manager.receive()
            os.kill(started.pid, signal.SIGKILL)
            worker.kill()
            await started.wait()
        os.kill(terminal.pid, signal.SIGKILL)
        terminal.ring.header[ring_file.PID] = other.pid
        async with daemon(tmp_path, **manager.passing()) as started:
            worker = await started.serving()
            # The ring is full, so the exit is not reported yet.
            assert worker.keeper.terminals[0].exit is None
            if forgets:
                worker.keeper.forget(terminal.name)
                await worker.keeper.flushed()
            worker.keeper.end()
            await worker.exit(0)
            await started.wait()
        assert other.poll() is None
        other.kill()


@pytest.mark.long
async def test_reused_pid_is_not_adopted(tmp_path, manager):
    async with daemon(tmp_path, env=manager.environ()) as started:
        worker = await started.serving()
        terminal = await spawn(worker.keeper, "sleep 60; :", name="one")
        manager.receive()
        os.kill(started.pid, signal.SIGKILL)
        worker.kill()
        await started.wait()
    os.kill(terminal.pid, signal.SIGKILL)
    # The pid now belongs to a process with another start time, which leads a session too.
    terminal.ring.header[ring_file.STARTED] -= 1_000_000
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        terminal.ring.header[ring_file.PID] = other.pid
        async with daemon(tmp_path, **manager.passing()) as started:
            worker = await started.serving()
            report = await worker.watch_all()["one"].wait_exited()
            assert report.status == UNKNOWN
        assert other.poll() is None
        other.kill()


async def test_file_that_is_no_ring_is_not_adopted(tmp_path, manager):
    reader, writer = os.pipe()
    manager.stored.update({"ring.x": reader, "master.y": writer})
    async with daemon(tmp_path, **manager.passing()) as started:
        worker = await started.serving()
        assert worker.keeper.terminals == []
        await poll(lambda: manager.receive() and not manager.stored)
