"""`acpterm attach`: attach to a terminal."""

import contextlib
import os

import click

from acpterm.acp.user_api import ACTIVE, ListRequest, ListResponse, TerminalInfo
from acpterm.acp.user_streams import AttachResponse
from acpterm.cli._async import call_async
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._params import terminal_argument
from acpterm.commands.attach.attach import attach
from acpterm.commands.attach.detach_keys import DetachFilter
from acpterm.commands.attach.tty import Tty
from acpterm.commands.client import UserClient
from acpterm.commands.format import end_notice, ended, title
from acpterm.link.daemon import DaemonError
from acpterm.providers.provider import is_place
from acpterm.pty import linux
from acpterm.pty.tracking import marks


@click.command("attach")
@terminal_argument(required=False, running=True)
@click.option("-r", "--read-only", is_flag=True, help="Show the terminal without typing into it.")
@at_daemon
def command(terminal: str | None, *, read_only: bool, daemon: ChosenDaemon) -> None:
    r"""Attach to TERMINAL, or to your latest terminal, as if its program ran in this window.

    Your latest terminal is the newest running one that acpterm run has created or acpterm promote
    has taken over.

    Several windows can be attached at once. The smallest one determines the size; read-only
    windows (-r) are not counted, and the area outside of the terminal is filled with dots. The key
    set by detach_key (default C-\) detaches, and leaves the program running. Inside an attached
    terminal, you can attach to others; if both have the same detach key, the outer one takes it.

    While the daemon's worker is being replaced, for at most resume_timeout seconds, keys ring the
    bell and are discarded; text that was pasted at that moment may be sent in part.

    Exit status: 0 if you detach, or if the program ends while you are attached; 1 if there is no
    such terminal, if its program had ended before, if the daemon is lost, or if stdin or stdout is
    not a terminal.
    """
    # The user may type a password.
    linux.forbid_inspection()
    detach_keys = DetachFilter(daemon.settings().detach_key)

    async def attach_and_wait(client: UserClient) -> str:
        info = await (latest(client) if terminal is None else client.get_for_input(terminal))
        if info.state not in ACTIVE:
            name = title(info)
            raise DaemonError(f"the program of terminal {name} has ended: see acpterm logs {name}")
        if not Tty.is_there():
            raise DaemonError(
                "attach needs a terminal on stdin and stdout: elsewhere use acpterm logs -f "
                f"{title(info)}, and acpterm send {title(info)} TEXT"
            )
        response = await attach(client, Tty(), info, detach_keys, read_only=read_only)
        status = response and response.exit_status
        if status and status.ended_by == "lost" and not is_place(info.provider):
            raise DaemonError(f"{client.name} is gone: how the program ended is unknown")
        # The program's last line may have no line end.
        return f"\n[{_outcome(info, response)}]" if response else f"[{title(info)} runs on]"

    report(call_async(daemon, attach_and_wait))


async def latest(client: UserClient) -> TerminalInfo:
    """Return the user's newest running terminal, except the one in which this command runs."""
    found = await client.call("terminal/list", ListRequest(), ListResponse)
    own_terminal = os.environ.get(marks.TERMINAL)
    for info in reversed(found.terminals):
        if info.owner == "user" and info.state in ACTIVE and info.terminal_id != own_terminal:
            return info
    raise DaemonError(
        "no terminal of yours runs: acpterm run starts one; "
        "acpterm attach TERMINAL attaches to one of an agent's, see acpterm ls"
    )


def report(message: str) -> None:
    # stderr may be closed.
    with contextlib.suppress(OSError):
        click.echo(message, err=True)


def _outcome(info: TerminalInfo, response: AttachResponse) -> str:
    if (status := response.exit_status) is None:
        return f"{title(info)} was removed"
    return end_notice(info, status) or f"{title(info)} {ended(status)}"
