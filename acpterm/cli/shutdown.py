"""`acpterm shutdown`: ends the daemon and its terminals."""

import click

from acpterm.cli._daemon import call_running
from acpterm.cli._options import at_daemon, fail
from acpterm.cli._output import echo_once
from acpterm.client.user.shutdown import ShutdownResult, end_daemon


@click.command("shutdown")
@at_daemon
def command(config: str | None, socket: str | None) -> None:
    """End the daemon and its terminals, those of agents too, and wait until it is gone.

    Programs get SIGTERM, and SIGKILL if they are still there after a moment (kill_grace). What
    terminals have printed is gone with the daemon, but for what was recorded.

    Exit status: 0 it is gone, or was not running, which is said; 1 it is still there after 8
    seconds.
    """
    ended: ShutdownResult | None = call_running(config, socket, end_daemon)
    if ended is None:
        echo_once("not running")
    elif not ended.gone:
        fail(f"the daemon (pid {ended.pid}) was told to end, and is still there")
    else:
        programs = "1 terminal" if ended.running == 1 else f"{ended.running} terminals"
        echo_once(f"ended the daemon (pid {ended.pid}) and {programs} that ran")
