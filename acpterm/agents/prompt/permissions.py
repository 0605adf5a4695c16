"""Decides whether to allow a tool call or a command, by a rule or by asking at the terminal.

The rule (`--allow`): `all` allows, `none` refuses, `reads` allows calls that the agent declares as
reading or searching, and `ask` asks the user, with the agent's own options, one question at a time.
If no terminal is available to ask at, the call is refused, with a notice. This is no security
boundary: the agent itself declares the kind of a call, and an agent may act without a request for
permission.

The host's questions about commands go the same way, but if there is no terminal to ask at, the user
can still answer them with `acpterm approve`.

Once a turn is cancelled, the response to all pending and later requests is `cancelled` (ACP v1,
"Cancellation").
"""

import os
import termios
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, TypeAlias

import trio

from acpterm.acp.agent import PermissionOption
from acpterm.acp.approvals import ApprovalInfo
from acpterm.agents.prompt.tool_calls import ShownToolCalls
from acpterm.agents.questions import CHOICES, CannotAskError, question_options
from acpterm.runtime.sanitize import escape_invisible, one_line, shortened
from acpterm.runtime.stdio import write_all

Rule: TypeAlias = Literal["ask", "all", "reads", "none"]

_READS: Final = ("read", "search")
# Kinds of options in order of preference: the kind with the least consequences first.
_ALLOW: Final = ("allow_once", "allow_always")
_REJECT: Final = ("reject_once", "reject_always")
# Maximum bytes read of the line in which the user types a choice.
_ANSWER_BYTES_MAX: Final = 4096
_TITLE_CHARS_MAX: Final = 200


class Permissions:
    """Decides which tool calls of one session are allowed; `rule` is the value of `--allow`."""

    def __init__(self, rule: Rule, notice: Callable[[str], None]) -> None:
        self._rule = rule
        self._notice = notice
        self._question_lock = trio.Lock()
        self._open: set[trio.CancelScope] = set()
        self._cancelled = False

    @property
    def is_cancelled(self) -> bool:
        """Whether the turn was cancelled. Then every request gets the response `cancelled`."""
        return self._cancelled

    async def decide(
        self,
        question: str,
        kind: str,
        options: Sequence[PermissionOption],
        show: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
        *,
        needs_terminal: bool = False,
    ) -> PermissionOption | None:
        """Return the chosen option; None for the response `cancelled`.

        `question` is one or more lines that are safe to print. `show` is awaited before the user is
        asked, to print the tool call. If there is no terminal to ask at, refuse; with
        `needs_terminal`, raise `NoTerminalError`.
        """
        chosen: PermissionOption | None = None
        with trio.CancelScope() as scope:
            self._open.add(scope)
            if self._cancelled:
                scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
                chosen = await self._decide(
                    question, kind, options, show, needs_terminal=needs_terminal
                )
            finally:
                self._open.discard(scope)
        return chosen

    def cancel(self) -> None:
        self._cancelled = True
        for scope in self._open:
            scope.cancel()

    async def _decide(
        self,
        question: str,
        kind: str,
        options: Sequence[PermissionOption],
        show: Callable[[], Awaitable[None]],
        *,
        needs_terminal: bool,
    ) -> PermissionOption | None:
        why = f"--allow {self._rule}" if options else "the agent offers nothing to choose from"
        allowed = self._rule == "all" or (self._rule == "reads" and kind in _READS)
        if self._rule == "ask" and options:
            async with self._question_lock:
                names = [option.name for option in options]
                try:
                    answer = await choose(f"May the agent do this? {question}", names, show)
                except NoTerminalError:
                    if needs_terminal:
                        raise
                    why = "there is no terminal to ask at; --allow says what else may be"
                else:
                    if answer is not None:
                        return options[answer]
                    why = "nothing was chosen"
        chosen = _first_option(options, _ALLOW if allowed else _REJECT)
        verdict = "allowed" if chosen is not None and allowed else "refused"
        title = one_line(question.partition("\n")[0])
        self._notice(f"{verdict}: {title} ({why})")
        return chosen


class CommandQuestions:
    """Decides on the host's questions about commands: the face of `questions.QuestionTasks`.

    `show` waits until earlier output was printed, so that a question appears below it.
    """

    def __init__(
        self,
        permissions: Permissions,
        calls: ShownToolCalls,
        show: Callable[[], Awaitable[None]],
        notice: Callable[[str], None],
    ) -> None:
        self._permissions = permissions
        self._calls = calls
        self._show = show
        self._notice = notice

    async def ask(self, info: ApprovalInfo) -> str:
        options = question_options(info)
        try:
            option = await self._permissions.decide(
                _question(info), "execute", options, self._show, needs_terminal=True
            )
        except NoTerminalError:
            title = shortened(info.command, _TITLE_CHARS_MAX)
            self._notice(f"not asked: {title} (there is no terminal to ask at: say --allow all)")
            why = "there is no terminal to ask at; --allow all allows every command"
            raise CannotAskError(why) from None
        # A cancelled turn rejects the command.
        chosen = "reject_once" if option is None else option.option_id
        if CHOICES[chosen][0] == "deny":
            self._calls.refusals += 1
        return chosen

    def withdrawn(self, info: ApprovalInfo) -> None:
        title = shortened(info.command, _TITLE_CHARS_MAX)
        self._notice(f"no longer asked: {title} (answered elsewhere, or withdrawn)")


def _question(info: ApprovalInfo) -> str:
    command = escape_invisible(info.command)
    where = f"    in {one_line(info.cwd, 1000)}"
    return "\n".join([command, where, f"    {one_line(info.reason, 1000)}"])


def _first_option(
    options: Sequence[PermissionOption], kinds: Sequence[str]
) -> PermissionOption | None:
    matching = (option for kind in kinds for option in options if option.kind == kind)
    return next(matching, None)


class NoTerminalError(Exception):
    """The user cannot be asked: no terminal can be used, or this process is in the background."""


async def choose(
    question: str, answers: Sequence[str], show: Callable[[], Awaitable[None]]
) -> int | None:
    """Ask the user to choose one of `answers`; return its index, or None for Ctrl-D.

    `question` is one or more lines that are safe to print; `show` is awaited before. stdin is not
    used, since it may be a pipe. Raises `NoTerminalError`.
    """
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise NoTerminalError from error
    try:
        # A background process is stopped by the system (SIGTTIN) as soon as it reads.
        if os.tcgetpgrp(fd) != os.getpgrp():
            raise NoTerminalError
        await show()
        # Drop the input that was typed before the question: it cannot be the answer.
        termios.tcflush(fd, termios.TCIFLUSH)
        lines = [f"  {number}  {one_line(answer)}" for number, answer in enumerate(answers, 1)]
        await _print(fd, "\n".join(["", question, *lines, ""]))
        while True:
            await _print(fd, f"1 to {len(answers)}: ")
            typed = await _line(fd)
            if typed is None:
                await _print(fd, "\n")
                return None
            if typed.isdecimal() and 1 <= int(typed) <= len(answers):
                return int(typed) - 1
    except (OSError, termios.error) as error:
        raise NoTerminalError from error
    finally:
        os.close(fd)


async def _line(fd: int) -> str | None:
    await trio.lowlevel.wait_readable(fd)
    data = os.read(fd, _ANSWER_BYTES_MAX)
    return data.decode(errors="replace").strip() if data else None


async def _print(fd: int, text: str) -> None:
    await write_all(fd, text.encode(errors="replace"))
