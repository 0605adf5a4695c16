"""The interface by which the host uses the HTTP server, which it does not import.

`acpterm.web.service.WebService` implements it; `cli.serve` passes it to `daemon.serve`.
"""

from typing import NamedTuple, Protocol

from acpterm.acp.web_api import WebOpenResponse, WebStatusResponse


class Share(NamedTuple):
    """A link to one terminal. A time `…_at` is in seconds since 1970."""

    id: str
    terminal_id: str
    write: bool
    created_at: float
    ends_at: float
    connections: int
    """How many WebSockets use it now."""


class WebInterface(Protocol):
    """The HTTP server of a daemon, whether it listens or not."""

    @property
    def private_paths(self) -> list[str]:
        """The paths of its files, which programs in a sandbox must not reach."""

    async def open(self, address: str | None) -> WebOpenResponse:
        """Listen, if the server does not; return a new link. Raises `RpcError`."""

    def status(self) -> WebStatusResponse:
        """Return whether and where the server listens."""

    async def new_share(
        self, terminal_id: str, *, write: bool, lifetime_s: float
    ) -> tuple[Share, str]:
        """Listen, if the server does not; return a new share and its link. Raises `RpcError`."""

    def shares(self) -> list[Share]:
        """Return the shares that are valid, oldest first. Raises `RpcError`."""

    def revoke_share(self, identifier: str) -> None:
        """End a share, and close the connections that use it. Idempotent.

        Raises `RpcError` if that cannot be stored; the share has ended all the same.
        """

    def end_shares_of(self, terminal_id: str) -> None:
        """End the shares of a terminal that was removed. Raises no error."""

    def revoked_shares(self) -> set[str]:
        """Return the ids of shares that have ended, which could not be stored yet."""
