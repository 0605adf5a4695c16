"""`acpterm status`: says how the daemon is."""

import click

from acpterm.acp.person import StatusResponse
from acpterm.cli.parts.asking import ask_running
from acpterm.cli.parts.options import at_daemon
from acpterm.cli.parts.printing import json_text, say_once
from acpterm.client.person.front import Front
from acpterm.client.person.listing import duration, line, memory


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print what the daemon says as JSON.")
@at_daemon
def command(as_json: bool, config: str | None, socket: str | None) -> None:
    """Say how the daemon is: its version, sockets, terminals, connections and memory.

    Of the terminals, those are kept that were released and can still be read. With --json it is an
    object, or null when no daemon runs; sizes are in bytes then, and times in milliseconds.

    Exit status: 0 it runs, 1 it does not, or cannot be asked.
    """
    found = ask_running(config, socket, _ask)
    if found is None:
        say_once("null" if as_json else "not running")
        raise SystemExit(1)
    say_once(json_text(found) if as_json else _text(found))


async def _ask(front: Front) -> StatusResponse:
    return await front.ask_plain("status", StatusResponse)


def _text(status: StatusResponse) -> str:
    ends = "stays until it is ended"
    if status.idle_exit_ms is not None:
        ends = f"ends when it was not needed for {duration(status.idle_exit_ms / 1000)}"
    used = "?" if status.rss_bytes is None else memory(status.rss_bytes)
    # This command is one of them.
    people = max(status.people - 1, 0)
    rows = {
        "daemon": f"acpterm {line(status.version)}, pid {status.pid}, "
        f"runs for {duration(status.uptime_ms / 1000)}, {ends}",
        "agents' socket": line(status.agent_socket or "none"),
        "your socket": line(status.user_socket or "none"),
        "terminals": f"{status.running} running, {status.exited} exited, {status.kept} kept",
        "connections": f"{_count(people, 'of yours', 'of yours')}, "
        f"{_count(status.agents, 'agent', 'agents')}",
        "memory": f"{used}, output held: {memory(status.output_bytes)}",
        "processes": f"known by {line(status.tracking)}",
    }
    return "\n".join(f"{name:<16}{value}" for name, value in rows.items())


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
