"""Reads the retained output of a terminal, and draws the rows that have scrolled off the screen."""

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from acpterm.acp.user_api import ScreenResponse
from acpterm.commands.blocking_client import BlockingClient
from acpterm.commands.output.read import read_output
from acpterm.terminal.text.slices import resync
from acpterm.terminal.vt.history import rows_above
from acpterm.terminal.vt.paint import main_output


class RowsAbove(NamedTuple):
    """The rows above a screen, as text with colours (SGR)."""

    rows: Iterator[str]
    lost: int
    """Bytes of output that are not retained, before the rows."""


def read_history(client: BlockingClient, terminal: str, screen: ScreenResponse) -> RowsAbove:
    """Read the retained output before `screen`; its rows are drawn when they are iterated over."""
    pieces: list[bytes] = []
    lost = 0
    with closing(read_output(client, terminal, stay=False)) as parts:
        for part in parts:
            start = part.position - len(part.data)
            if part.lost or not pieces:
                pieces, lost = [], start
            pieces.append(part.data[: max(0, screen.position - start)])
            if part.position >= screen.position:
                break
    data = b"".join(pieces)
    skipped = resync(data) if lost else 0
    return RowsAbove(
        rows_above(main_output(data[skipped:]), screen.cols, screen.lines), lost + skipped
    )
