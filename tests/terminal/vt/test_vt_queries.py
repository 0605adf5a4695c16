"""The filter of passed-through output: it removes queries and nothing else."""

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from acpterm.terminal.vt.emulator import Emulator
from acpterm.terminal.vt.queries import INCOMPLETE_MAX, QueryFilter
from tests.support.cases import each_case
from tests.support.depth import examples
from tests.terminal.vt.streams import ALL, COLOURS, MOVES, QUERIES, TEXT


def passed(*chunks, clipboard=False):
    queries = QueryFilter(clipboard=clipboard)
    return b"".join(queries.feed(chunk) for chunk in chunks)


def single_bytes(data):
    return [bytes([byte]) for byte in data]


REMOVED = [
    *(b"\x1b[c", b"\x1b[0c", b"\x1b[>c", b"\x1b[=c", b"\x1bZ", b"\x05", b"\x1b[6n", b"\x1b[5n"),
    *(b"\x1b[?6n", b"\x1b[?15n", b"\x1b[?996n", b"\x1b[?2004$p", b"\x1b[4$p", b"\x1b[18t"),
    *(b"\x1b[14t", b"\x1b[14;2t", b"\x1b[21t", b"\x1b[11t", b"\x1b[?u", b"\x1b[>q", b"\x1b[>0q"),
    *(b"\x1b[x", b"\x1b[1x", b"\x1b[1;1;1;1;2;2*y", b"\x1b[1$w", b"\x1b[?1;1;0S", b"\x1b[?4m"),
    *(
        b"\x1bP$qm\x1b\\",
        b"\x1bP+q544e\x1b\\",
        b"\x1bP+Q61\x1b\\",
        b"\x1b]10;?\a",
        b"\x1b]11;?\x1b\\",
    ),
    *(b"\x1b]4;1;?\a", b"\x1b]4;1;rgb:0/0/0;2;?\a", b"\x1b]104;?\a", b"\x1b]52;c;?\a"),
    *(b"\x1b]52;c;QUJD\a", b"\x1b]52;;\x1b\\", b"\x1b]5522;type=read;\a", b"\x1b]50;?\a"),
    *(b"\x1b]1337;ReportCellSize\a", b"\x1b]1337;Copy=:QQ==\a", b"\x1b]22;?__current__\a"),
    *(b"\x1b]99;i=1:p=?;\x1b\\", b"\x1b]99;a=report;x\x1b\\", b"\x1b_Ga=q,i=1;AAAA\x1b\\"),
    *(b"\x1bPtmux;\x1b\x1b[c\x1b\\", b"\x1b[?2048h", b"\x1b[?2031h", b"\xc2\x9bc", b"\xc2\x9b6n"),
    *(b"\xc2\x9d11;?\xc2\x9c", b"\xc2\x9a", b"\x1b[1*z", b"\x1bP1;0|17/6c73\x1b\\"),
    b"\x1b[?1;2c",
]
# What is no query, but may not pass either; a row per kind.
DANGEROUS = [
    ("resizes or moves the window", b"\x1b[8;24;80t"),
    ("iconifies the window", b"\x1b[2t"),
    ("changes the number of columns", b"\x1b[132$|"),
    ("prints the screen", b"\x1b[i"),
    ("sends what follows to a printer", b"\x1b[5i"),
    ("prints every line", b"\x1b[?5i"),
    ("writes to the status line", b"\x1b[1$}"),
    ("makes keys send 8-bit controls", b"\x1b G"),
    ("leaves UTF-8", b"\x1b%@"),
    ("locks the memory above the cursor", b"\x1bl"),
    ("writes to the clipboard", b"\x1b]52;c;QUJD\a"),
    ("notifies (iTerm2)", b"\x1b]9;done\a"),
    ("runs a program (ConEmu)", b'\x1b]9;7;"calc"\a'),
    ("notifies (kitty)", b"\x1b]99;i=1;done\x1b\\"),
    ("notifies (rxvt)", b"\x1b]777;notify;a;b\a"),
    ("downloads a file (iTerm2)", b"\x1b]1337;File=name=eA==;size=1:eA==\a"),
    ("opens a page (iTerm2)", b"\x1b]1337;OpenURL=:eA==\a"),
    ("clears the scrollback (iTerm2)", b"\x1b]1337;ClearScrollback\a"),
    ("transfers files (kitty)", b"\x1b]5113;ac=send\x1b\\"),
    ("sets an X property", b"\x1b]3;WM_NAME=x\a"),
    ("writes a log file", b"\x1b]46;/etc/passwd\a"),
    ("selects a font", b"\x1b]50;#1\a"),
    ("calls a function of Emacs", b"\x1b]51;Efind-file x\a"),
    ("names the next command (VS Code)", b"\x1b]633;E;rm -rf x\a"),
    ("sets the icon (dtterm)", b"\x1b]Ix\x1b\\"),
    ("is unknown", b"\x1b]12345;x\a"),
    ("has no number", b"\x1b];x\a"),
    ("writes to the clipboard, in ten digits", b"\x1b]0000000052;c;QUJD\a"),
    ("makes the terminal report, in ten digits", b"\x1b[?0000002048h"),
    ("restores settings (DECRSTS)", b"\x1bP1$tx\x1b\\"),
    ("defines keys (DECUDK)", b"\x1bP1;0|17/6c73\x1b\\"),
    ("defines characters (DECDLD)", b"\x1bP1;1;1{ @????\x1b\\"),
    ("starts tmux's control mode", b"\x1bP1000p%begin\x1b\\"),
    ("passes through tmux", b"\x1bPtmux;\x1b\x1b]52;c;QQ==\a\x1b\\"),
    ("draws images (kitty)", b"\x1b_Ga=T;AAAA\x1b\\"),
    ("is a command (APC)", b"\x1b_x\x1b\\"),
    ("is a message (PM)", b"\x1b^x\x1b\\"),
    ("is a string (SOS)", b"\x1bXx\x1b\\"),
]
PASSED = [
    *(
        b"text\r\n",
        b"\x1b[31;1mred\x1b[m",
        b"\x1b[2J\x1b[H",
        b"\x1b[?1049h\x1b[?25l",
        b"\x1b[?2026h",
    ),
    *(b"\x1b[>4;2m", b"\x1b[>1u\x1b[=5;2u\x1b[<u", b"\x1b[u\x1b[s", b"\x1b[2 q", b"\x1b[22;0t"),
    *(
        b"\x1b[!p",
        b'\x1b[1"q',
        b"\x1b[1;5r",
        b"\x1b[?1000;1006h",
        b"\x1b(0lqk\x1b(B",
    ),
    *(b"\x1b]0;a ?title;?\a", b"\x1b]8;;http://a/?b=;?c\x1b\\link\x1b]8;;\x1b\\", b"\x1b]133;A\a"),
    *(b"\x1b]11;rgb:1/2/3\a", b"\x1b]4;1;rgb:1/2/3\x1b\\", b"\x1b]104\a", b"\x1b]7;file://h/p\a"),
    *(
        b"\x1b]9;4;1;50\a",
        b"\x1b]12;red\a\x1b]112\a\x1b]22;text\a",
        b"\x1bP=1s\x1b\\text\x1bP=2s\x1b\\",
        b"\x1bPq#0;2;0;0;0~-\x1b\\",
        b"\x1b7\x1b8",
    ),
    *(
        "日本 é ° 👍🏽\u200d".encode(),
        b"\x1b]P1aabbcc",
        b"\x1b[>4n",
        b"\xff\x80",
        b"\x9b6n",
    ),
]


