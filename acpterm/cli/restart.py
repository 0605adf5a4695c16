"""`acpterm restart`: restart a terminal's program, or replace the daemon's worker."""

import click

from acpterm.acp.user_api import TerminalInfo
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import fail, json_option
from acpterm.cli._output import echo_once, json_text
from acpterm.cli._params import terminal_argument
from acpterm.commands.daemon_control import RestartResult, RunningWorker, restart_worker
from acpterm.commands.format import summary_line
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon import DaemonError


@click.command("restart")
@terminal_argument(required=False)
@json_option
@at_daemon
def command(terminal: str | None, as_json: bool, daemon: ChosenDaemon) -> None:
    """Restart TERMINAL's program; without TERMINAL, replace the daemon's worker.

    TERMINAL must have been created by acpterm run. Its program is ended as by acpterm kill, and its
    command is started in a new terminal with the same directory, environment, size and name, whose
    id is printed. The old terminal is removed, unless the new one cannot be started.

    Without TERMINAL, a worker of the installed version replaces the current one and takes over its
    terminals: no program notices, and agents and attached windows see a short pause. The new worker
    reads the settings again. If it is not ready within 30 seconds, the old worker continues. If the
    old worker does not answer within 3 seconds, this command makes the keeper start another one.

    With --json and TERMINAL, the new terminal is printed as an object like those of acpterm ls.
    With --json and no TERMINAL, the object has old and new (the version and pid of each worker; old
    is null if the old worker did not answer), keeperPid, takeovers, and running, the number of
    terminals whose programs are still running.

    Exit status: 0 on success; 1 if the restart failed, with the reason on stderr, or if no daemon
    runs.
    """
    if terminal is not None:
        info = daemon.terminal_request("restart", terminal, TerminalInfo)
        echo_once(json_text(info) if as_json else info.terminal_id)
        return
    try:
        result = restart_worker(daemon.settings())
    except (DaemonError, RpcError) as error:
        fail(str(error))
    echo_once(json_text(_object(result)) if as_json else _text(result))


def _object(result: RestartResult) -> dict[str, object]:
    return {
        "old": None if result.old is None else result.old._asdict(),
        "new": result.new._asdict(),
        "keeperPid": result.keeper_pid,
        "takeovers": result.takeovers,
        "running": result.running,
    }


def _text(result: RestartResult) -> str:
    programs = "1 terminal runs" if result.running == 1 else f"{result.running} terminals run"
    if result.old is None:
        return f"started a worker, {_named(result.new)}; {programs} on"
    return f"replaced the worker, {_named(result.old)}, by {_named(result.new)}; {programs} on"


def _named(worker: RunningWorker) -> str:
    return f"acpterm {summary_line(worker.version)} (pid {worker.pid})"
