import subprocess
import sys
import time
import tracemalloc

import pytest
from acpterm.terminal.hyperlink import LINKS_MAX
from acpterm.terminal.screen import Screen
from hypothesis import given, settings
from hypothesis import strategies as st

from acpterm.terminal.vt.style import (
    BLANK,
    BLINK,
    BOLD,
    FAINT,
    ITALIC,
    PLAIN,
    REVERSE,
    RGB,
    UNDERLINE,
    Style,
    sgr,
)
from tests.support.depth import examples

SEQUENCES = [
    *(b"\x1b[>4m", b"\x1b[>4;2m", b"\x1b[?4m", b"\x1b[?1;2c", b"\x1b[>c", b"\x1b[=c", b"\x1b[c"),
    *(b"\x1b[?5r", b"\x1b[?2;3H", b"\x1b[6n", b"\x1b[?6n", b"\x1b[!p", b"\x1b[4:3m", b"\x1b[<u"),
    *(b"\x1b[2 q", b"\x1b[?25$p", b"\x1b[99J", b"\x1b[99K", b"\x1b[?2K", b"\x1b[9999999999b"),
    *(b"\x1b[" + b"1;" * 90 + b"H", "\x1b[²m".encode(), b"\x1b[38;5;999m", b"\x1b[48;2m"),
    *(b"\x1bP$q q\x1b\\", b"\x1b_Ga=q\x1b\\", b"\x1bXsos\x1b\\", b"\x1b]11;?\a", b"\x1b]0;t\x1b\\"),
    *(
        b"\x1b F",
        b"\x1b*0",
        b"\x1b%G",
        b"\x1b#3",
        b"\x1b=",
        b"\x1b>",
        b"\x1bZ",
        b"\x1bN",
        b"\x1b\\",
    ),
]
COLOURS = [
    *(b"\x1b[m", b"\x1b[1m", b"\x1b[2;3m", b"\x1b[4m", b"\x1b[4:3m", b"\x1b[5;7m", b"\x1b[8;9m"),
    *(b"\x1b[31m", b"\x1b[42m", b"\x1b[97;104m", b"\x1b[38;5;208m", b"\x1b[48;2;1;2;3m"),
    *(b"\x1b[38:2::255:0:9m", b"\x1b[48:5:17m", b"\x1b[58:2::1:2:3m", b"\x1b[39;49;22;24m"),
    *(b"\x1b[38m", b"\x1b[38;2m", b"\x1b[38:m", b"\x1b[48:2:1m", b"\x1b[58:5m", b"\x1b[4:9m"),
]
TOLD = [
    *(b"\x1b[?1h", b"\x1b[?1l", b"\x1b=", b"\x1b>", b"\x1b[?2004h", b"\x1b[?1000h", b"\x1b[?1006h"),
    *(b"\x1b[?1002;1015h", b"\x1b[?1003l", b"\x1b[?25l", b"\x1b[?25h", b"\x1b[?12h", b"\x1b[?5h"),
    *(b"\x1b[5 q", b"\x1b[ q", b"\x1b]2;a title\a", b"\x1b]0;another\x1b\\", b"\x1b[!p"),
    *(b"\x1b]8;;http://a\a", b"\x1b]8;id=1;http://b\x1b\\", b"\x1b]8;;\a"),
    *(
        b"\x1b[>1u",
        b"\x1b[>15u",
        b"\x1b[<u",
        b"\x1b[<2u",
        b"\x1b[=5;2u",
        b"\x1b[=1;3u",
        b"\x1b[>4;2m",
    ),
]
MOVES = [
    *(b"\x1b[H", b"\x1b[3;4H", b"\x1b[99;99H", b"\x1b[A", b"\x1b[9B", b"\x1b[C", b"\x1b[3D"),
    *(b"\x1b[2J", b"\x1b[J", b"\x1b[1J", b"\x1b[K", b"\x1b[1K", b"\x1b[2K", b"\x1b[3X", b"\x1b[2P"),
    *(b"\x1b[2@", b"\x1b[2L", b"\x1b[2M", b"\x1b[2;3r", b"\x1b[r", b"\x1b[?6h", b"\x1b[?6l"),
    *(b"\x1b[?7l", b"\x1b[?7h", b"\x1b[4h", b"\x1b[4l", b"\x1b[20h", b"\x1b[?3h", b"\x1b[?3l"),
    *(
        b"\x1b[2d",
        b"\x1b[4G",
        b"\x1b7",
        b"\x1b8",
        b"\x1b[s",
        b"\x1b[u",
        b"\x1bD",
        b"\x1bM",
        b"\x1bE",
    ),
    *(b"\x1bc", b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?47h", b"\x1b[?47l", b"\x1b[96h", b"\x1b#8"),
    *(b"\x1b[3S", b"\x1b[2T", b"\x1b[5b", b"\x1b[2I", b"\x1b[Z", b"\x1bH", b"\x1b[3g", b"\x1b(0"),
    *(b"\x1b(B", b"\x0e", b"\x0f", b"\r", b"\n", b"\b", b"\t", b"\v", b"\x18", b"\x1b", b"\x1b["),
]
TEXT = [
    c.encode()
    for c in ("a", "hello world", "é", "日本語", "e\u0301", "\u0301", "🙂", "\u200d", "\ufe0f")
]


def screen_of(*chunks, cols=20, rows=5):
    screen = Screen(cols, rows)
    for chunk in chunks:
        screen.feed(chunk)
    return screen


def shown(*chunks, cols=20, rows=5):
    return screen_of(*chunks, cols=cols, rows=rows).text()


def test_rows_without_trailing_blanks_and_no_trailing_rows():
    screen = screen_of(b"one  \r\n\r\n  two \r\n")
    assert screen.text() == "one\n\n  two"
    assert screen.cursor == (0, 3)
    assert (screen.cols, screen.rows) == (20, 5)
    assert Screen(3, 3).text() == ""


def test_what_scrolled_off_is_not_shown():
    assert shown(b"".join(b"%d\r\n" % n for n in range(10))) == "6\n7\n8\n9"


def test_a_program_paints_by_moving_the_cursor():
    data = b"\x1b[2J\x1b[2;3Hmenu\x1b[4;1Hstatus\x1b[2;5HNU\x1b[1mX\x1b[A\x1b[G>"
    assert shown(data) == ">\n  meNUX\n\nstatus"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"abc\x1b[2D\x1b[P", "ac"),
        (b"abc\r\x1b[2@", "  abc"),
        (b"abcdef\r\x1b[3X", "   def"),
        (b"abc\x1b[4hx\rY\x1b[4l", "Yabcx"),
        (b"1\r\n2\r\n3\x1b[1;1H\x1b[M", "2\n3"),
        (b"1\r\n2\r\n\r\n4\x1b[1;1H\x1b[2M", "\n4"),
        (b"1\r\n2\r\n3\x1b[2;1H\x1b[L", "1\n\n2\n3"),
        (b"1\r\n2\r\n3\x1b[S", "2\n3"),
        (b"1\r\n2\r\n3\x1b[T", "\n1\n2\n3"),
        (b"1\r\n2\r\n3\r\n4\r\n5\x1b[2;4r\x1b[4;1H\n", "1\n3\n4\n\n5"),
        (b"\x1b[1;3r\x1b[5;1Hlow\n\x1b[Aup", "\n\n\n   up\nlow"),
        (b"\x1b[2;4r\x1b[?6h\x1b[1;1Horigin\x1b[2dx", "\norigin\n      x"),
        (b"1\r\n\r\n3\r\n4\r\n5\n", "\n3\n4\n5"),
        (b"a\x1b[?2;3Hb\x1b[>3;3H\x1b[2;3 Hc", "abc"),
        (b"-\x1b[4b|", "-----|"),
        (b"a\tb\x1b[Zc\x1b[2Id", "a       c          d"),
        (b"a\x1b7bc\x1b8X\x1b8Y", "aYc"),
        (b"a\x1b[sbc\x1b[uX", "aXc"),
        (b"12\x1bE34\x1bM\x1bM5", "  5\n12\n34"),
        (b"\x1b(0lqk\x1b(Blqk\x1b)0\x0ex\x0f", "┌─┐lqk│"),
        (b"a\x1b[3Jb", "ab"),
        (b"abc\x1bcd", "d"),
        (b"a\x1b[\r1mb", "b"),
        (b"a\x1b[1\x18b", "ab"),
        ("a\x1b[1éb".encode(), "aéb"),
        (b"\x1b]0;title\nlost end", "\nlost end"),
    ],
)
def test_control_functions(data, expected):
    assert shown(data) == expected
    assert shown(*(bytes([byte]) for byte in data)) == expected


