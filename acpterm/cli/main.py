"""`acpterm`: the group of all commands, their aliases, and the error for an unknown command.

A command's module is imported only when the command is used, so that each command starts fast.
"""

import contextlib
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

import click
from click.shell_completion import CompletionItem, ZshComplete, add_completion_class

from acpterm import __version__

GROUPS: Final = {
    "Terminals": {
        "run": "Run a command in a terminal of your own.",
        "ls": "List the terminals.",
        "attach": "Attach to a terminal.",
        "logs": "Print the output of a terminal.",
        "screen": "Print or draw the current screen of a terminal.",
        "send": "Type into a terminal.",
        "wait": "Wait for terminals to exit, or for output.",
        "kill": "Kill the programs of terminals.",
        "rm": "Remove terminals.",
        "promote": "Take a terminal over from its agent.",
        "rename": "Rename a terminal.",
        "resize": "Resize a terminal.",
        "inspect": "Show the details of a terminal.",
        "open": "Open the page that shows all terminals in a browser.",
        "share": "Make a link to one terminal, for others to watch.",
        "shares": "List the links to terminals.",
        "unshare": "End links to terminals.",
        "events": "Print events as they happen.",
        "export": "Export a terminal as a recording, text, HTML or a picture.",
        "replay": "Replay a terminal or a recording.",
        "terminal": "Start and use terminals with the words of /terminal.",
    },
    "What agents may run": {
        "policy": "Check and change what agents may run.",
        "provider": "List or select what isolates terminals.",
        "approvals": "List commands of agents that wait for approval.",
        "approve": "Let commands of agents run.",
        "deny": "Refuse commands of agents.",
        "undo": "Bring a directory back to what it was before a command.",
        "audit": "Print the audit log: what ran, and who allowed it.",
    },
    "The daemon": {
        "status": "Show daemon status.",
        "restart": "Restart a terminal's program, or replace the daemon's worker.",
        "shutdown": "Shut down the daemon and its terminals.",
        "serve": "Run the daemon, which listens for agents on a Unix socket.",
        "doctor": "Check this machine for what acpterm needs.",
        "completion": "Print a shell completion script.",
    },
    "For agents, editors and scripts": {
        "setup": "Give agents terminals: write acpterm into their settings.",
        "mcp": "Serve an MCP client, on stdin and stdout: terminals as tools.",
        "stdio": "Serve the agent that spawned acpterm, on stdin and stdout.",
        "proxy": "Relay between an editor and its agent, and provide terminals.",
        "token": "Make, list and remove the tokens of agents that use HTTP.",
        "prompt": "Send a prompt to an agent, and print what it does.",
        "agents": "List or install the agents that proxy and prompt start by name.",
    },
}
SHORT: Final = {name: line for lines in GROUPS.values() for name, line in lines.items()}
"""The first line of each command's help, by the command's name."""

ALIASES: Final = {"a": "attach", "list": "ls", "new": "run", "ps": "ls", "stop": "kill"}
"""The command for each alias. The aliases are names of the same commands in docker, gh or tmux."""

# Commands of other programs that take other arguments than ours, and what to run instead.
_ELSEWHERE: Final = {
    "attach-session": "attach TERMINAL",
    "capture-pane": "screen TERMINAL",
    "config": "doctor, or docs/settings.md",
    "create": "run COMMAND",
    "daemon": "serve",
    "delete": "rm TERMINAL",
    "exec": "run COMMAND",
    "kill-server": "shutdown",
    "kill-session": "kill TERMINAL, or rm TERMINAL",
    "list-sessions": "ls",
    "log": "logs TERMINAL",
    "new-session": "run COMMAND",
    "ping": "status",
    "prune": "rm TERMINAL",
    "remove": "rm TERMINAL",
    "send-keys": "send TERMINAL TEXT --enter, or --key NAME",
    "show": "screen TERMINAL, or logs TERMINAL",
    "start": "run COMMAND",
    "tail": "logs --follow TERMINAL",
    "top": "ls --watch",
    "watch": "ls --watch",
    "web": "open",
}


