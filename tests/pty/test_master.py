import contextlib
import errno
import os
import signal
import termios
import tty

import pytest
import trio
import trio.testing

from acpterm.pty import master as masters
from acpterm.pty.master import After, How, Master, open_pair
from tests.support.hosts import poll


@pytest.fixture
def buffer():
    return memoryview(bytearray(65536))


@pytest.fixture
async def pair():
    """A master and a slave in raw mode, so that bytes are what they were."""
    fd, slave = open_pair(80, 24)
    tty.setraw(slave)
    master = Master(os.getpid(), fd)
    slaves = [slave]
    yield master, slaves
    master.close()
    for slave in slaves:
        os.close(slave)


def close(slaves):
    os.close(slaves.pop())


@pytest.mark.parametrize(("cols", "rows"), [(120, 40), (1, 1), (10_000, 10_000)])
def test_a_window_has_its_size_from_the_start(cols, rows):
    master, slave = open_pair(cols, rows)
    try:
        assert os.get_terminal_size(slave) == (cols, rows)
    finally:
        os.close(master)
        os.close(slave)


def test_neither_side_is_inherited_by_programs():
    both = open_pair(80, 24)
    assert not any(os.get_inheritable(fd) for fd in both)
    for fd in both:
        os.close(fd)


def test_a_pair_that_cannot_be_made_ready_leaves_nothing_open(monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "no")

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(masters.termios, "tcsetwinsize", fail)
    with pytest.raises(OSError, match="no"):
        open_pair(80, 24)
    assert os.listdir("/proc/self/fd") == before


def test_erase_removes_a_whole_character():
    master, slave = open_pair(80, 24)
    os.write(master, "aé🙂\x7f\x7f\n".encode())
    assert os.read(slave, 100) == b"a\n"
    os.close(master)
    os.close(slave)


async def test_a_read_that_finds_no_more_says_empty(pair, buffer):
    master, (slave,) = pair
    assert master.read(buffer) == (0, After.EMPTY)
    os.write(slave, b"hello")
    await master.wait_readable()
    assert master.read(buffer) == (5, After.EMPTY)
    assert bytes(buffer[:5]) == b"hello"


async def test_a_read_that_fills_the_buffer_says_full(pair, buffer):
    master, (slave,) = pair
    os.write(slave, b"hello")
    await master.wait_readable()
    assert master.read(buffer[:3]) == (3, After.FULL)
    assert master.read(buffer[:3]) == (2, After.EMPTY)


async def test_a_read_that_exactly_fills_the_buffer_says_full_and_the_next_one_empty(pair, buffer):
    master, (slave,) = pair
    os.write(slave, b"hello")
    await master.wait_readable()
    assert master.read(buffer[:5]) == (5, After.FULL)
    assert master.read(buffer[:5]) == (0, After.EMPTY)


async def test_a_read_after_the_last_slave_is_gone_gives_the_rest_and_says_closed(pair, buffer):
    master, slaves = pair
    os.write(slaves[0], b"last words")
    close(slaves)
    await master.wait_readable()
    assert master.read(buffer) == (10, After.CLOSED)
    assert bytes(buffer[:10]) == b"last words"
    assert master.read(buffer) == (0, After.CLOSED)


async def test_closed_is_not_final_while_somebody_may_open_the_terminal_again(pair, buffer):
    master, slaves = pair
    name = os.ttyname(slaves[0])
    close(slaves)
    assert master.read(buffer) == (0, After.CLOSED)
    slaves.append(os.open(name, os.O_RDWR | os.O_NOCTTY))
    os.write(slaves[0], b"again")
    await master.wait_readable()
    assert master.read(buffer) == (5, After.EMPTY)


async def test_nothing_that_was_written_is_missed_by_a_read_that_says_empty(pair, buffer):
    master, (slave,) = pair
    for size in (1, 100, 3000):
        for _ in range(100):
            os.write(slave, b"x" * size)
            assert master.read(buffer) == (size, After.EMPTY)


