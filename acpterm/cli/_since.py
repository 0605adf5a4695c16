"""A time or a position on the command line: where something is to begin."""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from acpterm.client.user.output.show import Since

_SPAN: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_POSITION: Final = re.compile(r"@(\d{1,18})")


class SinceParam(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """How long ago, a time of day, a date with a time, or a position."""

    name = "since"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Since:
        """Parse it."""
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
    """Return the time that is meant, in seconds since 1970. Raises `ValueError`."""
    span = _SPAN.fullmatch(text)
    if span and text:
        days, hours, minutes, seconds = (int(number or 0) for number in span.groups())
        return now - timedelta(days, seconds, 0, 0, minutes, hours).total_seconds()
    if clock := _CLOCK.fullmatch(text):
        hour, minute, second = (int(number or 0) for number in clock.groups())
        today = datetime.fromtimestamp(now, UTC).astimezone()
        at = today.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return (at if at <= today else at - timedelta(days=1)).timestamp()
    if len(text) < len("2026-01-31"):
        raise ValueError(text)
    # Without an offset it is local time.
    return datetime.fromisoformat(text).astimezone().timestamp()
