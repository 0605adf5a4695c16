"""The pool without a host: it creates, runs and ends terminals, and releases all resources."""

import errno
import gc
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import structlog
import structlog.testing
import trio
import trio.testing

from acpterm.keeper.startup import embedded_keeper
from acpterm.pty import linux
from acpterm.pty.program import Program
from acpterm.pty.tracking.cgroup import Cgroups
from acpterm.pty.tracking.tree import end
from acpterm.pty.tracking.trees import TrackingError, Trees, open_trees
from acpterm.terminal.pool import Pool, ShutDownError
from acpterm.terminal.spec import TerminalSpec
from acpterm.terminal.status import EndedBy
from tests.pty.tracer import tracing
from tests.support.depth import DEADLINE_S
from tests.support.keepers import SlowKeeper
from tests.support.polling import poll, poll_blocking
from tests.support.pools import running_pool
from tests.support.processes import alive

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def program(line, **more):
    return Program(
        ["/bin/sh", "-c", line], **{"env": os.environ, "cwd": "/", "umask": 0o22, **more}
    )


def descriptors():
    """Return the open descriptors, except for the rings of terminals."""
    # Earlier tests may have left sockets, which would be closed between two calls.
    gc.collect()
    found = (os.readlink(f"/proc/self/fd/{fd}") for fd in _open_fds())
    return sorted(name for name in found if "acpterm-ring" not in name)


def _open_fds():
    # Exclude the descriptor that the listing itself opens.
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")]


def text(terminal):
    return terminal.text.text()


async def pid_of(terminal):
    """Wait for the pid that the program prints."""
    return int(await poll(lambda: text(terminal).partition("\n")[0] or None))


async def test_terminal_runs_its_program_and_retains_its_output():
    async with running_pool() as pool:
        terminal = await pool.create(program("stty size; echo $ACPTERM_TERMINAL_ID; exit 3"))
        status = await terminal.wait_exited()
        assert (status.code, status.signal, status.ended_by) == (3, None, EndedBy.EXITED)
        assert text(terminal) == f"40 200\n{terminal.id}\n"
        assert pool.terminals == {terminal.id: terminal}


async def test_wait_for_output_ends_at_new_output_and_at_the_exit_only():
    async with running_pool() as pool:
        terminal = await pool.create(program("echo first; exec sleep 600"))
        assert await terminal.wait_output(0) is None
        assert text(terminal) == "first\n"
        found = []

        async def wait():
            found.append(await terminal.wait_output(terminal.ring.end))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await poll(lambda: terminal._changed.statistics().tasks_waiting)
            terminal.resize(100, 30)
            await trio.testing.wait_all_tasks_blocked()
            terminal.kill(EndedBy.USER)
        assert found == [terminal.exit] != [None]


@pytest.mark.costly
@pytest.mark.parametrize("line", ["echo last", "seq 400; echo last"])
async def test_all_output_is_readable_at_the_moment_of_the_exit(line):
    async with running_pool() as pool:
        for _ in range(10):
            terminal = await pool.create(program(line))
            # Block the event loop until both output and exit are pending, in either order.
            while (stat := linux.read_stat(terminal._pid)) and not stat.zombie:
                time.sleep(0.002)  # noqa: ASYNC251  blocks on purpose
            await terminal.wait_exited()
            assert text(terminal).endswith("last\n")


async def test_incomplete_character_is_readable_at_the_exit_while_a_background_process_runs():
    async with running_pool() as pool:
        terminal = await pool.create(program(r"sleep 60 & printf '\360\237'"))
        await terminal.wait_exited()
        assert text(terminal) == "\ufffd"


@pytest.mark.long
async def test_all_output_is_readable_at_the_exit_while_another_terminal_floods():
    async with running_pool() as pool:
        flood = await pool.create(program("yes"))
        for _ in range(10):
            terminal = await pool.create(program("seq 600; sleep 0.002; echo last"))
            await terminal.wait_exited()
            assert text(terminal).endswith("\n600\nlast\n")
        pool.release(flood, EndedBy.AGENT)


async def test_terminal_has_the_requested_size_limit_and_view():
    async with running_pool() as pool:
        line = "stty size; seq 1000"
        spec = TerminalSpec(size=(33, 7), limit=9, ring_size=100, view="raw")
        terminal = await pool.create(program(line), spec)
        await terminal.wait_exited()
        assert (terminal.cols, terminal.rows, terminal.view) == (33, 7, "raw")
        assert text(terminal) == "999\n1000\n"
        assert terminal.text.truncated
        assert terminal.ring.end - terminal.ring.start == 100


