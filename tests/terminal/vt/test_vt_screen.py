"""Screens: the cells, the cursor and the modes after output."""

import pytest

from acpterm.terminal.vt.emulator import Emulator
from acpterm.terminal.vt.style import (
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
from tests.support.cases import each_case
from tests.terminal.vt.streams import COLOURS, SEQUENCES, STATE


def emulator_of(*chunks, cols=20, rows=5):
    emulator = Emulator(cols, rows)
    for chunk in chunks:
        emulator.feed(chunk)
    return emulator


def screen_of(*chunks, cols=20, rows=5):
    return emulator_of(*chunks, cols=cols, rows=rows).screen()


def text_of(*chunks, cols=20, rows=5):
    return screen_of(*chunks, cols=cols, rows=rows).text()


def test_text_omits_trailing_blanks_and_trailing_rows():
    screen = screen_of(b"one  \r\n\r\n  two \r\n")
    assert screen.text() == "one\n\n  two"
    assert screen.cursor == (0, 3)
    assert (screen.cols, screen.rows) == (20, 5)
    assert screen_of(cols=3, rows=3).text() == ""


def test_scrolled_off_lines_are_not_shown():
    assert text_of(b"".join(b"%d\r\n" % n for n in range(10))) == "6\n7\n8\n9"


def test_text_is_written_at_the_cursor_position():
    data = b"\x1b[2J\x1b[2;3Hmenu\x1b[4;1Hstatus\x1b[2;5HNU\x1b[1mX\x1b[A\x1b[G>"
    assert text_of(data) == ">\n  meNUX\n\nstatus"


@each_case(
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
        (b"\x1b]0;title\nstill\aend", "end"),
    ],
)
def test_control_function_changes_the_screen(data, expected):
    assert text_of(data) == expected
    assert text_of(*(bytes([byte]) for byte in data)) == expected


def test_lines_wrap_unless_wrapping_is_off():
    assert text_of(b"abcdef", cols=4) == "abcd\nef"
    assert text_of(b"\x1b[?7labcdef", cols=4) == "abcf"
    assert screen_of(b"abcd", cols=4).cursor == (3, 0)
    assert text_of(b"abcd\r\nx", cols=4) == "abcd\nx"


def test_wide_characters_take_two_columns():
    assert text_of("日本語x".encode(), cols=5) == "日本\n語x"
    assert text_of("日本\rx".encode()) == "x 本"
    assert text_of("日本\x1b[2Gx".encode()) == " x本"
    assert text_of("a日\x1b[4Gb".encode()) == "a日b"


def test_combining_marks_are_bounded():
    assert text_of("e\u0301x日\u0301ก็".encode()) == "e\u0301x日\u0301ก็"
    assert text_of("\u0301a".encode()) == "a"
    assert len(text_of(b"a" + "\u0316".encode() * 10_000)) < 20
    assert text_of("👩\u200d💻\ufe0f!".encode()) == "👩\u200d💻\ufe0f!"


@pytest.mark.parametrize("mode", [b"47", b"1047", b"1049"])
def test_alternate_screen_does_not_change_the_main_screen(mode):
    emulator = emulator_of(b"$ vi\r\n", b"\x1b[?" + mode + b"h")
    assert emulator.screen().text() == ""
    emulator.feed(b"\x1b[2J\x1b[Hfile\x1b[5;9H~")
    assert emulator.screen().text() == "file\n\n\n\n        ~"
    emulator.feed(b"\x1b[?" + mode + b"l")
    assert emulator.screen().text() == "$ vi"
    if mode == b"1049":
        assert emulator.screen().cursor == (0, 1)
        emulator.feed(b"\x1b[?1049l$ ")
        assert emulator.screen().text() == "$ vi\n$"


def test_size_change_keeps_the_main_screen_while_the_alternate_screen_is_shown():
    emulator = emulator_of(b"1\r\n2\r\n3\r\n$ less\x1b[?1049h\x1b[5;20Hx")
    emulator.resize(10, 2)
    emulator.feed(b"\x1b[?1049l")
    assert emulator.screen().text() == "3\n$ less"
    assert emulator.screen().cursor == (6, 1)


