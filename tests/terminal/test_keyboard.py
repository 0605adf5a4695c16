"""Input arrives completely and in order, at any speed of the program that reads it."""

import fcntl
import os
import struct
import termios
import tty
from contextlib import contextmanager, suppress

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from acpterm.keeper.ring_file import RECORD_OFFSET
from acpterm.pty.master import Master
from acpterm.terminal import keyboard as keyboards
from acpterm.terminal.keyboard import (
    InputFullError,
    InputInterruptedError,
    Keyboard,
    LineTooLongError,
)
from acpterm.terminal.shared_ring import InputMark
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


def unmarked():
    return InputMark(memoryview(bytearray(RECORD_OFFSET)).cast("Q"))


async def read(slave, size):
    data = b""
    while len(data) < size:
        await trio.lowlevel.wait_readable(slave)
        data += os.read(slave, 4096)
    return data


async def test_input_is_typed_at_once_when_it_fits(pair, nursery):
    master, slave = pair
    keyboard = Keyboard(master, unmarked(), nursery.start_soon)
    typed = keyboard.type(b"hello")
    assert not nursery.child_tasks
    await keyboard.wait(typed)
    assert await read(slave, 5) == b"hello"


async def test_input_is_typed_in_order_when_it_exceeds_the_kernels_buffer(pair, nursery):
    master, slave = pair
    keyboard = Keyboard(master, unmarked(), nursery.start_soon)
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
    keyboard = Keyboard(master, unmarked(), nursery.start_soon)
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
    keyboard = Keyboard(master, unmarked(), nursery.start_soon)
    with failing(master), pytest.raises(OSError, match="Bad file descriptor"):
        keyboard.type(b"lost")
    await keyboard.wait(keyboard.type(b"typed"))
    assert await read(slave, 5) == b"typed"


async def test_input_is_dropped_when_it_fails_later_and_later_input_is_typed(pair, nursery):
    master, slave = pair
    keyboard = Keyboard(master, unmarked(), nursery.start_soon)
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
    keyboard = Keyboard(master, unmarked(), closed.start_soon)
    with pytest.raises(trio.ClosedResourceError):
        keyboard.type(bytes(100_000))
    # The dropped input does not block later input.
    with trio.fail_after(DEADLINE_S):
        await keyboard.wait(keyboard.type(b""))


async def test_input_is_refused_completely_when_too_much_is_queued(pair, nursery):
    master, slave = pair
    keyboard = Keyboard(master, unmarked(), nursery.start_soon, input_bytes_max=100_000)
    keyboard.type(b"a" * 90_000)
    with pytest.raises(InputFullError):
        keyboard.type(b"b" * 90_000)
    assert await read(slave, 90_000) == b"a" * 90_000


async def test_replies_are_typed_in_order_and_not_passed_to_listeners(pair, nursery):
    master, slave = pair
    typed_data = []
    keyboard = Keyboard(master, unmarked(), nursery.start_soon)
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
    keyboard = Keyboard(master, unmarked(), nursery.start_soon)
    keyboard.type(b"x" * 100_000)
    for _ in range(200_000):
        keyboard.reply(b"\x1b[1;1R")
    waiting = len(keyboard._rest)
    assert waiting <= 100_000 + keyboards.REPLY_BYTES_MAX
    keyboard.type(b"end")
    received = b""
    with trio.fail_after(DEADLINE_S):
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
    keyboard = Keyboard(master, unmarked(), nursery.start_soon)
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


LINE_MAX = 4095


@pytest.fixture
async def lines():
    """A master and a slave in line mode, as programs get them."""
    master, slave = open_pair(80, 24)
    os.set_blocking(slave, False)
    owner = Master(master)
    yield owner, slave
    owner.close()
    os.close(slave)


def held(slave):
    """Return how many bytes of complete lines the line discipline holds."""
    return struct.unpack("i", fcntl.ioctl(slave, termios.FIONREAD, bytes(4)))[0]


def set_mode(slave, index, set_flags=0, clear_flags=0):
    attributes = termios.tcgetattr(slave)
    attributes[index] = attributes[index] & ~clear_flags | set_flags
    termios.tcsetattr(slave, termios.TCSANOW, attributes)


