"""The master of a PTY: writes, size, modes and signals."""

import contextlib
import os
import signal
import termios
import tty

import pytest
import trio
import trio.testing

from acpterm.pty.master import Master
from tests.support.depth import DEADLINE_S
from tests.support.ptys import open_pair


@pytest.fixture
def buffer():
    return memoryview(bytearray(65536))


@pytest.fixture
async def pair():
    """A master and a slave in raw mode, so that bytes are not changed."""
    fd, slave = open_pair(80, 24)
    tty.setraw(slave)
    master = Master(fd)
    slaves = [slave]
    yield master, slaves
    master.close()
    for slave in slaves:
        os.close(slave)


def close(slaves):
    os.close(slaves.pop())


async def fill(master):
    # The kernel moves input to the slave's buffer, so several writes succeed after the first stop.
    while True:
        master.write(b"x" * 4096)
        await master.wait_writable()


async def test_write_reaches_the_slave(pair):
    master, (slave,) = pair
    assert master.write(b"typed") == 5
    assert os.read(slave, 100) == b"typed"


async def test_wait_writable_returns_when_a_full_input_queue_was_read(pair):
    master, (slave,) = pair
    with trio.move_on_after(0.2) as scope:
        await fill(master)
    assert scope.cancelled_caught
    os.set_blocking(slave, False)
    with contextlib.suppress(BlockingIOError):
        while os.read(slave, 4096):
            pass
    with trio.fail_after(DEADLINE_S):
        await master.wait_writable()
    assert master.write(b"y") == 1


async def test_close_wakes_a_task_in_wait_writable(pair):
    master, _ = pair
    fd = master.fd
    woken = False

    async def keep_writing():
        nonlocal woken
        with pytest.raises(trio.ClosedResourceError):
            await fill(master)
        woken = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_writing)
        await trio.testing.wait_all_tasks_blocked(0.05)
        master.close()
    assert woken
    assert master.closed
    master.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


async def test_resize_is_visible_on_the_slave(pair):
    master, (slave,) = pair
    master.resize(132, 50)
    assert os.get_terminal_size(slave) == (132, 50)


async def test_echoes_follows_the_mode_of_the_terminal(pair):
    master, (slave,) = pair
    for echoes in (True, False):
        attributes = termios.tcgetattr(slave)
        attributes[3] = termios.ECHO if echoes else 0
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        assert master.echoes is echoes


async def test_signal_foreground_signals_no_process_without_a_foreground_group(pair, monkeypatch):
    master, _ = pair
    sent = []
    monkeypatch.setattr(os, "killpg", lambda *arguments: sent.append(arguments))
    assert master.signal_foreground(signal.SIGTERM) is False
    assert sent == []


async def test_signal_foreground_reaches_the_foreground_group():
    fd, slave = open_pair(80, 24)
    process = await trio.lowlevel.open_process(
        ["setsid", "--ctty", "sh", "-c", "trap 'echo int; exit 5' INT; echo up; read x"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    master = Master(fd)
    with trio.fail_after(DEADLINE_S):
        await trio.lowlevel.wait_readable(fd)
        assert master.signal_foreground(signal.SIGINT) is True
        while process.returncode is None:
            # A shell that receives a signal just before it reads runs the trap only after the read.
            with trio.move_on_after(0.5):
                await process.wait()
            master.signal_foreground(signal.SIGINT)
    assert process.returncode == 5
    master.close()
