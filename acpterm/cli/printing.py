"""What commands print on stdout: whole lines, at once, for whoever still reads them."""

import os
import sys


def say(text: str) -> None:
    """Print a line, or lines, now; raises `BrokenPipeError` if nobody reads them.

    What the encoding of stdout has no character for is shown as a question mark.
    """
    encoding = sys.stdout.encoding or "utf-8"
    data = f"{text}\n".encode(encoding, errors="replace")
    while data:
        data = data[os.write(1, data) :]


def say_once(text: str) -> None:
    """Print all that a command has to print; nobody has to read it."""
    try:
        say(text)
    except BrokenPipeError:
        raise SystemExit(0) from None


def coloured() -> bool:
    """Whether what is written to stdout may be coloured (https://no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR")


def is_terminal() -> bool:
    """Whether somebody looks at stdout on a terminal that knows escape sequences."""
    return os.isatty(1) and os.environ.get("TERM", "dumb") not in ("", "dumb")
