"""What commands print on stdout: whole lines, at once, for whoever still reads them."""

import os
import sys

import msgspec

from acpterm.client.sanitize import escape_json
from acpterm.client.user.output.print import named
from acpterm.runtime.blocking_io import write_fully


def echo(text: str) -> None:
    """Print a line, or lines, now; raises `BrokenPipeError` if nobody reads them. It may block.

    What the encoding of stdout has no character for is shown as a question mark.
    """
    encoding = sys.stdout.encoding or "utf-8"
    with named("stdout"):
        write_fully(1, f"{text}\n".encode(encoding, errors="replace"))


def echo_once(text: str) -> None:
    """Print all that a command has to print; nobody has to read it."""
    try:
        echo(text)
    except BrokenPipeError:
        raise SystemExit(0) from None


def json_text(value: object) -> str:
    """Give a value as JSON in which nothing steers the window that it is printed in."""
    return escape_json(msgspec.json.encode(value).decode())


def is_colour_wanted() -> bool:
    """Whether what is written to stdout may be coloured (https://no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR")


def window() -> tuple[int, int]:
    """Give the columns and lines of the terminal that stdout is; 80 and 24 if it does not say."""
    try:
        found = os.get_terminal_size(1)
    except OSError:
        return 80, 24
    return found.columns or 80, found.lines or 24


def is_terminal() -> bool:
    """Whether somebody looks at stdout on a terminal that knows escape sequences."""
    return os.isatty(1) and os.environ.get("TERM", "dumb") not in ("", "dumb")
