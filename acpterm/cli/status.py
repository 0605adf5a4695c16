"""`acpterm status`: show daemon status."""

from typing import Final

import click

from acpterm.acp.user_api import StatusResponse
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import fail, json_option
from acpterm.cli._output import echo_once, json_text
from acpterm.commands.daemon_control import NoWorker, daemon_status, source
from acpterm.commands.format import duration, memory, summary_line, waiting_questions
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon import DaemonError

_NAME_WIDTH: Final = 16


@click.command("status")
@json_option
@click.option("--start", is_flag=True, help="Start the daemon if it does not run.")
@at_daemon
def command(as_json: bool, start: bool, daemon: ChosenDaemon) -> None:
    """Show daemon status: its version, processes, sockets, terminals, connections and memory.

    Kept terminals are those that were released and can still be read. The keeper holds the programs
    and outlives the worker, which answers requests; when the worker dies, another one takes over.
    If no worker answers within 3 seconds, the keeper's message says why and what to do.

    With --json the status is an object, or null if no daemon runs. Its sizes are in bytes, its
    times in milliseconds. If there is no worker, it is {"keeperPid", "workerPid": null, "message"}.

    Exit status: 0 if the daemon runs, 1 if it does not or cannot be reached.
    """
    try:
        found = daemon_status(daemon.settings(), daemon.config, start=start)
    except (DaemonError, RpcError) as error:
        fail(str(error))
    if found is None:
        echo_once("null" if as_json else "not running")
        raise SystemExit(1)
    if isinstance(found, NoWorker):
        echo_once(json_text(found) if as_json else _no_worker(found))
        raise SystemExit(1)
    echo_once(json_text(found) if as_json else _text(found))


def _no_worker(found: NoWorker) -> str:
    keeper = "" if found.keeper_pid is None else f" (its keeper is pid {found.keeper_pid})"
    why = (
        "acpterm restart starts another one"
        if found.message is None
        else summary_line(found.message)
    )
    return f"no worker of the daemon answers{keeper}: {why}"


def _text(status: StatusResponse) -> str:
    ends = "by acpterm shutdown"
    if status.idle_exit_ms is not None:
        ends = f"when it was not needed for {duration(status.idle_exit_ms / 1000)}"
    used = "?" if status.rss_bytes is None else memory(status.rss_bytes)
    # Do not count the connection of this command.
    users = max(status.users - 1, 0)
    rows = {
        "daemon": f"acpterm {summary_line(status.version)}, pid {status.pid}, "
        f"runs for {duration(status.uptime_ms / 1000)}",
        "ends": ends,
        "agents' socket": summary_line(status.agent_socket or "none"),
        "your socket": summary_line(status.user_socket or "none"),
        **_http(status),
        "terminals": f"{status.running} running, {status.exited} exited, {status.retained} kept",
        "connections": f"{_count(users, 'of yours', 'of yours')}, "
        f"{_count(status.agents, 'agent', 'agents')}",
        **_questions(status),
        "provider": f"{status.provider}, {source(status, 'provider')}",
        "profile": f"{status.profile}, {source(status, 'profile')}",
        **_settings(status),
        "audit log": summary_line(status.audit_dir or "none"),
        **_workers(status),
        "memory": f"{used}, output held: {memory(status.output_bytes)}",
        "processes": f"known by {summary_line(status.tracking)}",
    }
    return "\n".join(f"{name:<{_NAME_WIDTH}}{value}" for name, value in rows.items())


def _http(status: StatusResponse) -> dict[str, str]:
    http = status.http
    if http is None:
        return {}
    if http.origin is not None:
        return {
            "page": summary_line(http.origin),
            "HTTP token": summary_line(http.token_file or "none"),
        }
    if http.error is not None:
        return {"page": f"not served: {summary_line(http.error)}"}
    return {"page": "not served: acpterm open starts it"}


def _questions(status: StatusResponse) -> dict[str, str]:
    if not status.questions:
        return {}
    return {"approvals": f"{waiting_questions(status.questions)}: acpterm approvals -f"}


def _settings(status: StatusResponse) -> dict[str, str]:
    by_source: dict[str, list[str]] = {}
    # A row of its own has the socket. The command that starts a daemon sets its log level.
    hidden = ("socket",) if status.idle_exit_ms is None else ("socket", "log_level")
    for name, found in status.sources.items():
        if name not in hidden:
            by_source.setdefault(found, []).append(name)
    rows = [f"{', '.join(names)} by {found}" for found, names in by_source.items()]
    return {"settings": f"\n{'':{_NAME_WIDTH}}".join(map(summary_line, rows))} if rows else {}


def _workers(status: StatusResponse) -> dict[str, str]:
    return {
        "keeper": f"pid {status.keeper_pid}",
        "worker": f"pid {status.worker_pid}, {_count(status.takeovers, 'takeover', 'takeovers')}",
    }


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
