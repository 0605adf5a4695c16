"""Follows the questions to the user, for `acpterm approvals --follow`."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from msgspec import Raw, ValidationError
from msgspec.json import decode

from acpterm.acp.approvals import (
    AskedNotification,
    SubscribeApprovalsRequest,
    WithdrawnNotification,
)
from acpterm.acp.terminal import Empty
from acpterm.client.errors import LostError
from acpterm.client.user.client import UserClient

Change: TypeAlias = AskedNotification | WithdrawnNotification


async def follow_approvals(
    client: UserClient, take: Callable[[Change, Raw], Awaitable[object]]
) -> None:
    """Call `take` with each question and each answer, decoded and as raw JSON; await each call.

    The pending questions come first, then new questions and answers. A question that is still
    pending after the daemon's worker was replaced is not passed to `take` again. Runs until
    cancelled. Raises `DaemonError` when the daemon ends, and `RpcError` if the daemon refuses the
    request.
    """
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
