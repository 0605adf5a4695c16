"""`acpterm shutdown`: shut down the daemon and its terminals."""

import click

from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import fail
from acpterm.cli._output import echo_once
from acpterm.commands.daemon_control import end_daemon
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon import DaemonError, NotRunningError


@click.command("shutdown")
@at_daemon
def command(daemon: ChosenDaemon) -> None:
    """Shut down the daemon and all its terminals, including those of agents.

    Programs get SIGTERM, and SIGKILL if they still run after kill_grace seconds. The terminals'
    output is lost with the daemon, except what was recorded. The command waits until the daemon has
    exited. A daemon whose worker does not answer is ended too.

    Exit status: 0 if the daemon has exited, or if none was running ("not running" is printed then);
    1 if the daemon still runs after 8 seconds.
    """
    try:
        ended = end_daemon(daemon.settings())
    except NotRunningError:
        echo_once("not running")
        return
    except (DaemonError, RpcError) as error:
        fail(str(error))
    if not ended.gone:
        fail(f"the daemon (pid {ended.pid}) was asked to end, and is still there")
    elif ended.running is None:
        echo_once(f"ended the daemon (pid {ended.pid}), whose worker did not answer")
    else:
        programs = "1 terminal" if ended.running == 1 else f"{ended.running} terminals"
        echo_once(f"ended the daemon (pid {ended.pid}) and {programs} that ran")
