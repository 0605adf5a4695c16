"""`acpterm serve`: the daemon, on its Unix socket or on those that systemd hands over."""

import math
import os

import click
import structlog

from acpterm.cli.parts.options import common, run, settings
from acpterm.config import agent_socket, user_socket
from acpterm.host import logs, stdio
from acpterm.host.activation import ActivationError, handed_listeners, notify, path_of
from acpterm.host.daemon import Sockets, serve
from acpterm.host.listener import ListenError, UnixListener
from acpterm.pty.trees import TrackingError


@click.command("serve")
@click.option("--socket", metavar="PATH", help="Listen at PATH, a Unix socket.")
@click.option(
    "--when-needed", is_flag=True, help="End when nobody was connected for a while (idle_exit)."
)
@common
def command(config: str | None, socket: str | None, when_needed: bool, **flags: object) -> None:
    """Listen for agents on a Unix socket, and for the person on another, as a daemon.

    The sockets are for this user alone, and by default in acpterm's folder under the user's runtime
    directory. Started by a systemd socket unit, the daemon takes the socket that it is handed. On
    SIGTERM, SIGINT or SIGHUP it ends its terminals, answers what is pending, removes its socket
    and exits. The commands that need it start it themselves, with --when-needed.
    """
    stdio.open_missing()
    chosen = settings(config, socket=socket, **flags)
    logs.configure(chosen.log_level, chosen.log_format)
    log = structlog.get_logger("acpterm.daemon")
    environ = dict(os.environ)

    async def listen() -> None:
        handed = handed_listeners(environ)
        # Which of them is the person's, its place beside one of the others says.
        theirs = {user_socket(chosen, path_of(listener)) for listener in handed}
        users = [listener for listener in handed if path_of(listener) in theirs]
        agents = [listener for listener in handed if listener not in users]
        agent_path = (path_of(agents[0]) if agents else None) or agent_socket(chosen)
        user_path = user_socket(chosen, agent_path)
        with UnixListener(agent_path) as for_agents, UnixListener(user_path) as for_users:

            def sockets() -> Sockets:
                return Sockets(
                    agents or [for_agents.listen()],
                    users or [for_users.listen()],
                    agent_path,
                    user_path,
                )

            def ready() -> None:
                log.info(
                    "listening", socket="handed over" if agents else agent_path, pid=os.getpid()
                )
                notify(environ, "READY=1")

            await serve(
                chosen,
                sockets,
                ready=ready,
                ending=lambda: notify(environ, "STOPPING=1"),
                patience=chosen.idle_exit if when_needed else math.inf,
            )
        log.info("ended")

    run(listen, expected=(ListenError, ActivationError, TrackingError))
