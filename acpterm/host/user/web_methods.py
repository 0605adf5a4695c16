"""The handlers of the user's methods about the HTTP server."""

import time

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import NoParams
from acpterm.acp.web_api import (
    TokenCreateRequest,
    TokenCreateResponse,
    TokenInfo,
    TokenRemoveRequest,
    TokensResponse,
    WebOpenRequest,
    WebOpenResponse,
    WebStatusResponse,
)
from acpterm.host.user.connection import UserConnection
from acpterm.host.web_interface import WebInterface
from acpterm.jsonrpc import INVALID_REQUEST, RESOURCE_NOT_FOUND, RpcError, quote


async def open_page(user: UserConnection, params: WebOpenRequest) -> WebOpenResponse:
    """`_acpterm/web/open`: start the HTTP server if it does not run; return a link to the page.

    The link logs one browser in, once, within ten minutes. This method is not available to the page
    itself.
    """
    with user.cancel_on_close():
        return await web_of(user).open(params.address)


def status(user: UserConnection, params: NoParams) -> WebStatusResponse:
    """`_acpterm/web/status`: return whether and where the HTTP server listens."""
    del params
    return web_of(user).status()


def create_token(user: UserConnection, params: TokenCreateRequest) -> TokenCreateResponse:
    """`_acpterm/token/create`: make a bearer token for an agent."""
    token = web_of(user).new_token(params.name)
    user.host.trail.record("token", agent=params.name, by="user")
    return TokenCreateResponse(params.name, round(1000 * time.time()), token)


def tokens(user: UserConnection, params: NoParams) -> TokensResponse:
    """`_acpterm/token/list`: return the agents' tokens."""
    del params
    found = web_of(user).tokens()
    return TokensResponse([TokenInfo(one.name, round(1000 * one.created_at)) for one in found])


def remove_token(user: UserConnection, params: TokenRemoveRequest) -> Empty:
    """`_acpterm/token/remove`: remove a token."""
    if not web_of(user).remove_token(params.name):
        why = f"the agent {quote(params.name)} has no token: see acpterm token list"
        raise RpcError(RESOURCE_NOT_FOUND, why)
    user.host.trail.record("untoken", agent=params.name, by="user")
    return Empty()


def web_of(user: UserConnection) -> WebInterface:
    """Return the daemon's HTTP server. Raises `RpcError` (-32600) if there is none."""
    web = user.host.daemon_info.web
    if web is None:
        raise RpcError(INVALID_REQUEST, "only a daemon has an HTTP server: run acpterm serve")
    return web
