r"""Find the marks by which a shell delimits its prompts and its commands' output.

A mark is the escape sequence ``ESC ] 133 ; … BEL`` (OSC 133, "semantic prompts"). It has a letter,
the shell's nonce, the shell's pid and the number of the command. The letters are A before a prompt,
B at the end of the prompt, C before a command's output and D after the output.

Marks without the nonce are treated as output. The caller must ignore marks of another pid than the
shell's: they come from a child shell that has inherited PS0 and PS1.
"""

import re
from typing import NamedTuple

_PREFIX = b"\x1b]133;"
# No mark with the nonce is longer.
_MARK_BYTES_MAX = 160


class CommandMark(NamedTuple):
    """A mark in a shell's output, at offsets in bytes of the output."""

    letter: str  # `A`, `B`, `C` or `D`
    n: int  # the command that was the last to begin
    status: int | None  # its exit code, with D
    pid: int  # of the shell that wrote the mark
    begin: int
    end: int  # just past the last byte


class OutputPiece(NamedTuple):
    """A piece of the output between two marks."""

    data: bytes
    begin: int  # the position of its first byte


class CommandMarkScanner:
    """Splits a shell's output into marks and what is between; holds back what may be one."""

    def __init__(self, nonce: str, position: int = 0) -> None:
        self._pattern = re.compile(
            rb"\x1b\]133;([ABCD])(?:;(\d+))?;aid=%b;pid=(\d+);n=(\d+)\x07" % nonce.encode()
        )
        self._held = b""
        self._position = position

    @property
    def position(self) -> int:
        """The position just past the last byte that was fed or skipped."""
        return self._position + len(self._held)

    def feed(self, data: bytes) -> list[OutputPiece | CommandMark]:
        data = self._held + data
        pieces: list[OutputPiece | CommandMark] = []
        at = 0
        for found in self._pattern.finditer(data):
            self._add_output(pieces, data, at, found.start())
            letter, status, pid, n = found.groups()
            pieces.append(
                CommandMark(
                    letter.decode(),
                    int(n),
                    None if status is None else int(status),
                    int(pid),
                    self._position + found.start(),
                    self._position + found.end(),
                )
            )
            at = found.end()
        keep = _possible_begin(data, at)
        self._add_output(pieces, data, at, keep)
        self._held = data[keep:]
        self._position += keep
        return pieces

    def skip(self, size: int) -> list[OutputPiece | CommandMark]:
        """Skip lost bytes; return the output that was held back before them."""
        pieces = self.flush()
        self._position += size
        return pieces

    def flush(self) -> list[OutputPiece | CommandMark]:
        """Return the bytes that are held back, as output."""
        pieces: list[OutputPiece | CommandMark] = []
        self._add_output(pieces, self._held, 0, len(self._held))
        self._position += len(self._held)
        self._held = b""
        return pieces

    def _add_output(
        self, pieces: list[OutputPiece | CommandMark], data: bytes, begin: int, end: int
    ) -> None:
        if begin < end:
            pieces.append(OutputPiece(data[begin:end], self._position + begin))


def _possible_begin(data: bytes, at: int) -> int:
    """Return where an incomplete mark at the end may begin; the length if there is none."""
    begin = data.rfind(b"\x1b", max(at, len(data) - _MARK_BYTES_MAX))
    if begin < 0:
        return len(data)
    tail = data[begin:]
    if tail.startswith(_PREFIX):
        return len(data) if b"\a" in tail else begin
    return begin if _PREFIX.startswith(tail) else len(data)
