"""Resumption: a client that lost its transport connects again and continues its connection.

Normally the end of a transport ends the agent's connection, which releases its terminals. There are
two cases in which a client can connect again and continue its connection, with its terminals:

- The worker was replaced. The new worker restores each connection, without a transport.
- The client notices the loss of the transport before the host does.

The client is the process at the other end of a transport: the agent, or a relay such as `acpterm
stdio`. It identifies the connection by its secret: it has received the secret in the response to
`initialize`, and sends it in the `initialize` of the new transport (`resume`).

States of a connection (`AgentConnection`):

- *served*: it has a transport.
- *unresumed*: the new worker has restored it, and its client has not connected again yet. The state
  ends with `resume`, or with `expire`, which closes the connection.
"""

import hmac
from collections.abc import Iterable, Iterator
from typing import Final

from acpterm.host.agent.connection import AgentConnection
from acpterm.host.events import new_event
from acpterm.host.guard import Guard
from acpterm.host.memory import SessionMemory
from acpterm.host.server.connection import Connection
from acpterm.host.sessions.session import Session
from acpterm.host.state.records import HostRecord
from acpterm.host.state.store import HOST_KEY
from acpterm.host.terminals import Terminals
from acpterm.jsonrpc import INVALID_REQUEST, RpcError
from acpterm.runtime.exec_context import ExecContext


class Resumption:
    """All agents' connections of a host, each with its transport, or None until it is resumed."""

    def __init__(self, record: HostRecord, terminals: Terminals, guard: Guard) -> None:
        self._record: Final = record
        self._terminals: Final = terminals
        self._guard: Final = guard
        self.session_memory: Final = SessionMemory()
        self._transports: Final[dict[AgentConnection, Connection | None]] = {}

    def new_name(self) -> str:
        """Return the id of an agent's new connection; no id is ever used twice."""
        self._record.connections += 1
        self._terminals.writer.changed(HOST_KEY, self._record.encode)
        return f"c{self._record.connections}"

    def reserve_name(self, name: str) -> None:
        number = name.removeprefix("c")
        if number.isdigit():
            self._record.connections = max(self._record.connections, int(number))

    def new_connection(
        self,
        context: ExecContext,
        name: str,
        secret: str | None = None,
        holders: Iterable[tuple[int, float]] = (),
    ) -> AgentConnection:
        return AgentConnection(
            context,
            self._terminals,
            self._guard,
            name,
            resumption=self,
            secret=secret,
            holders=holders,
        )

    @property
    def connections(self) -> list[AgentConnection]:
        return list(self._transports)

    def sessions(self) -> Iterator[Session]:
        for agent in self.connections:
            yield from list(agent.sessions.values())

    @property
    def unresumed(self) -> list[AgentConnection]:
        return [
            connection for connection, transport in self._transports.items() if transport is None
        ]

    def holders(self) -> set[tuple[int, float]]:
        # Not of a connection on which nothing was received: the user's commands connect to the
        # agents' socket to make the service manager start the daemon.
        return {
            holder
            for connection, transport in self._transports.items()
            if transport is None or transport.received
            for holder in connection.holders
        }

    def approvers(self) -> set[tuple[int, float]]:
        """Return the processes that opened approvers' connections, not the agents behind."""
        return {
            connection.holders[0]
            for connection in self._transports
            if connection.approver is not None and connection.holders
        }

    def connected(self, connection: AgentConnection, transport: Connection) -> None:
        self._transports[connection] = transport
        self._publish("connected", connection)

    def restored(self, connection: AgentConnection) -> None:
        self._transports[connection] = None

    def disconnected(self, transport: Connection) -> None:
        """Close the connection of a transport that ended, unless another resumed it."""
        for connection, other in self._transports.items():
            if other is transport:
                self._remove(connection)
                return

    def resume(self, fresh: AgentConnection, secret: str) -> AgentConnection | None:
        """Move the transport of `fresh` to the connection that has `secret`; return it."""
        found = self._find(secret)
        if found is None or found is fresh:
            return found
        if fresh.sessions:
            raise RpcError(
                INVALID_REQUEST,
                "initialize with _meta.acpterm.resume comes before every other request of a "
                "connection",
            )
        transport = self._transports[fresh]
        if transport is None:
            return None
        is_other = bool(found.holders) and fresh.holders[:1] != found.holders[:1]
        if found.approver is not None and is_other:
            return None
        if before := self._transports[found]:
            before.abandon()
            self._publish("disconnected", found)
        self._remove(fresh)
        found.holders = fresh.holders
        found.mark_changed()
        transport.serve_as(found, found.agent.connection_id)
        self._transports[found] = transport
        found.creates.resumed()
        self._publish("connected", found)
        return found

    def expire(self) -> None:
        for connection in self.unresumed:
            self._remove(connection)

    def _find(self, secret: str) -> AgentConnection | None:
        presented = secret.encode(errors="replace")
        found = None
        # Compare with the secrets of all connections, so that the duration reveals nothing.
        for connection in self._transports:
            if hmac.compare_digest(connection.secret.encode(), presented):
                found = connection
        return found

    def _remove(self, connection: AgentConnection) -> None:
        del self._transports[connection]
        connection.close()
        self._publish("disconnected", connection)

    def _publish(self, event: str, connection: AgentConnection) -> None:
        agent = connection.agent.name
        self._terminals.events.publish(new_event(event, connection=connection.id, agent=agent))
