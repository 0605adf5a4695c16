"""Snapshots and frames bring another terminal into the state of a screen."""

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from acpterm.terminal.vt.dump import NOTHING_SAVED
from acpterm.terminal.vt.emulator import Emulator
from acpterm.terminal.vt.frames import Frames
from acpterm.terminal.vt.paint import LEAVE, alternate_snapshot, snapshot
from acpterm.terminal.vt.rows import rows, trimmed
from acpterm.terminal.vt.screen import DECOM, MODES
from acpterm.terminal.vt.style import BLANK, FAINT, Cell, Style
from tests.support.depth import examples
from tests.terminal.vt.streams import ALL

# The cell that frames show outside of the screen.
OUTSIDE = Cell("·", Style(flags=FAINT))
STREAM = st.lists(
    st.sampled_from(ALL)
    | st.text("ab日🙂e\u0301 ", max_size=12).map(str.encode)
    | st.binary(max_size=3),
    max_size=40,
).map(b"".join)


def emulator_of(*chunks, cols=20, rows=5):
    emulator = Emulator(cols, rows)
    for chunk in chunks:
        emulator.feed(chunk)
    return emulator


def screen_of(*chunks, cols=20, rows=5):
    return emulator_of(*chunks, cols=cols, rows=rows).screen()


def repaint(emulator, screen):
    """Feed the snapshot of a screen to another emulator; return that emulator's screen."""
    emulator.feed(snapshot(screen) + screen.held)
    return emulator.screen()


def charsets(found):
    # UTF-8 and ASCII are the same characters.
    return tuple(number or 1 for number in found.sets), found.gl


def saved(kept):
    kept = kept or NOTHING_SAVED
    return kept._replace(charsets=charsets(kept.charsets))


def state(screen):
    """Return the complete state of a screen, as far as a viewer can observe it."""
    main = screen.main
    below = main and [screen.cells(y, main=True) for y in range(screen.rows)]
    is_shown = screen.rows, screen.cols
    return {
        "rows": [screen.cells(y) for y in range(screen.rows)],
        "main": main and (below, saved(main.saved), main.keys),
        "saved": saved(screen.saved),
        "cursor": (screen.cursor, screen.wraps),
        "pen": screen.pen,
        "margins": (screen.margins, screen.side_margins),
        "charsets": charsets(screen.charsets),
        "tabs": screen.tabs,
        "modes": (screen.modes, [screen.is_set(mode) for mode in (6, 7, 25, 69, -4, -20)]),
        "cursor shape": (screen.cursor_shape, screen.is_default_cursor_blinking),
        "keys": (screen.application_keypad, screen.keys, screen.other_keys),
        "title": screen.title,
        "held": screen.held,
        "size": is_shown,
    }


def cursor_is_outside(screen):
    """Return whether a snapshot may be unable to move the cursor to its place.

    In origin mode, sequences move it only between the margins. A cursor that was saved in origin
    mode counts as well, if the alternate screen is shown.
    """
    (top, bottom), (left, right), (x, y) = screen.margins, screen.side_margins, screen.cursor
    kept = screen.saved
    saved_outside = kept is not None and kept.origin and screen.main is not None
    return saved_outside or (
        screen.is_set(DECOM) and not (top <= y <= bottom and left <= x <= right)
    )


def without_marks(screen):
    """Return the cells without combining characters on blanks.

    A snapshot paints a cell that was never written as a space. A space accepts combining
    characters, such a cell does not.
    """
    return [
        trimmed([cell._replace(data=" ") if cell.data.startswith(" ") else cell for cell in row])
        for row in state(screen)["rows"]
    ]


