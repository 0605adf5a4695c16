"""The user's requests about the HTTP server, ``_acpterm/web/…`` and ``_acpterm/token/…``."""

from typing import Annotated

from msgspec import Meta

from acpterm.acp.base import Wire


class WebOpenRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/web/open``: start the HTTP server if necessary; return a login link.

    `address` is used if the server does not listen yet; the request is an error if the server
    listens on another address already. Without `address`, the server listens on the address of the
    setting ``http``, else on the address used last, else on a free port of 127.0.0.1.
    """

    address: Annotated[str, Meta(description="ADDRESS:PORT")] | None = None


class WebOpenResponse(Wire):
    """The response to ``_acpterm/web/open``.

    `url` is a link that logs in one browser, and is valid once, for ten minutes. `address` is the
    address that the server listens on.
    """

    url: str
    address: str


class WebStatusResponse(Wire):
    """The response to ``_acpterm/web/status``.

    `address` is the address that the server listens on, and `origin` the scheme, host and port of
    the page's URL; both are null if the server does not listen. `error` says why the server could
    not listen; null if it did not try, or succeeded. `token_file` is the path of the file with the
    user's bearer token; null until the daemon has used it.
    """

    address: str | None
    origin: str | None
    error: str | None
    token_file: str | None


AgentName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._@-]{1,64}$")]


class TokenCreateRequest(Wire):
    """The params of ``_acpterm/token/create``: make a bearer token for the agent `name`.

    The name has letters, digits and ``._@-``, at most 64.
    """

    name: AgentName


class TokenInfo(Wire):
    """A bearer token of an agent, without the token itself."""

    name: str
    created_at: int


class TokenCreateResponse(TokenInfo):
    """The response to ``_acpterm/token/create``. The token is not returned again."""

    token: str


class TokensResponse(Wire):
    """The response to ``_acpterm/token/list``: the tokens, oldest first."""

    tokens: list[TokenInfo]


class TokenRemoveRequest(Wire):
    """The params of ``_acpterm/token/remove``: remove a token, and end what uses it."""

    name: str
