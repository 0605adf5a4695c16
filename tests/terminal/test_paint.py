"""Paintings of a screen: what they say brings another one into the same state."""

import re

from acpterm.terminal.paint import LEAVE, Frames, rows, snapshot
from acpterm.terminal.screen import Screen
from hypothesis import given, settings
from hypothesis import strategies as st

from acpterm.terminal.vt.style import BLANK
from tests.support.depth import examples
from tests.terminal.test_screen import COLOURS, MOVES, SEQUENCES, TEXT, TOLD

MORE = [b"\x1b[3;5r", b"\x1b[?1004h", b"\x1b[?47h", b"\x1b[?1048h", b"\x1b[?1048l"]
STREAM = st.lists(
    st.sampled_from(SEQUENCES)
    | st.sampled_from(MOVES)
    | st.sampled_from(TEXT)
    | st.sampled_from(COLOURS)
    | st.sampled_from(TOLD)
    | st.sampled_from(MORE)
    | st.text("ab日🙂e\u0301 ", max_size=12).map(str.encode)
    | st.binary(max_size=3),
    max_size=40,
).map(b"".join)


def state(screen):
    """Give all that a viewer could tell apart, now or later."""
    grid = screen.grid

    def lines(buffer):
        found = []
        for y in range(grid.lines):
            cells = grid.cells_of(y, buffer)
            while cells and cells[-1] == BLANK:
                cells.pop()
            found.append(cells)
        return found

    def saved(kept):
        return kept._replace(pen=kept.pen.style)

    return {
        "rows": lines(grid.buffer),
        "main": grid.main and (lines(grid.main[0]), saved(grid.main[1])),
        "saved": saved(grid.saved),
        "cursor": (grid.cursor.x, grid.cursor.y),
        "pen": grid.pen.style,
        "margins": grid.margins,
        "mode": grid.mode,
        "charsets": (grid.g0_charset, grid.g1_charset, grid.charset),
        "tabs": grid.tabstops,
        "told": (grid.told.modes, grid.told.keypad, grid.told.shape, grid.told.title),
        "keys": (grid.told.keys.stacks, grid.told.keys.level),
        "held": screen.held,
    }


def screen_of(*chunks, cols=20, rows=5):
    screen = Screen(cols, rows)
    for chunk in chunks:
        screen.feed(chunk)
    return screen


@settings(max_examples=examples(400), deadline=None)
@given(STREAM, STREAM, STREAM)
def test_a_snapshot_brings_any_screen_into_the_same_state(before, dirt, after):
    one = screen_of(before, cols=9, rows=6)
    for other in Screen(9, 6), screen_of(dirt, cols=9, rows=6):
        title = other.grid.told.title
        other.feed(snapshot(one))
        if one.grid.told.title is None:
            # Left as it was.
            other.grid.told.title = None
        assert state(other) == state(one), title
        # What REP repeats cannot always be told.
        further = after.replace(b"b", b"B")
        copy = screen_of(before, further, cols=9, rows=6)
        copy.grid.told.title = other.grid.told.title = ""
        other.feed(further)
        copy.grid.told.title = other.grid.told.title = ""
        assert state(other) == state(copy)


@settings(max_examples=examples(150), deadline=None)
@given(STREAM, st.lists(STREAM, min_size=1, max_size=4), st.integers(1, 14), st.integers(1, 8))
def test_frames_show_the_part_with_the_cursor_and_say_only_what_changed(dirt, steps, cols, lines):
    screen = Screen(9, 6)
    frames, window = Frames(cols, lines), screen_of(dirt, cols=cols, rows=lines)
    window.grid.told.title = None
    for step in steps:
        screen.feed(step)
        window.feed(frames.frame(screen))
        assert frames.frame(screen) == b""
        left, top = frames._left, frames._top
        column, row = screen.cursor
        assert window.cursor == (column - left, row - top)
        assert window.cursor_visible == screen.cursor_visible
        assert_told_alike(window.grid.told, screen.grid.told)
        for at, cells in enumerate(state(window)["rows"]):
            source = screen.grid.cells_of(top + at) if top + at < screen.rows else []
            source += [BLANK] * (left + cols - len(source))
            for x, cell in enumerate(cells + [BLANK] * (cols - len(cells))):
                expected = source[left + x]
                behind = source[left + x + 1 : left + x + 2]
                if (x == 0 and not expected.data) or (
                    x == cols - 1 and behind and not behind[0].data
                ):
                    # The other half is outside.
                    expected = expected._replace(data=" ")
                assert cell == expected, (at, x)
    window.feed(LEAVE)
    assert window.grid.main is None
    assert window.cursor_visible
    told = window.grid.told
    assert (told.modes, told.keypad, told.shape) == ((), False, 0)
    assert (told.keys.stacks, told.keys.level) == (((0,), ()), 0)


