"""The HTTP server as the host uses it: an interface, since the host must not import `acpterm.web`.

`acpterm.web.service.WebService` implements it; `cli.serve` passes it to `daemon.serve`.
"""

from typing import NamedTuple, Protocol

from acpterm.acp.web_api import WebOpenResponse, WebStatusResponse


class Share(NamedTuple):
    """A link to one terminal, with which visitors can watch it, and type if `write` is set.

    A time `…_at` is in seconds since 1970.
    """

    id: str
    terminal_id: str
    write: bool
    created_at: float
    ends_at: float
    connections: int
    """How many WebSockets use the share now."""


class Token(NamedTuple):
    """The bearer token of an agent. `created_at` is in seconds since 1970."""

    name: str
    created_at: float


class WebInterface(Protocol):
    """The HTTP server of a daemon, whether it listens or not."""

    @property
    def private_paths(self) -> list[str]:
        """The paths of the server's files, which programs in a sandbox must not reach."""

    async def open(self, address: str | None) -> WebOpenResponse:
        """Start to listen if the server does not listen yet; return a new link to the page.

        `address` is where to listen. None means the address of the setting `http`, or else the
        address used last, or else a free port of 127.0.0.1. Raises `RpcError`: -32602 if
        `address` is invalid, or if the server listens at another address already; -32603 if the
        server cannot listen, or if the link cannot be stored.
        """

    def status(self) -> WebStatusResponse:
        """Return whether and where the server listens."""

    async def new_share(
        self, terminal_id: str, *, write: bool, lifetime_s: float
    ) -> tuple[Share, str]:
        """Start to listen if the server does not listen yet; return a new share and its link.

        The share ends after `lifetime_s` seconds. With `write`, visitors can type. Raises
        `RpcError`: -32602 if there are too many shares; -32603 if the server cannot listen or the
        share cannot be stored.
        """

    def shares(self) -> list[Share]:
        """Return the shares that are valid, oldest first.

        Raises `RpcError` (-32603) if the server's files cannot be used.
        """

    def revoke_share(self, identifier: str) -> None:
        """End a share, and close the connections that use it. Idempotent.

        Raises `RpcError` (-32603) if the change cannot be stored. Even then, the share has ended.
        """

    def end_shares_of(self, terminal_id: str) -> None:
        """End the shares of a terminal that was removed. Raises no error."""

    def revoked_shares(self) -> set[str]:
        """Return the ids of shares that have ended, but whose end could not be stored yet.

        Raises `RpcError` (-32603) if the server's files cannot be used.
        """

    def new_token(self, name: str) -> str:
        """Return a new bearer token for the agent `name`.

        Raises `RpcError`: -32602 if the agent has one, or if there are too many; -32603 if the
        token cannot be stored.
        """

    def tokens(self) -> list[Token]:
        """Return the agents' bearer tokens, oldest first.

        Raises `RpcError` (-32603) if the server's files cannot be used.
        """

    def remove_token(self, name: str) -> bool:
        """Remove a token, and close the connections that use it. Return False if there is none.

        Raises `RpcError` (-32603) if the change cannot be stored.
        """
