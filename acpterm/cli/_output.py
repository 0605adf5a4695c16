"""Prints a command's output on stdout, as whole lines in a single write."""

import os
import sys
from typing import Protocol

import click
import msgspec

from acpterm.commands.output.blocking_stdout import named, window_size
from acpterm.runtime.blocking_io import write_fully
from acpterm.runtime.sanitize import escape_json


def echo(text: str) -> None:
    """Print lines in one write. Raise `BrokenPipeError` if stdout is a pipe without a reader."""
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
    """Return JSON that is safe to print, indented if stdout is a terminal."""
    text = json_line(value)
    return msgspec.json.format(text) if os.isatty(1) else text


def json_line(value: object) -> str:
    """Return one line of JSON that is safe to print."""
    return escape_json(msgspec.json.encode(value).decode())


class _Row(Protocol):
    @property
    def event(self) -> str: ...

    def text(self, most: int | None = None) -> str: ...


def row_line(row: _Row, colour: str | None) -> str:
    """Return a row as a line; on a terminal, cut to its width, and with the event in colour."""
    text = row.text(window_size()[0] if is_terminal() else None)
    if colour is None or not is_colour_wanted():
        return text
    return text.replace(row.event, click.style(row.event, fg=colour), 1)


def is_colour_wanted() -> bool:
    """Return whether output to stdout may be coloured (https://no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR")


def is_terminal() -> bool:
    """Return whether stdout is a terminal that understands escape sequences."""
    return os.isatty(1) and os.environ.get("TERM", "dumb") not in ("", "dumb")
