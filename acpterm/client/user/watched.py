"""A list of terminals that is refreshed after each event."""

import math
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from msgspec import Raw

from acpterm.acp.user_api import ListRequest, ListResponse, TerminalInfo
from acpterm.acp.user_streams import EventNotification
from acpterm.client.user.client import UserClient
from acpterm.client.user.events import follow

# Seconds between two requests, so that a burst of events causes one refresh.
_PAUSE_S: Final = 0.1


async def refresh(
    client: UserClient,
    show: Callable[[list[TerminalInfo]], Awaitable[object]],
    *,
    everything: bool,
    every: float = math.inf,
) -> None:
    """Call `show` with the terminals now, after each event, and every `every` seconds.

    Runs until cancelled. Raises `RpcError` or `DaemonError` when the daemon ends.
    """
    happened = trio.Event()
    request = ListRequest(all=everything)

    async def note(event: EventNotification, params: Raw) -> None:
        del event, params
        happened.set()
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, client, note)
        while True:
            answer = await client.call("terminal/list", request, ListResponse)
            await show(answer.terminals)
            await trio.sleep(_PAUSE_S)
            with trio.move_on_after(every - _PAUSE_S):
                await happened.wait()
            happened = trio.Event()