@each_case("query", REMOVED)
def test_query_is_removed_however_it_is_split(query):
    around = b"before" + query + b"after"
    # The terminator of a removed string may remain: it has no effect on its own.
    assert passed(around).replace(b"\x1b\\", b"") == b"beforeafter"
    assert passed(*single_bytes(around)).replace(b"\x1b\\", b"") == b"beforeafter"


@each_case(("what", "data"), DANGEROUS)
def test_sequence_that_acts_outside_of_the_window_is_removed(what, data):
    around = b"before" + data + b"after"
    for found in passed(around), passed(*single_bytes(around)):
        assert found.replace(b"\x1b\\", b"") == b"beforeafter", what


@each_case("data", [data if isinstance(data, bytes) else bytes([data]) for data in PASSED])
def test_other_output_passes_unchanged(data):
    assert passed(data) == data
    assert passed(*single_bytes(data + b" ")) == data + b" "


def test_only_reporting_modes_are_removed_when_several_are_set():
    assert passed(b"\x1b[?2004;2048;1004h") == b"\x1b[?2004;1004h"
    assert passed(b"\x1b[?2048l") == b"\x1b[?2048l"


def test_controls_within_a_query_are_still_executed():
    assert passed(b"a\x1b[\r\n6nb") == b"a\r\nb"