def test_lines_wrap_unless_told_not_to():
    assert shown(b"abcdef", cols=4) == "abcd\nef"
    assert shown(b"\x1b[?7labcdef", cols=4) == "abcf"
    screen = screen_of(b"abcd", cols=4)
    assert screen.cursor == (3, 0)
    screen.feed(b"\r\nx")
    assert screen.text() == "abcd\nx"


def test_wide_characters_take_two_columns():
    assert shown("日本語x".encode(), cols=5) == "日本\n語x"
    assert shown("日本\rx".encode()) == "x 本"
    assert shown("日本\x1b[2Gx".encode()) == " x本"
    assert shown("a日\x1b[4Gb".encode()) == "a日b"


def test_marks_combine_and_do_not_pile_up():
    assert shown("e\u0301x日\u0301".encode()) == "éx日\u0301"
    assert shown("\u0301a".encode()) == "a"
    assert len(shown(b"a" + "\u0316".encode() * 10_000)) < 20
    assert shown("👩\u200d💻\ufe0f!".encode()) == "👩💻!"


@pytest.mark.parametrize("mode", [b"47", b"1047", b"1049"])
def test_the_alternate_screen_leaves_the_main_one_as_it_was(mode):
    screen = screen_of(b"$ vi\r\n", b"\x1b[?" + mode + b"h")
    assert screen.text() == ""
    screen.feed(b"\x1b[2J\x1b[Hfile\x1b[5;9H~\x1b[?" + mode + b"h")
    assert screen.text() == "file\n\n\n\n        ~"
    screen.feed(b"\x1b[?" + mode + b"l")
    assert screen.text() == "$ vi"
    if mode == b"1049":
        assert screen.cursor == (0, 1)
        screen.feed(b"\x1b[?1049l$ ")
        assert screen.text() == "$ vi\n$"


