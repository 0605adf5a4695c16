"""The person at the terminal, who is asked a question and types the number of an answer."""

import os
import termios
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from acpterm.client.sanitize import one_line

_LINE: Final = 4096


class NoTerminalError(Exception):
    """There is no terminal, or this process may not use it."""


async def choose(
    question: str, answers: Sequence[str], show: Callable[[], Awaitable[None]]
) -> int | None:
    """Ask at the controlling terminal; give the answer's index, None for the end of the input.

    `question` is in lines that are safe to print. Raises `NobodyError` when nobody can be asked.
    stdin may be something else, so it is not used. `show` is awaited first, if there is anybody.
    What is no answer is asked again. Cancelled, it reads no more.
    """
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise NoTerminalError from error
    try:
        # One in the background would be stopped by the system as soon as it reads.
        if os.tcgetpgrp(fd) != os.getpgrp():
            raise NoTerminalError
        await show()
        # What was typed before is no answer to this.
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
    """Read a line, which the terminal gives when it is whole; None for its end (Ctrl-D)."""
    await trio.lowlevel.wait_readable(fd)
    data = os.read(fd, _LINE)
    return data.decode(errors="replace").strip() if data else None


def _print(fd: int, text: str) -> None:
    os.write(fd, text.encode(errors="replace"))
