"""`acpterm shutdown`: shut down the daemon and its terminals."""

import click

from acpterm.cli._daemon import call_running
from acpterm.cli._options import at_daemon, fail
from acpterm.cli._output import echo_once
from acpterm.client.user.shutdown import ShutdownResult, end_daemon


@click.command("shutdown")
@at_daemon
def command(config: str | None, socket: str | None) -> None:
    """Shut down the daemon and all its terminals, including those of agents.

    Programs get SIGTERM, and SIGKILL if they still run after kill_grace seconds. The terminals'
    output is lost with the daemon, except what was recorded. The command waits until the daemon has
    exited.

    Exit status: 0 if the daemon has exited, or if none was running ("not running" is printed then);
    1 if the daemon still runs after 8 seconds.
    """
    ended: ShutdownResult | None = call_running(config, socket, end_daemon)
    if ended is None:
        echo_once("not running")
    elif not ended.gone:
        fail(f"the daemon (pid {ended.pid}) was asked to end, and is still there")
    else:
        programs = "1 terminal" if ended.running == 1 else f"{ended.running} terminals"
        echo_once(f"ended the daemon (pid {ended.pid}) and {programs} that ran")
