"""May a tool call go on: by the person's rule, or asked of the person at the terminal.

The rule (`--allow`): `all` allows, `none` refuses, `reads` allows what the agent says is reading or
searching, `ask` asks the person, with the agent's own options, one question at a time. Where nobody
can be asked the answer is no, and that is said. It is the agent that says what kind a call is, and
an agent need not ask at all: this is a courtesy, and no wall.

A turn that is cancelled answers all that is open, and what comes after it, `cancelled` (ACP v1,
"Cancellation").
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import trio

from acpterm.acp import PermissionOption
from acpterm.client.prompt.tty_question import NoTerminalError, choose
from acpterm.client.sanitize import one_line

Rule: TypeAlias = Literal["ask", "all", "reads", "none"]

_READS: Final = ("read", "search")
# The one of least consequence first.
_ALLOW: Final = ("allow_once", "allow_always")
_REJECT: Final = ("reject_once", "reject_always")


class Permissions:
    """The decisions of one session. `say` is called for each with a line for the person."""

    def __init__(self, rule: Rule, say: Callable[[str], None]) -> None:
        self._rule = rule
        self._say = say
        self._asking = trio.Lock()
        self._open: set[trio.CancelScope] = set()
        self._cancelled = False

    @property
    def is_cancelled(self) -> bool:
        """Whether the turn was cancelled: nothing is decided any more."""
        return self._cancelled

    async def decide(
        self,
        question: str,
        kind: str,
        options: Sequence[PermissionOption],
        show: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> dict[str, Any]:
        """Give the answer to a `session/request_permission`.

        `question` is what it is about, safe to print, in lines; `kind` is the tool call's.
        `show` is awaited before a person is asked: it shows what the question is about.
        """
        chosen: PermissionOption | None = None
        with trio.CancelScope() as scope:
            self._open.add(scope)
            if self._cancelled:
                scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
                chosen = await self._decide(question, kind, options, show)
            finally:
                self._open.discard(scope)
        if chosen is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": chosen.option_id}}

    def cancel(self) -> None:
        """Answer what is open, and what comes after, `cancelled`."""
        self._cancelled = True
        for scope in self._open:
            scope.cancel()

    async def _decide(
        self,
        question: str,
        kind: str,
        options: Sequence[PermissionOption],
        show: Callable[[], Awaitable[None]],
    ) -> PermissionOption | None:
        why = f"--allow {self._rule}" if options else "the agent offers nothing to choose from"
        allowed = self._rule == "all" or (self._rule == "reads" and kind in _READS)
        if self._rule == "ask" and options:
            async with self._asking:
                names = [option.name for option in options]
                try:
                    answer = await choose(f"May the agent do this? {question}", names, show)
                except NoTerminalError:
                    why = "there is no terminal to ask at; --allow says what else may be"
                else:
                    if answer is not None:
                        return options[answer]
                    why = "nothing was chosen"
        chosen = _first(options, _ALLOW if allowed else _REJECT)
        verdict = "allowed" if chosen is not None and allowed else "refused"
        title = one_line(question.partition("\n")[0])
        self._say(f"{verdict}: {title} ({why})")
        return chosen


def _first(options: Sequence[PermissionOption], kinds: Sequence[str]) -> PermissionOption | None:
    found = (option for kind in kinds for option in options if option.kind == kind)
    return next(found, None)