def test_lines_of_a_shell_wrap_again_when_the_size_changes():
    emulator = emulator_of(b"one\r\ntwo three")
    emulator.resize(5, 3)
    assert emulator.screen().text() == "one\ntwo t\nhree"
    assert emulator.screen().cursor == (4, 2)
    emulator.resize(30, 4)
    assert emulator.screen().text() == "one\ntwo three"
    emulator.feed(b"\r\nlonger than it was before")
    assert emulator.screen().text() == "one\ntwo three\nlonger than it was before"
    assert (emulator.screen().cols, emulator.screen().rows) == (30, 4)


def test_program_does_not_change_the_size():
    emulator = emulator_of(b"\x1b[?40h\x1b[?3h\x1b[96h")
    emulator.feed(b"a" * 25)
    assert emulator.screen().text() == "a" * 20 + "\n" + "a" * 5


@pytest.mark.parametrize("size", [(0, 1), (1, 0), (-1, 5)])
def test_size_below_1_raises(size):
    with pytest.raises(ValueError, match=f"{size[0]} by {size[1]}"):
        Emulator(*size)
    with pytest.raises(ValueError, match=f"{size[0]} by {size[1]}"):
        Emulator(1, 1).resize(*size)


# Those of the sequences that change the text between "a" and "b": DECSEL erases the line, and REP
# repeats "a", at most 65,535 times.
CHANGED_TEXT = {
    b"\x1b[?2K": " b",
    b"\x1b[9999999999b": "\n".join([*4 * ["a" * 20], "a" * (65_536 % 20) + "b"]),
}


@each_case("sequence", [*SEQUENCES, *COLOURS, *STATE])
def test_sequence_itself_is_not_shown_on_the_screen(sequence):
    expected = CHANGED_TEXT.get(sequence, "ab")
    assert text_of(b"a" + sequence + b"b") == expected
    assert text_of(*(bytes([byte]) for byte in b"a" + sequence + b"b")) == expected


def test_characters_are_decoded_wherever_they_are_split():
    assert text_of(*(bytes([byte]) for byte in "aé日🙂".encode())) == "aé日🙂"
    assert text_of(b"\xff\x80") == "\ufffd\ufffd"


def test_erased_cells_are_blank():
    assert screen_of(b"\x1b#8\x1b[2;2H\x1b[J", cols=3, rows=3).text() == "EEE\nE"
    assert screen_of(b"\x1b#8\x1b[2;2H\x1b[1J", cols=3, rows=3).text() == "\n  E\nEEE"
    assert screen_of(b"\x1b#8\x1b[2;2H\x1b[2Jx", cols=3, rows=3).text() == "\n x"
    # Rows that DECALN filled are separate: writing to one does not change the others.
    assert screen_of(b"\x1b#8\x1b[2;2Hx", cols=3, rows=3).text() == "EEE\nExE\nEEE"


@pytest.mark.long
def test_memory_does_not_grow_with_the_output():
    emulator = emulator_of(b"a")
    data = b"\x1b7\x1b[?1049h\x1b[?1048h\x1b[?1049l\x1bH" + "e\u0301".encode() + b"\x1b[99;99H\n"
    data += b"\x1b]8;;http://a\ax\x1b]8;;\a\x1b[38;2;1;2;3mx\x1b[m\x1b]2;title\a"
    much = data * 2000
    emulator.feed(much)
    before = resident()
    for _ in range(10):
        emulator.feed(much)
    assert resident() - before < 1_000_000


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def style(*chunks, x=0, y=0, cols=20, rows=5):
    cells = screen_of(*chunks, cols=cols, rows=rows).cells(y)
    return cells[x].style if x < len(cells) else PLAIN


@each_case(
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
    ],
)
def test_sgr_parameters_set_the_style(parameters, expected):
    assert style(f"\x1b[{parameters}mx".encode()) == expected
    # The parameters that `sgr` returns set the same style.
    assert style(b"\x1b[1;7;41m", sgr(expected).encode(), b"x") == expected


