"""Each query gets one reply, which never contains text that the program chose."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acpterm import __version__
from acpterm.terminal.vt import native
from acpterm.terminal.vt.emulator import Emulator
from tests.support.cases import each_case
from tests.support.depth import examples
from tests.terminal.vt.streams import ALL, MARKER, QUERIES


def replies_to(*chunks, cols=20, rows=5):
    sent = []
    emulator = Emulator(cols, rows, sent.append)
    for chunk in chunks:
        emulator.feed(chunk)
    return b"".join(sent)


@each_case(
    ("query", "answer"),
    [
        (b"\x1b[6n", b"\x1b[1;1R"),
        (b"ab\r\ncd\x1b[6n", b"\x1b[2;3R"),
        (b"\x1b[2;4r\x1b[?6h\x1b[2;3H\x1b[6n", b"\x1b[2;3R"),
        (b"\x1b[5n", b"\x1b[0n"),
        (b"\x1b[c", b"\x1b[?62;22c"),
        (b"\x1b[0c", b"\x1b[?62;22c"),
        (b"\x1bZ", b"\x1b[?62;22c"),
        (b"\x1b[>c", b"\x1b[>1;10;0c"),
        (b"\x1b[=c", b"\x1bP!|00000000\x1b\\"),
        (b"\x1b[?2004$p", b"\x1b[?2004;2$y"),
        (b"\x1b[?2004h\x1b[?2004$p", b"\x1b[?2004;1$y"),
        (b"\x1b[?9999$p", b"\x1b[?9999;0$y"),
        (b"\x1b[4$p", b"\x1b[4;2$y"),
        (b"\x1b[>q", f"\x1bP>|acpterm({__version__})\x1b\\".encode()),
        (b"\x1b[18t", b"\x1b[8;5;20t"),
        (b"\x1b[14t", b"\x1b[4;80;160t"),
        (b"\x1b[16t", b"\x1b[6;16;8t"),
        (b"\x1b[?u", b"\x1b[?0u"),
        (b"\x1b[>5u\x1b[?u", b"\x1b[?5u"),
        (b"\x1b]10;?\a", b"\x1b]10;rgb:d0d0/d0d0/d0d0\a"),
        (b"\x1b]11;?\x1b\\", b"\x1b]11;rgb:1c1c/1c1c/1c1c\x1b\\"),
        (b"\x1b]12;?\a", b"\x1b]12;rgb:d0d0/d0d0/d0d0\a"),
        (b"\x1b]4;1;rgb:12/34/56\a\x1b]4;1;?\a", b"\x1b]4;1;rgb:1212/3434/5656\a"),
        (b"\x1bP$qm\x1b\\", b"\x1bP1$r0m\x1b\\"),
        (b"\x1bP$qr\x1b\\", b"\x1bP1$r1;5r\x1b\\"),
        (b"\x1b[?996n", b"\x1b[?997;1n"),
        (b"\x1b[?2048h", b"\x1b[48;5;20;80;160t"),
    ],
)
def test_query_is_answered_once_however_it_is_split(query, answer):
    assert replies_to(query) == answer
    assert replies_to(*(bytes([byte]) for byte in query)) == answer


@each_case(
    "query",
    [
        *(b"\x05", b"\x1b]2;" + MARKER + b"\a\x1b[21t", b"\x1b]52;c;?\a", b"\x1b[20t", b"\x1b[11t"),
        *(b"\x1bP$q" + MARKER + b"\x1b\\", b"\x1bP+q536D756C78\x1b\\", b"\x1bP+q544e\x1b\\"),
        *(b"\x1b]5522;type=read:id=" + MARKER + b";\a", b"\x1b[?2033h", b"\x1b]50;?\a"),
        *(b"\x1b_Gi=31,a=q,s=1,v=1,f=24;AAAA\x1b\\", b"\x1b_25a1;s\x1b\\"),
    ],
)
def test_queries_for_text_of_the_program_get_no_reply(query):
    assert replies_to(query) == b""


def test_queries_are_answered_in_their_order():
    queries = b"\x1b[?u\x1b[c" + b"ab\x1b[6n" + b"\x1b]11;?\a" + b"\x1b[>q"
    found = replies_to(queries)
    parts = [b"\x1b[?0u", b"\x1b[?62;22c", b"\x1b[1;3R", b"\x1b]11;", b"\x1bP>|"]
    places = [found.index(part) for part in parts]
    assert places == sorted(places)


def test_size_reports_have_the_new_size_after_a_resize():
    replied = []
    emulator = Emulator(20, 5, replied.append)
    emulator.feed(b"\x1b[18t\x1b[?2048h")
    emulator.resize(1, 1)
    emulator.feed(b"\x1b[18t")
    assert b"".join(replied).startswith(b"\x1b[8;5;20t\x1b[48;5;20;80;160t")
    assert b"".join(replied).endswith(b"\x1b[8;1;1t")


@each_case(
    "reply",
    [
        *(b"", b"text", b"\x1b[1;1R\r", b"\x1b]l" + MARKER + b"\x1b\\", b"\x1b[?62;22c;ls\n"),
        *(b"\x1bP1+r544E=61\x1b\\", b"\x1bP1$r" + MARKER + b"m\x1b\\", b"\x1b]52;c;bHM=\a"),
        *(b"\x1b[1;1R" + MARKER, b"\x1bP>|ghostty 1.0\x1b\\", b"\x1b_Gi=1;OK\x1b\\"),
    ],
)
def test_grammar_refuses_everything_but_replies(reply):
    assert not native.is_allowed(reply)


@pytest.mark.long
@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(
        st.sampled_from(QUERIES)
        | st.sampled_from(ALL)
        | st.sampled_from(
            [MARKER, MARKER + b"\n", b"\x1b]2;" + MARKER, b"\x1bP$q", b"\x1b\\", b"\a"]
        )
        | st.binary(max_size=4),
        max_size=30,
    )
)
def test_no_reply_has_text_that_the_program_chose(chunks):
    found = replies_to(*chunks)
    assert MARKER.lower() not in found.lower()
    assert MARKER.hex().encode() not in found.lower()
    assert not found or native.is_allowed(found)
    assert b"\n" not in found
    assert b"\r" not in found