def assert_told_alike(one, other):
    # Of one mouse's modes the order counts, and no other.
    assert sorted(one.modes) == sorted(other.modes)
    for modes in (9, 1000, 1002, 1003), (1005, 1006, 1015):
        assert [n for n in one.modes if n in modes][-1:] == [n for n in other.modes if n in modes][
            -1:
        ]
    assert (one.keypad, one.shape, one.title) == (other.keypad, other.shape, other.title)
    assert (one.keys.flags, one.keys.level) == (other.keys.flags, other.keys.level)


def test_leaving_undoes_what_a_snapshot_did():
    screen = screen_of(
        b"shell$ \x1b[?1049h\x1b[?1000;1006;2004;1h\x1b=\x1b[4 q\x1b[?25l\x1b[2;4r\x1b[31m\x1b(0"
        b"\x1b[>5u\x1b[>4;2m"
    )
    window = screen_of(b"")
    window.feed(snapshot(screen))
    window.feed(LEAVE)
    found, new = state(window), state(screen_of(b""))
    for what in "rows", "main", "pen", "margins", "mode", "told", "keys", "tabs":
        if what != "rows":
            assert found[what] == new[what], what
    assert window.text() == "shell$"


def test_a_window_tells_of_keys_as_the_program_has_asked_for():
    one = screen_of(b"\x1b[>1u\x1b[>3u\x1b[?1049h\x1b[=4u\x1b[>2u\x1b[>4;1m")
    other = screen_of(b"\x1b[>7u\x1b[?1049h\x1b[>31u\x1b[>4;2m")
    other.feed(snapshot(one))
    assert other.grid.told.keys.stacks == ((0, 1, 3), (4, 2))
    assert other.grid.told.keys.level == 1
    painted, frames = screen_of(), Frames(20, 5)
    for said, found in ((b"", (2, 1)), (b"\x1b[<9u", (0, 1)), (b"\x1b[?1049l\x1b[>4m", (3, 0))):
        one.feed(said)
        painted.feed(frames.frame(one))
        assert (painted.grid.told.keys.flags, painted.grid.told.keys.level) == found


def test_rows_are_text_with_colours_that_end_in_default_ones():
    screen = screen_of(b"\x1b[1;31mred\x1b[m plain  \r\n\x1b[44m \x1b[m\r\n\r\n\x1b[38;2;1;2;3mx")
    assert rows(screen) == [
        "\x1b[0;1;31mred\x1b[m plain",
        "\x1b[0;44m \x1b[m",
        "",
        "\x1b[0;38;2;1;2;3mx\x1b[m",
        "",
    ]


def test_a_snapshot_erases_no_screen_at_once():
    # Some terminals would keep what it showed in their history.
    one = screen_of(b"a\x1b[?1049hb")
    assert not re.search(rb"\x1b\[[0-3]?J", snapshot(one))


def test_links_are_painted_but_are_no_part_of_the_rows():
    link = b"\x1b]8;;http://a\x1b\\"
    one = screen_of(b"a" + link + b"b\x1b[31mc\x1b]8;;\x1b\\d\r\n" + link)
    assert snapshot(one).count(link) == Frames(20, 5).frame(one).count(link) + 1 == 2
    assert rows(one)[0] == "ab\x1b[0;31mcd\x1b[m"


def test_a_row_of_many_long_links_is_painted_with_some_of_them():
    long = [b"\x1b]8;;http://%d/%b\x1b\\x" % (n % 2, b"l" * 2000) for n in range(200)]
    one = screen_of(b"".join(long), cols=100, rows=5)
    assert len(snapshot(one)) < 20_000
    assert snapshot(one).count(b"http://0") == 2


def test_a_program_that_leaves_the_alternate_screen_shows_the_main_one_with_its_cursor():
    screen = screen_of(b"$ vi\r\n\x1b[32m", b"\x1b[?1049h\x1b[2J\x1b[3;3Htext")
    window = screen_of(b"")
    window.feed(snapshot(screen))
    assert window.text() == "\n\n  text"
    for one in window, screen:
        one.feed(b"\x1b[?1049l$ ")
        assert one.text() == "$ vi\n$"
    assert state(window) == state(screen)
