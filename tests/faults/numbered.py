"""Numbered lines, and checks that none is lost, repeated or out of order.

A line is 14 digits and a newline; on the terminal (ONLCR) it is `LINE_BYTES` long, so every byte of
the raw output follows from its position.
"""

DIGITS = 14
LINE_BYTES = DIGITS + 2


def line(number: int) -> str:
    """Return a line as the program writes it and as the text has it."""
    return f"{number:0{DIGITS}d}\n"


def raw(start: int, size: int) -> bytes:
    """Return the bytes that the raw output has from position `start` on."""
    first, skipped = divmod(start, LINE_BYTES)
    count = (skipped + size) // LINE_BYTES + 1
    lines = "".join(f"{n:0{DIGITS}d}\r\n" for n in range(first, first + count))
    return lines.encode()[skipped : skipped + size]


def check_raw(start: int, data: bytes) -> None:
    """Raise AssertionError unless `data` is what the program wrote at `start`."""
    expected = raw(start, len(data))
    if data != expected:
        at = next(i for i, (a, b) in enumerate(zip(data, expected, strict=True)) if a != b)
        near = slice(max(0, at - 40), at + 40)
        raise AssertionError(
            f"wrong byte at position {start + at}: {data[near]!r} instead of {expected[near]!r}"
        )


def check_text(text: str, *, whole: bool, total: int | None = None) -> int:
    """Raise AssertionError unless `text` is consecutive lines; return the number after the last.

    With `whole`, the text starts with line 0; otherwise its first line may be cut. `total` is how
    many lines the program wrote; while it is unknown, the last line may be incomplete.
    """
    first, newline, _ = text.partition("\n")
    if not newline:
        assert total in (None, 0), f"no line of {total} is there: {text[-80:]!r}"
        return 0
    if len(first) == DIGITS:
        begin, rest = int(first), text
    else:
        assert not whole, f"the first line is cut: {first!r}"
        rest = text[len(first) + 1 :]
        if "\n" not in rest:
            assert total is None, f"only a part of a line is there: {text!r}"
            return 0
        begin = int(rest[: rest.index("\n")])
    assert not whole or begin == 0, f"the text begins with line {begin}"
    count = len(rest) // (DIGITS + 1)
    expected = "".join(map(line, range(begin, begin + count + 1)))[: len(rest)]
    if rest != expected:
        at = next(i for i, (a, b) in enumerate(zip(rest, expected, strict=True)) if a != b)
        near = slice(max(0, at - 40), at + 40)
        raise AssertionError(f"wrong text: {rest[near]!r} instead of {expected[near]!r}")
    if total is not None:
        assert rest.endswith("\n"), f"the last line is cut: {rest[-40:]!r}"
        assert begin + count == total, f"the last line is {begin + count - 1} of {total}"
    return begin + count
