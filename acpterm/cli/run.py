"""`acpterm run`: run a command in a terminal of the user's own."""

import os

import click

from acpterm.acp.terminal import EnvVariable
from acpterm.acp.user_api import TerminalInfo, UserCreateRequest
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import absolute, check_utf8
from acpterm.cli._output import echo
from acpterm.cli._params import as_size
from acpterm.commands.output.blocking_stdout import window_size
from acpterm.jsonrpc import is_utf8_encodable
from acpterm.pty import linux


def _variable(text: str) -> EnvVariable:
    name, equals, value = text.partition("=")
    if not name or not equals or not is_utf8_encodable(text):
        raise click.BadParameter(f"{text!r} is not a variable: give NAME=VALUE in UTF-8")
    return EnvVariable(name, value)


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option(
    "-d",
    "--detached",
    is_flag=True,
    help="Do not attach: print the terminal's name, or else its id.",
)
@click.option("--name", metavar="NAME", help="Name of the terminal.")
@click.option("--cwd", metavar="DIR", help="Directory to run in.  [default: this one]")
@click.option(
    "-e",
    "--env",
    multiple=True,
    type=_variable,
    metavar="NAME=VALUE",
    help="Set an environment variable. Can be repeated.",
)
@click.option(
    "--size",
    type=as_size,
    metavar="COLSxROWS",
    help="Size while no window is attached.  [default: that of this window]",
)
@click.option(
    "--rm",
    "remove",
    is_flag=True,
    help="Remove the terminal when COMMAND and what it leaves running have ended.",
)
@click.option(
    "--provider",
    metavar="NAME",
    help="Where to run: local, a sandbox, a container, or a place such as ssh:NAME "
    "(acpterm provider list).",
)
@click.option("-i", "--interactive", is_flag=True, help="Pass stdin on even if it is a terminal.")
@click.option("-n", "no_stdin", is_flag=True, help="Do not read stdin, and do not attach.")
@click.option("--raw", is_flag=True, help="Keep CR LF and escape sequences if stdout is a pipe.")
@click.argument("command_line", metavar="[--] [COMMAND [ARG]…]", nargs=-1, type=click.UNPROCESSED)
@at_daemon
def command(
    *,
    command_line: tuple[str, ...],
    detached: bool,
    name: str | None,
    cwd: str | None,
    env: tuple[EnvVariable, ...],
    size: tuple[int, int] | None,
    remove: bool,
    provider: str | None,
    interactive: bool,
    no_stdin: bool,
    raw: bool,
    daemon: ChosenDaemon,
) -> None:
    """Run COMMAND in a terminal of your own, and attach to it until it ends.

    Without COMMAND your shell is run. COMMAND with arguments is run as given. A single word that is
    not a program is a line for the shell, such as 'make | tail', of less than 128 KiB. The terminal
    outlives this window: acpterm attach returns to it, and acpterm rm removes it.

    If stdin is not a terminal, COMMAND gets a pipe as its stdin, to which the data and the end of
    this command's stdin are passed on, as with ssh. With -n, COMMAND gets the terminal instead. In
    a pipeline such as git diff | acpterm run less, the keys go to the terminal, also Ctrl-C.

    If stdout is not a terminal, the output is what a pipe would have received, without escape
    sequences, unless --raw is given.

    If no window is attached, as in a script, the program is ended when its output is no longer
    read, or when a signal other than SIGKILL ends this command. What COMMAND leaves in the
    background runs on until acpterm kill or acpterm rm ends it; a note on stderr names it.

    Exit status: that of COMMAND; 128 + n if signal n ended COMMAND or this command, so 130 after
    Ctrl-C; 0 if the program was left running.
    """
    words = list(command_line) or [os.environ.get("SHELL") or "/bin/sh"]
    check_utf8(*words, name, cwd)
    if interactive and (no_stdin or detached):
        other = "-n" if no_stdin else "-d"
        raise click.UsageError(f"-i passes stdin on, and {other} does not: choose one of them")
    directory = absolute(cwd)
    # If the directory's name is not UTF-8, and so cannot be sent, the daemon finds the directory by
    # inspecting this process. Else forbid that, since the user may type a password.
    is_sent = is_utf8_encodable(directory)
    if is_sent:
        linux.forbid_inspection()
    request = UserCreateRequest(
        command=words[0],
        args=words[1:] or None,
        env=list(env),
        cwd=directory if is_sent else None,
        name=name,
        remove=remove and detached,
        provider=provider,
    )
    if detached:
        request.cols, request.rows = size or (None, None)
        info = daemon.request("terminal/create", request, TerminalInfo, start=True)
        echo(info.name or info.terminal_id)
        return
    from acpterm.cli._run_attached import run_attached  # noqa: PLC0415  it imports trio

    request.cols, request.rows = size or (window_size() if os.isatty(1) else (None, None))
    run_attached(
        daemon, request, remove=remove, interactive=interactive, no_stdin=no_stdin, raw=raw
    )
