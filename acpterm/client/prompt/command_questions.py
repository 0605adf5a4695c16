"""Asks the user at the terminal whether an agent's command may run, for `acpterm prompt`.

The questions come from the host. The option `--allow` says how they are answered: `all` allows the
command, `none` and `reads` refuse it, and `ask` asks the user. With `ask`, if there is no terminal
to ask at, this client declines the question. The user can still answer it with `acpterm approve`.

Each question has a task, which is cancelled when the question is answered elsewhere.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from acpterm.acp.approvals import ApprovalInfo
from acpterm.client.prompt.permissions import NoTerminalError, Permissions
from acpterm.client.prompt.tool_calls import ToolCalls
from acpterm.client.questions import CHOICES, Questions, question_options
from acpterm.client.sanitize import escape_invisible, one_line
from acpterm.link.endpoint import Endpoint

_COMMAND_CHARS_MAX: Final = 16 * 1024


class CommandQuestions:
    """Asks the user the questions in `questions`, and sends the answers to `host`.

    `permissions` applies `--allow`, or asks the user. `calls` counts the refusals. `show` is
    awaited before the user is asked; it waits until earlier output was printed, so that the
    question appears below that output. `notice` prints a line for the user.
    """

    def __init__(
        self,
        questions: Questions,
        host: Endpoint,
        nursery: trio.Nursery,
        *,
        permissions: Permissions,
        calls: ToolCalls,
        show: Callable[[], Awaitable[None]],
        notice: Callable[[str], None],
    ) -> None:
        self._questions = questions
        self._host = host
        self._nursery = nursery
        self._permissions = permissions
        self._calls = calls
        self._show = show
        self._notice = notice
        self._asked: dict[str, trio.CancelScope] = {}

    async def run(self) -> None:
        """Ask each new question, and stop asking each withdrawn one, until cancelled."""
        while True:
            pending = self._questions.pending
            for identifier in [one for one in self._asked if one not in pending]:
                self._asked.pop(identifier).cancel()
            for identifier, info in list(pending.items()):
                if identifier not in self._asked:
                    scope = self._asked[identifier] = trio.CancelScope()
                    self._nursery.start_soon(self._ask, info, scope)
            await self._questions.wait_changed()

    async def _ask(self, info: ApprovalInfo, scope: trio.CancelScope) -> None:
        with scope:
            chosen = await self._choose(info)
            if chosen is None:
                return
            decision, scope_of_answer = CHOICES[chosen]
            if decision == "deny":
                self._calls.refusals += 1
            self._questions.answer(self._host, info.approval_id, decision, scope_of_answer)
        if scope.cancelled_caught:
            title = one_line(info.command)
            self._notice(f"no longer asked: {title} (answered elsewhere, or withdrawn)")

    async def _choose(self, info: ApprovalInfo) -> str | None:
        """Return the id of the option that `--allow` selects or that the user has chosen.

        Return `reject_once` if the turn was cancelled. If there is no terminal to ask at, decline
        the question and return None.
        """
        options = question_options(info)
        try:
            response = await self._permissions.decide(
                _question(info), "execute", options, self._show, needs_terminal=True
            )
        except NoTerminalError:
            reason = "there is no terminal to ask at; --allow all allows every command"
            self._questions.decline(self._host, info.approval_id, reason)
            title = one_line(info.command)
            self._notice(f"not asked: {title} (there is no terminal to ask at: say --allow all)")
            return None
        return str(response["outcome"].get("optionId", "reject_once"))


def _question(info: ApprovalInfo) -> str:
    command = escape_invisible(info.command)
    if len(command) > _COMMAND_CHARS_MAX:
        command = f"{command[:_COMMAND_CHARS_MAX]}… ({len(command)} characters in all)"
    where = f"    in {one_line(info.cwd, 1000)}"
    return "\n".join([command, where, f"    {one_line(info.reason, 1000)}"])
