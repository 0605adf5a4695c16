"""`acpterm terminal`: the words of the chat command `/terminal` as subcommands."""

import os
import time

import click

from acpterm.agents.chat.actions import ChatAction
from acpterm.agents.chat.steps import Intervals, Pause, StartPlace, Steps, steps
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import absolute, check_utf8, settings
from acpterm.cli._output import echo_once
from acpterm.cli._params import terminal_argument
from acpterm.commands.blocking_client import BlockingClient
from acpterm.jsonrpc import RpcError, is_utf8_encodable
from acpterm.runtime.sanitize import escape_invisible_text


class _Words(click.Group):
    """A command group with one more subcommand: `provider`, which is `acpterm provider`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "provider":
            from acpterm.cli.provider import command as provider  # noqa: PLC0415  it imports trio

            return provider
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), "provider"]


@click.group("terminal", cls=_Words)
def command() -> None:
    """Start, list and use your terminals with the words of the chat command /terminal.

    In an editor whose agent runs behind acpterm proxy, the same words are a chat command, such as
    /terminal start npm run dev.
    """


@command.command("list")
@at_daemon
def list_terminals(daemon: ChosenDaemon) -> None:
    """List all terminal sessions.

    A session is a terminal, yours or an agent's. It stays in the list after its program has ended,
    until it is removed.
    """
    _perform(ChatAction("list"), daemon)


@command.command("start", context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="COMMAND [ARG]…", nargs=-1, required=True, type=click.UNPROCESSED)
@at_daemon
def start(words: tuple[str, ...], daemon: ChosenDaemon) -> None:
    """Start a new terminal session, and print its first output.

    A single COMMAND is a line for the shell. Several words are a program and its arguments. The
    terminal is yours, gets the first free name of term-1, term-2, …, and runs in the background.
    The provider of the settings runs its program.

    The wait for output takes at least 1 second and at most 30. In between, it ends when the program
    waits for input, or has printed nothing for 2 seconds. It ends at once when the program ends.
    The settings tool_min_interval, tool_max_interval and tool_settle_interval change these times.
    """
    _perform(ChatAction("start", text=words[0], args=list(words[1:]) or None), daemon)


@command.command("send", context_settings={"ignore_unknown_options": True})
@terminal_argument()
@click.argument("words", metavar="INPUT…", nargs=-1, type=click.UNPROCESSED)
@at_daemon
def send(terminal: str, words: tuple[str, ...], daemon: ChosenDaemon) -> None:
    """Type INPUT and Enter into a terminal session, and print the new output.

    If INPUT is the name of a key, such as C-c or Up, that key is pressed instead.
    """
    _perform(ChatAction("send", terminal, " ".join(words)), daemon)


@command.command("output")
@terminal_argument()
@at_daemon
def output(terminal: str, daemon: ChosenDaemon) -> None:
    """Print all retained output of a terminal session."""
    _perform(ChatAction("output", terminal), daemon)


@command.command("stop")
@terminal_argument()
@at_daemon
def stop(terminal: str, daemon: ChosenDaemon) -> None:
    """End a terminal session's program, and remove the session if it is yours."""
    _perform(ChatAction("stop", terminal), daemon)


def _perform(action: ChatAction, daemon: ChosenDaemon) -> None:
    check_utf8(action.target, action.text, *(action.args or ()))
    loaded = settings(daemon.config)
    directory = absolute()
    # If its name is not UTF-8, the daemon finds the directory by inspecting this process.
    place = StartPlace(directory if is_utf8_encodable(directory) else None, loaded.provider)
    work = steps(action, place, Intervals.of(loaded))
    starts = action.name == "start"
    text = daemon.call(lambda client: _run(client, work), start=starts)
    echo_once(escape_invisible_text(text) if os.isatty(1) else text)


def _run(client: BlockingClient, work: Steps) -> str:
    """Send the requests that the generator `work` yields, and pause; return what it returns."""
    try:
        step = next(work)
        while True:
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                step = next(work)
                continue
            try:
                result = client.call(*step)
            except RpcError as error:
                step = work.throw(error)
            else:
                step = work.send(result)
    except StopIteration as end:
        return str(end.value)
