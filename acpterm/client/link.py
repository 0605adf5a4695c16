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

from acpterm.acp import PROTOCOL_VERSION, InitializeMeta
from acpterm.acp.extensions import OWN
from acpterm.client.daemon import DaemonError, connect, socket_path
from acpterm.client.endpoint import Endpoint
from acpterm.config import Settings
from acpterm.host import Asker, open_host
from acpterm.host.asker import to_send
from acpterm.jsonrpc import RpcError
from acpterm.pty.trees import Trees

# Seconds that what is left at the end may take: the host's own end of the connection takes three.
_FAREWELL: Final = 4.0
# Seconds that a host has to answer at the beginning.
_PATIENCE: Final = 10.0


async def reach(settings: Settings, config: str | None) -> Endpoint:
    """Connect to the daemon, which is started if it has to be. Raises `DaemonError`."""
    stream = await connect(settings, config)
    whom = f"the daemon at {socket_path(settings)}"
    return Endpoint(stream, whom, settings.max_message_bytes)


@asynccontextmanager
async def open_link(
    daemon: Endpoint | None, settings: Settings, asker: Asker, trees: Trees
) -> AsyncIterator[Endpoint]:
    """Talk to `daemon`, or to a host in this process if that is None, while the block lasts.

    Raises `DaemonError` if the host does not answer.
    """
    async with AsyncExitStack() as stack:
        if daemon is None:
            host = await stack.enter_async_context(open_host(settings, asker, trees))
            ours, theirs = trio.socket.socketpair()
            link = Endpoint(trio.SocketStream(ours), "the host", settings.max_message_bytes)
        else:
            host, theirs, link = None, None, daemon
        nursery = await stack.enter_async_context(trio.open_nursery())
        if host is not None and theirs is not None:
            nursery.start_soon(host.serve, trio.SocketStream(theirs), asker)
        running = trio.CancelScope()
        nursery.start_soon(_run, link, running)
        wish = InitializeMeta(asker=to_send(asker))
        params = {"protocolVersion": PROTOCOL_VERSION, "_meta": {OWN: wish}}
        try:
            await _introduce(link, params)
            yield link
        finally:
            running.cancel()
            nursery.cancel_scope.deadline = trio.current_time() + _FAREWELL


async def _run(link: Endpoint, scope: trio.CancelScope) -> None:
    with scope:
        await link.run()


async def _introduce(link: Endpoint, params: object) -> None:
    why = f"it does not answer within {_PATIENCE:g} s"
    with trio.move_on_after(_PATIENCE):
        try:
            await link.request("initialize", params)
        except RpcError as error:
            why = error.message
        else:
            return
    raise DaemonError(f"{link.whom} cannot be used: {why}; end it, or use --embedded")
