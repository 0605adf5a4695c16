"""Parameter types of the command line: numbers, sizes, times, positions and terminals.

Every command on terminals uses `terminal_argument`. Its value is a terminal's id, the beginning of
an id, a name, or ``@last``, the newest terminal (for a command that types, the user's newest). The
daemon finds the terminal. A shell completes the value from the daemon's terminals.
"""

import math
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from acpterm.client.user.output.read import Since
from acpterm.config import ConfigError, load

F = TypeVar("F", bound=Callable[..., Any])

_SIZE: Final = re.compile(r"([0-9]{1,6})x([0-9]{1,6})")
_CELLS_MAX: Final = 10_000
_SPAN: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_POSITION: Final = re.compile(r"@(\d{1,18})")
# Characters that no shell interprets, not even within a word. If a terminal's name has other
# characters, completion offers the terminal's id instead.
_SAFE: Final = re.compile(r"[A-Za-z0-9_.+/-]+", re.ASCII)
LAST: Final = "@last"


class Finite(click.FloatRange):
    """A finite number; click's own type accepts `nan` and `inf`."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return `value` as a number; fail if it is not finite, or outside the type's range.

        The range is the one with which the type was created, as with `click.FloatRange`.
        """
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


class Size(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """The size of a terminal: COLSxROWS."""

    name = "size"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return columns and rows of COLSxROWS; fail unless both are from 1 to `_CELLS_MAX`."""
        if isinstance(value, tuple):
            return value
        match = _SIZE.fullmatch(str(value))
        cols, rows = (int(match[1]), int(match[2])) if match else (0, 0)
        if not (1 <= cols <= _CELLS_MAX and 1 <= rows <= _CELLS_MAX):
            example = f"such as 80x24, each at most {_CELLS_MAX}"
            self.fail(f"{value!r} is not a size: give COLSxROWS, {example}", param, ctx)
        return cols, rows


class SinceParam(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """The point at which to start in a terminal's output: a time or a position.

    A time is a span before now, a time of day, or a date with an optional time. A position is
    written with an @, as in ``@12345``.
    """

    name = "since"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Since:
        """Parse a time or a position; fail for other text."""
        if isinstance(value, Since):
            return value
        text = str(value)
        if position := _POSITION.fullmatch(text):
            return Since(position=int(position[1]))
        try:
            at = parse_time(text, time.time())
        except (ValueError, OverflowError):
            hint = f"; the position is @{text}" if text.isdigit() else ""
            self.fail(
                f"{text!r} is no time and no position: give 90s, 5m, 1h30m, 2d, 10:30, "
                f"2026-01-31T10:30 or @12345{hint}",
                param,
                ctx,
            )
        return Since(time=max(0, round(1000 * at)))


def parse_time(text: str, now: float) -> float:
    """Parse a time; return it in seconds since 1970.

    `text` is a time span before `now` (1h30m), a time of day (10:30, which means its last
    occurrence before `now`), or an ISO 8601 date with an optional time. `now` is the current time
    in seconds since 1970. Raises `ValueError` or `OverflowError` for other text.
    """
    if text and _SPAN.fullmatch(text):
        return now - parse_span(text)
    if clock := _CLOCK.fullmatch(text):
        hour, minute, second = (int(number or 0) for number in clock.groups())
        today = datetime.fromtimestamp(now, UTC).astimezone()
        at = today.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return (at if at <= today else at - timedelta(days=1)).timestamp()
    if len(text) < len("2026-01-31"):
        raise ValueError(text)
    # A time without an offset is local time.
    return datetime.fromisoformat(text).astimezone().timestamp()


class Span(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """A span of time, such as 90s, 5m, 1h30m or 2d; its value is at most `max_s` seconds."""

    name = "span"

    def __init__(self, max_s: int) -> None:
        self._max_s: Final = max_s

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds of a span; fail unless it is longer than 0 and at most `max_s`."""
        if isinstance(value, int | float):
            return value
        days = self._max_s // 86400
        try:
            seconds = parse_span(str(value))
        except OverflowError:
            seconds = math.inf
        except ValueError:
            seconds = 0.0
        if seconds > self._max_s:
            self.fail(f"{value!r} is too long: at most {days}d", param, ctx)
        if seconds <= 0:
            self.fail(
                f"{value!r} is no span of time: give 90s, 5m, 1h30m or 2d, at most {days}d",
                param,
                ctx,
            )
        return seconds


def parse_span(text: str) -> float:
    """Return the seconds of a span, such as 1h30m.

    Raises `ValueError` if `text` is not a span, and `OverflowError` if the span is too long for a
    `timedelta`.
    """
    span = _SPAN.fullmatch(text)
    if not span or not text:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(number or 0) for number in span.groups())
    return timedelta(days, seconds, 0, 0, minutes, hours).total_seconds()