@pytest.mark.long
async def test_ids_are_unguessable_and_never_used_twice():
    async with running_pool() as pool:
        found = [(await pool.create(program("true"))).id for _ in range(50)]
    assert len(set(found)) == 50
    # 128 bits, in hexadecimal.
    assert all(len(id_.removeprefix("term_")) == 32 for id_ in found)
    assert all(len({id_[place] for id_ in found}) > 4 for place in range(5, 37))


async def test_create_is_refused_before_the_pool_runs_and_after_it_has_run():
    async with embedded_keeper() as keeper, open_trees() as trees:
        with pytest.raises(ShutDownError):
            await Pool(keeper, trees).create(program("true"))
    async with running_pool() as pool:
        pass
    with pytest.raises(ShutDownError):
        await pool.create(program("true"))


async def test_shut_down_refuses_creation_and_ends_running_programs():
    async with running_pool() as pool:
        terminal = await pool.create(program("echo $$; exec sleep 60"))
        pid = await pid_of(terminal)
        await pool.shut_down(DEADLINE_S)
        assert not alive(pid)
        assert terminal.is_closed
        assert terminal.exit.ended_by is EndedBy.DISCONNECT
        assert pool.terminals == {}
        with pytest.raises(ShutDownError, match="shutting down"):
            await pool.create(program("true"))


async def test_shut_down_returns_at_its_timeout_when_programs_do_not_end():
    async with running_pool(grace=30.0) as pool:
        terminal = await pool.create(program("trap '' TERM; echo $$; while :; do sleep 0.02; done"))
        pid = await pid_of(terminal)
        started = trio.current_time()
        await pool.shut_down(0.1)
        assert trio.current_time() - started < 10
        assert alive(pid)
    # The cancelled pool waits for no program.
    assert not alive(pid)
    assert terminal.exit.signal == "SIGKILL"


class RecordingKeeper(SlowKeeper):
    """Records the terminal that a spawn created."""

    async def spawn(self, *arguments, **more):
        self.spawned = await super().spawn(*arguments, **more)
        return self.spawned


async def test_terminal_is_ended_when_the_pool_shuts_down_during_its_creation():
    async with running_pool() as pool, trio.open_nursery() as nursery:
        pool._keeper = slow = RecordingKeeper(pool._keeper)

        async def create():
            with pytest.raises(ShutDownError, match="shutting down"):
                await pool.create(program("exec sleep 60"))

        nursery.start_soon(create)
        await trio.testing.wait_all_tasks_blocked()
        await pool.shut_down(0)
        slow.may_respond.set()
        await poll(lambda: not nursery.child_tasks)
        terminal = slow.spawned
        with trio.fail_after(DEADLINE_S):
            await terminal.wait_closed()
        # The signal shows that the program was started.
        assert (terminal.exit.signal, terminal.exit.ended_by) == ("SIGTERM", EndedBy.DISCONNECT)
        assert not alive(terminal._pid)
        assert pool.terminals == {}


async def test_cancelled_creation_leaves_no_terminal_process_or_descriptor():
    async with running_pool() as pool:
        first = await pool.create(program("true"))
        pool.release(first, EndedBy.AGENT)
        await first.wait_closed()
        before = descriptors()
        children = psutil.Process().children(recursive=True)
        with trio.CancelScope() as scope:
            scope.cancel()
            await pool.create(program("exec sleep 60"))
        assert scope.cancelled_caught
        assert pool.terminals == {}
        await poll(lambda: psutil.Process().children(recursive=True) == children)
        await poll(lambda: descriptors() == before)


async def test_creation_leaves_no_descriptor_open_when_the_ring_cannot_be_mapped(monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EMFILE, "no descriptor is left")

    async with running_pool() as pool:
        before = descriptors()
        monkeypatch.setattr("acpterm.terminal.pool.SharedRing", fail)
        with pytest.raises(OSError, match="no descriptor"):
            await pool.create(program("exec sleep 60"))
        assert descriptors() == before


async def test_cancelled_pool_kills_all_programs_at_once_and_leaves_no_resources():
    # The first pool of a process starts processes that the test's support keeps.
    async with running_pool():
        pass
    before = descriptors()
    groups = Cgroups.find()
    if groups is not None:
        groups.close()
    async with running_pool(grace=30.0) as pool:
        line = "trap '' TERM HUP; echo $$; while :; do sleep 0.02; done"
        terminals = [await pool.create(program(line)) for _ in range(5)]
        pids = [await pid_of(terminal) for terminal in terminals]
        started = trio.current_time()
    assert trio.current_time() - started < 15
    assert not any(alive(pid) for pid in pids)
    assert all(terminal.is_closed and terminal.exit.signal == "SIGKILL" for terminal in terminals)
    assert descriptors() == before
    if groups is not None:
        assert not os.path.exists(groups.base)  # noqa: ASYNC240