@pytest.mark.parametrize("echo", [True, False])
@pytest.mark.parametrize(
    ("end", "line_end"), [(b"\n", b"\n"), (b"\r", b"\n"), (b"\x04", b""), (b"#", b"#")]
)
async def test_longest_line_is_typed_and_a_longer_one_refused(lines, nursery, end, line_end, echo):
    master, slave = lines
    attributes = termios.tcgetattr(slave)
    attributes[6][termios.VEOL] = b"#"
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    set_mode(slave, 3, clear_flags=0 if echo else termios.ECHO)
    keyboard = Keyboard(master, unmarked(), nursery.start_soon)
    text = "é".encode() * (LINE_MAX // 2) + b"x"
    with pytest.raises(LineTooLongError) as refused:
        keyboard.type(b"first\n" + text + b"y" + end)
    assert (refused.value.length, refused.value.limit) == (LINE_MAX + 1, LINE_MAX)
    await keyboard.wait(keyboard.type(text + end))
    assert await read(slave, LINE_MAX + len(line_end)) == text + line_end
    assert held(slave) == 0


async def test_line_is_measured_over_several_writes(lines, nursery):
    master, slave = lines
    keyboard = Keyboard(master, unmarked(), nursery.start_soon)
    keyboard.type(b"a" * 3000)
    keyboard.reply(b"\x1b[0n")
    with pytest.raises(LineTooLongError):
        keyboard.type(b"b" * 1092)
    keyboard.type(b"b" * 1091 + b"\n")
    keyboard.type(b"c" * LINE_MAX)
    with pytest.raises(LineTooLongError):
        keyboard.type(b"c")
    keyboard.type(b"\n")
    expected = b"a" * 3000 + b"\x1b[0n" + b"b" * 1091 + b"\n" + b"c" * LINE_MAX + b"\n"
    assert await read(slave, len(expected)) == expected


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("size", [1000, LINE_MAX + 1])
async def test_lines_wait_until_the_line_discipline_has_room(lines, nursery, size, at_once):
    master, slave = lines
    keyboard = Keyboard(master, unmarked(), nursery.start_soon)
    pieces = [b"%02d" % number + b"x" * (size - 3) + b"\n" for number in range(20)]
    typed = [keyboard.type(piece) for piece in ([b"".join(pieces)] if at_once else pieces)]
    async with trio.open_nursery() as waiting:
        waiting.start_soon(keyboard.wait, typed[-1])
        # Several checks for room pass.
        await wait_all_tasks_blocked(0.01)
        # What is written is what the line discipline has taken.
        taken = keyboard._passed
        taken_first = size * (LINE_MAX // size or 1)
        # On a busy machine, the kernel may not have passed on yet what the last checks missed.
        assert taken_first <= taken <= 4 * (LINE_MAX + 1) < 20 * size
        with trio.fail_after(DEADLINE_S):
            while held(slave) < taken_first:
                await trio.lowlevel.checkpoint()
        assert len(waiting.child_tasks) == 1
        with trio.fail_after(DEADLINE_S):
            assert await read(slave, 20 * size) == b"".join(pieces)
    assert held(slave) == 0


@pytest.mark.parametrize("is_raw", [True, False])
async def test_interrupt_reaches_a_program_that_does_not_read(nursery, is_raw):
    master, slave = open_pair(80, 24)
    set_mode(slave, 3, clear_flags=termios.ICANON if is_raw else 0)
    program = "trap 'read x; echo got $x; exit 5' INT; echo up; while :; do sleep 1; done"
    process = await trio.lowlevel.open_process(
        ["setsid", "--ctty", "sh", "-c", program], stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    owner = Master(master)
    keyboard = Keyboard(owner, unmarked(), nursery.start_soon)
    output = b""

    async def shown(text):
        nonlocal output
        while text not in output:
            await trio.lowlevel.wait_readable(master)
            output += os.read(master, 65536)

    with trio.fail_after(DEADLINE_S):
        await shown(b"up")
        lost = keyboard.type(b"ls\n" * 50_000)
        await wait_all_tasks_blocked()
        keyboard.type(b"\x03")
        with pytest.raises(InputInterruptedError):
            await keyboard.wait(lost)
        # Nothing that was typed before is left.
        await keyboard.wait(keyboard.type(b"later\n"))
        await shown(b"got later")
        assert await process.wait() == 5
    owner.close()
    keyboard.close()


async def test_line_of_any_length_is_typed_in_raw_mode_and_before_a_client_sets_it(pair, nursery):
    master, slave = pair
    await_raw = Master(os.dup(master.fd), waits_for_raw=True)
    text = b"x" * 10_000
    keyboard = Keyboard(master, unmarked(), nursery.start_soon)
    keyboard.type(text)
    assert await read(slave, 10_000) == text
    set_mode(slave, 3, set_flags=termios.ICANON)
    Keyboard(await_raw, unmarked(), nursery.start_soon).type(text)
    tty.setraw(slave)
    assert await read(slave, 10_000) == text
    await_raw.close()


async def test_workers_that_are_killed_type_a_repeated_write_once_and_whole(pair):
    master, slave = pair
    mark, text = unmarked(), b"0123456789" * 20_000
    seen, missed = b"", [len(text)]
    for other in b"first ", b"second ", b"third ":
        async with trio.open_nursery() as killed:
            keyboard = Keyboard(master, mark, killed.start_soon)
            keyboard.type(other)
            end = keyboard.type(text, token=5)
            assert keyboard.type(text, token=5) == end
            killed.cancel_scope.cancel()
        missed.append(mark.left)
        seen += await read(slave, len(other) + missed[-2] - missed[-1])
    assert missed == sorted(missed, reverse=True)
    assert len(set(missed)) == 4
    Keyboard(master, mark, lambda _: None).type(b"alone ")
    assert await read(slave, 6) == b"alone "
    async with trio.open_nursery() as tasks:
        keyboard = Keyboard(master, mark, tasks.start_soon)
        assert not keyboard.is_repeated(5)
        end = keyboard.type(text, token=5)
        assert keyboard.is_repeated(5)
        seen += await read(slave, missed[-1])
        await keyboard.wait(end)
    for other in b"first ", b"second ", b"third ":
        assert seen.count(other) == 1
        seen = seen.replace(other, b"")
    assert seen == text
    later = Keyboard(master, mark, lambda _: None)
    await later.wait(later.type(text, token=5))
    assert not master.unread


async def test_next_worker_says_that_a_repeated_write_was_interrupted(pair, nursery):
    master, slave = pair
    set_mode(slave, 3, set_flags=termios.ISIG)
    mark = unmarked()
    keyboard = Keyboard(master, mark, nursery.start_soon)
    keyboard.type(b"x" * 200_000, token=5)
    keyboard.type(b"\x03")
    keyboard.close()
    later = Keyboard(master, mark, nursery.start_soon)
    with pytest.raises(InputInterruptedError):
        await later.wait(later.type(b"x" * 200_000, token=5))
    await later.wait(later.type(b"new", token=6))
    assert mark.left == 0
