"""`acpterm token`: make, list and remove the tokens with which agents use the HTTP server."""

import time

import click

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import NoParams
from acpterm.acp.web_api import (
    TokenCreateRequest,
    TokenCreateResponse,
    TokenRemoveRequest,
    TokensResponse,
)
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import json_option
from acpterm.cli._output import echo_once, json_text
from acpterm.commands.format import ago, columns, summary_line


@click.group("token")
def command() -> None:
    """Make, list and remove the tokens with which agents use /mcp and /acp over HTTP.

    Give each agent a token of its own: an agent reaches only what was begun with its token.
    """


@command.command("add")
@click.argument("name")
@at_daemon
def _add(name: str, daemon: ChosenDaemon) -> None:
    """Make a token for the agent NAME, and print it.

    The token is shown only now: only its hash is stored. The daemon is started if it is not
    running.

    Exit status: 0; 1 if NAME has a token already, or if the token cannot be stored.
    """
    request = TokenCreateRequest(name)
    echo_once(daemon.request("token/create", request, TokenCreateResponse, start=True).token)


@command.command("list")
@json_option
@at_daemon
def _list(*, as_json: bool, daemon: ChosenDaemon) -> None:
    """List the names of the agents that have a token, and the age of each token.

    With --json, an array with one object for each token is printed.

    Exit status: 0 on success, 1 if the daemon cannot be reached.
    """
    response = daemon.request_running("token/list", NoParams(), TokensResponse)
    found = response.tokens if response else []
    rows = [(summary_line(one.name), ago(one.created_at, time.time())) for one in found]
    echo_once(json_text(found) if as_json else columns([("NAME", "AGE"), *rows]))


@command.command("remove")
@click.argument("name")
@at_daemon
def _remove(name: str, daemon: ChosenDaemon) -> None:
    """Remove the token of the agent NAME, and end what uses it: its connections and terminals.

    Exit status: 0 on success, 1 if NAME has no token.
    """
    daemon.request("token/remove", TokenRemoveRequest(name), Empty)