async def test_released_terminal_leaves_the_pool_and_its_output_stays_readable():
    async with running_pool() as pool:
        terminal = await pool.create(program("echo $$; exec sleep 60"))
        pid = await pid_of(terminal)
        for _ in range(2):
            pool.release(terminal, EndedBy.USER)
        assert pool.terminals == {}
        await terminal.wait_closed()
        assert terminal.released
        assert not alive(pid)
        assert terminal.exit.ended_by is EndedBy.USER
        assert text(terminal) == f"{pid}\n"


async def test_closed_terminal_that_is_retained_waits_for_no_wake_up():
    async with running_pool() as pool:
        terminal = await pool.create(program("exec sleep 60"))
        terminal.retained = True
        await trio.testing.wait_all_tasks_blocked()
        assert terminal.id in pool._keeper._wake_ups._armed
        pool.release(terminal, EndedBy.USER)
        await terminal.wait_closed()
        assert pool._keeper._wake_ups._armed == {}


async def test_program_is_ended_when_its_lifetime_is_over():
    async with running_pool() as pool:
        terminal = await pool.create(program("exec sleep 60"), TerminalSpec(lifetime=0.05))
        status = await terminal.wait_exited()
        assert (status.signal, status.ended_by) == ("SIGTERM", EndedBy.TIMEOUT)
        assert status.wall >= 0.05


async def test_terminal_closes_when_the_keeper_is_lost_before_it_reports_the_exit(monkeypatch):
    ended = trio.Event()

    async def end_tree(tree, grace):
        await end(tree, grace)
        ended.set()

    monkeypatch.setattr("acpterm.terminal.terminal.end", end_tree)
    async with running_pool() as pool:
        terminal = await pool.create(program("exec sleep 60"))
        pool._keeper.unwatch(terminal.id)
        terminal.kill(EndedBy.AGENT)
        with trio.fail_after(DEADLINE_S):
            await ended.wait()
            pool.lose_keeper()
            await terminal.wait_closed()
        assert terminal.exit.ended_by is EndedBy.LOST


async def test_first_reason_to_end_a_program_is_reported():
    async with running_pool() as pool:
        terminal = await pool.create(program("exec sleep 60"))
        terminal.kill(EndedBy.USER)
        terminal.kill(EndedBy.AGENT)
        assert (await terminal.wait_exited()).ended_by is EndedBy.USER
        terminal.kill(EndedBy.AGENT)
        assert terminal.exit.ended_by is EndedBy.USER


@pytest.mark.long
@pytest.mark.parametrize("tracking", ["auto", "subreaper"])
async def test_failing_terminal_is_killed_and_others_continue(tracking):
    async def fail(*_):
        raise RuntimeError("a bug")

    async with running_pool(tracking=tracking, grace=30.0) as pool:
        other = await pool.create(program("read x; exit 3"))
        terminal = await pool.create(program("trap '' TERM; echo $$; while :; do sleep 0.02; done"))
        pid = await pid_of(terminal)
        with structlog.testing.capture_logs() as logs, trio.fail_after(DEADLINE_S):
            terminal._tree.signal = fail
            terminal.kill(EndedBy.AGENT)
            await terminal.wait_closed()
        assert not alive(pid)
        assert terminal.exit.signal == "SIGKILL"
        assert [(log["event"], log["terminal"]) for log in logs] == [
            ("a terminal failed", terminal.id)
        ]
        other._master.write(b"\n")
        assert (await other.wait_exited()).code == 3


async def test_background_processes_end_with_the_pool(tmp_path):
    left = tmp_path / "left"
    async with running_pool(grace=30.0) as pool:
        left.write_text("trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done")
        line = "setsid sh left & while ! test -s pid; do sleep 0.01; done; exit 3"
        terminal = await pool.create(program(line, cwd=str(tmp_path)))
        assert (await terminal.wait_exited()).code == 3
        pid = int((tmp_path / "pid").read_text())
        pool.release(terminal, EndedBy.AGENT)
        await trio.testing.wait_all_tasks_blocked()
        assert alive(pid)
    assert not alive(pid)


