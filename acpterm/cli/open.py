"""`acpterm open`: open the daemon's web page, which shows all terminals, in a browser."""

import contextlib
import html
import os
import sys
import webbrowser
from typing import Final

import click

from acpterm.acp.web_api import WebOpenRequest, WebOpenResponse, WebStatusResponse
from acpterm.cli._daemon import ChosenDaemon, at_daemon, check_page
from acpterm.cli._options import fail
from acpterm.cli._output import echo_once
from acpterm.commands.blocking_client import BlockingClient


@click.command("open")
@click.option("--no-browser", is_flag=True, help="Print the link and start no browser.")
@click.option(
    "--http",
    "address",
    metavar="ADDRESS:PORT",
    help="Listen on ADDRESS:PORT, if the server does not run yet.",
)
@at_daemon
def command(no_browser: bool, address: str | None, daemon: ChosenDaemon) -> None:
    """Open the page that shows all terminals in a browser.

    The daemon serves the page, also over ssh -L or behind a proxy. If its HTTP server does not run
    yet, it is started: on the address of the setting http, else on that used last, else on a free
    port of 127.0.0.1. It then runs until the daemon ends.

    The link logs one browser in, once, within ten minutes; the login lasts 30 days. Without a
    graphical browser, the link is printed, as with --no-browser. A browser that may not read files
    in your home directory, as in a snap, needs --no-browser.

    Exit status: 0; 1 if the server cannot be started or the page was not built.
    """
    check_page()

    def work(client: BlockingClient) -> tuple[WebOpenResponse, str | None]:
        opened = client.call("web/open", WebOpenRequest(address), WebOpenResponse)
        return opened, client.request_no_params("web/status", WebStatusResponse).token_file

    opened, token_file = daemon.call(work, start=True)
    if not no_browser and token_file is not None:
        try:
            if open_in_browser(opened.url, os.path.dirname(token_file)):
                echo_once(f"opened the page in a browser; it is at {opened.address}")
                return
        except OSError as error:
            fail(str(error))
    echo_once(opened.url)


_NAME: Final = "open.html"


def open_in_browser(url: str, directory: str) -> bool:
    """Return False if no graphical browser could be started."""
    variables = "DISPLAY", "WAYLAND_DISPLAY"
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in variables):
        # A browser that draws in the terminal could not run the page.
        return False
    # All users can read a process's arguments, so the link, which logs one browser in, must not be
    # one: the browser gets the path of a private file that redirects it.
    path = os.path.join(directory, _NAME)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    text = f'<!doctype html>\n<meta http-equiv="refresh" content="0;url={html.escape(url)}">\n'
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    try:
        return webbrowser.open(f"file://{path}")
    except webbrowser.Error:
        return False
