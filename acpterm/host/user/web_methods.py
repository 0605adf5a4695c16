"""The handlers of the user's methods about the HTTP server, its tokens and shares.

A share ends when its terminal is removed.
"""

import time

import msgspec

from acpterm.acp.shares import (
    ShareCreateRequest,
    ShareCreateResponse,
    ShareInfo,
    ShareRevokeRequest,
    SharesResponse,
)
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
from acpterm.host.access import Need
from acpterm.host.user.connection import UserConnection
from acpterm.host.web_interface import Share, WebInterface
from acpterm.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, RESOURCE_NOT_FOUND, RpcError, quote


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
    user.trail.record("token", agent=params.name, by="user")
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
    user.trail.record("untoken", agent=params.name, by="user")
    return Empty()


def web_of(user: UserConnection) -> WebInterface:
    web = user.daemon.info.web
    if web is None:
        raise RpcError(INVALID_REQUEST, "only a daemon has an HTTP server: run acpterm serve")
    return web


async def share(user: UserConnection, params: ShareCreateRequest) -> ShareCreateResponse:
    """`_acpterm/share/create`: make a link to one terminal; start the HTTP server if needed.

    `@last` means the newest terminal that the user has created or taken over. A name means an
    agent's terminal only if no terminal of the user has the name.
    """
    web = web_of(user)
    entry = user.resolve(params, Need.TYPE)
    if entry.released_at is not None:
        raise RpcError(
            INVALID_PARAMS, f"terminal {entry.id!r} has been released: there is nothing to share"
        )
    if params.write and not entry.is_users:
        raise RpcError(
            INVALID_PARAMS,
            f"terminal {entry.id!r} is an agent's, into which only the agent can type: take it "
            "over first (acpterm promote), or share it without `write`",
        )
    with user.cancel_on_close():
        share, url = await web.new_share(
            entry.id, write=params.write, lifetime_s=params.for_ms / 1000
        )
    user.trail.record(
        "share",
        entry,
        share=share.id,
        by="user",
        reason="visitors can type" if share.write else "visitors can watch",
    )
    return ShareCreateResponse(**msgspec.structs.asdict(_share_info(user, share)), url=url)


def shares(user: UserConnection, params: NoParams) -> SharesResponse:
    """`_acpterm/share/list`: return the shares that are valid."""
    del params
    web = web_of(user)
    return SharesResponse([_share_info(user, share) for share in web.shares()])


def revoke_share(user: UserConnection, params: ShareRevokeRequest) -> Empty:
    """`_acpterm/share/revoke`: end a share, and close the pages that use it."""
    web, wanted = web_of(user), params.share_id
    # A share whose end could not be stored can be revoked again, to store it.
    ids = [*(share.id for share in web.shares()), *sorted(web.revoked_shares())]
    found = [wanted] if wanted in ids else [one for one in ids if wanted and one.startswith(wanted)]
    if not found:
        raise RpcError(
            RESOURCE_NOT_FOUND,
            f"there is no share {quote(wanted)}: it was revoked or has expired; see acpterm shares",
        )
    if len(found) > 1:
        raise RpcError(INVALID_PARAMS, f"{len(found)} shares begin with {quote(wanted)}")
    user.trail.record("unshare", share=found[0], by="user")
    web.revoke_share(found[0])
    return Empty()


def _share_info(user: UserConnection, share: Share) -> ShareInfo:
    entry = user.registry.get(share.terminal_id)
    return ShareInfo(
        share_id=share.id,
        terminal_id=share.terminal_id,
        name=None if entry is None else entry.name,
        write=share.write,
        created_at=round(1000 * share.created_at),
        ends_at=round(1000 * share.ends_at),
        connections=share.connections,
    )