async def test_wait_changed_returns_for_changes_after_the_call():
    async with running_pool() as pool:
        terminal = await pool.create(program("stty -echo; echo one; read x; echo two; read x"))
        await poll(lambda: text(terminal) == "one\n")

        async def change(cause):
            """Check that `wait_changed` returns after `cause`, and not before."""
            returned = trio.Event()

            async def wait():
                await terminal.wait_changed()
                returned.set()

            nursery.start_soon(wait)
            # Earlier changes do not count.
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert not returned.is_set()
            cause()
            with trio.fail_after(DEADLINE_S):
                await returned.wait()

        async with trio.open_nursery() as nursery:
            await change(lambda: terminal._master.write(b"\n"))
            # The line and its end may arrive one after the other.
            await poll(lambda: text(terminal) == "one\ntwo\n")
            assert terminal.exit is None
            # The exit is a change, too.
            await change(lambda: terminal.signal(signal.SIGHUP))
            assert terminal.exit.signal == "SIGHUP"


async def test_traced_program_delays_only_its_own_terminal():
    async with running_pool() as pool:
        terminal = await pool.create(program("exec sleep 60"))
        with tracing(terminal._pid):
            os.kill(terminal._pid, signal.SIGKILL)
            with trio.fail_after(DEADLINE_S):
                other = await pool.create(program("exit 3"))
                assert (await other.wait_exited()).code == 3
            assert terminal.exit is None
        with trio.fail_after(DEADLINE_S):
            assert (await terminal.wait_exited()).signal == "SIGKILL"


async def test_terminal_cannot_be_resized_or_signalled_after_its_end():
    async with running_pool() as pool:
        terminal = await pool.create(program("true"))
        pool.release(terminal, EndedBy.AGENT)
        await terminal.wait_closed()
        with pytest.raises(trio.ClosedResourceError):
            terminal.resize(80, 24)
        assert terminal.signal(15) is False


async def test_output_in_response_to_a_resize_has_the_new_size_however_fast_it_comes(monkeypatch):
    async with running_pool() as pool:
        # The alternate screen, since the lines of the main screen are wrapped again.
        redraw = r"printf '\033[?1049h\033[H%0100d' 0"
        line = f'trap "{redraw}" WINCH; echo ready; while :; do sleep 0.01; done'
        terminal = await pool.create(program(line), TerminalSpec(size=(80, 24)))
        await poll(lambda: text(terminal) == "ready\n")
        resize = terminal._master.resize

        def resize_slowly(cols, rows):
            """Resize, and return only once the program has redrawn, as on a busy processor."""
            resize(cols, rows)
            poll_blocking(lambda: terminal.ring.head >= len("ready\r\n") + 100)

        monkeypatch.setattr(terminal._master, "resize", resize_slowly)
        terminal.resize(120, 24)
        await terminal.caught_up()
        assert terminal.emulator.screen().text() == "0" * 100


async def test_terminal_without_output_retains_no_bytes():
    async with running_pool() as pool:
        spec = TerminalSpec(limit=16 * 2**20, ring_size=16 * 2**20)
        terminal = await pool.create(program("read x"), spec)
        assert terminal.retained_bytes == 0


async def test_trees_raise_when_the_requested_control_groups_are_missing(monkeypatch):
    monkeypatch.setattr(Cgroups, "find", classmethod(lambda *_: None))
    with pytest.raises(TrackingError, match="control groups"):
        Trees("cgroup")


@pytest.mark.long
@pytest.mark.parametrize("command", [["stdio", "--embedded"], ["serve", "--socket", "s"]])
def test_command_reports_missing_control_groups_in_one_line(tmp_path, command):
    code = (
        "from acpterm.pty.tracking.cgroup import Cgroups\n"
        "Cgroups.find = classmethod(lambda *_: None)\n"
        "from acpterm.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command],
        env={**os.environ, "ACPTERM_TRACKING": "cgroup", "PYTHONPATH": os.getcwd()},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr.startswith(b"acpterm: tracking 'cgroup': this process may make no")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.long
@pytest.mark.parametrize("tracking", ["auto", "subreaper"])
async def test_pool_reaps_orphans_when_it_is_pid_1(tracking):
    namespace = ["unshare", "--pid", "--fork", "--mount-proc"]
    probe = await trio.run_process([*namespace, "true"], check=False, capture_stderr=True)
    if probe.returncode:
        pytest.skip("this process may create no pid namespace")
    with trio.fail_after(50):
        done = await trio.run_process(
            [*namespace, sys.executable, "-m", "tests.terminal.first", tracking],
            capture_stderr=True,
            check=False,
            cwd=os.getcwd(),
        )
    assert done.returncode == 0, done.stderr.decode()


async def test_two_pools_in_one_process_are_independent():
    async with running_pool() as one:
        async with running_pool() as two:
            await (await two.create(program("true"))).wait_exited()
        terminal = await one.create(program("exit 3"))
        assert (await terminal.wait_exited()).code == 3
