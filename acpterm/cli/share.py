"""`acpterm share`: make a link to one terminal."""

import click

from acpterm.acp.shares import SHARE_MS_MAX, ShareCreateRequest, ShareCreateResponse
from acpterm.cli._daemon import ChosenDaemon, at_daemon, check_page
from acpterm.cli._output import echo_once
from acpterm.cli._params import span_up_to, terminal_argument


@click.command("share")
@click.option("--write", is_flag=True, help="Let visitors type, too.")
@click.option(
    "--for",
    "span_s",
    metavar="TIME",
    type=span_up_to(SHARE_MS_MAX // 1000),
    default="1h",
    show_default=True,
    help="How long the link is valid: such as 10m, 1h30m or 2d, at most 30d.",
)
@terminal_argument()
@at_daemon
def command(terminal: str, write: bool, span_s: float, daemon: ChosenDaemon) -> None:
    """Print a link to a page that shows only TERMINAL.

    Everyone with the link can watch the terminal, any number of times, until the link expires or
    acpterm unshare ends it. With --write they can also type, but only into a terminal that is
    yours: what they type runs with your rights, as if you had typed it.

    The daemon serves the page, as it does for acpterm open. Other machines can reach the page only
    through a reverse proxy or a tunnel, or if the settings let the daemon listen on another
    address.

    Exit status: 0; 1 if the terminal cannot be shared, the HTTP server cannot be started, or the
    page was not built.
    """
    check_page()
    request = ShareCreateRequest(terminal, write=write, for_ms=max(1, round(1000 * span_s)))
    echo_once(daemon.request("share/create", request, ShareCreateResponse).url)
