"""Prints a command's output on stdout, as whole lines in a single write."""

import os
import sys

import msgspec

from acpterm.client.sanitize import escape_json
from acpterm.client.user.output.blocking_stdout import named
from acpterm.runtime.blocking_io import write_fully


def echo(text: str) -> None:
    """Print one or more lines in a single write, which may block.

    Characters that the encoding of stdout lacks are printed as question marks. Raises `OSError` if
    stdout cannot be written to: `BrokenPipeError` if it is a pipe without a reader.
    """
    encoding = sys.stdout.encoding or "utf-8"
    with named("stdout"):
        write_fully(1, f"{text}\n".encode(encoding, errors="replace"))


def echo_once(text: str) -> None:
    """Print a command's whole output; exit with status 0 if stdout is a pipe without a reader."""
    try:
        echo(text)
    except BrokenPipeError:
        raise SystemExit(0) from None


def json_text(value: object) -> str:
    """Return `value` as JSON, indented if stdout is a terminal.

    Characters that could control a terminal are escaped.
    """
    text = json_line(value)
    return msgspec.json.format(text) if os.isatty(1) else text


def json_line(value: object) -> str:
    """Return `value` as one line of JSON. Characters that could control a terminal are escaped."""
    return escape_json(msgspec.json.encode(value).decode())


def is_colour_wanted() -> bool:
    """Return whether output to stdout may be coloured (https://no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR")


def is_terminal() -> bool:
    """Return whether stdout is a terminal that understands escape sequences."""
    return os.isatty(1) and os.environ.get("TERM", "dumb") not in ("", "dumb")
