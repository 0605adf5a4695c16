"""Follows the daemon's events, and uses them to keep a list of terminals up to date.

A command that follows events exits with status 0 on Ctrl-C, with 128 + N on another shutdown signal
N, and with status 0 once stdout has no reader, such as in a pipe to `head`.
"""

import math
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio
from msgspec import Raw, ValidationError
from msgspec.json import decode, encode

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import ListRequest, ListResponse, TerminalInfo
from acpterm.acp.user_streams import EventNotification, EventsRequest
from acpterm.client.errors import LostError
from acpterm.client.user.client import UserClient
from acpterm.client.user.event_format import RECONNECTED
from acpterm.client.user.output.trio_stdout import while_stdout_is_read
from acpterm.runtime.shutdown_signals import shutdown_signals

# Seconds that `refresh` waits after each refresh, so that a burst of events causes only one more.
_PAUSE_S: Final = 0.1


async def until_ended(work: Callable[[], Awaitable[object]]) -> int:
    """Run `work` until it returns; cancel it on a shutdown signal, or if stdout has no reader.

    Return the exit status of the command: 128 + N after a signal N other than SIGINT, else 0.
    """
    status = 0

    async def watch_signals() -> None:
        nonlocal status
        with trio.open_signal_receiver(*shutdown_signals()) as signals:
            started.set()
            async for number in signals:
                status = 0 if number == signal.SIGINT else 128 + number
                nursery.cancel_scope.cancel()

    started = trio.Event()
    async with while_stdout_is_read(), trio.open_nursery() as nursery:
        nursery.start_soon(watch_signals)
        await started.wait()
        await work()
        nursery.cancel_scope.cancel()
    return status


async def follow(
    client: UserClient,
    take: Callable[[EventNotification, Raw], Awaitable[object]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Call `take` with each event of the daemon, decoded and as raw JSON; await each call.

    After the daemon's worker was replaced, `take` first gets an event `RECONNECTED`, since events
    may be missing. While `take` is slow, only a few events are buffered here; the daemon drops
    further ones, and `lost` of the next event is their number. Runs until cancelled. Raises
    `DaemonError` when the daemon ends, and `RpcError` if the daemon refuses the request.

    `trio.Nursery.start` passes `task_status`, and returns once the request for events is queued.
    Requests that `client` sends afterwards reach the daemon after this one. So no event that they
    cause is missed.
    """
    request = EventsRequest(client.token())
    is_reconnected = False
    while True:
        with client.stream("events", request, Empty) as stream:
            if is_reconnected:
                event = EventNotification(request.token, RECONNECTED, round(1000 * time.time()))
                await take(event, Raw(encode(event)))
            else:
                task_status.started()
            try:
                async for params in stream:
                    # A newer daemon may send an event that this command cannot decode.
                    with suppress(ValidationError):
                        await take(decode(params, type=EventNotification), params)
            except LostError:
                await client.reconnect(stream.endpoint)
                is_reconnected = True


async def refresh(
    client: UserClient,
    show: Callable[[list[TerminalInfo]], Awaitable[object]],
    *,
    everything: bool,
    every: float = math.inf,
) -> None:
    """Await `show` with the current list of terminals: first at once, then after events.

    `show` is also called when there was no event for about `every` seconds. If `everything` is
    true, the list includes released terminals. Runs until cancelled. Raises `DaemonError` when the
    daemon ends, and `RpcError` if the daemon refuses a request; errors are in exception groups.
    """
    happened = trio.Event()
    request = ListRequest(all=everything)

    async def note(event: EventNotification, params: Raw) -> None:
        del event, params
        happened.set()
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        # Otherwise, a change between the list and the first event would be missed.
        await nursery.start(follow, client, note)
        while True:
            answer = await client.call("terminal/list", request, ListResponse)
            await show(answer.terminals)
            await trio.sleep(_PAUSE_S)
            with trio.move_on_after(every - _PAUSE_S):
                await happened.wait()
            happened = trio.Event()
