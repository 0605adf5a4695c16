"""`acpterm restart`: replaces the daemon's worker."""

import click

from acpterm.cli.parts.options import at_daemon, run, settings
from acpterm.cli.parts.printing import json_text, say_once
from acpterm.client.daemon import DaemonError
from acpterm.client.person.listing import line
from acpterm.client.person.worker import Restarted, Worker, restart
from acpterm.jsonrpc import RpcError


@click.command("restart")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@at_daemon
def command(as_json: bool, config: str | None, socket: str | None) -> None:
    """Replace the daemon's worker by one of the version that is installed; its terminals stay.

    The new worker takes over the terminals of the old one: no program notices, and agents and
    attached windows see a short pause. It reads the settings again. If it is not ready within ten
    seconds, the old one goes on. If no worker answers within 3 seconds, the keeper is told to start
    one.

    With --json the object has old and new (version and pid; old is null if it did not answer),
    keeperPid, takeovers, and running, the number of terminals whose programs run on.

    Exit status: 0 it was replaced; 1 it was not, which is said with the reason, or no daemon runs.
    """
    chosen = settings(config, socket=socket)
    done = run(restart, chosen, expected=(DaemonError, RpcError))
    say_once(json_text(_object(done)) if as_json else _text(done))


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
    return f"acpterm {line(worker.version)} (pid {worker.pid})"
