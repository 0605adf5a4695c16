"""The screen of real programs, against what tmux makes of the same bytes."""

import contextlib
import os
import pty
import select
import shutil
import subprocess
import termios
import time

import pytest
from acpterm.terminal.paint import rows, snapshot
from acpterm.terminal.screen import Screen

from tests.support.tmux import COLS, ROWS, cells, needs_tmux, tmux_server

pytestmark = needs_tmux

TEXT = "".join(
    f"{n:3} def f(x): return 'a string {n}'  # wörds 日本語 and more\n" for n in range(200)
)
PROGRAMS = {
    "vim": (
        ["vim", "-u", "NONE", "-N", "-c", "syntax on", "-c", "set hls ls=2 nu", "text.py"],
        [b"", b"/string\r", b"20G", b":split\r", b"\x06", b"ddp", b":set list\r"],
    ),
    "less": (["less", "-N", "text.py"], [b"", b"/return\r", b"f", b"10j", b"3k", b"G", b"b"]),
    "nano": (["nano", "-I", "text.py"], [b"", b"abc", b"\x16", b"\x19", b"\x17def\r"]),
    "top": (["top", "-d", "1"], [b"", b"z", b"x", b"1"]),
    "htop": (["htop", "-d", "5"], [b"", b"", b"\x1b[B\x1b[B", b"t"]),
    "ls": (["ls", "-la", "--color=always", "/"], [b""]),
}


def printed(command, keys, folder):
    """Give what a program prints when it is typed each of `keys`, until it is quiet."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (ROWS, COLS))
    env = {**os.environ, "TERM": "tmux-256color", "LC_ALL": "C.UTF-8", "HOME": str(folder)}
    program = subprocess.Popen(
        ["setsid", "-c", *command], stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=env
    )
    os.close(slave)
    data = b""
    # At the end of the program there is an error to be read.
    with contextlib.suppress(OSError):
        for key in keys:
            os.write(master, key)
            wait, until = 1.0, time.monotonic() + 3
            while select.select([master], [], [], wait)[0] and time.monotonic() < until:
                data += os.read(master, 65536)
                wait = 0.1
    program.kill()
    program.wait()
    os.close(master)
    return data


def drawn(lines):
    return cells(lines, COLS, ROWS)


@pytest.fixture
def show(tmp_path):
    with tmux_server(tmp_path / "tmux") as tmux:

        def show(data):
            """Give what tmux shows of it, and its cursor."""
            (tmp_path / "data").write_bytes(data + b"\x1b]2;all-of-it\x1b\\")
            line = f"stty raw -echo; cat {tmp_path}/data; sleep 60"
            pane = tmux.pane(["sh", "-c", line], size=(COLS, ROWS))
            pane.until(lambda: pane.of("pane_title") == ["all-of-it"])
            return pane.screen(colours=True), pane.cursor

        yield show


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_shown_as_tmux_shows_it(name, show, tmp_path):
    command, keys = PROGRAMS[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {name}")
    (tmp_path / "text.py").write_text(TEXT)
    data = printed(command, keys, tmp_path)
    screen = Screen(COLS, ROWS)
    screen.feed(data)
    if not screen.text():
        pytest.skip(f"{name} shows nothing here")
    # What it was told, and what a snapshot tells it.
    for told in data, snapshot(screen):
        lines, cursor = show(told)
        for y, (ours, theirs) in enumerate(zip(drawn(rows(screen)), drawn(lines), strict=True)):
            assert ours == theirs, y
        assert screen.cursor == (min(cursor[0], COLS - 1), cursor[1])