def test_a_size_change_keeps_the_main_screen_under_the_alternate_one():
    screen = screen_of(b"1\r\n2\r\n3\r\n$ less\x1b[?1049h\x1b[5;20Hx")
    screen.resize(10, 2)
    screen.feed(b"\x1b[?1049l")
    assert screen.text() == "3\n$ less"
    assert screen.cursor == (6, 1)


def test_a_size_change_drops_empty_rows_first():
    screen = screen_of(b"one\r\ntwo three")
    screen.resize(5, 3)
    assert screen.text() == "one\ntwo t"
    assert screen.cursor == (4, 1)
    screen.resize(30, 1)
    assert screen.text() == "two t"
    screen.resize(30, 4)
    screen.feed(b"\r\nlonger than it was before")
    assert screen.text() == "two t\nlonger than it was before"
    assert (screen.cols, screen.rows) == (30, 4)


def test_a_program_does_not_change_the_size():
    screen = screen_of(b"a\x1b[?40h\x1b[?3h\x1b[96h")
    assert (screen.cols, screen.text()) == (20, "a")


@pytest.mark.parametrize("size", [(0, 1), (1, 0), (-1, 5)])
def test_a_size_of_nothing_is_an_error(size):
    with pytest.raises(ValueError, match=f"{size[0]} by {size[1]}"):
        Screen(*size)
    with pytest.raises(ValueError, match=f"{size[0]} by {size[1]}"):
        Screen(1, 1).resize(*size)


@pytest.mark.parametrize("sequence", [*SEQUENCES, *COLOURS, *TOLD])
def test_what_has_no_meaning_here_leaves_nothing_behind(sequence):
    if sequence.endswith((b"J", b"K", b"H", b"b")):
        shown(b"a" + sequence + b"b")
        return
    expected = "a²mb" if "²".encode() in sequence else "ab"
    assert shown(b"a" + sequence + b"b") == expected
    assert shown(*(bytes([byte]) for byte in b"a" + sequence + b"b")) == expected


def test_a_sequence_without_its_end_is_over_at_last():
    assert shown(b"\x1bP" + b"x" * 8190 + b"text") == "text"
    assert shown(b"\x1b_", *[b"y"] * 8190, b"text") == "text"
    assert shown(b"\x1b_" + b"y" * 9000 + b"\x1b\\", cols=2000) == "y" * (9002 - 8192)


def test_characters_cut_anywhere():
    assert shown(*(bytes([byte]) for byte in "aé日🙂".encode())) == "aé日🙂"
    assert shown(b"\xff\x80") == "\ufffd\ufffd"


