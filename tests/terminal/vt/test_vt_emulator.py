"""The emulator: its native terminal, sizes, incomplete sequences, and a missing library."""

import json
import subprocess
import sys
import tracemalloc

import pytest

from acpterm.terminal.vt import library
from acpterm.terminal.vt.broken import BrokenEmulator
from acpterm.terminal.vt.emulator import (
    CELLS_MAX,
    LINKS_CELLS_MAX,
    Emulator,
    ScreenTooLargeError,
)
from acpterm.terminal.vt.library import EmulatorMissingError
from acpterm.terminal.vt.native import REPLIES_MAX_BYTES
from acpterm.terminal.vt.paint import snapshot, tail_snapshot
from tests.terminal.vt.recording import COLS, ROWS, SESSIONS

APPLICATION = (
    "shell$ app\r\n\x1b7\x1b[?1049h\x1b[?1000h\x1b[?2004h\x1b[?2048h\x1b[>5u\x1b]2;title\a"
    "\x1b[HHeader\x1b[3;8r\x1b)0\x0e\x1b[31m\x1b]8;;http://x\x1b\\日本\x1b[?6h"
).encode()
QUERIES = b"\x1b[6n\x1b[?2048$p\x1b[?u\x1bP$qr\x1b\\\x1b]11;?\a\x1b8\x1b[?1049l\x1b[6n"


def run(program):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    ).stdout.split()


def test_library_is_not_loaded_before_there_is_output():
    program = """if True:
        import sys
        from acpterm.terminal.vt.emulator import Emulator
        emulator = Emulator(80, 24)
        emulator.resize(90, 24)
        emulator.feed(b"")
        print("cffi" in sys.modules)
        emulator.feed(b"x")
        print("cffi" in sys.modules)
    """
    assert run(program) == ["False", "True"]


def test_emulator_takes_little_memory_before_any_output():
    Emulator(80, 24).feed(b"x")
    tracemalloc.start()
    kept = [Emulator(120, 40) for _ in range(1000)]
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size / len(kept) < 200


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 5), (3, 2)])
def test_small_window_shows_the_part_with_the_cursor(size):
    emulator = Emulator(*size)
    for line in "one", "two", "日本":
        emulator.feed(f"\r\n{line}\x1b[?1049h{line}\x1b[?1049l".encode())
    emulator.resize(2, 1)
    emulator.resize(*size)
    screen = emulator.screen()
    assert (screen.cols, screen.rows) == size
    x, y = screen.cursor
    assert (0 <= x < size[0], 0 <= y < size[1]) == (True, True)
    assert all(len(screen.cells(y)) <= size[0] for y in range(size[1]))
    assert len(screen.text().split("\n")) <= size[1]


