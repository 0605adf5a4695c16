"""The HTTP server as the host uses it: an interface, since the host must not import `acpterm.web`.

`acpterm.web.service.WebService` implements it; `cli.serve` passes it to `daemon.serve`.
"""

from typing import NamedTuple, Protocol

from acpterm.acp.web_api import WebOpenResponse, WebStatusResponse


class Share(NamedTuple):
    """A link to one terminal, with which visitors can watch it, and type if `write` is set."""

    id: str
    terminal_id: str
    write: bool
    created_at: float
    ends_at: float
    connections: int


class Token(NamedTuple):
    """The bearer token of an agent. `created_at` is in seconds since 1970."""

    name: str
    created_at: float


class WebInterface(Protocol):
    """The HTTP server of a daemon, whether it listens or not."""

    @property
    def private_paths(self) -> list[str]: ...

    async def open(self, address: str | None) -> WebOpenResponse:
        """Start to listen if the server does not listen yet; return a new link to the page."""

    def status(self) -> WebStatusResponse: ...

    async def new_share(
        self, terminal_id: str, *, write: bool, lifetime_s: float
    ) -> tuple[Share, str]:
        """Start to listen if the server does not listen yet; return a new share and its link."""

    def shares(self) -> list[Share]: ...

    def revoke_share(self, identifier: str) -> None: ...

    def end_shares_of(self, terminal_id: str) -> None:
        """End the shares of a terminal that was removed. Raises no error."""

    def revoked_shares(self) -> set[str]:
        """Return the ids of shares that have ended, but whose end could not be stored yet."""

    def new_token(self, name: str) -> str: ...

    def tokens(self) -> list[Token]: ...

    def remove_token(self, name: str) -> bool: ...