async def test_a_gathering_read_takes_a_flood_in_one_go(pair, buffer):
    master, (slave,) = pair

    def flood():
        for _ in range(20):
            os.write(slave, b"x" * 1024)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, flood)
        taken = 0
        with trio.fail_after(10):
            while taken < 20 * 1024:
                await master.wait_readable()
                size, after = master.read(buffer, How.GATHER)
                taken += size
                assert after is After.EMPTY
    assert master.read(buffer, How.GATHER) == (0, After.EMPTY)


async def test_a_gathering_read_sees_the_end(pair, buffer):
    master, slaves = pair
    os.write(slaves[0], b"x" * 3000)
    close(slaves)
    taken = after = 0
    with trio.fail_after(10):
        while after is not After.CLOSED:
            await master.wait_readable()
            size, after = master.read(buffer, How.GATHER)
            taken += size
    assert taken == 3000


async def fill(master):
    # The kernel moves what was typed on, and so makes room a few times more.
    while True:
        master.write(b"x" * 4096)
        await master.wait_writable()


async def test_what_is_typed_arrives(pair):
    master, (slave,) = pair
    assert master.write(b"typed") == 5
    assert os.read(slave, 100) == b"typed"


async def test_what_there_is_no_room_for_is_not_typed_and_room_can_be_waited_for(pair):
    master, (slave,) = pair
    with trio.move_on_after(0.2) as scope:
        await fill(master)
    assert scope.cancelled_caught
    os.set_blocking(slave, False)
    with contextlib.suppress(BlockingIOError):
        while os.read(slave, 4096):
            pass
    with trio.fail_after(5):
        await master.wait_writable()
    assert master.write(b"y") == 1


async def test_closing_wakes_who_types_and_who_reads(pair):
    master, _ = pair
    ends = []

    async def type_on():
        with pytest.raises(trio.ClosedResourceError):
            await fill(master)
        ends.append("type")

    async def read_on():
        with pytest.raises(trio.ClosedResourceError):
            await master.wait_readable()
        ends.append("read")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(type_on)
        nursery.start_soon(read_on)
        await trio.testing.wait_all_tasks_blocked(0.05)
        master.close()
    assert sorted(ends) == ["read", "type"]
    assert master.closed
    master.close()


async def test_a_closed_master_can_be_dropped_at_once_and_hurts_nobody():
    fd, slave = open_pair(80, 24)
    # Its finalizer must not signal "the child", here this process.
    master = Master(os.getpid(), fd)
    master.close()
    del master
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    os.close(slave)


async def test_a_resize_is_seen_by_the_other_side(pair):
    master, (slave,) = pair
    master.resize(132, 50)
    assert os.get_terminal_size(slave) == (132, 50)


async def test_whether_input_is_shown_is_known(pair):
    master, (slave,) = pair
    for echoes in (True, False):
        attributes = termios.tcgetattr(slave)
        attributes[3] = termios.ECHO if echoes else 0
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        assert master.echoes is echoes


async def test_without_a_foreground_group_nobody_is_signalled(pair, monkeypatch):
    master, _ = pair
    sent = []
    monkeypatch.setattr(os, "killpg", lambda *what: sent.append(what))
    assert master.signal_foreground(signal.SIGTERM) is False
    assert sent == []


async def test_the_foreground_group_is_signalled():
    fd, slave = open_pair(80, 24)
    process = await trio.lowlevel.open_process(
        ["setsid", "--ctty", "sh", "-c", "trap 'echo int; exit 5' INT; echo up; read x"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    master = Master(process.pid, fd)
    buffer = memoryview(bytearray(1000))
    with trio.fail_after(10):
        await master.wait_readable()
        await poll(lambda: master.read(buffer)[0])
        assert master.signal_foreground(signal.SIGINT) is True
        await process.wait()
    assert process.returncode == 5
    master.close()
