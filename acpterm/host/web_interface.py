"""The HTTP server as the host uses it: an interface, since the host must not import `acpterm.web`.

`acpterm.web.service.WebService` implements it; `cli.serve` passes it to `daemon.serve`.
"""

from typing import NamedTuple, Protocol

from acpterm.acp.web_api import WebOpenResponse, WebStatusResponse


class Share(NamedTuple):
    """A link to one terminal; `write` says whether visitors may type.

    A time `…_at` is in seconds since 1970.
    """

    id: str
    terminal_id: str
    write: bool
    created_at: float
    ends_at: float
    connections: int
    """How many WebSockets use the share now."""


class WebInterface(Protocol):
    """The HTTP server of a daemon, whether it listens or not."""

    @property
    def private_paths(self) -> list[str]:
        """The paths of the server's files, which programs in a sandbox must not reach."""

    async def open(self, address: str | None) -> WebOpenResponse:
        """Start to listen if the server does not listen yet; return a new link.

        Raises `RpcError` if `address` is not valid, if the server cannot listen, if it listens on
        an address other than `address`, or if the link cannot be stored.
        """

    def status(self) -> WebStatusResponse:
        """Return whether and where the server listens."""

    async def new_share(
        self, terminal_id: str, *, write: bool, lifetime_s: float
    ) -> tuple[Share, str]:
        """Start to listen if the server does not listen yet; return a new share and its link.

        Raises `RpcError` if the server cannot listen, if there are too many shares, or if the share
        cannot be stored.
        """

    def shares(self) -> list[Share]:
        """Return the shares that are valid, oldest first.

        Raises `RpcError` if a file of the server cannot be read.
        """

    def revoke_share(self, identifier: str) -> None:
        """End a share, and close the connections that use it. Idempotent.

        Raises `RpcError` if the end cannot be stored; the share has ended all the same.
        """

    def end_shares_of(self, terminal_id: str) -> None:
        """End the shares of a terminal that was removed. Raises no error."""

    def revoked_shares(self) -> set[str]:
        """Return the ids of shares that have ended, but whose end could not be stored yet.

        Raises `RpcError` if a file of the server cannot be read.
        """
