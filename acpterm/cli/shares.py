"""`acpterm shares`: list the links to terminals."""

import time
from collections.abc import Sequence
from typing import Final

import click

from acpterm.acp.shares import ShareInfo, SharesResponse
from acpterm.acp.user_api import NoParams
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import json_option
from acpterm.cli._output import echo_once, json_text
from acpterm.commands.format import ago, columns, span, summary_line


@click.command("shares")
@json_option
@at_daemon
def command(*, as_json: bool, daemon: ChosenDaemon) -> None:
    """List the links that acpterm share has made, and that are still valid.

    ID is the beginning of the link's id; acpterm unshare accepts it. LEFT is the time until the
    link expires, and PAGES the number of pages that use it now. The links themselves are not
    stored.

    With --json, an array with one object for each link is printed.

    Exit status: 0 on success, 1 if the daemon cannot be reached.
    """
    response = daemon.request_running("share/list", NoParams(), SharesResponse)
    found: list[ShareInfo] = response.shares if response else []
    echo_once(json_text(found) if as_json else table(found, time.time()))


_HEADER: Final = ("ID", "TERMINAL", "ACCESS", "AGE", "LEFT", "PAGES")


def table(shares: Sequence[ShareInfo], now: float) -> str:
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
    return f"{_terminal(share)}  {_access(share)}"


def _terminal(share: ShareInfo) -> str:
    return summary_line(share.name or share.terminal_id)


def _access(share: ShareInfo) -> str:
    return "write" if share.write else "read"
