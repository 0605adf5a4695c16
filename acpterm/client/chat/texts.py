"""The texts of the answers to `/terminal`: the table of terminals, and output with a heading.

An argument `terminal` is the title of a terminal.

In the table, commands are escaped, since agents choose them. Nothing else is escaped: the caller
escapes a text before showing it to the user.
"""

import math
from collections.abc import Sequence
from typing import Final

from acpterm.acp.user_api import ExitInfo, TerminalInfo
from acpterm.client.sanitize import one_line
from acpterm.client.user.format import ended, reason, title

_COMMAND_WIDTH: Final = 30
_HEADER: Final = """\
Active Terminal Sessions:
ID           | Command                        | Position | Running | Uptime
-------------|--------------------------------|----------|---------|--------"""


def list_text(terminals: Sequence[TerminalInfo], now: float) -> str:
    """Return the table of terminals, with their uptimes at `now` (seconds since 1970)."""
    if not terminals:
        return "No active terminal sessions."
    return "\n".join([_HEADER, *(_row(terminal, now) for terminal in terminals)])


def _row(terminal: TerminalInfo, now: float) -> str:
    running = "Yes" if terminal.state == "running" else "No"
    until = now if terminal.exited_at is None else terminal.exited_at / 1000
    uptime = f"{max(0, math.floor(until - terminal.created_at / 1000))}s"
    command = one_line(terminal.command, _COMMAND_WIDTH)
    return (
        f"{title(terminal):<12} | {command:<{_COMMAND_WIDTH}} | {terminal.position:<8} | "
        f"{running:<7} | {uptime}"
    )


def started_text(terminal: str, command: str, output: str) -> str:
    """Return the answer to `/terminal start`; `output` is the first output of the terminal."""
    return (
        f"Terminal Session Started\nTerminal Id: {terminal}\nSent Command: {command}\n\n"
        f"Output:\n{output}"
    )


def sent_text(terminal: str, output: str) -> str:
    """Return the answer to `/terminal send`; `output` is the output since the input was sent."""
    return f"Terminal Session: {terminal}\n\nOutput:\n{output}"


def output_text(terminal: str, output: str) -> str:
    """Return the answer to `/terminal output`; `output` is all retained output of the terminal."""
    return f"Terminal Session: {terminal}\nComplete Output:\n{output}"


def stopped_text(terminal: str) -> str:
    """Return the answer to `/terminal stop`, which has ended the terminal."""
    return f"Terminal session {terminal} terminated."


def new_output(output: str, left_out: int, status: ExitInfo | None, terminal: str) -> str:
    """Return `output`, new output of `terminal`, with a line before and after it if needed.

    The line before says that `left_out` bytes are missing, unless that is 0. The line after says
    how the program has ended; there is none if `status` is None.
    """
    lines = []
    if left_out:
        lines.append(f"[{left_out} bytes left out: output {terminal} shows all]")
    if text := output.removesuffix("\n"):
        lines.append(text)
    if status is not None:
        lines.append(f"[{ended(status)}{reason(status)}]")
    return "\n".join(lines)
