"""The emulator: its native terminal, sizes, incomplete sequences, and a missing library."""

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
from acpterm.terminal.vt.paint import tail_snapshot


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
