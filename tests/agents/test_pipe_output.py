"""The output that is written to a pipe does not depend on where the reads of it end."""

from acpterm.commands.attach.pipe import PipeOutput
from tests.support.cases import each_case

WHOLE = [
    (b"plain\r\n", b"plain\n"),
    (b"\r\r\n", b"\r\n"),
    (b"a\rb\r", b"a\rb\r"),
    (b"\x1b[1;31mred\x1b[0m.\x1b[K\x1b[2J", b"red."),
    (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b]8;;\x1b\\c", b"abc"),
    (b"\x1bPq#0\n~\x1b\\x\x1b_apc\x1b\\y\x1b^pm\x1b\\z", b"xyz"),
    (b"\x1b(B\x1b=\x1b7a\x1b8\x1bM", b"a"),
    (b"\x1b]0;no end\nline\r\n", b"\nline\n"),
    (b"\x00\x07\x08\xff\t\xc3\xa9", b"\x00\x07\x08\xff\t\xc3\xa9"),
    (b"end\x1b[3", b"end"),
    (b"\x1b\x1b[1mx", b"x"),
]


@each_case(("data", "expected"), WHOLE)
def test_pipe_output_is_the_same_however_it_is_cut(data, expected):
    for size in range(1, len(data) + 1):
        output = PipeOutput()
        parts = [output.feed(data[at : at + size]) for at in range(0, len(data), size)]
        assert b"".join(parts) + output.finish() == expected, size


def test_sequence_without_an_end_holds_up_no_more_than_its_bound():
    output = PipeOutput()
    sent = b"".join(output.feed(b"\x1b]" + b"x" * 1000) for _ in range(3))
    sent += b"".join(output.feed(b"y" * 1000) for _ in range(20))
    assert len(sent) > 10_000
    assert output.feed(b"\n").endswith(b"\n")
