"""Input arrives completely and in order, at any speed of the program that reads it."""

import os
import tty
from contextlib import contextmanager, suppress

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from acpterm.pty.master import Master
from acpterm.terminal import keyboard as keyboards
from acpterm.terminal.keyboard import InputFullError, Keyboard
from tests.support.depth import DEADLINE_S
from tests.support.ptys import open_pair


@pytest.fixture
async def pair():
    master, slave = open_pair(80, 24)
    tty.setraw(slave)
    os.set_blocking(slave, False)
    owner = Master(master)
    yield owner, slave
    owner.close()
    os.close(slave)


async def read(slave, size):
    data = b""
    while len(data) < size:
        await trio.lowlevel.wait_readable(slave)
        data += os.read(slave, 4096)
    return data


async def test_input_is_typed_at_once_when_it_fits(pair, nursery):
    master, slave = pair
    keyboard = Keyboard(master, nursery.start_soon)
    typed = keyboard.type(b"hello")
    assert not nursery.child_tasks
    await keyboard.wait(typed)
    assert await read(slave, 5) == b"hello"


async def test_input_is_typed_in_order_when_it_exceeds_the_kernels_buffer(pair, nursery):
    master, slave = pair
    keyboard = Keyboard(master, nursery.start_soon)
    pieces = [bytes([65 + n]) * 50_000 for n in range(4)]
    typed = [keyboard.type(piece) for piece in pieces]
    assert len(nursery.child_tasks) == 1
    assert await read(slave, 200_000) == b"".join(pieces)
    for end in typed:
        await keyboard.wait(end)
    await wait_all_tasks_blocked()
    assert not nursery.child_tasks


async def test_wait_raises_when_the_terminal_closes(pair, nursery):
    master, _ = pair
    keyboard = Keyboard(master, nursery.start_soon)
    typed = keyboard.type(b"x" * 100_000)

    async def wait():
        with pytest.raises(trio.ClosedResourceError):
            await keyboard.wait(typed)

    async with trio.open_nursery() as waiting:
        waiting.start_soon(wait)
        await wait_all_tasks_blocked()
        master.close()
        keyboard.close()
    with pytest.raises(trio.ClosedResourceError):
        keyboard.type(b"more")


@contextmanager
def failing(master):
    """Make every write to the master fail, as on a read-only descriptor."""
    kept = os.dup(master.fd)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, master.fd)
    os.close(null)
    try:
        yield
    finally:
        os.dup2(kept, master.fd)
        os.close(kept)


async def test_input_is_dropped_when_it_fails_at_once_and_later_input_is_typed(pair, nursery):
    master, slave = pair
    keyboard = Keyboard(master, nursery.start_soon)
    with failing(master), pytest.raises(OSError, match="Bad file descriptor"):
        keyboard.type(b"lost")
    await keyboard.wait(keyboard.type(b"typed"))
    assert await read(slave, 5) == b"typed"


async def test_input_is_dropped_when_it_fails_later_and_later_input_is_typed(pair, nursery):
    master, slave = pair
    keyboard = Keyboard(master, nursery.start_soon)
    earlier = keyboard.type(b"a")
    lost = [keyboard.type(bytes(100_000)), keyboard.type(b"more")]
    failed = []

    async def wait(typed):
        with pytest.raises(trio.ClosedResourceError):
            await keyboard.wait(typed)
        failed.append(typed)

    async with trio.open_nursery() as waiting:
        waiting.start_soon(wait, lost[0])
        await wait_all_tasks_blocked()
        with failing(master), trio.fail_after(DEADLINE_S):
            while nursery.child_tasks:
                with suppress(BlockingIOError):
                    os.read(slave, 65536)
                await trio.lowlevel.checkpoint()
    with suppress(BlockingIOError):
        while os.read(slave, 65536):
            pass
    # A later wait raises as well, but not one for input that was typed before.
    typed = keyboard.type(b"typed")
    await wait(lost[1])
    assert failed == lost
    await keyboard.wait(earlier)
    await keyboard.wait(typed)
    assert await read(slave, 5) == b"typed"


async def test_input_is_dropped_when_no_task_can_be_started(pair):
    master, _ = pair
    async with trio.open_nursery() as closed:
        pass
    keyboard = Keyboard(master, closed.start_soon)
    with pytest.raises(trio.ClosedResourceError):
        keyboard.type(bytes(100_000))
    # The dropped input does not block later input.
    with trio.fail_after(DEADLINE_S):
        await keyboard.wait(keyboard.type(b""))


async def test_input_is_refused_completely_when_too_much_is_queued(pair, nursery):
    master, slave = pair
    keyboard = Keyboard(master, nursery.start_soon, input_bytes_max=100_000)
    keyboard.type(b"a" * 90_000)
    with pytest.raises(InputFullError):
        keyboard.type(b"b" * 90_000)
    assert await read(slave, 90_000) == b"a" * 90_000


async def test_replies_are_typed_in_order_and_not_passed_to_listeners(pair, nursery):
    master, slave = pair
    typed_data = []
    keyboard = Keyboard(master, nursery.start_soon)
    keyboard.listeners.append(lambda data, _shown: typed_data.append(data))
    keyboard.type(b"a" * 70_000)
    keyboard.reply(b"ANSWER")
    keyboard.type(b"b")
    keyboard.reply(b"LAST")
    data = await read(slave, 70_011)
    assert data == b"a" * 70_000 + b"ANSWER" + b"b" + b"LAST"
    with trio.fail_after(DEADLINE_S):
        while b"".join(typed_data) != b"a" * 70_000 + b"b":
            await trio.sleep(0.001)


async def test_unread_replies_are_bounded_and_input_is_typed(pair, nursery):
    master, slave = pair
    keyboard = Keyboard(master, nursery.start_soon)
    keyboard.type(b"x" * 100_000)
    for _ in range(200_000):
        keyboard.reply(b"\x1b[1;1R")
    waiting = len(keyboard._rest)
    assert waiting <= 100_000 + keyboards.REPLY_BYTES_MAX
    keyboard.type(b"end")
    received = b""
    with trio.fail_after(20):
        while not received.endswith(b"end"):
            received += await read(slave, 1)
    assert received.startswith(b"x" * 100_000)
    assert set(received.removeprefix(b"x" * 100_000).removesuffix(b"end").split(b"\x1b")) == {
        b"",
        b"[1;1R",
    }
    keyboard.reply(b"again")
    assert await read(slave, 5) == b"again"


async def test_reply_is_dropped_when_the_terminal_is_closed(pair, nursery):
    master, _ = pair
    keyboard = Keyboard(master, nursery.start_soon)
    keyboard.type(b"x" * 100_000)
    master.close()
    before = bytes(keyboard._rest)
    assert before
    keyboard.reply(b"\x1b[0n")
    assert keyboard._rest == before
    # The task that types the rest ends.
    await wait_all_tasks_blocked()
    assert not nursery.child_tasks
    keyboard.reply(b"\x1b[0n")
    assert not keyboard._rest
    assert not nursery.child_tasks