@pytest.mark.parametrize(
    "sequence",
    [b"\x1b#8", b"x\x1b[9999b", b"\x1b[J", b"\x1b[9999Z", b"\x1b[9999I", b"\x1b[4h\x1b[9999b"],
)
@pytest.mark.parametrize(("cols", "rows"), [(120, 40), (10_000, 100)])
def test_no_sequence_takes_long_however_often_it_comes(sequence, cols, rows):
    screen = screen_of(b"\x1b[3g" + b"\x1bH \r" * 40 + b"\x1b#8", cols=cols, rows=rows)
    some = max(1, 200 * 4800 // (cols * rows))
    before = time.process_time()
    screen.feed(some * sequence)
    # By the cell it would take ten times as long, and more.
    assert time.process_time() - before < 0.1


def test_rep_stays_within_the_width_and_erasing_leaves_blanks():
    assert screen_of(b"ab\x1b[9999b", cols=5, rows=4).text() == "abbbb\nbb"
    assert screen_of(b"\x1b#8\x1b[2;2H\x1b[J", cols=3, rows=3).text() == "EEE\nE"
    assert screen_of(b"\x1b#8\x1b[2;2H\x1b[1J", cols=3, rows=3).text() == "\n  E\nEEE"
    assert screen_of(b"\x1b#8\x1b[2;2H\x1b[2Jx", cols=3, rows=3).text() == "\n x"
    # Rows that were filled at once are rows of their own.
    assert screen_of(b"\x1b#8\x1b[2;2Hx", cols=3, rows=3).text() == "EEE\nExE\nEEE"


def test_if_the_emulator_raises_the_sequence_is_left_out(monkeypatch):
    screen = screen_of(b"a")
    table = sys.modules[type(screen._emulator).__module__]._POSITIONS
    monkeypatch.setitem(table, "H", lambda *_: 1 / 0)
    screen.feed(b"\x1b[2;2Hb\x1b[2;2H")
    assert screen.text() == "ab"


def test_the_screen_does_not_grow_with_what_is_printed():
    screen = screen_of(b"a")
    data = b"\x1b7\x1b[?1049h\x1b[?1048h\x1b[?1049l\x1bH" + "e\u0301".encode() + b"\x1b[99;99H\n"
    screen.feed(data * 50)
    tracemalloc.start()
    screen.feed(data * 500)
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 20_000


def style(*chunks, x=0, y=0, cols=20, rows=5):
    cells = screen_of(*chunks, cols=cols, rows=rows).grid.cells_of(y)
    return cells[x].style if x < len(cells) else PLAIN


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("", PLAIN),
        ("31;42", Style(fg=1, bg=2)),
        ("91;102", Style(fg=9, bg=10)),
        ("38;5;208;1", Style(fg=208, flags=BOLD)),
        ("38:5:208", Style(fg=208)),
        ("48;2;1;2;3;4", Style(bg=RGB | 0x010203, flags=UNDERLINE)),
        ("38:2::255:0:9", Style(fg=RGB | 0xFF0009)),
        ("38:2:255:0:9", Style(fg=RGB | 0xFF0009)),
        ("58:2::1:2:3;4:3", Style(line=RGB | 0x010203, flags=3 * UNDERLINE)),
        ("58;5;1;21", Style(line=1, flags=2 * UNDERLINE)),
        ("1;2;3;5;7;8;9;53", Style(flags=BOLD | FAINT | ITALIC | BLINK | REVERSE | 32 | 64 | 128)),
        ("1;2;3;4;5;7;8;9;53;22;23;24;25;27;28;29;55", PLAIN),
        ("31;42;58:5:1;39;49;59", PLAIN),
        ("31;1;0;3", Style(flags=ITALIC)),
        ("31;;3", Style(flags=ITALIC)),
        ("38;5;999;1", Style(flags=BOLD)),
        ("38;2;1;2", Style(fg=RGB | 0x010200)),
        ("38;2;1;2;300;3", Style(flags=ITALIC)),
        ("4:9;31:2;3:1", PLAIN),
    ],
)
def test_renditions(parameters, expected):
    assert style(f"\x1b[{parameters}mx".encode()) == expected
    # And what is written out for it means the same.
    assert style(b"\x1b[1;7;41m", sgr(expected).encode(), b"x") == expected


