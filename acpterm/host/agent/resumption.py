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

from acpterm.host.agent.connection import Caller
from acpterm.host.events import Bus, Happening
from acpterm.jsonrpc import INVALID_REQUEST, RpcError


class Transport(Protocol):
    """The end of a stream that serves a connection. See `connection.Connection`."""

    received: int
    """Bytes that came from the peer."""

    def serve_as(self, served: Caller, name: str) -> None:
        """Serve another connection from now on; the one before is not left."""

    def abandon(self) -> None:
        """Close without leaving the connection that it serves."""


class Resumption:
    """The agents' connections of a host, and their transports."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._transports: Final[dict[Caller, Transport | None]] = {}

    @property
    def callers(self) -> list[Caller]:
        """The connections, present and absent."""
        return list(self._transports)

    @property
    def absent(self) -> list[Caller]:
        """The connections that nobody has resumed yet."""
        return [caller for caller, transport in self._transports.items() if transport is None]

    def holders(self) -> set[tuple[int, float]]:
        """Return the processes at the other end of the connections: pid and start time.

        One that has sent nothing yet is no agent: the user's commands connect so to have the
        service manager start the daemon.
        """
        return {
            holder
            for caller, transport in self._transports.items()
            if transport is None or transport.received
            for holder in caller.holders
        }

    def connected(self, caller: Caller, transport: Transport) -> None:
        """Add a new connection."""
        self._transports[caller] = transport
        self._publish("connected", caller)

    def restored(self, caller: Caller) -> None:
        """Add a connection of the worker before."""
        self._transports[caller] = None

    def disconnected(self, transport: Transport) -> None:
        """Remove the connection of a transport that has ended, if it has one still."""
        for caller, other in self._transports.items():
            if other is transport:
                self._remove(caller)
                return

    def resume(self, fresh: Caller, secret: str) -> Caller | None:
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
        found.changed()
        transport.serve_as(found, found.agent.connection)
        self._transports[found] = transport
        found.creates.resumed()
        self._publish("connected", found)
        return found

    def expire(self) -> None:
        """End the connections that nobody has resumed."""
        for caller in self.absent:
            self._remove(caller)

    def _find(self, secret: str) -> Caller | None:
        presented = secret.encode(errors="replace")
        found = None
        # All of them, so that the time says nothing.
        for caller in self._transports:
            if hmac.compare_digest(caller.secret.encode(), presented):
                found = caller
        return found

    def _remove(self, caller: Caller) -> None:
        del self._transports[caller]
        caller.leave()
        self._publish("disconnected", caller)

    def _publish(self, event: str, caller: Caller) -> None:
        agent = caller.agent.name
        self._bus.publish(Happening(event, connection=caller.agent.connection, agent=agent))
