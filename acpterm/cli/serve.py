"""`acpterm serve`: run the daemon, on its own Unix sockets or on those passed by systemd."""

import math
import os
import signal
import sys
from collections.abc import Mapping
from functools import partial

import click

from acpterm.cli._async import run
from acpterm.cli._options import common, fail, loaded
from acpterm.config import agent_socket
from acpterm.host.daemon import serve
from acpterm.host.server.systemd import FIRST, ActivationError, check_handed
from acpterm.host.start_keeper import start_keeper
from acpterm.host.state.records import StateVersionError
from acpterm.keeper.reports import KeeperLostError
from acpterm.keeper.startup import inherited_keeper
from acpterm.pty.tracking.trees import TrackingError
from acpterm.runtime import blocking_io, logs
from acpterm.runtime.shutdown_signals import shutdown_signals as ending_signals
from acpterm.runtime.unix_socket import ListenError
from acpterm.web.service import WebService


@click.command("serve")
@click.option("--socket", metavar="PATH", help="Listen on the Unix socket PATH.")
@click.option(
    "--http",
    metavar="ADDRESS:PORT",
    help="Serve the page and the APIs over HTTP at ADDRESS:PORT, such as 127.0.0.1:8080.",
)
@click.option(
    "--when-needed", is_flag=True, help="Exit when no client was connected for idle_exit seconds."
)
@common
def command(
    config: str | None, socket: str | None, http: str | None, when_needed: bool, **flags: object
) -> None:
    """Run the daemon, which listens for agents on a Unix socket, and for the user on another.

    Only this user can access the sockets. By default they are in acpterm's directory under the
    user's runtime directory. If a systemd socket unit starts the daemon, the daemon uses the
    sockets that systemd passes to it. On SIGTERM, SIGINT or SIGHUP the daemon ends its terminals,
    answers pending requests, removes the sockets that it has created, and exits. Commands that need
    the daemon start it themselves, with --when-needed.
    """
    blocking_io.open_missing()
    chosen, sources = loaded(config, flags={"socket": socket, "http": http, **flags})
    logs.configure(chosen.log_level, chosen.log_format)
    idle_exit_s = chosen.idle_exit if when_needed else math.inf
    keeper = inherited_keeper()
    if keeper is None:
        try:
            passed = check_handed(os.environ)
        except ActivationError as error:
            fail(str(error))
        given = {
            "--socket": chosen.socket and agent_socket(chosen),
            "--config": config,
            "--http": http,
            **flags,
        }
        command = _worker_command(given, when_needed=when_needed)
        keeper = start_keeper(command, range(FIRST, FIRST + passed))
    for number in ending_signals():
        # The keeper gets these signals too, and requests an orderly shutdown.
        signal.signal(number, signal.SIG_IGN)
    run(
        partial(
            serve, chosen, keeper, sources=sources, idle_exit_s=idle_exit_s, web=WebService(chosen)
        ),
        expected=(ListenError, TrackingError, StateVersionError, KeeperLostError),
    )


def _worker_command(options: Mapping[str, object], *, when_needed: bool) -> list[str]:
    command = [sys.executable, "-P", "-m", "acpterm", "serve"]
    for name, value in options.items():
        if value is not None:
            text = os.path.abspath(str(value)) if name == "--config" else str(value)
            command += [f"--{name.removeprefix('--').replace('_', '-')}", text]
    return [*command, "--when-needed"] if when_needed else command
