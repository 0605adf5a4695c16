"""`acpterm send`: type into a terminal."""

import os
import shlex
import sys
from collections.abc import Iterator

import click

from acpterm.cli._daemon import call
from acpterm.cli._options import at_daemon, fail
from acpterm.cli._params import LAST, terminal_argument
from acpterm.client.user.blocking_client import BlockingClient
from acpterm.client.user.send_keys import Key, Step, Text, type_steps
from acpterm.keys import key_bytes, looks_like_key

_KEY = ("-k", "--key")


class _InOrder(click.Command):
    """A command whose function gets TEXTs and --keys as `steps`, in the command line's order."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and set the parameter `steps` to the texts and keys in their order.

        Return the words that no parameter takes, as click's own method does. Raises
        `click.UsageError` if the command line is wrong.
        """
        given = list(args)
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            ctx.params["steps"] = _steps(list(self._in_order(given))[1:])
            self._check_keys(ctx, given)
        return rest

    @staticmethod
    def _check_keys(ctx: click.Context, given: list[str]) -> None:
        """Raise `click.UsageError` if the last TEXT is the name of a key, such as C-c.

        The user probably meant `--key`. `given` are the command's arguments: if ``--`` is one of
        them, every text is accepted.
        """
        *text, last = ctx.params["text"] or ("",)
        if "--" in given or not looks_like_key(last):
            return
        name = ctx.params["terminal"]
        line = shlex.join(["acpterm", "send", name, *text, "--key", last])
        as_text = shlex.join(["acpterm", "send", name, "--", *text, last])
        raise click.UsageError(
            f"{last!r} is the name of a key, and would be typed as text; nothing was typed. "
            f"To press the key: {line}; to type the text: {as_text}",
            ctx,
        )

    def _in_order(self, args: list[str]) -> Iterator[tuple[bool, str]]:
        """Yield TERMINAL, and then TEXTs and values of --key in the order of the command line.

        Each item is a pair: whether the word is the value of --key, and the word.
        """
        valued = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        words = iter(args)
        for word in words:
            if word == "--":
                yield from ((False, rest) for rest in words)
            elif word == "-" or not word.startswith("-"):
                yield False, word
            elif word.startswith("--"):
                name, equals, value = word.partition("=")
                if name in valued:
                    value = value if equals else next(words)
                    if name in _KEY:
                        yield True, value
            else:
                # Short options may be combined; the value of the last one may follow it directly.
                for at, letter in enumerate(word[1:], 2):
                    if f"-{letter}" in valued:
                        value = word[at:] or next(words)
                        if f"-{letter}" in _KEY:
                            yield True, value
                        break


def _steps(found: list[tuple[bool, str]]) -> list[Step]:
    steps: list[Step] = []
    for is_key, word in found:
        if is_key:
            steps.append(Key(word))
        elif word == "-":
            steps.append(Text(None))
        elif steps and isinstance(steps[-1], Text) and steps[-1].data is not None:
            # Join texts with a space, as echo does.
            steps[-1] = Text(steps[-1].data + b" " + os.fsencode(word))
        else:
            steps.append(Text(os.fsencode(word)))
    return steps


def _checked(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        try:
            key_bytes(name)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error
    return names


@click.command("send", cls=_InOrder)
@terminal_argument(running=True)
@click.argument("text", nargs=-1, metavar="[TEXT]…")
@click.option(
    *_KEY,
    multiple=True,
    metavar="NAME",
    callback=_checked,
    help="Press a key, such as C-c, Up or F5. Can be repeated.",
)
@click.option("-e", "--enter", is_flag=True, help="Press Enter at the end.")
@click.option(
    "-p",
    "--paste",
    is_flag=True,
    help="Send the text as a bracketed paste if the program has enabled that.",
)
@at_daemon
def command(
    *,
    terminal: str,
    text: tuple[str, ...],
    key: tuple[str, ...],
    steps: list[Step],
    enter: bool,
    paste: bool,
    config: str | None,
    socket: str | None,
) -> None:
    """Type TEXT into TERMINAL, and press keys, in the order of the command line.

    TEXT is typed unchanged; a newline is added only by --enter. Several words are joined by spaces.
    The word - stands for all of stdin. After -- every argument is text. Keys have the names that
    tmux uses: Enter, Tab, BTab, Escape, Space, BSpace, Up, Down, Left, Right, Home, End, PageUp,
    PageDown, Insert, Delete, F1 to F12, or a character. The prefixes C-, M- and S- mean Ctrl, Alt
    and Shift.

    The command waits until the terminal has accepted all input.

    Exit status: 0; 1 if there is no such terminal or its program has ended; 2 for an unknown key.
    """
    del text, key
    if enter:
        steps = [*steps, Key("Enter")]
    if not steps:
        fail("say what to type: TEXT, - for stdin, --key or --enter", 2)

    # Checked before connecting: a file that is opened afterwards may get the number of stdin.
    if sys.stdin is None and Text(None) in steps:
        fail("stdin is closed: there is nothing to type from it")

    def send_steps(client: BlockingClient) -> None:
        name = terminal
        if terminal == LAST:
            # Resolve the name once: a terminal created between two steps must not get the rest.
            name = client.get_for_input(terminal).terminal_id
        type_steps(client, name, steps, paste=paste)

    call(config, socket, send_steps)
