"""The interface by which the host uses the HTTP server, which it does not import.

`acpterm.web.service.WebService` implements it; `cli.serve` passes it to `daemon.serve`.
"""

from typing import Protocol

from acpterm.acp.web_api import WebOpenResponse, WebStatusResponse


class WebDoor(Protocol):
    """The HTTP server of a daemon, whether it listens or not."""

    @property
    def private_paths(self) -> list[str]:
        """The paths of its files, which programs in a sandbox must not reach."""

    async def open(self, address: str | None) -> WebOpenResponse:
        """Listen, if the server does not; return a new link. Raises `RpcError`."""

    def status(self) -> WebStatusResponse:
        """Return whether and where the server listens."""