class TerminalName(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """A terminal, given by its id, the beginning of its id, its name, or ``@last``.

    With `running`, completion offers only terminals in which something runs.
    """

    name = "terminal"

    def __init__(self, *, running: bool = False) -> None:
        self._running = running

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return `value`; fail if it is empty, or if it is not UTF-8 and cannot be sent."""
        word = str(value)
        try:
            word.encode()
        except UnicodeEncodeError:
            self.fail(f"{word!r} names no terminal: it is not UTF-8", param, ctx)
        if not word:
            self.fail("an empty word names no terminal", param, ctx)
        return word

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names and ids of the daemon's terminals that begin with `incomplete`.

        If both the name and the id of a terminal begin with `incomplete`, return only its name. If
        the name has characters that a shell could interpret, ignore the name. Leave out names and
        ids that the command line already contains. If `incomplete` begins with @, complete it to
        ``@last``.
        """
        if incomplete.startswith("@"):
            return [CompletionItem(LAST)] if LAST.startswith(incomplete) else []
        given = ctx.params.get(param.name or "") or ()
        taken = {given} if isinstance(given, str) else set(given)
        known = _known(ctx, incomplete, running=self._running)
        return [item for item in known if item.value not in taken]


def _known(ctx: click.Context, incomplete: str, *, running: bool) -> list[CompletionItem]:
    from acpterm.acp.user_api import ACTIVE  # noqa: PLC0415  only for completion
    from acpterm.client.user.completion import (  # noqa: PLC0415  only for completion
        description,
        short_ids,
        terminals,
    )

    try:
        found = terminals(
            load(ctx.params.get("config"), flags={"socket": ctx.params.get("socket")})
        )
    except (ConfigError, OSError):
        return []
    short = short_ids([info.terminal_id for info in found])
    items = []
    for info in found:
        if running and info.state not in ACTIVE and not info.background:
            continue
        full_id = info.terminal_id
        words = [full_id if incomplete.startswith("term_") else short[full_id]]
        if info.name and _SAFE.fullmatch(info.name):
            words.insert(0, info.name)
        # Offer one word per terminal: the full id only if more than the short id was typed.
        words += [full_id.removeprefix("term_")]
        if word := next((word for word in words if word.startswith(incomplete)), None):
            items.append(CompletionItem(word, help=description(info)))
    return items


def terminal_argument(
    *, many: bool = False, required: bool = True, running: bool = False
) -> Callable[[F], F]:
    """Return a decorator that adds the argument TERMINAL to a command.

    The command's function gets the parameter `terminal`, a string, or with `many` the parameter
    `terminals`, a tuple of strings. Unless the argument is `required`, the user may omit it: then
    `terminal` is None, or `terminals` is empty. `running` is as for `TerminalName`.
    """
    kind = TerminalName(running=running)
    if many:
        return click.argument(
            "terminals", metavar="TERMINAL…", nargs=-1, required=required, type=kind
        )
    metavar = "TERMINAL" if required else "[TERMINAL]"
    return click.argument("terminal", metavar=metavar, required=required, type=kind)
