"""The text view: characters, limits, lines, escape sequences and retention."""

import time
import tracemalloc

import pytest

from acpterm.terminal.text.line import WIDTH
from acpterm.terminal.text.stream import TextView
from tests.support.cases import each_case

MIB = 1 << 20
SAMPLE = "aé→🙂bc"


def view_of(*chunks, limit=MIB):
    view = TextView(limit)
    for chunk in chunks:
        view.feed(chunk)
    return view


def text(*chunks, limit=MIB):
    return view_of(*chunks, limit=limit).text()


# -- Characters


def test_four_byte_character_is_decoded_byte_by_byte_between_reads():
    view = TextView(100)
    texts = []
    for byte in b"a" + "🙂".encode() + b"b":
        view.feed(bytes([byte]))
        texts.append(view.text())
    assert texts == ["a", "a", "a", "a", "a🙂", "a🙂b"]


def test_incomplete_character_at_the_end_is_one_replacement():
    view = view_of(b"a\xf0\x9f\x99")
    assert view.text() == "a"
    view.finish()
    assert view.text() == "a\ufffd"


def test_finish_adds_nothing_to_complete_text():
    view = view_of(b"abc")
    view.finish()
    assert view.text() == "abc"


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\x80\x80\x80",
        b"a\xffb",
        b"\xe2\x82a",
        b"\xf0\x9f\xff",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
    ],
)
def test_invalid_bytes_are_grouped_as_python_does(data):
    whole = view_of(data)
    whole.finish()
    single = view_of(*(bytes([byte]) for byte in data))
    single.finish()
    assert whole.text() == single.text() == data.decode(errors="replace")


def test_replacement_character_counts_three_bytes():
    assert text(b"\xff\xff", limit=6) == "\ufffd\ufffd"
    view = view_of(b"\xff\xff", limit=5)
    assert (view.text(), view.truncated) == ("\ufffd", True)


def test_continuation_bytes_without_a_start_are_replaced():
    view = view_of(b"\x80" * 1000, limit=100)
    assert view.text() == "\ufffd" * 33
    assert len(view.text().encode()) == 99