def test_large_window_has_no_screen_until_it_is_smaller():
    emulator = Emulator(20, 5)
    emulator.feed(b"one\r\n")
    emulator.resize(2000, CELLS_MAX // 2000 + 1)
    emulator.feed(b"two\r\n")
    with pytest.raises(ScreenTooLargeError, match="2000 columns"):
        emulator.screen()
    emulator.resize(70_000, 1)
    with pytest.raises(ScreenTooLargeError):
        emulator.screen()
    emulator.resize(30, 4)
    emulator.feed(b"three")
    assert emulator.screen().text() == "one\ntwo\nthree"
    with pytest.raises(ScreenTooLargeError):
        Emulator(1001, 1000).screen()


def test_very_large_window_has_no_links():
    rows = LINKS_CELLS_MAX // 400 + 1
    emulator = Emulator(400, rows)
    for byte in b"a\x1b]8;;http://x\x1b\\b\x1b]8;;\x07c":
        emulator.feed(bytes([byte]))
    assert emulator.screen().text() == "abc"
    assert {cell.style.link for cell in emulator.screen().cells(0)} == {""}
    # The library has no room for so many links.
    emulator.feed(b"\x1b]8;;h\a" + b"x" * (400 * rows * 4) + b"\x1b[H\x1bM\x1bM\x1b[5L\x1b[3M")
    emulator.resize(20, 5)
    emulator.feed(b"\x1bc\x1b]8;;http://x\x1b\\b")
    assert emulator.screen().cells(0)[0].style.link == ";http://x"


def test_screen_is_available_after_a_resize_cut_a_wide_character():
    emulator = Emulator(20, 5)
    emulator.feed("main \x1b[?1049h\x1b[?7l\r\n日本語日本語\x1b[4h".encode())
    emulator.resize(5, 5)
    emulator.resize(20, 5)
    assert emulator.screen().text().split("\n")[1].startswith("日本")
    emulator.feed(b"\x1b[?1049l")
    assert emulator.screen().text() == "main"


def test_endless_sequence_is_cancelled_when_a_screen_is_requested():
    emulator = Emulator(20, 5)
    emulator.feed(b"text\x1b]2;")
    for _ in range(50):
        emulator.feed(b"x" * 65536)
    assert emulator.screen().text() == "text"


def test_screen_has_the_bytes_of_an_incomplete_sequence():
    emulator = Emulator(20, 5)
    emulator.feed(b"a\x1b[3" + b"")
    assert emulator.screen().held == b"\x1b[3"
    emulator.feed(b"1mred" + "日".encode()[:2])
    assert emulator.screen().held == "日".encode()[:2]


def test_feed_for_feeds_in_order_and_returns_in_time():
    emulator = Emulator(20, 5)
    data = memoryview(b"\x1b#8" * 20_000 + b"\x1b[2J\x1b[Hend")
    at = calls = 0
    while at < len(data):
        at += emulator.feed_for(data[at:], 0.0005)
        calls += 1
    assert calls > 1
    assert emulator.screen().text() == "end"


def test_native_calls_run_within_at_work():
    entered = []

    class Mark:
        def __enter__(self):
            entered.append("begin")

        def __exit__(self, *_):
            entered.append("end")

    emulator = Emulator(20, 5, at_work=Mark())
    assert not entered
    emulator.feed(b"x")
    emulator.resize(10, 5)
    emulator.screen()
    assert len(entered) >= 6
    assert entered[::2] == ["begin"] * (len(entered) // 2)


def test_broken_emulator_shows_a_message():
    emulator = BrokenEmulator(80, 24)
    emulator.feed(b"whatever crashed it")
    assert emulator.feed_for(memoryview(b"more"), 1) == 4
    assert "emulator failed on this terminal's output" in emulator.screen().text()
    emulator.resize(40, 10)
    assert (emulator.screen().cols, emulator.screen().rows) == (40, 10)


def test_replies_of_one_call_are_bounded():
    replies = []
    Emulator(80, 24, replies.append).feed(b"\x1b[6n" * 100_000)
    assert len(replies) == 1
    assert REPLIES_MAX_BYTES - 20 < len(replies[0]) <= REPLIES_MAX_BYTES


@pytest.mark.parametrize("size", [(80, 24), (1, 1), (200, 50)])
def test_emulator_continues_from_the_state_of_an_earlier_one(size):
    first, second = [], []
    emulator, successor = Emulator(*size, first.append), Emulator(*size, second.append)
    emulator.feed(APPLICATION)
    first.clear()
    assert successor.restore(emulator.state())
    for data in (b"", b"\x1b[7mx", QUERIES):
        for one in (emulator, successor):
            one.feed(data)
        assert snapshot(successor.screen()) == snapshot(emulator.screen())
        assert successor.screen().held == emulator.screen().held
    for one in (emulator, successor):
        one.resize(70, 20)
    assert second == first
    assert len(b"".join(first)) > 30


@pytest.mark.parametrize("name", ["htop", "vim", "mc", "bash"])
def test_recorded_program_continues_from_the_state_of_an_earlier_emulator(name):
    lines = (SESSIONS / f"{name}.cast").read_text().splitlines()[1:]
    data = "".join(json.loads(line)[2] for line in lines).encode("utf-8", "surrogateescape")
    whole = Emulator(COLS, ROWS)
    whole.feed(data)
    expected = snapshot(whole.screen())
    restored = 0
    for at in range(0, len(data), len(data) // 50):
        first, second = Emulator(COLS, ROWS), Emulator(COLS, ROWS)
        first.feed(data[:at])
        if (state := first.state()) is not None:
            second.restore(state)
            second.feed(data[at:])
            assert snapshot(second.screen()) == expected
            restored += 1
    assert restored > 10


@pytest.mark.parametrize("cut", [b"\x1b", b"\x1b[38;5", b"\x1b]2;ti", "é".encode()[:1], b"\x1bPq"])
def test_there_is_no_state_within_a_sequence_or_a_character(cut):
    emulator = Emulator(80, 24)
    assert emulator.state() is None
    emulator.feed(b"x" + cut)
    assert emulator.state() is None
    emulator.feed(b"\x1b\\")
    assert emulator.state() is not None


def test_state_is_restored_at_the_present_size():
    emulator, successor = Emulator(80, 24), Emulator(100, 30)
    emulator.feed(b"one")
    assert successor.restore(emulator.state())
    assert successor.screen().text() == "one"
    assert (successor.screen().cols, successor.screen().rows) == (100, 30)


@pytest.mark.parametrize("state", [b"", b"of another version"])
def test_rows_that_are_not_known_say_so_until_they_are_drawn(state):
    emulator = Emulator(50, 4)
    assert not emulator.restore(state)
    notice = "[not known until the program draws it]"
    assert emulator.screen().text().split("\n") == [notice] * 4
    emulator.feed(b"\x1b[2;1H\x1b[Kdrawn")
    assert emulator.screen().text().split("\n") == [notice, "drawn", notice, notice]
    for number in range(5):
        emulator.feed(b"\r\n\x1b[4;1Hline %d" % number)
    emulator.feed(b"\x1b[H\x1b[J")
    assert emulator.screen().text() == ""


# Without the library


@pytest.fixture
def no_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyghostty", None)
    library._load.cache_clear()
    yield
    library._load.cache_clear()


def test_only_screen_raises_without_the_library(no_library):
    replies = []
    emulator = Emulator(20, 5, replies.append)
    emulator.feed(b"text\x1b[6n")
    emulator.resize(10, 5)
    assert not emulator.is_available
    with pytest.raises(EmulatorMissingError, match=r"package pyghostty.*pip install pyghostty"):
        emulator.screen()
    assert not replies


class Written:
    """A ring that retains everything."""

    def __init__(self, data):
        self.data = data
        self.start = 0

    def read(self, _since):
        return self


def test_tail_snapshot_has_the_last_lines(no_library):
    lines = b"".join(b"line %d\r\n" % number for number in range(100))
    picture = tail_snapshot(Written(lines), 5)
    assert picture.endswith(b"line 96\r\nline 97\r\nline 98\r\nline 99\r\n")
    assert b"line 95" not in picture
    with pytest.raises(EmulatorMissingError):
        tail_snapshot(Written(lines + b"\x1b[?1049hfull"), 5)
    assert tail_snapshot(Written(b"\x1b[?1049hx\x1b[?1049lover"), 5).endswith(b"over")
