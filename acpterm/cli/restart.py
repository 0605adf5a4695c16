"""`acpterm restart`: starts a terminal's command again, or replaces the daemon's worker."""

import click

from acpterm.acp.user_api import TerminalInfo
from acpterm.cli._daemon import call
from acpterm.cli._options import at_daemon, fail, settings
from acpterm.cli._output import echo_once, json_text
from acpterm.cli._params import terminal_argument
from acpterm.client.daemon import DaemonError
from acpterm.client.user.format import summary_line
from acpterm.client.user.worker import Restarted, Worker, restart
from acpterm.jsonrpc import RpcError


@click.command("restart")
@terminal_argument(required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@at_daemon
def command(terminal: str | None, as_json: bool, config: str | None, socket: str | None) -> None:
    """End TERMINAL's program and start it again; without TERMINAL, replace the daemon's worker.

    With TERMINAL, one that acpterm run has made: its program is ended as acpterm kill does, and
    its command is started in a new terminal with the same directory, environment, size and name.
    What it had printed is forgotten then; if the new one cannot be started, the old one stays as
    it ended. It may have ended before. The id of the new terminal is printed.

    Without TERMINAL, the worker is replaced by one of the version that is installed; its terminals
    stay.

    The new worker takes over the terminals of the old one: no program notices, and agents and
    attached windows see a short pause. It reads the settings again. If it is not ready within ten
    seconds, the old one goes on. If no worker answers within 3 seconds, the keeper is told to start
    one.

    With --json the object is that of acpterm ls, or, without TERMINAL, has old and new (version and
    pid; old is null if it did not answer), keeperPid, takeovers, and running, the number of
    terminals whose programs run on.

    Exit status: 0 it was done; 1 it was not, which is said with the reason, or no daemon runs.
    """
    if terminal is not None:
        info = call(
            config,
            socket,
            lambda client: client.terminal_request("restart", terminal, TerminalInfo),
        )
        echo_once(json_text(info) if as_json else info.terminal_id)
        return
    try:
        done = restart(settings(config, socket=socket))
    except (DaemonError, RpcError) as error:
        fail(str(error))
    echo_once(json_text(_object(done)) if as_json else _text(done))


def _object(done: Restarted) -> dict[str, object]:
    return {
        "old": None if done.old is None else done.old._asdict(),
        "new": done.new._asdict(),
        "keeperPid": done.keeper_pid,
        "takeovers": done.takeovers,
        "running": done.running,
    }


def _text(done: Restarted) -> str:
    programs = "1 terminal runs" if done.running == 1 else f"{done.running} terminals run"
    if done.old is None:
        return f"started a worker, {_named(done.new)}; {programs} on"
    return f"replaced the worker, {_named(done.old)}, by {_named(done.new)}; {programs} on"


def _named(worker: Worker) -> str:
    return f"acpterm {summary_line(worker.version)} (pid {worker.pid})"