def test_clipboard_is_written_only_if_allowed_and_never_read():
    write, read = b"\x1b]52;c;QUJD\a", b"\x1b]52;c;?\a"
    assert passed(write + read) == b""
    assert passed(write + read, clipboard=True) == write
    assert passed(*single_bytes(write + read + b"x"), clipboard=True) == write + b"x"
    large = b"\x1b]52;c;" + b"QUJD" * 50_000 + b"\a"
    assert passed(large, clipboard=True) == large
    assert passed(large, b"after") == b"after"


def test_removal_does_not_complete_a_sequence_that_was_cut_short():
    for data in (
        *(b"\x1b[\x1b[cc", b"\x1b[\x1b[\x1b[ccc", b"\x1b]4;1;\x1b[c?\a", b"\x1b[6\x1b]11;?\an"),
        *(
            b"\x1b\x1b[c[c",
            b"\x1b[\x05c",
            b"\x1b[\xc2\x9bcc",
            b"\x1b]11;\x18?\a",
            b"\x1bP$\x1bZqm\x1b\\",
        ),
    ):
        for found in passed(data), passed(*single_bytes(data)):
            assert replies_to(found) == b"", data
            assert passed(found) == found


def test_endless_sequence_is_held_only_up_to_a_limit():
    queries = QueryFilter()
    assert queries.feed(b"\x1b]11;") == b""
    for _ in range(100):
        assert queries.feed(b"x" * 1000) == b""
        assert len(queries._held) <= INCOMPLETE_MAX
    assert queries.feed(b"?\aafter") == b"after"
    title = b"\x1b]2;" + b"t" * 100_000
    assert passed(title[:50_000], title[50_000:]) == title


def replies_to(data):
    """Return the replies of a terminal to this output."""
    found = []
    Emulator(20, 5, found.append).feed(data)
    return b"".join(found)


PIECES = st.lists(
    st.sampled_from(QUERIES)
    | st.sampled_from(REMOVED)
    | st.sampled_from(ALL)
    | st.sampled_from(
        [b"\x1b", b"\x1b[", b"\x1b]", b"\x1bP", b"c", b"n", b"?", b"\x18", b"\xc2", b"\x9b"]
    )
    | st.sampled_from([b"\x1b]4;1;", b"\x1b]1", b"1;", b"\x1bP$", b"q", b"\x1b\\", b"\a", b"\x05"])
    | st.binary(max_size=3),
    max_size=30,
)


@settings(max_examples=examples(500), deadline=None)
@given(PIECES)
def test_terminal_does_not_reply_to_filtered_output(pieces):
    found = passed(*pieces)
    assert replies_to(found + b"\x1b\\") == b""
    # The result is the same for another split, except for string terminators.
    again = passed(b"".join(pieces))
    assert without_terminators(again) == without_terminators(found)
    assert b"\x05" not in found


def without_terminators(data):
    return re.sub(rb"\x1b\\", b"", data)


# An incomplete sequence would continue in another piece.
COMPLETE_MOVES = [move for move in MOVES if move not in (b"\x1b", b"\x1b[", b"\x18")]


@settings(max_examples=examples(200), deadline=None)
@example([b"a", b"\x1b[6n", b"\x1b[H", b"\x1b[c", b"\x1b[K", b"\x1b[>q"])
@given(st.lists(st.sampled_from([*QUERIES, *COLOURS, *COMPLETE_MOVES, *TEXT]), max_size=30))
def test_screen_is_the_same_without_queries(pieces):
    one, other = Emulator(20, 5), Emulator(20, 5)
    one.feed(b"".join(pieces))
    other.feed(passed(*pieces))
    assert other.screen().text() == one.screen().text()
