"""`acpterm send`: type into a terminal."""

import base64
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import click

from acpterm.acp.agent_api import WriteResponse
from acpterm.acp.user_api import ScreenResponse, UserWriteRequest
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import fail
from acpterm.cli._params import LAST, terminal_argument
from acpterm.commands.blocking_client import BlockingClient, Slow
from acpterm.commands.output.blocking_stdout import named, note
from acpterm.keys import depends_on_cursor_mode, key_bytes, looks_like_key
from acpterm.runtime.blocking_io import read_some

# Maximum bytes per request. The daemon responds once all bytes are written to the terminal.
CHUNK_BYTES: Final = 32 * 1024
# Seconds without a response after which a note reports that the program does not read its input.
INPUT_TIMEOUT_S: Final = 2.0
# Begin and end of a bracketed paste. Pasted text cannot contain them: its ESC is removed.
_BEGIN: Final = b"\x1b[200~"
_END: Final = b"\x1b[201~"


class Text(NamedTuple):
    """Text to type, as bytes; if `data` is None, type what stdin contains, up to its end."""

    data: bytes | None


class KeyPress(NamedTuple):
    """A key to press, by its name (`acpterm.keys`)."""

    name: str


Step: TypeAlias = Text | KeyPress


def type_steps(
    client: BlockingClient, terminal: str, steps: Sequence[Step], *, paste: bool = False
) -> None:
    """Type texts and keys, and wait until they are written to the terminal."""
    pastes = paste and any(isinstance(step, Text) for step in steps)
    application = bracketed = False
    keys = [step.name for step in steps if isinstance(step, KeyPress)]
    if pastes or any(map(depends_on_cursor_mode, keys)):
        screen = client.terminal_request("screen", terminal, ScreenResponse)
        application, bracketed = screen.application_cursor, pastes and screen.bracketed_paste
    waiting = b""
    for step in steps:
        if isinstance(step, KeyPress):
            waiting += key_bytes(step.name, application=application)
            continue
        if bracketed:
            waiting += _BEGIN
        for data in _pieces(step):
            waiting += _pasted(data) if paste else data
            while len(waiting) >= CHUNK_BYTES:
                _type(client, terminal, waiting[:CHUNK_BYTES])
                waiting = waiting[CHUNK_BYTES:]
        if bracketed:
            waiting += _END
    for at in range(0, len(waiting), CHUNK_BYTES):
        _type(client, terminal, waiting[at : at + CHUNK_BYTES])


def _pieces(text: Text) -> Iterator[bytes]:
    if text.data is not None:
        yield text.data
        return
    held = b""
    while True:
        with named("stdin"):
            data = read_some(0, CHUNK_BYTES)
        if not data:
            yield held
            return
        data = held + data
        # Never end a piece between CR and LF, since pasting replaces both by one CR.
        held = data[-1:] if data.endswith(b"\r") else b""
        yield data[: len(data) - len(held)]


def _pasted(data: bytes) -> bytes:
    """Return text as a terminal emulator pastes it: lines end with CR, and ESC is removed."""
    return data.replace(b"\r\n", b"\r").replace(b"\n", b"\r").replace(b"\x1b", b"")


def _type(client: BlockingClient, terminal: str, data: bytes) -> None:
    params = UserWriteRequest(terminal, base64.b64encode(data).decode(), encoding="base64")
    client.call("terminal/write", params, WriteResponse, Slow(INPUT_TIMEOUT_S, _report_slow))


def _report_slow(_: int) -> None:
    note("acpterm: the program does not read its input: waiting (Ctrl-C ends this)")


_KEY = ("-k", "--key")


class _InOrder(click.Command):
    """A command whose function gets TEXTs and --keys as `steps`, in the command line's order."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            ctx.params["steps"] = _steps(list(self._in_order(given))[1:])
            self._check_keys(ctx, given)
        return rest

    @staticmethod
    def _check_keys(ctx: click.Context, given: list[str]) -> None:
        """Refuse a last TEXT that is a key's name, such as C-c, unless there is a `--`."""
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
        """Yield TERMINAL, and then TEXTs and values of --key in the order of the command line."""
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
            steps.append(KeyPress(word))
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
    daemon: ChosenDaemon,
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
        steps = [*steps, KeyPress("Enter")]
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

    daemon.call(send_steps)