@pytest.mark.parametrize(
    ("data", "cells"),
    [
        (b"\x1b[2J", [(0, 0), (19, 4)]),
        (b"\x1b[3;5H\x1b[J", [(4, 2), (19, 2), (0, 3), (19, 4)]),
        (b"\x1b[3;5H\x1b[1J", [(0, 0), (19, 1), (4, 2)]),
        (b"\x1b[3;5H\x1b[K", [(4, 2), (19, 2)]),
        (b"\x1b[3;5H\x1b[1K", [(0, 2), (4, 2)]),
        (b"\x1b[3;5H\x1b[2K", [(0, 2), (19, 2)]),
        (b"\x1b[3;5H\x1b[3X", [(4, 2), (6, 2)]),
        (b"\x1b[3;5H\x1b[3@", [(4, 2), (6, 2)]),
        (b"\x1b[3;5H\x1b[3P", [(17, 2), (19, 2)]),
        (b"\x1b[3;5H\x1b[2L", [(0, 2), (19, 3)]),
        (b"\x1b[3;5H\x1b[2M", [(0, 3), (19, 4)]),
        (b"\x1b[2S", [(0, 3), (19, 4)]),
        (b"\x1b[2T", [(0, 0), (19, 1)]),
        (b"\x1b[5;1H\n", [(0, 4), (19, 4)]),
        (b"\x1bM", [(0, 0), (19, 0)]),
        (b"\x1b[2;4r\x1b[4;1H\n", [(0, 3), (19, 3)]),
    ],
)
def test_what_is_erased_has_the_background_of_the_pen_and_nothing_else(data, cells):
    screen = screen_of(b"\x1b#8\x1b[1;31;44m", data)
    coloured = {
        (x, y)
        for y in range(5)
        for x, cell in enumerate(screen.grid.cells_of(y))
        if cell == (" ", Style(bg=4))
    }
    assert coloured >= set(cells)
    letters = sum(cell == ("E", PLAIN) for y in range(5) for cell in screen.grid.cells_of(y))
    assert len(coloured) + letters == 100
    # Columns that come later were not erased.
    screen.resize(30, 5)
    assert all(cell == BLANK for y in range(5) for cell in screen.grid.cells_of(y)[20:])


def test_the_pen_is_saved_with_the_cursor_and_reset():
    assert style(b"\x1b[31m\x1b7\x1b[m\x1b8x") == Style(fg=1)
    assert style(b"\x1b[31m\x1b[?1049h\x1b[32m\x1b[?1049lx") == Style(fg=1)
    assert style(b"\x1b[31m\x1bcx") == PLAIN
    assert style(b"\x1b[31m\x1b[!px") == PLAIN
    assert style(b"\x1b[31m\x1b8x") == PLAIN


def test_a_soft_reset_leaves_the_cells_and_the_cursor():
    screen = screen_of(b"ab\x1b[2;3r\x1b[?6h\x1b[4h\x1b[?7l\x1b[?25l\x1b[?1h\x1b=\x1b(0\x1b[!pq")
    assert screen.text() == "ab\nq"
    assert screen.cursor_visible
    assert not screen.application_cursor
    assert (screen.grid.margins, screen.grid.told.keypad) == (None, False)


def test_what_viewers_are_told_is_noted():
    told = screen_of(
        b"\x1b[?1000h\x1b[?1002;1006;2004;1h\x1b=\x1b[3 q\x1b]0;a\x01\xc2\x85 title\a\x1b[?1004h"
    ).grid.told
    assert told.modes == (1000, 1002, 1006, 2004, 1, 1004)
    assert (told.keypad, told.shape, told.title) == (True, 3, "a title")
    # There is one mouse, and a title is not longer than a title is.
    assert screen_of(b"\x1b[?1000;1002h\x1b[?1000l").grid.told.modes == ()
    assert len(screen_of(b"\x1b]2;" + b"x" * 5000 + b"\a").title) == 256
    assert screen_of(b"\x1b]2;cut short\x18\x1b]2;so\n").title == ""


def test_how_keys_are_told_is_noted_for_each_screen():
    for stream, flags in {
        b"": 0,
        b"\x1b[>1u": 1,
        b"\x1b[>1u\x1b[>31u": 31,
        b"\x1b[>1u\x1b[>31u\x1b[<u": 1,
        b"\x1b[>1u\x1b[>31u\x1b[<9u": 0,
        b"\x1b[=3u\x1b[=4;2u": 7,
        b"\x1b[=7u\x1b[=2;3u": 5,
        b"\x1b[=7u\x1b[=2;1u": 2,
        b"\x1b[>u": 0,
        b"\x1b[>1u\x1b[?1049h": 0,
        b"\x1b[>1u\x1b[?1049h\x1b[>2u": 2,
        b"\x1b[>1u\x1b[?1049h\x1b[>2u\x1b[?1049l": 1,
        b"\x1b[>1u\x1bc": 0,
        b"\x1b[?u\x1b[>9999999999u": 9999999999 & 31,
        b"".join(b"\x1b[>%du" % n for n in range(1, 12)) + b"\x1b[<7u": 4,
        b"".join(b"\x1b[>%du" % n for n in range(1, 12)) + b"\x1b[<8u": 0,
    }.items():
        assert screen_of(stream).grid.told.keys.flags == flags, stream
    for stream, level in {
        b"\x1b[>4;2m": 2,
        b"\x1b[>4;2m\x1b[>4m": 0,
        b"\x1b[>4;2m\x1b[?1049h": 2,
        b"\x1b[>1;2m\x1b[>4;9m": 0,
        b"\x1b[>4;2m\x1b[>m": 0,
        b"\x1b[>4;2m\x1b[>4n": 0,
        b"\x1b[>4;2m\x1b[>1m": 2,
    }.items():
        assert screen_of(stream).grid.told.keys.level == level, stream


