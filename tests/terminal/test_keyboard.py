"""What is typed arrives whole and in order, however slowly it is read."""

import os
import tty

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from acpterm.pty.master import Master, open_pair
from acpterm.terminal import InputFullError
from acpterm.terminal import keyboard as keyboards
from acpterm.terminal.keyboard import Keyboard


@pytest.fixture
async def pair():
    master, slave = open_pair(80, 24)
    tty.setraw(slave)
    os.set_blocking(slave, False)
    owner = Master(os.getpid(), master)
    yield owner, slave
    owner.close()
    os.close(slave)


async def read(slave, size):
    data = b""
    while len(data) < size:
        await trio.lowlevel.wait_readable(slave)
        data += os.read(slave, 4096)
    return data


async def test_all_that_fits_is_typed_at_once(pair, nursery):
    master, slave = pair
    keyboard = Keyboard(master, nursery.start_soon)
    typed = keyboard.type(b"hello")
    assert not nursery.child_tasks
    await keyboard.wait(typed)
    assert await read(slave, 5) == b"hello"


async def test_what_does_not_fit_is_typed_in_order_as_there_is_room(pair, nursery):
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


async def test_who_waits_is_told_when_the_terminal_closes(pair, nursery):
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


async def test_more_than_may_wait_is_refused_whole(pair, nursery, monkeypatch):
    monkeypatch.setattr(keyboards, "MOST", 100_000)
    master, slave = pair
    keyboard = Keyboard(master, nursery.start_soon)
    keyboard.type(b"a" * 90_000)
    with pytest.raises(InputFullError):
        keyboard.type(b"b" * 90_000)
    assert await read(slave, 90_000) == b"a" * 90_000
