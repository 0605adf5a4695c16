"""`acpterm attach`: being at a terminal."""

import contextlib
import os

import click

from acpterm.acp.user_api import ListRequest, ListResponse, TerminalInfo
from acpterm.acp.user_streams import AttachResponse
from acpterm.cli._async import call_async
from acpterm.cli._options import at_daemon, fail, settings
from acpterm.cli._params import terminal_argument
from acpterm.client.daemon import DaemonError
from acpterm.client.user.attach.attach import attach
from acpterm.client.user.attach.detach_keys import DetachFilter
from acpterm.client.user.attach.tty import Tty
from acpterm.client.user.client import UserClient
from acpterm.client.user.words import ended, title
from acpterm.pty import linux
from acpterm.pty.tracking import marks


@click.command("attach")
@terminal_argument(required=False)
@click.option("-r", "--read-only", is_flag=True, help="Only look: nothing is typed.")
@at_daemon
def command(
    terminal: str | None, *, read_only: bool, config: str | None, socket: str | None
) -> None:
    r"""Attach to TERMINAL, as if its program ran in this window; without it, to your latest.

    Your latest is the newest that acpterm run has made or promote has taken over, and that runs.

    It is shown as it stands, and what is typed here is typed there. Several may be attached at
    once: the smallest window rules the size; one that only looks (-r) does not. The key that the
    setting detach_key names, C-\ as a rule, leaves it running.

    A full-screen program leaves the window as it was. A window that is larger than the terminal
    has dots outside of it. A terminal cannot be attached to itself, but to another one: the key is
    then taken by the outer window, if both have the same.

    When the daemon's worker is replaced, the window keeps its picture until it gets a new one, at
    most resume_timeout seconds. What is typed meanwhile rings the bell and is not typed; what was
    pasted at that moment may be typed in part.

    Exit status: 0; 1 if there is no such terminal, it has ended, or this is not run in a terminal.
    """
    # What is typed here may be a password.
    linux.forbid_inspection()
    if not Tty.is_there():
        fail("attach needs a terminal on stdin and stdout; see acpterm logs -f for elsewhere")
    detaching = detaching_keys(config, socket)

    async def be_there(client: UserClient) -> str:
        info = await (latest(client) if terminal is None else client.own(terminal))
        if info.state != "running":
            name = title(info)
            raise DaemonError(f"the program of terminal {name} has ended: see acpterm logs {name}")
        over = await attach(client, Tty(), info, detaching, read_only=read_only)
        if over and over.exit_status and over.exit_status.ended_by == "lost":
            raise DaemonError(f"{client.endpoint.name} is gone: how the program ended is unknown")
        # What the program printed last may have no end of line.
        return f"\n[{title(info)} {_became(over)}]" if over else f"[{title(info)} runs on]"

    tell(call_async(config, socket, be_there))


async def latest(client: UserClient) -> TerminalInfo:
    """Return the user's newest terminal that runs. Raises `DaemonError` if there is none.

    The one that this command runs in is passed over.
    """
    found = await client.call("terminal/list", ListRequest(), ListResponse)
    around = os.environ.get(marks.TERMINAL)
    for info in reversed(found.terminals):
        if info.owner == "user" and info.state == "running" and info.terminal_id != around:
            return info
    raise DaemonError(
        "no terminal of yours runs: acpterm run starts one; "
        "acpterm attach TERMINAL attaches to one of an agent's, see acpterm ls"
    )


def detaching_keys(config: str | None, socket: str | None) -> DetachFilter:
    """Give the keys that leave a terminal, or fail with what is wrong with the settings."""
    return DetachFilter(settings(config, socket=socket).detach_key)


def tell(said: str) -> None:
    """Say what became of it, to whoever is still there."""
    with contextlib.suppress(OSError):
        click.echo(said, err=True)


def _became(over: AttachResponse) -> str:
    return ended(over.exit_status) if over.exit_status else "was removed"
