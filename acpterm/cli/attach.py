"""`acpterm attach`: being at a terminal."""

import click

from acpterm.acp.person import TerminalInfo
from acpterm.cli.options import ask, at_daemon, fail
from acpterm.cli.terminal_name import terminal_argument
from acpterm.client.person.attached import attach
from acpterm.client.person.front import Front
from acpterm.client.person.tty import Tty
from acpterm.client.person.words import ended, title


@click.command("attach")
@terminal_argument()
@click.option("-r", "--read-only", is_flag=True, help="Only look: nothing is typed.")
@at_daemon
def command(terminal: str, *, read_only: bool, config: str | None, socket: str | None) -> None:
    r"""Be at TERMINAL, as if its program ran in this window.

    It is shown as it stands, and what is typed here is typed there. Several may be attached at
    once: the smallest window rules the size; one that only looks (-r) does not. The key that the
    setting detach_key names, C-\ as a rule, leaves it running.

    Exit status: 0; 1 if there is no such terminal, it has ended, or this is not run in a terminal.
    """
    if not Tty.is_there():
        fail("attach needs a terminal on stdin and stdout; see acpterm logs -f for elsewhere")

    async def be_there(front: Front) -> str | None:
        info = await front.about("get", terminal, TerminalInfo)
        if info.state != "running":
            return None
        how = await attach(front, Tty(), info, read_only=read_only)
        return f"[{title(info)} {ended(how) if how else 'runs on'}]"

    said = ask(config, socket, be_there)
    if said is None:
        fail(f"the program of terminal {terminal} has ended: see acpterm logs {terminal}")
    click.echo(said, err=True)
