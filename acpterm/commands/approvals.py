"""Follows the questions to the user, and answers them by keys: `acpterm approvals --follow`."""

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

import trio
from msgspec import Raw, ValidationError
from msgspec.json import decode

from acpterm.acp.approvals import (
    AnswerRequest,
    ApprovalInfo,
    AskedNotification,
    Decision,
    Scope,
    SubscribeApprovalsRequest,
    WithdrawnNotification,
)
from acpterm.acp.terminal import Empty
from acpterm.commands.approval_format import keys_line
from acpterm.commands.client import UserClient
from acpterm.commands.keyboard import read_keys
from acpterm.jsonrpc import RpcError
from acpterm.link.errors import LostError
from acpterm.runtime.sanitize import one_line

# Keys that come sooner after a question was shown were meant for the question before it.
_UNREAD_S: Final = 0.3
_KEYS: Final[Mapping[bytes, tuple[Decision, Scope]]] = {
    b"y": ("allow", "once"),
    b"n": ("deny", "once"),
    b"a": ("allow", "always"),
}
Change: TypeAlias = AskedNotification | WithdrawnNotification


async def follow_approvals(
    client: UserClient, take: Callable[[Change, Raw], Awaitable[object]]
) -> None:
    """Call `take` with each question and each answer, decoded and as raw JSON; await each call."""
    request = SubscribeApprovalsRequest(client.token())
    known: set[str] = set()
    while True:
        with client.stream("approval/subscribe", request, Empty) as stream:
            try:
                async for params in stream:
                    # A newer daemon may send a notification that this command cannot decode.
                    with suppress(ValidationError):
                        change = _decode(params)
                        if isinstance(change, AskedNotification):
                            # After the worker was replaced, pending questions come again.
                            if change.approval.approval_id in known:
                                continue
                            known.add(change.approval.approval_id)
                        else:
                            known.discard(change.approval_id)
                        await take(change, params)
            except LostError:
                await client.reconnect(stream.endpoint)


def _decode(params: Raw) -> Change:
    try:
        return decode(params, type=AskedNotification)
    except ValidationError:
        return decode(params, type=WithdrawnNotification)


class KeyAnswers:
    """Answers questions by keys, the oldest first; `put` prints text."""

    def __init__(self, client: UserClient, put: Callable[[str], Awaitable[None]]) -> None:
        self._client: Final = client
        self._put: Final = put
        # In the order in which they were asked; keys answer the first.
        self._waiting: Final[dict[str, ApprovalInfo]] = {}
        self._shown_at = 0.0

    async def take(self, change: Change) -> None:
        """Note a question or its end, and ask for a key if another question is the oldest now."""
        before = next(iter(self._waiting), None)
        if isinstance(change, AskedNotification):
            self._waiting[change.approval.approval_id] = change.approval
        else:
            self._waiting.pop(change.approval_id, None)
        first = next(iter(self._waiting.values()), None)
        if first is not None and first.approval_id != before:
            await self._put(keys_line(first))
            self._shown_at = time.monotonic()

    async def run(self, work: Callable[[], Awaitable[object]]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, nursery.cancel_scope)
            await work()
            nursery.cancel_scope.cancel()

    async def _read(self, scope: trio.CancelScope) -> None:
        while keys := await read_keys():
            key = keys[:1].lower()
            if key == b"q":
                scope.cancel()
            elif key in _KEYS and self._waiting and time.monotonic() > self._shown_at + _UNREAD_S:
                await self._answer(next(iter(self._waiting)), *_KEYS[key])

    async def _answer(self, identifier: str, decision: Decision, scope: Scope) -> None:
        request = AnswerRequest(identifier, decision, scope)
        try:
            await self._client.call("approval/answer", request, ApprovalInfo)
        except RpcError as error:
            await self._put(f"          {one_line(error.message)}")