def test_limit_is_exact_for_a_mebibyte_of_four_byte_characters():
    view = TextView(MIB)
    data = "🙂".encode() * (MIB // 4)
    for at in range(0, len(data), 4095):
        view.feed(data[at : at + 4095])
    assert view.text() == "🙂" * (MIB // 4)
    assert not view.truncated
    view.feed("🙂".encode())
    assert len(view.text().encode()) == MIB
    assert view.truncated


def test_nul_del_and_c1_are_dropped():
    assert text(b"a\0b\x7fc\xc2\x9bd\x0e\x0f\x01e\a") == "abcde"


def test_internal_marks_in_the_output_are_dropped():
    assert text(b"abc\r\x11x\x12y\x13z") == "xyz"


# -- Limits


@each_case("limit", range(len(SAMPLE.encode()) + 3))
@each_case("line", [False, True])
def test_text_is_cut_exactly_at_every_limit(limit, line):
    data = SAMPLE.encode() + (b"\n" if line else b"")
    view = view_of(data, limit=limit)
    begin = max(0, len(data) - limit)
    assert view.text() == data[begin:].decode(errors="ignore")
    assert view.truncated == (limit < len(data))
    assert len(view.text().encode()) <= limit


@pytest.mark.parametrize("step", [1, 100, 5000, MIB])
@pytest.mark.parametrize("feed", ["feed", "feed_simple"])
def test_beginning_and_number_of_lines_are_known_after_they_are_dropped(feed, step):
    data = b"".join(b"\x1b[1m%d\x1b[m\r\n" % n for n in range(5000))
    view = TextView(20_000)
    for at in range(0, len(data), step):
        getattr(view, feed)(data[at : at + step])
    beginning, total_lines = view.beginning()
    whole = "".join(f"{n}\n" for n in range(5000))
    assert whole.startswith(beginning)
    assert len(beginning) > 300
    assert total_lines == 5000
    assert view.truncated


def test_beginning_is_not_known_when_the_first_output_was_not_fed():
    view = TextView(2000, truncated=True)
    view.feed(b"a\n")
    assert view.beginning() is None


def test_truncated_stays_true_when_the_text_is_erased():
    view = view_of(b"123456", limit=5)
    assert view.truncated
    view.feed(b"\r\x1b[K")
    assert (view.text(), view.truncated) == ("", True)


def test_overwritten_line_does_not_truncate_when_it_was_not_read():
    view = view_of(b"123456", b"\r\x1b[Kab", limit=5)
    assert (view.text(), view.truncated) == ("ab", False)


def test_erased_line_makes_room_for_earlier_lines():
    view = view_of(b"abcd\n", b"12345", limit=5)
    assert (view.text(), view.truncated) == ("12345", True)
    view.feed(b"\x1b[2K")
    assert (view.text(), view.truncated) == ("abcd\n", True)


def test_limit_0_retains_nothing_and_reports_truncation():
    view = TextView(0)
    assert (view.text(), view.truncated) == ("", False)
    view.feed(b"\x1b[31m\xf0")
    assert (view.text(), view.truncated) == ("", False)
    view.feed(b"\x9f\x99\x82")
    assert (view.text(), view.truncated) == ("", True)


def test_negative_limit_raises():
    with pytest.raises(ValueError, match="-1"):
        TextView(-1)


def test_feed_larger_than_the_limit_retains_its_end():
    view = view_of(b"x" * 79 + b"\n", (b"y" * 79 + b"\r\n") * 5000, limit=1000)
    assert view.text() == ("y" * 79 + "\n").join([""] * 14)[-1000:]


@pytest.mark.parametrize("step", [1, 700, 3000, 5000])
@pytest.mark.parametrize("limit", [7, 5000, 80_000])
@pytest.mark.long
def test_limit_is_exact_for_any_chunk_size(limit, step):
    data = "".join(f"{number}é→🙂\n" for number in range(12_000)).encode()
    view = TextView(limit)
    for at in range(0, len(data), step):
        view.feed(data[at : at + step])
        if at % 350 == 0:
            # The text excludes an incomplete character at its end.
            whole = data[: at + step].decode(errors="ignore").encode()
            assert view.text() == whole[-limit:].decode(errors="ignore")
    assert view.text() == data[-limit:].decode(errors="ignore")


# -- Lines


@each_case(
    ("data", "expected"),
    [
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"a\n\rb", "a\nb"),
        (b"a\r\r\nb", "a\nb"),
        (b"a\vb\fc", "a\nb\nc"),
        (b"10%\r55%\r100%\n", "100%\n"),
        (b"long line\rshort", "shortline"),
        (b"abc\r", "abc"),
        (b"abc\b\bX", "aXc"),
        (b"\b\bX", "X"),
        (b"a\b", "a"),
        (b"a\tb", "a\tb"),
        (b"abcdef\r\x1b[Kx", "x"),
        (b"abcdef\b\b\x1b[K", "abcd"),
        (b"abcdef\b\b\x1b[0K", "abcd"),
        (b"abcdef\b\b\b\x1b[1K", "    ef"),
        (b"abcdef\x1b[1K", ""),
        (b"abcdef\x1b[2Kx", "      x"),
        (b"abcdef\x1b[2K\rx", "x"),
        (b"ab  \b\x1b[K", "ab "),
        (b"a\x1b[2Kb\b\x1b[K", ""),
        (b"abc\x1b[3K\x1b[?K\x1b[ K\x1b[10K", "abc"),
        (b"abc\r\x1b[;1K", ""),
        (b"abc\r\x1b[00002;5Kx", "x"),
        ("héé\bx\r→".encode(), "→éx"),
    ],
)
def test_cursor_movements_and_erasures_change_the_line(data, expected):
    assert text(data) == expected
    assert text(*(bytes([byte]) for byte in data)) == expected


def test_crlf_is_one_newline_when_it_is_split():
    assert text(b"a\r", b"\nb") == "a\nb"
    assert text(b"a\r", b"\n\r\nb\r\n") == "a\n\nb\n"


def test_spinner_is_one_line():
    assert text(b"working " + b"|\b/\b-\b\\\b" * 1000 + b" \bdone\n") == "working done\n"


def test_full_line_ends_and_the_cursor_does_not_cross_back():
    assert text(b"x" * WIDTH + b"\rY") == "Y" + "x" * (WIDTH - 1)
    assert text(b"x" * WIDTH + b"z\rY") == "x" * WIDTH + "Y"
    assert text(b"x" * WIDTH, b"z", b"\b\b\b", b"Y\n") == "x" * WIDTH + "Y\n"
    assert text(b"1\r" + b"x" * (WIDTH + 1) + b"\rY\n") == "x" * WIDTH + "Y\n"
    assert text(b"x" * WIDTH + b"\x1b[2Ky") == "y"


def test_long_line_is_cut_exactly():
    view = view_of(b"x" * 3 * WIDTH, b"y" * WIDTH, limit=WIDTH + 3)
    assert view.text() == "xxx" + "y" * WIDTH


# -- Escape sequences


@each_case(
    "sequence",
    [
        b"\x1b[m",
        b"\x1b[1;38;5;200m",
        b"\x1b[4:3m",
        b"\x1b[?25l",
        b"\x1b[>4;2m",
        b"\x1b[!p",
        b"\x1b[2 q",
        b"\x1b[12;40H",
        b"\x1b(B",
        b"\x1b#8",
        b"\x1b%G",
        b"\x1b $(X",
        b"\x1b7",
        b"\x1b=",
        b"\x1b\\",
        b"\x1bc",
        b"\x1b]0;a title\a",
        b"\x1b]0;a \xc3\xa9 title\x1b\\",
        b"\x1b]8;;https://example.org/\x1b\\",
        b"\x1bPq#0;2;0\r\n#1~~\x1b\\",
        b"\x1b_Gf=24;AAAA\x1b\\",
        b"\x1b^private\x1b\\",
        b"\x1bXstring with \a bell\x1b\\",
        b"\x1b[31\x18",
        b"\x1b]title\x1a",
        b"\x1b\x1b[31m",
        b"\x1b[3\x1b[1m",
        b"\x1b]0;title\x1b[31m",
        b"\x1b[3\x001\am",
        b"\x1b[" + b"1;" * 300 + b"m",
        b"\x1b]52;c;" + b"QUJD" * 1500 + b"\a",
    ],
)
def test_sequence_is_removed_wherever_it_is_split(sequence):
    data = b"a" + sequence + b"b"
    assert text(data) == "ab"
    assert text(data * 3) == "ababab"
    assert text(*(bytes([byte]) for byte in data)) == "ab"
    for at in range(min(len(data), 80)):
        view = view_of(data[:at])
        assert view.text() in {"", "a", "ab"}
        view.feed(data[at:])
        assert view.text() == "ab"


def test_controls_inside_a_sequence_are_executed():
    assert text(b"ab\x1b[3\r1mX") == "Xb"
    assert text(b"ab\x1b[\n31mX") == "ab\nX"
    assert text(b"ab\x1b\b[KX") == "aX"
    assert text(b"ab\x1b(\tBX") == "ab\tX"
    assert text(b"abc\r\x1b[\b2KX\x1b[m") == "X"


def test_character_beyond_ascii_ends_a_sequence_and_is_text():
    assert text("a\x1b[3é1mb\x1b(→\x1b[m".encode()) == "aé1mb→"


def test_erasure_ends_a_string():
    assert text(b"\x1b]0;title\x1b[Ka\x1b[m") == "a"
    assert text(b"abc\r\x1b_x\x1b[2Ky\x1b[m") == "y"


def test_unterminated_title_removes_one_line():
    data = b"\x1b]0;title\r\nimportant\r\n"
    assert text(data) == "\nimportant\n"
    assert text(*(bytes([byte]) for byte in data)) == "\nimportant\n"


@each_case("introducer", [b"\x1b]", b"\x1bP", b"\x1bX", b"\x1b[", b"\x1b("])
@each_case("filler", [b"0", b"\t"])
def test_sequence_removes_no_more_than_its_maximum(introducer, filler):
    filler = b" " if introducer == b"\x1b(" and filler == b"0" else filler
    data = introducer + filler * (8192 - 2) + b"text\n"
    shown = filler.decode() * 8190 if filler == b"\t" and introducer in {b"\x1b[", b"\x1b("} else ""
    assert text(data) == shown + "text\n"
    assert text(data[:1], data[1:5000], data[5000:]) == shown + "text\n"
    assert text(data, b"\x1b[m") == shown + "text\n"


def test_sequence_of_exactly_the_maximum_length_is_removed():
    assert text(b"\x1b]" + b"x" * 8189 + b"\aok") == "ok"
    assert text(b"\x1b]" + b"x" * 8190 + b"\aok") == "ok"
    assert text(b"\x1b]" + b"x" * 8191 + b"\aok") == "xok"
    assert text(b"\x1b]" + "é".encode() * 8191 + b"\aok") == "éok"


def test_long_control_string_is_not_retained():
    view = view_of(b"beginning" * 1000)
    tracemalloc.start()
    view.feed(b"\x1b]" + b"x" * 8000)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 1000


# -- Retention


def test_progress_bar_displaces_no_earlier_line():
    view = view_of(b"useful\r\n", limit=1000)
    bar = b"".join(b"\r[%-60s] %3d%%" % (b"#" * (n * 60 // 100), n) for n in range(101))
    started_at = time.process_time()
    for _ in range(20_000_000 // len(bar)):
        view.feed(bar)
    view.feed(b"\r\nerror: the one that matters\r\n")
    assert time.process_time() - started_at < 10
    assert view.text() == "useful\n[" + "#" * 60 + "] 100%\nerror: the one that matters\n"
    assert not view.truncated


def test_limit_is_exact_within_a_title_a_sequence_and_a_crlf():
    data = b"one\x1b]0;a long title\a\x1b[1;31mtwo\x1b[m\r\n"
    for limit in range(10):
        assert text(data * 3, limit=limit) == ("onetwo\n" * 3)[len("onetwo\n" * 3) - limit :]


@pytest.mark.long
@pytest.mark.parametrize(
    "chunk", [b"\n", b"x" * 50 + b"\r\n", b"x" * 4093 + b"\r\n", b"x\n" * 40_000]
)
def test_memory_of_a_full_view_and_of_an_idle_view_is_bounded(chunk):
    limit = MIB if len(chunk) > 1 else MIB // 16
    data = chunk * (16384 // len(chunk) + 1)
    pieces = [data[at : at + len(chunk)] for at in range(0, len(data), len(chunk))]
    view_of(b"warm\r\n").text()
    tracemalloc.start()
    base = tracemalloc.get_traced_memory()[0]
    view = view_of(b"$ make\r\n", limit=limit)
    assert tracemalloc.get_traced_memory()[0] - base < 1024
    for _ in range(2 * limit // len(data) + 1):
        for piece in pieces:
            view.feed(piece)
    used = tracemalloc.get_traced_memory()[0] - base
    tracemalloc.stop()
    assert view.truncated
    assert used < 1.15 * limit


def test_text_is_the_same_object_until_output_arrives():
    view = view_of(b"a\n" * 100)
    text = view.text()
    view.feed(b"\x1b[31m")
    view.feed(b"")
    assert view.text() is text
    view.feed(b"b")
    assert view.text().endswith("\nb")


def test_progress_bar_that_moves_to_the_first_column_is_one_line():
    view = TextView(1000)
    view.feed(b"HEADER\r\n")
    for step in range(10_000):
        view.feed(b"\x1b[2K\x1b[1G[====] %d" % step)
    view.feed(b"\x1b[0K\r\n")
    assert (view.text(), view.truncated) == ("HEADER\n[====] 9999\n", False)
