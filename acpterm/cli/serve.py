"""`acpterm serve`: the daemon, on its Unix socket or on those that systemd hands over."""

import math
import os

import click
import structlog

from acpterm.cli.options import common, run, settings
from acpterm.config import default_socket
from acpterm.host import (
    ActivationError,
    ListenError,
    UnixListener,
    handed_listeners,
    logs,
    notify,
    serve,
    stdio,
)
from acpterm.pty.trees import TrackingError


@click.command("serve")
@click.option("--socket", metavar="PATH", help="Listen at PATH, a Unix socket.")
@click.option(
    "--when-needed", is_flag=True, help="End when nobody was connected for a while (idle_exit)."
)
@common
def command(config: str | None, socket: str | None, when_needed: bool, **flags: object) -> None:
    """Listen for agents on a Unix socket, as a daemon.

    The socket is for this user alone, and by default in acpterm's folder under the user's runtime
    directory. Started by a systemd socket unit, the daemon takes the socket that it is handed. On
    SIGTERM, SIGINT or SIGHUP it ends its terminals, answers what is pending, removes its socket
    and exits. `acpterm proxy` and `acpterm prompt` start it themselves, with --when-needed.
    """
    stdio.open_missing()
    chosen = settings(config, socket=socket, **flags)
    logs.configure(chosen.log_level, chosen.log_format)
    log = structlog.get_logger("acpterm.daemon")
    environ = dict(os.environ)
    path = chosen.socket or default_socket()

    async def listen() -> None:
        with UnixListener(path) as listener:
            handed = handed_listeners(environ)

            def ready() -> None:
                log.info("listening", socket="handed over" if handed else path, pid=os.getpid())
                notify(environ, "READY=1")

            await serve(
                chosen,
                lambda: handed or [listener.listen()],
                ready=ready,
                ending=lambda: notify(environ, "STOPPING=1"),
                patience=chosen.idle_exit if when_needed else math.inf,
            )
        log.info("ended")

    run(listen, expected=(ListenError, ActivationError, TrackingError))
