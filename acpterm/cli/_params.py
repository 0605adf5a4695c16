"""Parameter types of the command line: numbers, sizes, times, positions and terminals.

A type is a function that returns the value of a word, or raises `click.BadParameter`.

Every command on terminals uses `terminal_argument`. Its value is a terminal's id, the beginning of
an id, a name, or ``@last``, the newest terminal (for a command that types, the user's newest). The
daemon finds the terminal. A shell completes the value from the daemon's terminals.
"""

import math
import re
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from acpterm.acp.user_api import ACTIVE
from acpterm.commands.completion import description, short_ids, terminals
from acpterm.commands.output.read import Since
from acpterm.config import ConfigError, Settings, load
from acpterm.jsonrpc import is_utf8_encodable

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

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
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


def as_size(text: str) -> tuple[int, int]:
    """Return columns and rows of COLSxROWS."""
    match = _SIZE.fullmatch(text)
    cols, rows = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (1 <= cols <= _CELLS_MAX and 1 <= rows <= _CELLS_MAX):
        example = f"such as 80x24, each at most {_CELLS_MAX}"
        raise click.BadParameter(f"{text!r} is not a size: give COLSxROWS, {example}")
    return cols, rows


def as_since(text: str) -> Since:
    """Return the point of a terminal's output: a time (see `parse_time`) or @POSITION."""
    if position := _POSITION.fullmatch(text):
        return Since(position=int(position[1]))
    try:
        at = parse_time(text, time.time())
    except (ValueError, OverflowError):
        hint = f"; the position is @{text}" if text.isdigit() else ""
        raise click.BadParameter(
            f"{text!r} is no time and no position: give 90s, 5m, 1h30m, 2d, 10:30, "
            f"2026-01-31T10:30 or @12345{hint}"
        ) from None
    return Since(time=max(0, round(1000 * at)))


def parse_time(text: str, now: float) -> float:
    """Return a time in seconds since 1970, as `now`.

    `text` is a span before `now` (1h30m), a time of day (10:30: the last one before `now`), or an
    ISO 8601 date with an optional time. Raises `ValueError` or `OverflowError` for other text.
    """
    if text and _SPAN.fullmatch(text):
        return now - _parse_span(text)
    if clock := _CLOCK.fullmatch(text):
        hour, minute, second = (int(number or 0) for number in clock.groups())
        today = datetime.fromtimestamp(now, UTC).astimezone()
        at = today.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return (at if at <= today else at - timedelta(days=1)).timestamp()
    if len(text) < len("2026-01-31"):
        raise ValueError(text)
    # A time without an offset is local time.
    return datetime.fromisoformat(text).astimezone().timestamp()


def span_up_to(max_s: int) -> Callable[[str], float]:
    """Return the type of a span of time, such as 1h30m: its value is at most `max_s` seconds."""
    days = max_s // 86400

    def convert(text: str) -> float:
        try:
            seconds = _parse_span(text)
        except OverflowError:
            seconds = math.inf
        except ValueError:
            seconds = 0.0
        if seconds > max_s:
            raise click.BadParameter(f"{text!r} is too long: at most {days}d")
        if seconds <= 0:
            raise click.BadParameter(
                f"{text!r} is no span of time: give 90s, 5m, 1h30m or 2d, at most {days}d"
            )
        return seconds

    return convert


def _parse_span(text: str) -> float:
    """Raise `ValueError`, or `OverflowError` if the span is too long for a `timedelta`."""
    found = _SPAN.fullmatch(text)
    if not found or not text:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(number or 0) for number in found.groups())
    return timedelta(days, seconds, 0, 0, minutes, hours).total_seconds()


def terminal_name(word: str) -> str:
    """Return what names a terminal: its id, the beginning of its id, its name, or ``@last``."""
    if not is_utf8_encodable(word):
        raise click.BadParameter(f"{word!r} names no terminal: it is not UTF-8")
    if not word:
        raise click.BadParameter("an empty word names no terminal")
    return word


def ask_daemon(ctx: click.Context, ask: Callable[[Settings], list[T]]) -> list[T]:
    """Ask the daemon of the command that is completed; return an empty list on any failure."""
    try:
        return ask(load(ctx.params.get("config"), flags={"socket": ctx.params.get("socket")}))
    except (ConfigError, OSError):
        return []


def untaken(
    ctx: click.Context, param: click.Parameter, items: Iterable[CompletionItem]
) -> list[CompletionItem]:
    """Return the items that the command line does not contain yet."""
    given = ctx.params.get(param.name or "") or ()
    taken = {given} if isinstance(given, str) else set(given)
    return [item for item in items if item.value not in taken]


def complete_terminal(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return names and ids of terminals that begin with `incomplete`, one word per terminal."""
    return _complete(ctx, param, incomplete, running=False)


def _complete_running(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _complete(ctx, param, incomplete, running=True)


def _complete(
    ctx: click.Context, param: click.Parameter, incomplete: str, *, running: bool
) -> list[CompletionItem]:
    if incomplete.startswith("@"):
        return [CompletionItem(LAST)] if LAST.startswith(incomplete) else []
    found = ask_daemon(ctx, terminals)
    short = short_ids([info.terminal_id for info in found])
    items = []
    for info in found:
        if running and info.state not in ACTIVE and not info.background:
            continue
        full_id = info.terminal_id
        words = [full_id if incomplete.startswith("term_") else short[full_id]]
        if info.name and _SAFE.fullmatch(info.name):
            words.insert(0, info.name)
        # The full id only if more than the short id was typed.
        words += [full_id.removeprefix("term_")]
        if word := next((word for word in words if word.startswith(incomplete)), None):
            items.append(CompletionItem(word, help=description(info)))
    return untaken(ctx, param, items)


def terminal_argument(
    *, many: bool = False, required: bool = True, running: bool = False
) -> Callable[[F], F]:
    """Return a decorator that adds the argument `terminal`, or with `many` the tuple `terminals`.

    With `running`, completion offers only terminals in which something runs.
    """
    metavar = "TERMINAL…" if many else "TERMINAL" if required else "[TERMINAL]"
    return click.argument(
        "terminals" if many else "terminal",
        metavar=metavar,
        nargs=-1 if many else 1,
        required=required,
        type=terminal_name,
        shell_complete=_complete_running if running else complete_terminal,
    )
