"""What a terminal has printed: put off or not, whoever asks finds all of it."""

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acpterm.terminal import output, text
from acpterm.terminal.controls import SEQUENCE_MAX
from acpterm.terminal.output import Output
from acpterm.terminal.ring import Ring
from acpterm.terminal.text import TextView, fresh_start
from tests.support.depth import examples
from tests.terminal.test_text_model import gentle, streams


def put(out, data, *, later):
    out.put(memoryview(data), later=later)


@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(streams | gentle, st.booleans(), st.booleans()), max_size=12),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 200),
)
def test_output_that_is_put_off_is_the_same(puts, ring_size, limit, patience):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "PATIENCE", 1800 + patience)
        patch.setattr(text, "_MARGIN", 0)
        out, ring, view = Output(ring_size, limit), Ring(ring_size), TextView(limit)
        for data, later, ask in puts:
            put(out, data, later=later)
            ring.write(data)
            view.feed(data)
            if ask:
                assert (out.text.text(), out.text.truncated) == (view.text(), view.truncated)
        assert out.ring.end == ring.end
        assert out.ring.read(0) == ring.read(0)
        assert out.held == ring.end - ring.start + view.size
        out.finish()
        view.finish()
        assert (out.text.text(), out.text.truncated) == (view.text(), view.truncated)


def test_no_more_is_put_off_than_there_is_patience_for():
    out = Output(10, 10)
    chunk = bytes(1000 * 1000)
    for _ in range(20):
        put(out, chunk, later=True)
        assert 0 < out._late <= output.PATIENCE
    assert out.ring.end == 20 * len(chunk)
    assert out._late == 0


def test_what_has_settled_holds_no_memory_for_more():
    out = Output(10, 10)
    put(out, b"abc", later=True)
    assert out._backlog is not None
    out.settle()
    assert out._backlog is None
    assert out.text.text() == "abc"
    out.settle()


def test_without_memory_to_spare_nothing_is_put_off(monkeypatch):
    def none(*_):
        raise OSError(errno.ENOMEM, "no memory")

    monkeypatch.setattr(output.mmap, "mmap", none)
    out = Output(10, 10)
    put(out, b"abc", later=True)
    assert not out.is_late
    assert out.text.text() == "abc"


LINES = b"".join(b"%07d\r\n" % number for number in range(40_000))


def looked_at(data, limit, monkeypatch):
    """Feed it at once: the text, and how many bytes were looked at for it."""
    looks = []
    take = TextView._take
    monkeypatch.setattr(
        TextView, "_take", lambda self, chars: (looks.append(len(chars)), take(self, chars))[1]
    )
    view = TextView(limit)
    view.feed(data)
    return view, sum(looks)


@pytest.mark.parametrize("colour", [b"", b"\x1b[31m", b"\x1b]0;title\a"])
def test_what_nobody_can_see_is_not_looked_at(monkeypatch, colour):
    data = LINES.replace(b"5\r\n", b"5" + colour + b"\r\n")
    view, looked = looked_at(data, 10_000, monkeypatch)
    assert looked < 20_000
    assert view.truncated
    assert view.text() == LINES.replace(b"\r", b"")[-10_000:].decode()


def test_where_little_is_left_of_what_is_printed_more_of_it_is_looked_at(monkeypatch):
    # A line of text for each hundred of nothing.
    data = (b"\x1b[31m" * 100 + b"line\r\n") * 2000
    view, looked = looked_at(data, 5_000, monkeypatch)
    assert looked >= len(data)
    assert view.text() == ("line\n" * 1000)
    # It has learnt from that.
    assert view._enough > 5_000 + 5_000 // 8 + text._MARGIN


@pytest.mark.parametrize(
    ("before", "begins"),
    [
        (b"\x1b[31mred", True),
        (b"\x1b]0;title\a", True),
        (b"\x1b]0;title\x1b\\", True),
        (b"\x1b(B", True),
        # What may go on behind the line, for all that can be seen here.
        (b"\x1b[3", False),
        (b"\x1bPq", False),
        (b"\x1b]0;title", False),
        (b"\x1b[3\x001m", False),
        (b"\x1b[3\xc2\x9b1m", False),
        (b"plain", False),
        (b"x" * SEQUENCE_MAX, True),
        (b"x" * (SEQUENCE_MAX - 1), False),
        (b"x" * (SEQUENCE_MAX - 1) + b"\0", False),
        ("é".encode() * SEQUENCE_MAX, False),
    ],
)
def test_a_text_begins_anew_only_where_that_is_sure(before, begins):
    data = before + b"\nand the rest"
    assert fresh_start(data, len(data), 5) == (len(before) + 1 if begins else 0)