@each_case(
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
def test_erased_cells_have_only_the_background_of_the_pen(data, cells):
    screen = screen_of(b"\x1b#8\x1b[1;31;44m", data)
    coloured = {
        (x, y)
        for y in range(5)
        for x, cell in enumerate(screen.cells(y))
        if cell == (" ", Style(bg=4))
    }
    assert coloured >= set(cells)
    letters = sum(cell == ("E", PLAIN) for y in range(5) for cell in screen.cells(y))
    assert len(coloured) + letters == 100


def test_pen_is_saved_with_the_cursor_and_reset():
    assert style(b"\x1b[31m\x1b7\x1b[m\x1b8x") == Style(fg=1)
    assert style(b"\x1b[31m\x1b[?1049h\x1b[32m\x1b[?1049lx") == Style(fg=1)
    assert style(b"\x1b[31m\x1bcx") == PLAIN
    assert style(b"\x1b[31m\x1b8x") == PLAIN


def test_screen_has_the_modes_of_the_viewers_terminal():
    screen = screen_of(
        b"\x1b[?1000h\x1b[?1002;1006;2004;1h\x1b=\x1b[3 q\x1b]0;a\xc2\x85 title\a\x1b[?1004h"
    )
    assert screen.modes == (1, 1004, 2004, 1002, 1006)
    assert (screen.application_keypad, screen.cursor_shape, screen.title) == (True, 3, "a title")
    assert (screen.application_cursor, screen.bracketed_paste) == (True, True)
    # Mouse modes replace each other, and the length of a title is bounded.
    assert screen_of(b"\x1b[?1000;1002h\x1b[?1000l").modes == ()
    assert len(screen_of(b"\x1b]2;" + b"x" * 1000 + b"\a").title) == 256
    assert screen_of(b"\x1b[?25l").cursor_visible is False


@each_case(
    ("stream", "flags"),
    [
        (b"", 0),
        (b"\x1b[>1u", 1),
        (b"\x1b[>1u\x1b[>31u", 31),
        (b"\x1b[>1u\x1b[>31u\x1b[<u", 1),
        (b"\x1b[>1u\x1b[>31u\x1b[<9u", 0),
        (b"\x1b[=3u\x1b[=4;2u", 7),
        (b"\x1b[=7u\x1b[=2;3u", 5),
        (b"\x1b[>u", 0),
        (b"\x1b[>1u\x1b[?1049h", 0),
        (b"\x1b[>1u\x1b[?1049h\x1b[>2u", 2),
        (b"\x1b[>1u\x1b[?1049h\x1b[>2u\x1b[?1049l", 1),
        (b"\x1b[>1u\x1bc", 0),
        (b"".join(b"\x1b[>%du" % n for n in range(1, 12)) + b"\x1b[<7u", 4),
        (b"".join(b"\x1b[>%du" % n for n in range(1, 12)) + b"\x1b[<8u", 0),
    ],
)
def test_screen_has_its_own_keyboard_flags(stream, flags):
    assert screen_of(stream).keys[-1] == flags


@pytest.mark.parametrize(
    ("stream", "level"),
    [
        (b"\x1b[>4;2m", 2),
        (b"\x1b[>4;2m\x1b[>4m", 0),
        (b"\x1b[>4;2m\x1b[?1049h", 2),
        (b"\x1b[>4;2m\x1b[>4n", 0),
    ],
)
def test_screen_has_the_level_of_modify_other_keys(stream, level):
    assert screen_of(stream).other_keys == level


def test_link_disappears_with_its_cells():
    def links(data):
        return [cell.style.link for cell in screen_of(data).cells(0)]

    opened = b"a\x1b]8;id=x;http://a/?b;c\x1b\\b"
    link = "id=x;http://a/?b;c"
    assert links(opened + b"\x1b[1;31mc\x1b[md\x1b]8;;\ae") == ["", link, link, link, ""]
    # A link is not saved with the cursor, and erased cells have none.
    assert links(b"\x1b7" + opened + b"\x1b8\x1b[2Cc") == ["", link, link]
    assert links(opened + b"\x1b7\x1b]8;;\a\x1b8c") == ["", link, ""]
    assert links(opened + b"\x1b[2K\x1b[44m\x1b[K\rc")[:2] == [link, ""]
    assert links(opened + b"\x1bcc") == [""]


@pytest.mark.parametrize("uri", ["http://日", "x" * 3000, "http://a b", ""])
def test_invalid_links_are_ignored(uri):
    (cell,) = screen_of(f"\x1b]8;;{uri}\x1b\\c".encode()).cells(0)[-1:]
    assert cell.style.link == ""


def test_half_of_a_wide_character_is_a_blank():
    for data in "日\x1b[2Gx", "x日\x1b[2G\x1b[X", "日\x1b[2G\x1b[P", "\x1b[19G日\r\x1b[@":
        screen = screen_of(data.encode())
        cells = screen.cells(0)
        for at, cell in enumerate(cells):
            if not cell.data:
                assert cells[at - 1].data == "日"
            if cell.data == "日":
                assert not cells[at + 1].data
