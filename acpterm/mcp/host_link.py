"""The connection to the host, on which the MCP client is an agent.

States: *closed* → *open* → *closed*. The first call of `HostLink.client` opens the connection. If
the connection has been lost, the next call opens another one; the terminals of the earlier
connection have ended by then. One task holds the connection, because a connection must be closed in
the task that has opened it.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus

from acpterm.api.client import Client
from acpterm.api.questions import Asks

Connect: TypeAlias = Callable[[str, Asks | None], AbstractAsyncContextManager[Client]]
"""Opens a connection for the agent with the given name.

The second argument asks the agent's user; None if the agent cannot.
"""


class HostLink:
    """Opens the connection to the host by `connect` when needed; holds it in a task of `group`."""

    def __init__(self, connect: Connect, group: TaskGroup) -> None:
        self._connect: Final = connect
        self._group: Final = group
        self._lock: Final = anyio.Lock()
        self._client: Client | None = None
        self._closing = anyio.Event()

    async def client(self, agent: str, asks: Asks | None) -> Client:
        """Return the open connection; open it first. Raises `AcptermError` if that fails."""
        async with self._lock:
            if self._client is None:
                self._client = await self._group.start(self._keep_open, agent, asks)
            return self._client

    def close(self, client: Client) -> None:
        """Close the lost connection `client`; do nothing if it is closed or replaced already."""
        if self._client is client:
            self._client = None
            self._closing.set()

    async def _keep_open(
        self,
        agent: str,
        asks: Asks | None,
        *,
        task_status: TaskStatus[Client] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        closing = self._closing = anyio.Event()
        started = False
        try:
            async with self._connect(agent, asks) as client:
                started = True
                task_status.started(client)
                await closing.wait()
        except Exception:
            # The next call that uses this connection fails with the reason, and calls `close`.
            if not started:
                raise
