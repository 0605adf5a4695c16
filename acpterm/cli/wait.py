"""`acpterm wait`: wait for terminals to exit, for output, or until they ask for input."""

import os
import re
import signal
import time
from contextlib import closing, suppress
from functools import partial
from typing import Final, NoReturn

import click

from acpterm.acp.user_api import ACTIVE, TerminalInfo, UserTerminalRequest
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import fail
from acpterm.cli._output import echo
from acpterm.cli._params import Finite, terminal_argument
from acpterm.commands.blocking_client import BlockingClient
from acpterm.commands.format import WAITS, background_notice, exit_code, summary_line
from acpterm.commands.output.blocking_stdout import note
from acpterm.commands.output.text_follow import follow_text
from acpterm.jsonrpc import RpcError
from acpterm.link.blocking import DeadlineError
from acpterm.link.daemon import DaemonError
from acpterm.runtime.sanitize import escape_invisible_text

_TIMED_OUT: Final = 124
# Seconds after the timeout in which the command may still exit by itself; then a timer ends it.
_EXIT_GRACE_S: Final = 0.5
# Maximum seconds for the search in `_take_printed`; less than `_EXIT_GRACE_S`.
_LAST_READ_TIMEOUT_S: Final = 0.3
# Seconds between two checks whether a program asks for input; the check costs the daemon 0.1 ms.
_INPUT_PERIOD_S: Final = 0.2
# Maximum characters of earlier text that are retained and searched again. A match that spans more
# text is not found.
RETAINED_CHARS: Final = 64 * 1024


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.MULTILINE)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is no regular expression: {error}") from error


@click.command("wait")
@terminal_argument(many=True)
@click.option(
    "--for", "pattern", type=_regex, metavar="REGEX", help="Wait for output that matches REGEX."
)
@click.option("--input", "for_input", is_flag=True, help="Wait until the program asks for input.")
@click.option("--timeout", type=Finite(min=0), metavar="SECONDS", help="Wait at most this long.")
@at_daemon
def command(
    *,
    terminals: tuple[str, ...],
    pattern: re.Pattern[str] | None,
    for_input: bool,
    timeout: float | None,
    daemon: ChosenDaemon,
) -> None:
    """Wait until the program of each TERMINAL has ended, or until its output matches (--for).

    With --input, wait until it asks for input, and print which program asks, and whether for a
    password. A shell at its prompt, an editor and a pager ask for nothing.

    REGEX is a Python regular expression, in which ^ and $ also match at the beginning and the end
    of each line. It is searched for in the whole text that acpterm logs prints. The line that
    matches is printed.

    If a program has left processes running, a note on stderr names them.

    Exit status: that of the program, or 128 + n if signal n ended it. With --for and --input, 0 if
    the output matches or the program asks, or 1 if the program has ended before. With several
    terminals, the first status that is not 0, in the order of the arguments. 124 after the timeout;
    1 if there is no such terminal; 130 after Ctrl-C.
    """
    if for_input and pattern is not None:
        raise click.UsageError("--for and --input exclude each other")
    names = list(dict.fromkeys(terminals))

    def wait(client: BlockingClient) -> tuple[int, str]:
        left, ids = list(names), dict[str, str]()
        if timeout is not None:
            client.deadline = time.monotonic() + timeout
        try:
            # Resolve the names once: a name may mean another terminal later.
            ids = {
                name: client.terminal_request("get", name, TerminalInfo).terminal_id
                for name in names
            }
            if pattern is None:
                return (_wait_asked if for_input else _wait_ended)(client, ids, left)
            return _wait_printed(client, ids, left, pattern)
        except DeadlineError:
            if pattern is not None:
                _take_printed(client, ids, left, pattern)
            if not left:
                return 0, ""
            event = "not asked for input" if for_input else "not ended"
            event = event if pattern is None else f"not printed {pattern.pattern!r}"
            which = (
                f"terminal {left[0]} has" if len(left) == 1 else f"terminals {', '.join(left)} have"
            )
            return _TIMED_OUT, f"{which} {event} within {timeout:g} s"

    _start_timer(timeout, pattern)
    status, message = daemon.call(wait)
    if message:
        fail(message, status)
    raise SystemExit(status)


def _start_timer(timeout: float | None, pattern: re.Pattern[str] | None) -> None:
    if timeout is not None:
        # A single search may take forever (backtracking), and nothing else runs meanwhile.
        signal.signal(signal.SIGALRM, partial(_give_up, pattern))
        signal.setitimer(signal.ITIMER_REAL, timeout + _EXIT_GRACE_S)


