"""Passes the host's questions about an agent's commands to `asks`, a function of the agent.

A program that connects as an agent may ask the user about its own commands: it passes a function
`asks` to `connect`. The host sends questions to the program, and accepts its answers, only if the
user has turned on the setting `mcp_elicitation_approves`. Without the setting, `asks` is never
called, and the user answers with `acpterm approve`. If a question is answered elsewhere, the call
of `asks` is cancelled. If `asks` returns None, the user can still answer through another program;
if there is none, the command is refused, unless the profile says to wait.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Raw

from acpterm.acp.approvals import (
    ANSWER,
    ASKED,
    DECLINE,
    PENDING,
    WITHDRAWN,
    AnswerRequest,
    ApprovalInfo,
    AskedNotification,
    Decision,
    DeclineRequest,
    PendingNotification,
    WithdrawnNotification,
)
from acpterm.jsonrpc import NotificationReceived, RpcError
from acpterm.link.endpoint import Endpoint

Asks: TypeAlias = Callable[[ApprovalInfo], Awaitable[Decision | None]]
"""Asks the user whether a command may run; returns None if the user did not decide."""

_DECLINED: Final = "the MCP client has no answer of the user"


class Questions:
    """Calls `asks` with each question of `host`, and sends the answer to the host."""

    def __init__(self, host: Endpoint, asks: Asks) -> None:
        self._host: Final = host
        self._asks: Final = asks
        self._pending: Final[dict[str, anyio.CancelScope]] = {}

    def on_notification(self, group: TaskGroup, notification: NotificationReceived) -> None:
        """Handle a notification about questions; ignore any other notification.

        Each new question is passed to `asks` in a task of `group`.
        """
        params = notification.params
        if isinstance(params, Raw):
            with suppress(msgspec.DecodeError):  # of a newer host
                self._apply(group, notification.method, params)

    def _apply(self, group: TaskGroup, method: str, params: Raw) -> None:
        if method == ASKED:
            self._start(group, msgspec.json.decode(params, type=AskedNotification).approval)
        elif method == WITHDRAWN:
            withdrawn = msgspec.json.decode(params, type=WithdrawnNotification)
            self._withdraw(withdrawn.approval_id)
        elif method == PENDING:
            found = msgspec.json.decode(params, type=PendingNotification).approvals
            for identifier in self._pending.keys() - {info.approval_id for info in found}:
                self._withdraw(identifier)
            for info in found:
                self._start(group, info)

    def _start(self, group: TaskGroup, info: ApprovalInfo) -> None:
        if info.approval_id not in self._pending:
            scope = self._pending[info.approval_id] = anyio.CancelScope()
            group.start_soon(self._ask, info, scope)

    def _withdraw(self, identifier: str) -> None:
        if (scope := self._pending.pop(identifier, None)) is not None:
            scope.cancel()

    async def _ask(self, info: ApprovalInfo, scope: anyio.CancelScope) -> None:
        identifier = info.approval_id
        with scope:
            decision = await self._asks(info)
            with suppress(RpcError):  # another answer came first
                if decision is None:
                    declined = DeclineRequest(identifier, _DECLINED)
                    await self._host.request(DECLINE, declined)
                else:
                    await self._host.request(ANSWER, AnswerRequest(identifier, decision))
        if self._pending.get(identifier) is scope:
            del self._pending[identifier]
