"""The limit of idle time: deadlines on a clock that tests move, and real programs in a host."""

import time

import pytest
import trio
import trio.testing

from acpterm.acp.agent_meta import CreateMeta
from acpterm.config import Settings
from acpterm.config.profiles import Limits
from acpterm.host.input_monitor import input_wait
from acpterm.host.launch.launch import Launch
from acpterm.host.limit_monitor import LimitMonitor
from acpterm.host.terminal_info import terminal_info
from acpterm.pty.limits import Cause
from acpterm.runtime.exec_context import current
from acpterm.terminal.status import EndedBy
from tests.support.depth import DEADLINE_S
from tests.support.hosts import host_here
from tests.support.limited import judged, start
from tests.support.polling import poll


class Activity:
    """A terminal whose activity is set by the test."""

    def __init__(self, idle_s):
        self.idle_s = idle_s
        self.is_over = False
        self.active_at = trio.current_time()
        self.expired_at = None
        self.reads = 0

    def last_activity(self):
        self.reads += 1
        return self.active_at

    def expire(self):
        assert self.expired_at is None
        self.expired_at = trio.current_time()


@pytest.fixture
async def monitor(nursery):
    monitor = LimitMonitor(trio.current_time)
    nursery.start_soon(monitor.run)
    return monitor


async def test_idle_terminal_expires_at_its_deadline(monitor, autojump_clock):
    first, second = Activity(300), Activity(10)
    began = trio.current_time()
    monitor.watch(first)
    monitor.watch(second)
    await trio.sleep(1000)
    assert second.expired_at - began == pytest.approx(10, abs=0.01)
    assert first.expired_at - began == pytest.approx(300, abs=0.01)


async def test_terminal_that_is_watched_later_expires_before_others(monitor, autojump_clock):
    long, short = Activity(300), Activity(5)
    monitor.watch(long)
    await trio.sleep(1)
    short.active_at = began = trio.current_time()
    monitor.watch(short)
    await trio.sleep(20)
    assert short.expired_at - began == pytest.approx(5, abs=0.01)
    assert long.expired_at is None


async def test_activity_moves_the_deadline_and_is_read_only_there(monitor, autojump_clock):
    terminal = Activity(10)
    monitor.watch(terminal)
    for _ in range(100):
        await trio.sleep(0.5)
        terminal.active_at = trio.current_time()
    active_at = terminal.active_at
    assert terminal.reads <= 7
    assert terminal.expired_at is None
    await trio.sleep(100)
    assert terminal.expired_at - active_at == pytest.approx(10, abs=0.01)


async def test_terminal_that_is_over_does_not_expire(monitor, autojump_clock):
    terminal, other = Activity(10), Activity(20)
    monitor.watch(terminal)
    monitor.watch(other)
    await trio.sleep(5)
    terminal.is_over = True
    await trio.sleep(100)
    assert terminal.expired_at is None
    assert other.expired_at is not None


# Real programs


async def test_program_without_output_and_input_is_ended_by_the_idle_limit(host):
    began = trio.current_time()
    entry = await start(host, "exec sleep 60", idle=0.3)
    with trio.fail_after(DEADLINE_S):
        status = await entry.terminal.wait_exited()
    assert (status.ended_by, status.cause) == (EndedBy.IDLE, Cause("idle", 0.3))
    assert trio.current_time() - began >= 0.3
    info = terminal_info(entry, waiting=input_wait(entry)).exit_status
    assert (info.ended_by, info.limit, info.limit_value) == ("idle", "idle", 0.3)


async def test_output_and_input_count_as_activity_and_attached_windows_do_not(tmp_path):
    go = tmp_path / "go"
    async with host_here() as host:
        line = f"until [ -e {go} ]; do sleep 0.01; done; echo; exec sleep 60"
        printing = await start(host, line, idle=60)
        reading = await start(host, "stty -echo; echo ready; exec cat >/dev/null", idle=60)
        await poll(lambda: reading.terminal.text.text() == "ready\n")
        watched = {one._entry().id: one for _, _, one in host.terminals.limit_monitor._deadlines}
        before = {id_: one.last_activity() for id_, one in watched.items()}

        def was_active(entry):
            return watched[entry.id].last_activity() > before[entry.id]

        go.touch()
        await poll(lambda: was_active(printing))
        reading.terminal.keyboard.type(b"x\n")
        assert was_active(reading)
        silent = await start(host, "exec sleep 60", idle=0.3)
        silent.window_count = 1
        with trio.fail_after(DEADLINE_S):
            status = await silent.terminal.wait_exited()
        assert status.ended_by is EndedBy.IDLE


async def test_promotion_cancels_the_idle_limit_and_the_wall_limit(
    host, running_clock, monkeypatch
):
    entry = await start(host, "exec sleep 60", idle=1000, wall=1000)
    idle = await start(host, "exec sleep 60", idle=1001)
    wall = await start(host, "exec sleep 60", wall=1001)
    host.terminals.registry.promote(entry)
    # Both clocks pass the limits of all three at once.
    monitor = host.terminals.limit_monitor
    monkeypatch.setattr(monitor, "_clock", lambda: time.monotonic() + 1002)
    # The limit of the last one begins when its task does.
    await trio.testing.wait_all_tasks_blocked()
    running_clock.jump(1002)
    with trio.fail_after(DEADLINE_S):
        ends = [await one.terminal.wait_exited() for one in (idle, wall)]
    assert [end.cause for end in ends] == [Cause("idle", 1001), Cause("wall", 1001)]
    assert entry.terminal.exit is None


def test_lower_of_wall_limit_and_timeout_ends_the_program():
    def record(timeout_ms=None, **limits):
        launch = Launch(
            settings=settings,
            context=current(),
            command="true",
            cwd="/",
            options=CreateMeta(timeout_ms=timeout_ms),
            output_bytes=1000,
            judgement=judged(Limits(**limits)),
        )
        return launch.record("local")

    settings = Settings()
    found = record(2000, wall=5.0, output_bytes=100)
    assert found.lifetime_limit == ("timeoutMs", 2000)
    assert found.cause_of(EndedBy.TIMEOUT) == Cause("timeoutMs", 2000)
    assert found.limit == 100
    found = record(20_000, wall=5.0)
    assert found.cause_of(EndedBy.TIMEOUT) == Cause("wall", 5.0)
    assert found.lifetime_end - found.started_at == 5.0
    assert record().limits is None
    users = Launch(settings=settings, context=current(), command="true", cwd="/").record("local")
    assert users.limit == settings.output_bytes
