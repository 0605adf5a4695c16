"""`acpterm`: the group of all commands, and the settings that each of them takes.

A command's module is imported when the command is used: each pays only for what it needs.
"""

import contextlib
import gc
import importlib
import os
import signal
import sys

import click
from click.shell_completion import CompletionItem, ZshComplete, add_completion_class

from acpterm import __version__

# structlog imports rich if it is there, to draw tracebacks, which are plain here (`host.logs`): a
# third of the time that a command takes to start.
sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # None is how an import is refused

# Name of the command: module and its first line of help, which --help shows without an import.
_COMMANDS = {
    "run": ("acpterm.cli.run", "Run a command in a terminal of your own."),
    "ls": ("acpterm.cli.ls", "List the terminals."),
    "attach": ("acpterm.cli.attach", "Attach to a terminal."),
    "logs": ("acpterm.cli.logs", "Print the output of a terminal."),
    "screen": ("acpterm.cli.screen", "Print or draw the current screen of a terminal."),
    "send": ("acpterm.cli.send", "Type into a terminal."),
    "wait": ("acpterm.cli.wait", "Wait for terminals to exit, or for output."),
    "kill": ("acpterm.cli.kill", "Kill the programs of terminals."),
    "rm": ("acpterm.cli.rm", "Remove terminals."),
    "promote": ("acpterm.cli.promote", "Take a terminal over from its agent."),
    "rename": ("acpterm.cli.rename", "Rename a terminal."),
    "resize": ("acpterm.cli.resize", "Resize a terminal."),
    "inspect": ("acpterm.cli.inspect", "Show the details of a terminal."),
    "events": ("acpterm.cli.events", "Print events as they happen."),
    "export": ("acpterm.cli.export", "Print a terminal as a recording, text, HTML or a picture."),
    "replay": ("acpterm.cli.replay", "Replay a terminal or a recording."),
    "status": ("acpterm.cli.status", "Show daemon status."),
    "restart": (
        "acpterm.cli.restart",
        "Start a terminal's command again, or replace the daemon's worker.",
    ),
    "shutdown": ("acpterm.cli.shutdown", "End the daemon and its terminals."),
    "doctor": ("acpterm.cli.doctor", "Check this machine for what acpterm needs."),
    "completion": ("acpterm.cli.completion", "Print a shell completion script."),
    "serve": ("acpterm.cli.serve", "Listen for agents on a Unix socket, as a daemon."),
    "proxy": ("acpterm.cli.proxy", "Give an editor and its agent terminals: stand between them."),
    "prompt": ("acpterm.cli.prompt", "Have an agent do something: a client without a screen."),
    "stdio": ("acpterm.cli.stdio", "Serve the agent that spawned this, on stdin and stdout."),
}

# Those that say themselves what a closed stdout means to them.
_MIND_STDOUT = (["serve"], ["stdio"], ["proxy"], ["prompt"])

SHORT = {name: line for name, (_, line) in _COMMANDS.items()}
"""What each command does, in a line."""


@add_completion_class
class _Zsh(ZshComplete):
    """Zsh, which takes a backslash out of a description, and has two for one."""

    def format_completion(self, item: CompletionItem) -> str:
        described = CompletionItem(
            item.value, item.type, item.help and item.help.replace("\\", r"\\")
        )
        return super().format_completion(described)


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name][0])
        # What was imported stays to the end. Looking through it once more then would take a fifth
        # of the time that a short command takes.
        gc.freeze()
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, by another name as well, and `help` and `version`."""
        name, *rest = args
        if name == "version":
            click.echo(f"acpterm, version {__version__}")
            ctx.exit()
        if name == "help":
            if not rest:
                click.echo(ctx.get_help())
                ctx.exit()
            name, rest = rest[0], ["--help"]
        from acpterm.cli._aliases import (  # noqa: PLC0415  only needed for a wrong name
            ALIASES,
            no_such_command,
        )

        name = ALIASES.get(name, name)
        command = self.get_command(ctx, name)
        if command is None and not ctx.resilient_parsing:
            ctx.fail(no_such_command(name, list(_COMMANDS)))
        return name, command, rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click would import every command for its line of help.
        found = [
            CompletionItem(name, help=line)
            for name, (_, line) in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="acpterm")
def group() -> None:
    """Real terminals for agents that speak the Agent Client Protocol."""


def main() -> None:
    """Run the command that the command line names. Exits with 2 for one that is not right."""
    # Until a command minds signals itself there is nothing to end but this.
    with contextlib.suppress(ValueError):  # that is another thread's to say
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    if sys.stdout is None and sys.argv[1:2] not in _MIND_STDOUT:
        sys.exit(_say("stdout is closed: there is nowhere to print to"))
    # What cannot be printed, as to a full disk, is an error like any other.
    try:
        sys.exit(group(prog_name="acpterm"))
    except* OSError as errors:
        from acpterm.client.errors import root_error  # noqa: PLC0415  only for a failure

        os._exit(_say(root_error(errors)))


def _say(what: str) -> int:
    with contextlib.suppress(OSError):
        os.write(2, f"acpterm: {what}\n".encode(errors="backslashreplace"))
    return 1
