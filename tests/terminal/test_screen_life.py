"""The screen of a terminal over time: one emulator, exact however much was written."""

import os
import sys
from contextlib import asynccontextmanager

import trio
from acpterm.terminal.follower import BEHIND
from acpterm.terminal.fullscreen import FullScreen
from acpterm.terminal.output import PATIENCE, Output
from acpterm.terminal.screen import Screen
from acpterm.terminal.screenview import REPLAY, ScreenView

from acpterm.pty.program import Program
from acpterm.terminal.status import EndedBy
from acpterm.terminal.timeline import Timeline
from tests.support.pools import running_pool

MIB = 1024 * 1024


class Stream:
    """A terminal without a program."""

    def __init__(self, cols=20, rows=5, ring_size=MIB):
        self.cols, self.rows = cols, rows
        self.timeline = Timeline(0.0, kept=ring_size, size=(cols, rows))
        self.output = Output(ring_size, MIB)
        self.view = ScreenView(self)
        self.output.when_losing = self.view.losing

    @property
    def ring(self):
        return self.output.ring

    def put(self, data, *, later=False):
        with memoryview(data) as view:
            for at in range(0, len(data), 65536):
                self.timeline.note(len(view[at : at + 65536]), 0.0)
                self.output.put(view[at : at + 65536], later=later)

    def resize(self, cols, rows):
        self.timeline.note_size(cols, rows, 0.0)
        self.cols, self.rows = cols, rows


async def test_askers_at_the_same_time_share_the_work_and_see_the_same():
    stream = Stream()
    stream.put(b"line\r\n" * 5000 + b"\x1b[2J\x1b[Hlast")
    fed = []
    feed = Screen.feed

    async def ask(answers):
        screen = await stream.view.shown()
        answers.append((screen.text(), stream.view.position))

    answers = []
    try:
        Screen.feed = lambda screen, data: (fed.append(len(data)), feed(screen, data))[1]
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask, answers)
    finally:
        Screen.feed = feed
    assert answers == [("last", stream.ring.end)] * 5
    assert sum(fed) == stream.ring.end


async def test_a_cancelled_asker_leaves_the_screen_to_the_next_one():
    stream = Stream()
    stream.put(b"line\r\n" * 4000 + b"\x1b[2J\x1b[Hlast")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.view.text)
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            assert 0 < stream.view.position < stream.ring.end
            scope.cancel()
    assert await stream.view.text() == "last"


async def test_who_asks_during_a_flood_is_shown_some_of_it():
    stream = Stream()
    stream.put(b"main\r\n" * 4000)
    answers = []

    async def ask():
        answers.append(await stream.view.text())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        assert 0 < stream.view.position < stream.ring.end
        stream.put(b"y\r\n" * MIB)
    assert answers == ["y\ny\ny\ny"]


async def test_what_is_too_much_is_skipped_but_not_the_modes_in_it():
    for later in False, True:
        stream = Stream()
        stream.put(b"main")
        assert await stream.view.text() == "main"
        much = b"x" * 100 + b"\r\n"
        much *= PATIENCE // len(much)
        stream.put(
            b"\x1b[?1049h\x1b[?2004h\x1b[5 q\x1b[>7u\x1b]2;it\a" + much + b"\x1b[?1h", later=later
        )
        stream.put(much, later=later)
        stream.put(b"\x1b[2J\x1b[Hnow", later=later)
        screen = await stream.view.shown()
        assert screen.text() == "now"
        assert screen.grid.told.modes == (2004, 1)
        assert (screen.grid.told.shape, screen.title) == (5, "it")
        assert screen.grid.told.keys.flags == 7
        stream.put(b"\x1b[?1049l")
        assert await stream.view.text() == "main"


async def test_a_screen_that_is_first_asked_for_late_knows_the_modes_that_are_still_there():
    stream = Stream()
    stream.put(b"\x1b[?1049h\x1b[?1000h" + b"x\r\n" * (REPLAY // 2) + b"\x1b[2J\x1b[Hnow")
    screen = await stream.view.shown()
    assert screen.text() == "now"
    assert (screen.grid.main is not None, screen.grid.told.modes) == (True, (1000,))


async def test_a_size_change_is_done_where_it_was():
    stream = Stream()
    stream.put(b"0123456789" * 2 + b"\r\n")
    stream.resize(10, 5)
    stream.put(b"0123456789ab")
    stream.resize(2000, 2000)
    stream.put(b"cd")
    stream.resize(30, 4)
    assert await stream.view.text() == "0123456789\n0123456789\nabcd"
    screen = await stream.view.shown()
    assert (screen.cols, screen.rows) == (30, 4)


def test_signs_of_a_full_screen_are_seen_however_they_are_cut():
    for sign in b"\x1b[?1049h", b"\x1b[?47h", b"\x1b[3;10H", b"\x1b[2;20r", b"\x1b[12d":
        whole = b"text " + sign + b"more"
        assert seen(whole)
        for at in range(1, len(whole)):
            assert seen(whole[:at], whole[at:]), (sign, at)
        assert seen(b"x" * 100_000 + sign)
    assert seen(b"\x1b[?1049h" + b"x" * 100_000)
    assert not seen(b"\x1b[H\x1b[2J\x1b[31mtext\x1b[m\r\n", b"\x1b[?2004h\x1b[3", b"1m;4H")


def seen(*chunks):
    signs = FullScreen()
    found = [signs.seen(bytearray(chunk) + b"\x1b[1;1H", len(chunk)) for chunk in chunks]
    return True in found


@asynccontextmanager
async def terminal(line, **more):
    def make(_identifier):
        return Program(["/bin/sh", "-c", line], env=dict(os.environ), cwd="/", umask=0o22)

    async with running_pool() as pool:
        made = await pool.create(make, **more)
        yield made
        pool.release(made, EndedBy.DISCONNECT)
        with trio.fail_after(10):
            await made.wait_gone()


async def until(condition):
    with trio.fail_after(20):
        while not condition():
            await trio.sleep(0.01)


async def test_a_full_screen_program_is_shown_exactly_however_long_it_has_run():
    # What is painted once, at the top, has long left a ring of this size.
    line = (
        r"printf '\033[?1049h\033[2;3H\033[31mpainted once'; n=0;"
        r"while [ $n -lt 300 ]; do printf '\033[5;1H%1000d' $n; n=$((n+1)); sleep 0.001; done;"
        r"printf '\033[20;1Hover'; read line"
    )
    async with terminal(line, ring_size=2 * BEHIND) as made:
        await until(lambda: made.text.text().endswith("over"))
        assert made.ring.start > 0
        screen = await made.screen.shown()
        assert screen.text().split("\n")[1] == "  painted once"
        assert screen.grid.cells_of(1)[2].style.fg == 1
        assert made.screen is made.screen


async def test_a_terminal_that_is_not_full_screen_costs_no_emulator():
    program = """if True:
        import sys, trio
        from tests.terminal.test_screen_life import terminal

        async def main():
            line = "head -c 2000000 /dev/zero | tr '\\\\0' '\\\\n'; clear; echo over"
            async with terminal(line) as made:
                await made.wait_exited()
                assert made.ring.start > 0
                assert "pyte" not in sys.modules
                assert "over" in await made.screen.text()

        trio.run(main)
    """
    env = {**os.environ, "TERM": "xterm"}
    run = await trio.run_process(
        [sys.executable, "-c", program], env=env, capture_stderr=True, check=False
    )
    assert run.returncode == 0, run.stderr.decode()
