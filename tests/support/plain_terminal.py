"""A terminal without acpterm: a PTY whose session has a leader that is not the command."""

import contextlib
import errno
import os
import re
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from acpterm.terminal.text.stream import TextView
from tests.support.polling import poll
from tests.support.ptys import open_pair

_LEADER = str(Path(__file__).with_name("session_leader.py"))
_IUTF8 = 0x4000
_TEXT_BYTES = 1 << 20


class PlainTerminal:
    """A command on a PTY, and all that it has printed."""

    def __init__(self, master: int, mark: bytes, size: tuple[int, int]) -> None:
        self._master = master
        self._size = size
        self._end = re.compile(re.escape(mark) + rb"(\d+)\r?\n")
        self._output = bytearray()

    async def read(self) -> None:
        """Read the output until the terminal is hung up."""
        while True:
            await trio.lowlevel.wait_readable(self._master)
            try:
                self._output += os.read(self._master, 1 << 16)
            except OSError as error:
                if error.errno == errno.EIO:
                    return
                raise

    def text(self) -> str:
        """Return the output as acpterm gives it to agents."""
        view = TextView(_TEXT_BYTES, size=self._size)
        view.feed(self._end.sub(b"", self._output))
        view.finish()
        return view.text()

    def type(self, data: str) -> None:
        os.write(self._master, data.encode())

    async def wait(self) -> int:
        """Wait until the command has ended; return its wait status."""
        found: re.Match[bytes] = await poll(lambda: self._end.search(self._output), 60)
        return int(found[1])


@asynccontextmanager
async def plain_terminal(
    command: Sequence[str], env: Mapping[str, str], cwd: str, size: tuple[int, int]
) -> AsyncIterator[PlainTerminal]:
    """Run a command in a terminal of `size` (columns, rows), which hangs up after the block."""
    master, slave = open_pair(*size)
    attributes = termios.tcgetattr(slave)
    attributes[0] |= _IUTF8
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    kept, keep = os.pipe()
    mark = os.urandom(16).hex()
    try:
        leader = subprocess.Popen(
            [sys.executable, "-I", "-S", _LEADER, mark, str(kept), *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            # As for acpterm's terminals, it is the path of this one.
            env={**env, **({"GPG_TTY": os.ttyname(slave)} if "GPG_TTY" in env else {})},
            cwd=cwd,
            pass_fds=[kept],
        )
    except BaseException:
        os.close(keep)
        os.close(master)
        raise
    finally:
        os.close(slave)
        os.close(kept)
    try:
        async with trio.open_nursery() as nursery:
            terminal = PlainTerminal(master, mark.encode(), size)
            nursery.start_soon(terminal.read)
            yield terminal
            nursery.cancel_scope.cancel()
    finally:
        os.close(keep)
        with contextlib.suppress(OSError):
            os.close(master)
        leader.kill()
        leader.wait()