@settings(max_examples=examples(300), deadline=None)
@example(b"\x1b[?7l\ta", b"", b"e\xcc\x81")
@example(b"\x1b[?7l\ta", b"", b" \xcc\x81")
# With mode 40, DECCOLM erases the screen.
@example(b"a", b"\x1b[?40h", b"\x1b[?3h")
@example(b"\x1b[?40ha", b"", b"\x1b[?3h")
# Few random streams end on the alternate screen.
@example(b"ab\x1b[4G\x1bH\x1b[?1049h\x1b[31mcd\x1b7", b"\x1b[?1049hx", b"\x1b8\x1b[?1049l\te")
@given(STREAM, STREAM, STREAM)
@pytest.mark.long
def test_snapshot_brings_any_screen_into_the_same_state(before, dirt, after):
    source = emulator_of(before, cols=9, rows=6)
    screen = source.screen()
    assume(not cursor_is_outside(screen))
    # A snapshot cannot always restore the character that REP repeats. Modes 47 and 1047 show old
    # contents of the alternate screen, which may differ on the viewer's terminal.
    after = after.replace(b"b", b"B").replace(b"?47h", b"?1049h").replace(b"?1047h", b"?1049h")
    source.feed(after)
    for other in Emulator(9, 6), emulator_of(dirt, cols=9, rows=6):
        expected, found = state(screen), state(repaint(other, screen))
        if not screen.title:
            # A snapshot without a title does not change the viewer's title.
            found["title"] = ""
        assert found == expected
        other.feed(after)
        if not other.screen().is_set(DECOM):
            assert without_marks(other.screen()) == without_marks(source.screen())


@settings(max_examples=examples(150), deadline=None)
@example(b"\x1b[4G\x1bH\x1b[31mab\x1b7\x1b[2;4r\x1b[?25l\x1b[4h")
@given(STREAM)
def test_alternate_snapshot_leaves_the_main_screen_alone(stream):
    source = Emulator(9, 6)
    source.feed(b"\x1b[?1049h" + stream)
    screen = source.screen()
    assume(screen.is_alternate)
    other = Emulator(9, 6)
    other.feed(b"one\r\n\x1b[31mtwo ")
    before = other.screen()
    other.feed(alternate_snapshot(screen) + screen.held)
    expected, found = state(screen), state(other.screen())
    if not screen.title:
        found["title"] = ""
    del expected["main"], found["main"]
    assert found == expected
    other.feed(LEAVE)
    after = other.screen()
    assert_restored(after)
    assert [after.cells(y) for y in range(6)] == [before.cells(y) for y in range(6)]
    assert after.cursor == before.cursor


@settings(max_examples=examples(150), deadline=None)
@example(b"", [b"\x1b=\x1b[5 q", b"\x1b>\x1b[ q\x1b]2;title\a"], 9, 6)
@given(STREAM, st.lists(STREAM, min_size=1, max_size=4), st.integers(2, 14), st.integers(2, 8))
def test_frames_show_the_part_with_the_cursor_and_send_only_what_changed(dirt, steps, cols, lines):
    source = Emulator(9, 6)
    frames, window = Frames(cols, lines), emulator_of(dirt, cols=cols, rows=lines)
    window.feed(b"\x18\x1bc\x1b]2;before\a")
    title = "before"
    for step in steps:
        source.feed(step)
        screen = source.screen()
        window.feed(frames.frame(screen))
        assert frames.frame(screen) == b""
        view, left, top = window.screen(), frames._left, frames._top
        column, row = screen.cursor
        assert view.cursor == (column - left, row - top)
        assert view.cursor_visible == screen.cursor_visible
        assert sorted(view.modes) == sorted(screen.modes)
        assert view.application_keypad == screen.application_keypad
        assert view.cursor_shape == screen.cursor_shape
        # A frame of a screen without a title does not change the viewer's title.
        title = screen.title or title
        assert view.title == title
        assert (view.keys[-1], view.other_keys) == (screen.keys[-1], screen.other_keys)
        for at in range(lines):
            source_cells = screen.cells(top + at) if top + at < screen.rows else []
            source_cells += [BLANK] * (left + cols - len(source_cells))
            cells = view.cells(at)
            for x, cell in enumerate(cells + [BLANK] * (cols - len(cells))):
                expected = source_cells[left + x]
                if x >= screen.cols or top + at >= screen.rows:
                    expected = OUTSIDE
                behind = source_cells[left + x + 1 : left + x + 2]
                if (x == 0 and not expected.data) or (
                    x == cols - 1 and behind and not behind[0].data
                ):
                    # The other half of the wide character is outside.
                    expected = expected._replace(data=" ")
                assert cell == expected, (at, x)
    window.feed(LEAVE)
    assert_restored(window.screen())