def _give_up(pattern: object, *_: object) -> NoReturn:
    event = b"the daemon was waited for" if pattern is None else b"the expression was looked for"
    os.write(2, b"acpterm: timed out, while %b\n" % event)
    os._exit(_TIMED_OUT)


def _wait_ended(client: BlockingClient, ids: dict[str, str], left: list[str]) -> tuple[int, str]:
    codes: dict[str, int] = {}
    order = list(ids)
    requests = [UserTerminalRequest(ids[name]) for name in order]
    for index, response in client.call_each("terminal/wait", requests, TerminalInfo):
        if isinstance(response, RpcError):
            raise response
        name = order[index]
        codes[name] = 1 if response.exit_status is None else exit_code(response.exit_status)
        if notice := background_notice(response):
            note(f"[{notice}]")
        left.remove(name)
    return next((codes[name] for name in ids if codes[name]), 0), ""


def _wait_asked(client: BlockingClient, ids: dict[str, str], left: list[str]) -> tuple[int, str]:
    for name, identifier in ids.items():
        while True:
            info = client.terminal_request("get", identifier, TerminalInfo)
            if info.state not in ACTIVE:
                return 1, f"terminal {name} has ended and has not asked for input"
            if info.waiting_for_input:
                break
            remaining = client.deadline - time.monotonic()
            if remaining <= 0:
                raise DeadlineError
            time.sleep(min(_INPUT_PERIOD_S, remaining))
        echo(summary_line(info.waiting_program or WAITS))
        left.remove(name)
    return 0, ""


def _take_printed(
    client: BlockingClient, ids: dict[str, str], left: list[str], pattern: re.Pattern[str]
) -> None:
    # `_wait_printed` searches one terminal after the other: it was still in `left[0]`.
    client.deadline = time.monotonic() + _LAST_READ_TIMEOUT_S
    # An error now is irrelevant: the timeout has passed already.
    printed: list[str] = []
    with suppress(DeadlineError, DaemonError, RpcError, OSError):
        for name in [name for name in left[1:] if name in ids]:
            with closing(follow_text(client, ids[name])) as text:
                complete, line, _ = next(text)
            if (found := LineSearch(pattern).find(complete, line)) is not None:
                printed.append(found)
                left.remove(name)
    for match in printed:
        echo(escape_invisible_text(match) if os.isatty(1) else match)


def _wait_printed(
    client: BlockingClient, ids: dict[str, str], left: list[str], pattern: re.Pattern[str]
) -> tuple[int, str]:
    for name, identifier in ids.items():
        search = LineSearch(pattern)
        found: str | None = None
        with closing(follow_text(client, identifier)) as text:
            for complete, line, lost in text:
                if lost:
                    search.forget()
                if (found := search.find(complete, line)) is not None:
                    break
        if found is None:
            return 1, f"terminal {name} has ended and has not printed {pattern.pattern!r}"
        echo(escape_invisible_text(found) if os.isatty(1) else found)
        left.remove(name)
    return 0, ""


class LineSearch:
    """A search in text that comes in pieces; a match may span the last `RETAINED_CHARS` of them."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern: Final = pattern
        self._retained = ""
        # Where to search from: 1 if the first retained character is in the middle of a line.
        self._begin = 0

    def find(self, over: str, line: str) -> str | None:
        """Return the lines of a match in retained text, newly completed lines and the last line."""
        text = self._retained + over + line
        if found := self._pattern.search(text, self._begin):
            begin = text.rfind("\n", 0, found.start()) + 1
            end = text.find("\n", max(found.start(), found.end() - 1))
            return text[begin : len(text) if end < 0 else end]
        self._keep(self._retained + over)
        return None

    def forget(self) -> None:
        """Drop the retained text, because output after it is missing: no match may span the gap."""
        self._retained, self._begin = "", 0

    def _keep(self, text: str) -> None:
        if len(text) <= RETAINED_CHARS:
            self._retained = text
            return
        at = text.find("\n", len(text) - RETAINED_CHARS - 1) + 1
        # If no line begins there, start the search at the second character, so that ^ does not
        # match at the first one.
        whole = 0 < at < len(text)
        self._retained, self._begin = (text[at:], 0) if whole else (text[-RETAINED_CHARS:], 1)
