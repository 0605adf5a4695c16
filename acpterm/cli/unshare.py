"""`acpterm unshare`: end links to terminals."""

from typing import Any

import click
from click.shell_completion import CompletionItem

from acpterm.acp.shares import ShareRevokeRequest
from acpterm.acp.terminal import Empty
from acpterm.cli._daemon import call, end
from acpterm.cli._options import at_daemon
from acpterm.client.user.blocking_client import BlockingClient
from acpterm.config import ConfigError, load
from acpterm.jsonrpc import RpcError, is_utf8_encodable


class _ShareId(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """The id of a share, or the beginning of it."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the id; fail if it is empty, or is not UTF-8 and so cannot be sent."""
        if not value or not is_utf8_encodable(value):
            self.fail(f"{value!r} is no id: see acpterm shares", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the ids of the daemon's shares that begin with `incomplete`.

        Shares that the command line already contains are left out.
        """
        from acpterm.cli.shares import description  # noqa: PLC0415
        from acpterm.client.user.completion import shares  # noqa: PLC0415  only for completion

        try:
            loaded = load(ctx.params.get("config"), flags={"socket": ctx.params.get("socket")})
            found = shares(loaded)
        except (ConfigError, OSError):
            return []
        taken = ctx.params.get(param.name or "") or ()
        return [
            CompletionItem(share.share_id, help=description(share))
            for share in found
            if share.share_id.startswith(incomplete) and share.share_id not in taken
        ]


@click.command("unshare")
@click.argument("shares", metavar="ID…", nargs=-1, required=True, type=_ShareId())
@at_daemon
def command(shares: tuple[str, ...], config: str | None, socket: str | None) -> None:
    """End the links with the given IDs.

    An ID can be shortened to its beginning if only one link's id begins so. Pages that use the
    links are disconnected at once. acpterm shares lists the links.

    Exit status: 0 on success, 1 if a link could not be ended, 2 if the command line is wrong.
    """

    def revoke(client: BlockingClient) -> list[str]:
        requests = [ShareRevokeRequest(share) for share in dict.fromkeys(shares)]
        errors = {
            index: response.message
            for index, response in client.call_each("share/revoke", requests, Empty)
            if isinstance(response, RpcError)
        }
        return [errors[index] for index in sorted(errors)]

    end(call(config, socket, revoke))
