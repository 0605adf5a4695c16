"""The user's requests about the HTTP server, ``_acpterm/web/…``, and their responses."""

from typing import Annotated

from msgspec import Meta

from acpterm.acp.base import Wire


class WebOpenRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/web/open``.

    `address` is used if the server does not listen yet. Without it, the server listens on the
    address of the setting ``http``, else on the address used last, else on a free port of
    127.0.0.1.
    """

    address: Annotated[str, Meta(description="ADDRESS:PORT")] | None = None


class WebOpenResponse(Wire):
    """The response to ``_acpterm/web/open``.

    `url` is a link that logs one browser in, once, within ten minutes. `address` is the address
    that the server listens on.
    """

    url: str
    address: str


class WebStatusResponse(Wire):
    """The response to ``_acpterm/web/status``.

    `address` is the address that the server listens on; null if it does not. `origin` is what the
    address of the page begins with. `error` says why the server could not listen; null if it did
    not try, or succeeded. `token_file` is the path of the file with the user's bearer token,
    `agent_token_file` of that with the agents'.
    """

    address: str | None
    origin: str | None
    error: str | None
    token_file: str | None
    agent_token_file: str | None = None
