"""The handlers of the user's methods about the HTTP server."""

from acpterm.acp.user_api import NoParams
from acpterm.acp.web_api import WebOpenRequest, WebOpenResponse, WebStatusResponse
from acpterm.host.user.connection import UserConnection
from acpterm.host.web_interface import WebInterface
from acpterm.jsonrpc import INVALID_REQUEST, RpcError


async def open_page(user: UserConnection, params: WebOpenRequest) -> WebOpenResponse:
    """`_acpterm/web/open`: start the HTTP server if it does not run; return a link to the page.

    The link logs one browser in, once, within ten minutes. This method is not available to the page
    itself. Raises `RpcError`: those of `web_of` and `WebInterface.open`.
    """
    with user.cancel_on_close():
        return await web_of(user).open(params.address)


def status(user: UserConnection, params: NoParams) -> WebStatusResponse:
    """`_acpterm/web/status`: return whether and where the HTTP server listens."""
    del params
    return web_of(user).status()


def web_of(user: UserConnection) -> WebInterface:
    """Return the daemon's HTTP server. Raises `RpcError` (-32600) if there is none."""
    web = user.host.daemon_info.web
    if web is None:
        raise RpcError(INVALID_REQUEST, "only a daemon has an HTTP server: run acpterm serve")
    return web