def no_such_command(name: str, commands: Sequence[str]) -> str:
    message = f"there is no command {name!r}"
    if name in _ELSEWHERE:
        return f"{message}: use acpterm {_ELSEWHERE[name]}"
    import difflib  # noqa: PLC0415  only needed for a wrong name

    found = difflib.get_close_matches(name.lower(), [*commands, "help", "version"], n=3)
    if not found:
        return f"{message}: acpterm --help lists all commands"
    return f"{message}: did you mean {' or '.join(found)}?"


# Arguments of git that print the commit, and whether files were changed since.
_DESCRIBE: Final = ("describe", "--always", "--abbrev=12", "--exclude=*", "--dirty")
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Commands that handle a closed stdout themselves.
_HANDLE_CLOSED_STDOUT = (["serve"], ["stdio"], ["mcp"], ["proxy"], ["prompt"])


@add_completion_class
class _Zsh(ZshComplete):
    """Completion for zsh; doubles the backslashes in descriptions, because zsh unescapes them."""

    def format_completion(self, item: CompletionItem) -> str:
        described = CompletionItem(
            item.value, item.type, item.help and item.help.replace("\\", r"\\")
        )
        return super().format_completion(described)


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(SHORT)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in SHORT:
            return None
        module = importlib.import_module(f"acpterm.cli.{cmd_name}")
        # All imported objects live until the process exits. Without this call, a garbage collection
        # at exit takes a fifth of the run time of a short command.
        gc.freeze()
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        if name == "version":
            _print_version(ctx, None, True)
        if name == "help":
            if rest in ([], ["help"]):
                click.echo(ctx.get_help())
                ctx.exit()
            name, rest = rest[0], ["--help"]
        name = ALIASES.get(name, name)
        command = self.get_command(ctx, name)
        if command is None and not ctx.resilient_parsing:
            ctx.fail(no_such_command(name, list(SHORT)))
        return name, command, rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click would import every command for its first line of help.
        found = [
            CompletionItem(name, help=line)
            for name, line in SHORT.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        width = max(map(len, SHORT))
        for title, lines in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in lines.items()])


def _print_version(ctx: click.Context, param: click.Parameter | None, value: bool) -> None:
    del param
    if value and not ctx.resilient_parsing:
        click.echo(version_line())
        ctx.exit()


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-V",
    "-v",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and the commit, and exit.",
)
def group() -> None:
    """Host real terminals for agents that speak the Agent Client Protocol."""


def main() -> None:
    # structlog would import rich if it is installed, which no command uses: a seventh of the time
    # in which a daemon starts.
    sys.modules["rich"] = None  # type: ignore[assignment]
    # Until a command handles signals itself, there is nothing to clean up: exit at once.
    with contextlib.suppress(ValueError):  # only the main thread can set signal handlers
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    # Editors, cron and service managers may start a command without it.
    if not os.path.isabs(os.environ.get("HOME", "")):
        from acpterm.config.paths import account_home  # noqa: PLC0415  HOME is usually set

        if (home := account_home()) is not None:
            os.environ["HOME"] = home
    if sys.stdout is None and sys.argv[1:2] not in _HANDLE_CLOSED_STDOUT:
        sys.exit(_report("stdout is closed: there is nowhere to print to"))
    # Report output that cannot be written, as to a full disk, like any other error.
    try:
        sys.exit(group(prog_name="acpterm"))
    except* OSError as errors:
        from acpterm.link.errors import root_error  # noqa: PLC0415  only for a failure

        os._exit(_report(root_error(errors)))


def _report(message: str) -> int:
    with contextlib.suppress(OSError):
        os.write(2, f"acpterm: {message}\n".encode(errors="backslashreplace"))
    return 1


def version_line() -> str:
    return f"acpterm, version {__version__} ({_commit() or 'unknown commit'})"


def _commit() -> str | None:
    """Return the commit that the package was built from, or that is checked out."""
    try:
        with open(os.path.join(_PACKAGE, "commit"), encoding="ascii") as file:
            return f"commit {file.read().strip()}"
    except OSError:
        pass
    import subprocess  # noqa: PLC0415  other commands start faster

    # Use only a checkout that directly contains the package, not one around a virtual environment.
    checkout = os.path.dirname(_PACKAGE)
    if not os.path.exists(os.path.join(checkout, ".git")):
        return None
    try:
        found = subprocess.run(
            ["git", "-C", checkout, *_DESCRIBE],
            check=True,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return f"commit {found.stdout.strip()}"
