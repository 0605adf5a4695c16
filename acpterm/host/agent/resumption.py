"""Agents' connections over their transports: one that was lost is resumed by another.

A connection (`Caller`) is known by the secret that its `initialize` was answered with. States:
*present*, with a transport; *absent*, when it was restored by a successor of the worker that served
it: until a new connection presents its secret (`resume`), or it is given up (`expire`). A present
one may be resumed as well: its client has noticed before us that the transport is lost.
A transport that ends while it has a connection ends that connection; one whose connection was
resumed by another has none.
"""

import hmac
from typing import Final, Protocol

from acpterm.host.agent.connection import AgentConnection
from acpterm.host.events import Event, EventBus
from acpterm.jsonrpc import INVALID_REQUEST, RpcError


class Transport(Protocol):
    """The end of a stream that serves a connection. See `connection.Connection`."""

    received: int
    """Bytes that came from the peer."""

    def serve_as(self, served: AgentConnection, name: str) -> None:
        """Serve another connection from now on; the one before is not left."""

    def abandon(self) -> None:
        """Close without leaving the connection that it serves."""


class Resumption:
    """The agents' connections of a host, and their transports."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._transports: Final[dict[AgentConnection, Transport | None]] = {}

    @property
    def callers(self) -> list[AgentConnection]:
        """The connections, present and absent."""
        return list(self._transports)

    @property
    def absent(self) -> list[AgentConnection]:
        """The connections that nobody has resumed yet."""
        return [
            connection for connection, transport in self._transports.items() if transport is None
        ]

    def holders(self) -> set[tuple[int, float]]:
        """Return the processes at the other end of the connections: pid and start time.

        One that has sent nothing yet is no agent: the user's commands connect so to have the
        service manager start the daemon.
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
        """Add a connection of the worker before."""
        self._transports[connection] = None

    def disconnected(self, transport: Transport) -> None:
        """Remove the connection of a transport that has ended, if it has one still."""
        for connection, other in self._transports.items():
            if other is transport:
                self._remove(connection)
                return

    def resume(self, fresh: AgentConnection, secret: str) -> AgentConnection | None:
        """Have the transport of `fresh` serve the connection of that secret, which is returned.

        None if there is none. Raises `RpcError` (-32600) when `fresh` has sessions of its own.
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
        """End the connections that nobody has resumed."""
        for connection in self.absent:
            self._remove(connection)

    def _find(self, secret: str) -> AgentConnection | None:
        presented = secret.encode(errors="replace")
        found = None
        # All of them, so that the time says nothing.
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
