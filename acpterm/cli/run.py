"""`acpterm run`: a terminal of the person's own."""

import os

import click

from acpterm.acp.person import AttachResponse, ExitOf, PersonCreateRequest, TerminalInfo
from acpterm.cli.attach import detaching_keys, tell
from acpterm.cli.parts.asking import ask
from acpterm.cli.parts.options import at_daemon, fail
from acpterm.cli.parts.printing import say
from acpterm.client.person.attach.attached import attach
from acpterm.client.person.attach.tty import Tty
from acpterm.client.person.attach.unattended import follow
from acpterm.client.person.front import Front
from acpterm.client.person.words import exit_code, title
from acpterm.jsonrpc import can_be_said
from acpterm.pty import linux


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option(
    "-d",
    "--detached",
    is_flag=True,
    help="Do not be at it: print its name, or else its id.",
)
@click.option("--name", metavar="NAME", help="What to call it by.")
@click.argument("command_line", metavar="[--] [COMMAND [ARG]…]", nargs=-1, type=click.UNPROCESSED)
@at_daemon
def command(
    *,
    command_line: tuple[str, ...],
    detached: bool,
    name: str | None,
    config: str | None,
    socket: str | None,
) -> None:
    """Run COMMAND in a terminal of your own, and be at it until it ends.

    Without COMMAND it is your shell. COMMAND with arguments is run as it is; a single word that is
    no program is a line for the shell, as 'make | tail'. The terminal outlives this window:
    acpterm attach comes back to it, and acpterm rm forgets it.

    Where stdin or stdout is no terminal, all that it prints is printed, and nothing is typed. The
    program ends then when nobody reads that any more, or this command is told to end; if it is
    killed (SIGKILL), the program is left to the daemon, and runs on.

    It goes on when the daemon's worker is replaced; what was printed meanwhile and not kept is said
    to be missing.

    Exit status: that of COMMAND, 128 + n when the signal n ended it; 0 when it was left running.
    """
    words = list(command_line) or [os.environ.get("SHELL") or "/bin/sh"]
    for word in (*words, name or ""):
        if not can_be_said(word):
            fail(f"{word!r} is not UTF-8: no terminal can be told of it")
    folder = _folder()
    _protect(folder)
    here = Tty.is_there() and not detached
    detaching = detaching_keys(config, socket) if here else None
    cols, rows = Tty().size if here else (None, None)
    order = PersonCreateRequest(
        command=words[0],
        args=words[1:] or None,
        cwd=folder if can_be_said(folder) else None,
        name=name,
        cols=cols,
        rows=rows,
        hold=not here and not detached,
    )

    async def start(front: Front) -> tuple[TerminalInfo, AttachResponse | ExitOf | None]:
        info = await front.ask("terminal/create", order, TerminalInfo)
        if detached:
            return info, None
        if detaching is not None:
            return info, await attach(front, Tty(), info, detaching)
        return info, await follow(front, info)

    info, how = ask(config, socket, start, start=True)
    if isinstance(how, AttachResponse):
        if how.exit_status is None:
            fail(f"terminal {title(info)} was removed")
        how = how.exit_status
    if detached:
        say(info.name or info.terminal_id)
    elif how is None:
        tell(f"[left running: acpterm attach {title(info)} comes back to it]")
    else:
        raise SystemExit(exit_code(how))


def _protect(folder: str) -> None:
    """Keep what is typed here, which may be a password, from other processes."""
    # A directory whose name cannot be sent is looked up by the daemon, which must be allowed to.
    if can_be_said(folder):
        linux.forbid_inspection()


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        fail(f"the folder that you are in cannot be told: {error.strerror}; go to another")