def test_a_link_goes_with_what_it_covers():
    def links(data):
        return [cell.style.link for cell in screen_of(data).grid.cells_of(0)]

    begun = b"a\x1b]8;id=x;http://a/?b;c\x1b\\b"
    link = "id=x;http://a/?b;c"
    assert links(begun + b"\x1b[1;31mc\x1b[md\x1b]8;;\ae") == ["", link, link, link, ""]
    # Neither saved nor restored, and no part of what is erased.
    assert links(b"\x1b7" + begun + b"\x1b8\x1b[2Cc") == ["", link, link]
    assert links(begun + b"\x1b7\x1b]8;;\a\x1b8c") == ["", link, ""]
    assert links(begun + b"\x1b[2K\x1b[44m\x1b[K\rc")[:2] == [link, ""]
    assert links(begun + b"\x1b[!pc") == ["", link, ""]
    assert links(begun + b"\x1bcc") == [""]


def test_links_are_bounded_and_come_back_when_there_is_room_again():
    def link(number):
        return b"\x1b]8;;http://%d/%b\x1b\\x" % (number, b"l" * 2000)

    screen = screen_of(*map(link, range(1000)), cols=40, rows=30)

    def held():
        cells = [cell for y in range(30) for cell in screen.grid.cells_of(y)]
        return sum(map(len, {cell.style.link for cell in cells}))

    assert LINKS_MAX // 4 < held() <= LINKS_MAX
    screen.feed(b"\x1b[2J")
    assert held() == 0
    screen.feed(b"".join(map(link, range(1000))))
    assert LINKS_MAX // 4 < held() <= LINKS_MAX


@pytest.mark.parametrize("said", ["http://日", "x" * 3000, "http://a b", ""])
def test_what_is_no_link_is_none(said):
    (cell,) = screen_of(f"\x1b]8;;{said}\x1b\\c".encode()).grid.cells_of(0)[-1:]
    assert cell.style.link == ""


def test_half_of_a_wide_character_is_a_blank():
    for data in "日\x1b[2Gx", "x日\x1b[2G\x1b[X", "日\x1b[2G\x1b[P", "\x1b[19G日\r\x1b[@":
        screen = screen_of(data.encode())
        cells = screen.grid.cells_of(0)
        for at, cell in enumerate(cells):
            if not cell.data:
                assert cells[at - 1].data == "日"
            if cell.data == "日":
                assert not cells[at + 1].data


def test_pyte_is_not_imported_before_there_is_a_screen():
    program = "import sys, acpterm.terminal.screen; print('pyte' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert run.stdout == b"False\n"


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.sampled_from(SEQUENCES)
        | st.sampled_from(COLOURS)
        | st.sampled_from(TOLD)
        | st.sampled_from(MOVES)
        | st.sampled_from(TEXT)
        | st.binary(max_size=4)
        | st.tuples(st.integers(1, 12), st.integers(1, 6)),
        max_size=40,
    ),
)
def test_no_input_breaks_the_screen(steps):
    screen = Screen(9, 4)
    failures = []
    do = screen._emulator._do

    def counted(token):
        try:
            do(token)
        except Exception as error:
            failures.append((token, error))
            raise

    # __slots__ has no place for it: the emulator's class is what `feed` asks.
    kind = type(screen._emulator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "_do", lambda _self, token: counted(token))
        for step in steps:
            if isinstance(step, tuple):
                screen.resize(*step)
            else:
                screen.feed(step)
            column, row = screen.cursor
            assert 0 <= column < screen.cols
            assert 0 <= row < screen.rows
            assert len(screen.text().split("\n")) <= screen.rows
    assert not failures
