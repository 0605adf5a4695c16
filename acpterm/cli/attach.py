"""`acpterm attach`: being at a terminal."""

import contextlib

import click

from acpterm.acp.person import AttachResponse, TerminalInfo
from acpterm.cli.parts.asking import ask
from acpterm.cli.parts.options import at_daemon, fail, settings
from acpterm.cli.parts.terminal_name import terminal_argument
from acpterm.client.person.attach.attached import attach
from acpterm.client.person.attach.detaching import Detaching
from acpterm.client.person.attach.tty import Tty
from acpterm.client.person.front import Front
from acpterm.client.person.words import ended, title
from acpterm.pty import linux


@click.command("attach")
@terminal_argument()
@click.option("-r", "--read-only", is_flag=True, help="Only look: nothing is typed.")
@at_daemon
def command(terminal: str, *, read_only: bool, config: str | None, socket: str | None) -> None:
    r"""Be at TERMINAL, as if its program ran in this window.

    It is shown as it stands, and what is typed here is typed there. Several may be attached at
    once: the smallest window rules the size; one that only looks (-r) does not. The key that the
    setting detach_key names, C-\ as a rule, leaves it running.

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

    async def be_there(front: Front) -> str | None:
        info = await front.about("get", terminal, TerminalInfo)
        if info.state != "running":
            return None
        over = await attach(front, Tty(), info, detaching, read_only=read_only)
        # What the program printed last may have no end of line.
        return f"\n[{title(info)} {_became(over)}]" if over else f"[{title(info)} runs on]"

    said = ask(config, socket, be_there)
    if said is None:
        fail(f"the program of terminal {terminal} has ended: see acpterm logs {terminal}")
    tell(said)


def detaching_keys(config: str | None, socket: str | None) -> Detaching:
    """Give the keys that leave a terminal, or fail with what is wrong with the settings."""
    return Detaching(settings(config, socket=socket).detach_key)


def tell(said: str) -> None:
    """Say what became of it, to whoever is still there."""
    with contextlib.suppress(OSError):
        click.echo(said, err=True)


def _became(over: AttachResponse) -> str:
    return ended(over.exit_status) if over.exit_status else "was removed"
