"""Resumption of agents' connections: a connection whose transport was lost gets another one.

A connection (`AgentConnection`) is identified by the secret in the response to its `initialize`.
States:

- *present*: it has a transport.
- *absent*: the successor of its worker has restored it, until a new connection presents its secret
  (`resume`), or it is given up (`expire`).

A present connection may be resumed as well, if its client notices the loss of the transport before
the host does. The end of a transport ends its connection, unless another transport has resumed it.
"""

import hmac
from typing import Final, Protocol

from acpterm.host.agent.connection import AgentConnection
from acpterm.host.events import Event, EventBus
from acpterm.jsonrpc import INVALID_REQUEST, RpcError


class Transport(Protocol):
    """Serves a connection over a stream. See `server.connection.Connection`."""

    received: int
    """Number of bytes received from the peer."""

    def serve_as(self, served: AgentConnection, name: str) -> None:
        """Serve another connection from now on, without closing the previous one."""

    def abandon(self) -> None:
        """Close the stream without closing the connection."""


class Resumption:
    """The agents' connections of a host, and their transports."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._transports: Final[dict[AgentConnection, Transport | None]] = {}

    @property
    def connections(self) -> list[AgentConnection]:
        """All connections, present and absent."""
        return list(self._transports)

    @property
    def absent(self) -> list[AgentConnection]:
        """The connections that no client has resumed yet."""
        return [
            connection for connection, transport in self._transports.items() if transport is None
        ]

    def holders(self) -> set[tuple[int, float]]:
        """Return the processes at the other end of the connections: pid and start time.

        A connection that has not sent anything is left out: the user's commands connect to have
        the service manager start the daemon.
        """
        return {
            holder
            for connection, transport in self._transports.items()
            if transport is None or transport.received
            for holder in connection.holders
        }

    def connected(self, connection: AgentConnection, transport: Transport) -> None:
        """Add a new connection."""
        self._transports[connection] = transport
        self._publish("connected", connection)

    def restored(self, connection: AgentConnection) -> None:
        """Add a connection of the previous worker."""
        self._transports[connection] = None

    def disconnected(self, transport: Transport) -> None:
        """Remove the connection of a transport that has ended, if it still has one."""
        for connection, other in self._transports.items():
            if other is transport:
                self._remove(connection)
                return

    def resume(self, fresh: AgentConnection, secret: str) -> AgentConnection | None:
        """Move the transport of `fresh` to the connection with this secret, and return that.

        Return None if there is none. Raises `RpcError` (-32600) if `fresh` already has sessions.
        """
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
        """End the connections that no client has resumed."""
        for connection in self.absent:
            self._remove(connection)

    def _find(self, secret: str) -> AgentConnection | None:
        presented = secret.encode(errors="replace")
        found = None
        # Compare with all of them, so that the time reveals nothing.
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
        self._bus.publish(Event(event, connection=connection.agent.connection_id, agent=agent))
