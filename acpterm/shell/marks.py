r"""Find the marks of a shell in its output: ``ESC ] 133 ; … BEL`` with the shell's nonce.

A mark has a letter (A before the prompt, B at its end, C before a command's output, D after it),
the nonce, the pid of the shell, and the number of the command. Marks without the nonce are output.
Marks of another pid have no effect: a child shell may have inherited PS0 and PS1.
"""

import re
from typing import NamedTuple

_PREFIX = b"\x1b]133;"
_MARK_BYTES_MAX = 160


class Mark(NamedTuple):
    """A mark of the shell."""

    letter: str
    n: int
    """The number of the command that was the last to begin."""
    status: int | None
    """The exit code of that command, if this is a D."""
    pid: int
    begin: int
    """The position of the mark's first byte."""
    end: int
    """The position after its last byte."""


class Output(NamedTuple):
    """Output of the programs, without marks."""

    data: bytes
    begin: int


class MarkScanner:
    """Splits a stream of bytes into output and marks.

    State: the last bytes, if a mark may begin there, and their position. No more than
    `_MARK_BYTES_MAX` bytes are held back.
    """

    def __init__(self, nonce: str, position: int = 0) -> None:
        self._pattern = re.compile(
            rb"\x1b\]133;([ABCD])(?:;(\d+))?;aid=%b;pid=(\d+);n=(\d+)\x07" % nonce.encode()
        )
        self._held = b""
        self._position = position

    @property
    def position(self) -> int:
        """The position after the last byte that was fed."""
        return self._position + len(self._held)

    def feed(self, data: bytes) -> list[Output | Mark]:
        """Return what `data`, the next bytes, completes, in order."""
        data = self._held + data
        pieces: list[Output | Mark] = []
        at = 0
        for found in self._pattern.finditer(data):
            self._add_output(pieces, data, at, found.start())
            letter, status, pid, n = found.groups()
            pieces.append(
                Mark(
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

    def skip(self, size: int) -> list[Output | Mark]:
        """Skip `size` bytes that are lost; return what was held back."""
        pieces = self.flush()
        self._position += size
        return pieces

    def flush(self) -> list[Output | Mark]:
        """Return the bytes that are held back, as output."""
        pieces: list[Output | Mark] = []
        self._add_output(pieces, self._held, 0, len(self._held))
        self._position += len(self._held)
        self._held = b""
        return pieces

    def _add_output(self, pieces: list[Output | Mark], data: bytes, begin: int, end: int) -> None:
        if begin < end:
            pieces.append(Output(data[begin:end], self._position + begin))


def _possible_begin(data: bytes, at: int) -> int:
    """Return the index from which `data` may be the beginning of a mark, or its length."""
    begin = data.rfind(b"\x1b", max(at, len(data) - _MARK_BYTES_MAX))
    if begin < 0:
        return len(data)
    tail = data[begin:]
    if tail.startswith(_PREFIX):
        return len(data) if b"\a" in tail else begin
    return begin if _PREFIX.startswith(tail) else len(data)
