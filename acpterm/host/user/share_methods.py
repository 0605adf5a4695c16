"""The handlers of the user's methods about shares, `_acpterm/share/*`.

The HTTP server (`host.web_interface`) stores the shares. It ends the shares of a terminal that is
removed. The handlers raise `RpcError`: -32600 if there is no HTTP server (`web_of`), -32603 if its
files cannot be used.
"""

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
from acpterm.host.access import Need
from acpterm.host.host_state import HostState
from acpterm.host.user.connection import UserConnection
from acpterm.host.user.web_methods import web_of
from acpterm.host.web_interface import Share
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, quote


async def create(user: UserConnection, params: ShareCreateRequest) -> ShareCreateResponse:
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
    user.host.trail.record(
        "share",
        entry,
        share=share.id,
        by="user",
        reason="visitors can type" if share.write else "visitors can watch",
    )
    return ShareCreateResponse(**msgspec.structs.asdict(_info(user.host, share)), url=url)


def list_all(user: UserConnection, params: NoParams) -> SharesResponse:
    """`_acpterm/share/list`: return the shares that are valid."""
    del params
    web = web_of(user)
    return SharesResponse([_info(user.host, share) for share in web.shares()])


def revoke(user: UserConnection, params: ShareRevokeRequest) -> Empty:
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
    user.host.trail.record("unshare", share=found[0], by="user")
    web.revoke_share(found[0])
    return Empty()


def _info(host: HostState, share: Share) -> ShareInfo:
    entry = host.registry.get(share.terminal_id)
    return ShareInfo(
        share_id=share.id,
        terminal_id=share.terminal_id,
        name=None if entry is None else entry.name,
        write=share.write,
        created_at=round(1000 * share.created_at),
        ends_at=round(1000 * share.ends_at),
        connections=share.connections,
    )
