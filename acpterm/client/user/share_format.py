"""Formats shares (links to terminals) as text, for `acpterm shares`.

All results are safe to print: control and invisible characters in them are escaped.
"""

from collections.abc import Sequence
from typing import Final

from acpterm.acp.shares import ShareInfo
from acpterm.client.user.format import ago, columns, span, summary_line

_HEADER: Final = ("ID", "TERMINAL", "ACCESS", "AGE", "LEFT", "PAGES")


def table(shares: Sequence[ShareInfo], now: float) -> str:
    """Return a table of shares, with ages and time left at `now` (seconds since 1970)."""
    return columns([_HEADER, *(_row(share, now) for share in shares)])


def _row(share: ShareInfo, now: float) -> tuple[str, ...]:
    return (
        summary_line(share.share_id),
        _terminal(share),
        _access(share),
        ago(share.created_at, now),
        span(max(0.0, share.ends_at / 1000 - now)),
        str(share.connections),
    )


def description(share: ShareInfo) -> str:
    """Return a line that describes a share: its terminal, and `read` or `write` access."""
    return f"{_terminal(share)}  {_access(share)}"


def _terminal(share: ShareInfo) -> str:
    return summary_line(share.name or share.terminal_id)


def _access(share: ShareInfo) -> str:
    return "write" if share.write else "read"
