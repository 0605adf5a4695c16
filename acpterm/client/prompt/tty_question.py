"""Asks the user a question at the controlling terminal."""

import os
import termios
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from acpterm.client.sanitize import one_line

_LINE_BYTES_MAX: Final = 4096


class NoTerminalError(Exception):
    """There is no controlling terminal, or this process is in the background."""


async def choose(
    question: str, answers: Sequence[str], show: Callable[[], Awaitable[None]]
) -> int | None:
    """Ask the user to choose; return the index of the answer, None at the end of the input.

    `question` is one or more lines that are safe to print. `show` is awaited first if there is a
    terminal. An invalid answer repeats the question. stdin is not used, since it may be a pipe.
    After cancellation nothing more is read. Raises `NoTerminalError`.
    """
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise NoTerminalError from error
    try:
        # A background process is stopped by the system (SIGTTIN) as soon as it reads.
        if os.tcgetpgrp(fd) != os.getpgrp():
            raise NoTerminalError
        await show()
        # Drop what was typed before the question.
        termios.tcflush(fd, termios.TCIFLUSH)
        lines = [f"  {number}  {one_line(answer)}" for number, answer in enumerate(answers, 1)]
        _print(fd, "\n".join(["", question, *lines, ""]))
        while True:
            _print(fd, f"1 to {len(answers)}: ")
            typed = await _line(fd)
            if typed is None:
                _print(fd, "\n")
                return None
            if typed.isdecimal() and 1 <= int(typed) <= len(answers):
                return int(typed) - 1
    except (OSError, termios.error) as error:
        raise NoTerminalError from error
    finally:
        os.close(fd)


async def _line(fd: int) -> str | None:
    """Read a line, which the terminal delivers once it is complete; None for Ctrl-D."""
    await trio.lowlevel.wait_readable(fd)
    data = os.read(fd, _LINE_BYTES_MAX)
    return data.decode(errors="replace").strip() if data else None


def _print(fd: int, text: str) -> None:
    os.write(fd, text.encode(errors="replace"))