def assert_restored(screen):
    assert not screen.is_alternate
    assert screen.cursor_visible
    assert (screen.modes, screen.application_keypad, screen.cursor_shape) == ((), False, 0)
    assert (screen.keys[-1], screen.other_keys) == (0, 0)
    assert (screen.pen.fg, screen.pen.flags, screen.pen.link) == (-1, 0, "")
    assert screen.margins == (0, screen.rows - 1)
    assert [screen.is_set(mode) for mode in (6, 7, 69, -4, -20)] == [
        False,
        True,
        False,
        False,
        False,
    ]


def test_leave_restores_the_modes_after_a_snapshot():
    screen = screen_of(
        b"shell$ \x1b[?1049h\x1b[?1000;1006;2004;1h\x1b=\x1b[4 q\x1b[?25l\x1b[2;4r\x1b[31m\x1b(0"
        b"\x1b[>5u\x1b[>4;2m\x1b[?69h\x1b[2;9s\x1b[4h"
    )
    window = Emulator(20, 5)
    repaint(window, screen)
    window.feed(LEAVE)
    assert_restored(window.screen())
    assert window.screen().tabs == (8, 16)
    assert window.screen().text() == "shell$"


def test_window_reports_keys_as_the_program_has_requested():
    screen = screen_of(b"\x1b[>1u\x1b[>3u\x1b[?1049h\x1b[=4u\x1b[>2u\x1b[>4;2m")
    shown = repaint(emulator_of(b"\x1b[>7u\x1b[?1049h\x1b[>31u"), screen)
    assert (shown.main.keys, shown.keys, shown.other_keys) == ((0, 1, 3), (4, 2), 2)
    source, window, frames = emulator_of(), Emulator(20, 5), Frames(20, 5)
    for fed, found in (
        (b"\x1b[>2u\x1b[>4;2m", (2, 2)),
        (b"\x1b[<9u", (0, 2)),
        (b"\x1b[>4m\x1b[>3u", (3, 0)),
    ):
        source.feed(fed)
        window.feed(frames.frame(source.screen()))
        assert (window.screen().keys[-1], window.screen().other_keys) == found


def test_rows_are_text_with_colours_that_end_in_the_default():
    screen = screen_of(b"\x1b[1;31mred\x1b[m plain  \r\n\x1b[44m \x1b[m\r\n\r\n\x1b[38;2;1;2;3mx")
    assert [row.rstrip() for row in rows(screen)] == [
        "\x1b[0;1;31mred\x1b[m plain",
        "\x1b[0;44m \x1b[m",
        "",
        "\x1b[0;38;2;1;2;3mx\x1b[m",
        "",
    ]


def test_snapshot_does_not_erase_the_whole_screen():
    # Some terminals would move the erased rows to their scrollback.
    assert not re.search(rb"\x1b\[[0-3]?J", snapshot(screen_of(b"a\x1b[?1049hb")))


def test_links_are_painted_but_not_part_of_the_rows():
    link = b"\x1b]8;;http://a\x1b\\"
    screen = screen_of(b"a" + link + b"b\x1b[31mc\x1b]8;;\x1b\\d\r\n" + link)
    assert snapshot(screen).count(link) == Frames(20, 5).frame(screen).count(link) + 1 == 2
    assert rows(screen)[0] == "ab\x1b[0;31mcd\x1b[m"


def test_row_of_many_long_links_is_painted_with_some_of_them():
    long = [b"\x1b]8;;http://%d/%b\x1b\\x" % (n % 2, b"l" * 1900) for n in range(200)]
    screen = screen_of(b"".join(long), cols=100, rows=5)
    assert len(snapshot(screen)) < 20_000
    assert snapshot(screen).count(b"http://0") == 2


def test_main_screen_and_cursor_are_shown_when_the_program_leaves_the_alternate_screen():
    source = emulator_of(b"$ vi\r\n\x1b[32m", b"\x1b[?1049h\x1b[2J\x1b[3;3Htext")
    window = Emulator(20, 5)
    assert repaint(window, source.screen()).text() == "\n\n  text"
    for one in window, source:
        one.feed(b"\x1b[?1049l$ ")
        assert one.screen().text() == "$ vi\n$"
    assert state(window.screen()) == state(source.screen())


def test_all_modes_of_a_viewer_are_reset_when_it_detaches():
    for mode in MODES:
        assert b"\x1b[?%dl" % mode in LEAVE
