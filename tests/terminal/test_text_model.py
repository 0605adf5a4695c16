"""The text view agrees with a model that processes one character at a time."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acpterm.terminal.text import line, simple_output
from acpterm.terminal.text.controls import Controls
from acpterm.terminal.text.slices import SLICE_MIN_BYTES, resync, text_of
from acpterm.terminal.text.stream import TextView
from tests.support.cases import each_case
from tests.support.depth import examples
from tests.terminal.models import TextModel, render

TEXT = [b"a", b"bc", b" ", b"K", b"m", b"0", b"12", b";", b"hello world", b"x" * 30, b"y\r\n"]
LINES = [b"\n", b"\r", b"\r\n", b"\b", b"\t", b"\r\r\n", b"\n\r", b"\v", b"\f", b"one\r\ntwo\r\n"]
ERASURES = [
    b"\x1b[K",
    b"\x1b[0K",
    b"\x1b[1K",
    b"\x1b[2K",
    b"\x1b[01;2K",
    b"\x1b[?1K",
    b"\r\x1b[K",
    b"\x1b[G",
    b"\x1b[1G",
    b"\x1b[2G",
]
SEQUENCES = [
    *(b"\x1b[31m", b"\x1b[m", b"\x1b[1;32m", b"\x1b(B", b"\x1b]0;t\a", b"\x1b]0;t\x1b\\"),
    *(b"\x1bPq\n#\x1b\\", b"\x1b_G\x1b\\", b"\x1b7", b"\x1b[>4;2m", b"\x1b[2 q", b"\x1b#8"),
]
BROKEN = [b"\x1b", b"\x1b[", b"\x1b]", b"\x1bP", b"\x1bX", b"\x1b(", b"[", b"]", b"\\", b"\x18"]
CONTROLS = [b"\a", b"\x1a", b"\0", b"\x7f", b"\x0e", b"\x11", b"\x12", b"\x13", b"?", b":", b" "]
UTF8 = ["é", "→", "🙂", "日本", "\x9b", "\x85", "\xa0"]
BYTES = [b"\xc2", b"\x9b", b"\xff", b"\x80", b"\xf0\x9f", b"\x99\x82", b"\xe2\x86", b"\xed\xa0\x80"]
LONG = [b"1" * 300, b"x" * 1100, b";" * 8190, b"x" * 8192, "é".encode() * 4100, b" " * 20]

kinds = [TEXT, LINES, ERASURES, SEQUENCES, BROKEN, CONTROLS, [c.encode() for c in UTF8], BYTES]
pieces = st.one_of(*(st.sampled_from(kind) for kind in kinds), st.binary(max_size=3))
streams = st.lists(pieces, max_size=40).map(b"".join)
gentle = st.lists(
    st.one_of(*(st.sampled_from(kind) for kind in (TEXT, LINES, ERASURES, SEQUENCES))), max_size=60
).map(b"".join)
long_streams = st.lists(pieces | st.sampled_from(LONG), max_size=12).map(b"".join)
# Streams without movements and erasures: their text is that of their slices, concatenated.
unmoved = st.lists(
    st.one_of(
        *(st.sampled_from(kind) for kind in (TEXT, SEQUENCES, [c.encode() for c in UTF8])),
        st.sampled_from([b"\n", b"\t", b"\r\n", b"\x1b[3", b"\x1b]x", b"\xff", b"\xf0\x9f"]),
    ),
    max_size=40,
).map(b"".join)


def chunks(data, cuts):
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


cuts = st.lists(st.integers(0, 1 << 20), max_size=8) | st.just(range(1000))


def feed(view, chunk):
    """Feed a chunk as a consumer does."""
    end = simple_output.find_end(chunk)
    if end:
        view.feed_simple(chunk[:end])
    view.feed(chunk[end:])


def check(data, cuts, limit, polls, width):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line, "WIDTH", width)
        # Without a margin, the view restarts at every opportunity.
        view = TextView(limit, restart_margin_bytes=0)
        model = TextModel(limit, width=width)
        for number, chunk in enumerate(chunks(data, cuts)):
            feed(view, chunk)
            model.feed(chunk)
            if polls >> number & 1:
                assert (view.text(), view.truncated) == model.read()
                assert len(view.text().encode()) <= limit
        view.finish()
        model.finish()
        assert (view.text(), view.truncated) == model.read()


@settings(max_examples=examples(250))
@given(streams | gentle, cuts, st.integers(0, 120), st.integers(0, 511))
@pytest.mark.long
def test_text_agrees_with_the_model(data, cuts, limit, polls):
    check(data, cuts, limit, polls, 16384)


# Chunks as consumers feed them: some lines, the last one incomplete, and rarely other output.
simple_chunk = st.lists(
    st.sampled_from([b"abc", b"m1;[", b"\t", b"\x1b[31m", b"\x1b[m", b"\r\n"]), max_size=12
).map(b"".join)
simple = st.lists(
    st.one_of(
        *[simple_chunk] * 6, st.sampled_from([b"x\ry", b"\r", b"\n", b"\x1b[3", b"\x1b]", b"\xc3"])
    ),
    max_size=12,
)


@settings(max_examples=examples(300))
@given(simple, st.integers(0, 60), st.integers(0, 511))
@pytest.mark.long
def test_text_agrees_with_the_model_when_simple_output_is_deferred(pieces, limit, polls):
    ends = list(accumulate(map(len, pieces)))
    check(b"".join(pieces), ends[:-1], limit, polls, 16384)


@pytest.mark.long
@settings(max_examples=examples(200))
@given(streams | gentle, cuts, st.integers(0, 200), st.integers(0, 511), st.integers(1, 12))
def test_text_agrees_with_the_model_when_lines_are_short(data, cuts, limit, polls, width):
    check(data, cuts, limit, polls, width)


@settings(max_examples=examples(150), deadline=None)
@given(long_streams, cuts, st.integers(0, 40_000))
def test_text_agrees_with_the_model_when_sequences_are_long(data, cuts, limit):
    check(data, cuts, limit, 0, 16384)


@settings(max_examples=examples(120))
@given(streams, cuts, st.integers(0, 120))
def test_text_and_truncated_do_not_depend_on_the_chunks(data, cuts, limit):
    whole, cut = TextView(limit), TextView(limit)
    whole.feed(data)
    for chunk in chunks(data, cuts):
        cut.feed(chunk)
    assert (cut.text(), cut.truncated) == (whole.text(), whole.truncated)


# -- Slices


@settings(max_examples=examples(200))
@given(streams | gentle, st.booleans())
def test_text_of_covers_the_bytes_that_it_counts(data, final):
    text, used = text_of(data, final=final)
    assert used == len(data) or not final
    assert text == "".join(render(data[:used], final=True))


@settings(max_examples=examples(200))
@given(unmoved, st.integers(1, 30))
def test_reader_gets_the_whole_text_slice_by_slice(data, step):
    read, position, end = "", 0, 0
    while end < len(data):
        end = min(len(data), end + step)
        text, used = text_of(data[position:end], final=end == len(data))
        read += text
        position += used
    assert position == len(data)
    assert read == "".join(render(data, final=True))


@each_case(
    ("data", "expected"),
    [
        (b"abc", ("abc", 3)),
        (b"abc\r", ("abc", 3)),
        (b"abc\r\n", ("abc\n", 5)),
        (b"abc\xf0\x9f", ("abc", 3)),
        (b"abc\xff", ("abc\ufffd", 4)),
        (b"abc\x1b", ("abc", 3)),
        (b"abc\r\x1b[3", ("abc", 3)),
        (b"abc\x1b[31m", ("abc", 8)),
        (b"abc\x1b]0;\xc3", ("abc", 3)),
        (b"abc\x1b]0;t\a\xc3", ("abc", 9)),
        (b"10%\r20%", ("20%", 7)),
        (b"\r", ("", 0)),
        (b"", ("", 0)),
    ],
)
def test_incomplete_sequences_are_not_counted(data, expected):
    assert text_of(data, final=False) == expected
    assert text_of(data, final=True)[1] == len(data)


@pytest.mark.parametrize("filler", [b"x", b"\0", "🙂".encode(), b"\xff"])
def test_slice_of_the_minimum_length_always_counts_bytes(filler):
    data = (b"\x1bP" + filler * SLICE_MIN_BYTES)[:SLICE_MIN_BYTES]
    assert text_of(data, final=False)[1] > 0


@each_case(
    ("data", "rest"),
    [
        (b"\nab", b"ab"),
        (b"1;31mred\r\nnext", b"next"),
        (b"\x9f\x99\x82ab", b"ab"),
        (b"\x82\xc3\xa9", b"\xc3\xa9"),
        (b"1;31mred", b"red"),
        (b"[31mred", b"red"),
        (b"mred", b"red"),
        (b"0;title\arest", b"rest"),
        (b"a title\x1b\\rest", b"rest"),
        (b"text \x1b[31mred", b"text \x1b[31mred"),
        (b"plain text", b"plain text"),
        (b"x" * 5000 + b"\nab", b"x" * 5000 + b"\nab"),
        (b"", b""),
    ],
)
def test_resync_skips_the_rest_of_a_sequence(data, rest):
    assert data[resync(data) :] == rest


@given(streams, st.integers(0, 60))
def test_resync_continues_after_a_newline_when_the_beginning_is_lost(data, lost):
    data = b"line\r\n" + data + b"\r\n\x1b[32mlast \xf0\x9f\x99\x82\r\n"
    part = data[lost % (len(data) - 20) :]
    begin = resync(part)
    assert 0 <= begin <= len(part)
    assert part[begin - 1 : begin] == b"\n"


@given(streams)
def test_controls_are_outside_of_a_sequence_after_cancel(data):
    controls = Controls()
    controls.feed(data.decode(errors="replace").encode())
    controls.feed(b"\x18")
    assert not controls.inside
