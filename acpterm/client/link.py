"""The way to the host that has the terminals: the daemon, or one in this process.

Both are spoken to in the same way, over a socket, so that nothing else here knows which it is. The
host is told whose environment, folder, umask and limits its terminals get: those of this process.

When the daemon ends, whoever waits for an answer of its, then or later, is told so. It is not
started again: the terminals that the agent knows are gone with it.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import trio

from acpterm.client.daemon import connect
from acpterm.client.endpoint import Endpoint
from acpterm.client.introduction import introduce
from acpterm.config import Settings, agent_socket
from acpterm.host.asker import Asker
from acpterm.host.host import open_host

# Seconds that what is left at the end may take: the host's own end of the connection takes three.
_FAREWELL: Final = 4.0


async def reach(settings: Settings, config: str | None) -> Endpoint:
    """Connect to the daemon, which is started if it has to be. Raises `DaemonError`."""
    stream = await connect(settings, config)
    whom = f"the daemon at {agent_socket(settings)}"
    return Endpoint(stream, whom)


@asynccontextmanager
async def open_link(
    daemon: Endpoint | None, settings: Settings, asker: Asker, agent: str
) -> AsyncIterator[Endpoint]:
    """Talk to `daemon`, or to a host in this process if that is None, while the block lasts.

    `agent` is what the person is told of whose terminals they are. Raises `DaemonError` if the host
    does not answer.
    """
    async with AsyncExitStack() as stack:
        if daemon is None:
            host = await stack.enter_async_context(open_host(settings, asker))
            ours, theirs = trio.socket.socketpair()
            link = Endpoint(trio.SocketStream(ours), "the host")
        else:
            host, theirs, link = None, None, daemon
        nursery = await stack.enter_async_context(trio.open_nursery())
        if host is not None and theirs is not None:
            nursery.start_soon(host.serve, trio.SocketStream(theirs), asker)
        running = trio.CancelScope()
        nursery.start_soon(_run, link, running)
        try:
            await introduce(link, agent, asker)
            yield link
        finally:
            running.cancel()
            nursery.cancel_scope.deadline = trio.current_time() + _FAREWELL


async def _run(link: Endpoint, scope: trio.CancelScope) -> None:
    with scope:
        await link.run()
