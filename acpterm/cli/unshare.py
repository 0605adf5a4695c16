"""`acpterm unshare`: end links to terminals."""

import click
from click.shell_completion import CompletionItem

from acpterm.acp.shares import ShareRevokeRequest
from acpterm.cli._daemon import ChosenDaemon, at_daemon, end, failures
from acpterm.cli._params import ask_daemon, untaken
from acpterm.cli.shares import description
from acpterm.commands import completion
from acpterm.jsonrpc import is_utf8_encodable


def _share_id(text: str) -> str:
    if not text or not is_utf8_encodable(text):
        raise click.BadParameter(f"{text!r} is no id: see acpterm shares")
    return text


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    items = [
        CompletionItem(share.share_id, help=description(share))
        for share in ask_daemon(ctx, completion.shares)
        if share.share_id.startswith(incomplete)
    ]
    return untaken(ctx, param, items)


@click.command("unshare")
@click.argument(
    "shares", metavar="ID…", nargs=-1, required=True, type=_share_id, shell_complete=_complete
)
@at_daemon
def command(shares: tuple[str, ...], daemon: ChosenDaemon) -> None:
    """End the links with the given IDs.

    An ID can be shortened to its beginning if only one link's id begins so. Pages that use the
    links are disconnected at once. acpterm shares lists the links.

    Exit status: 0 on success, 1 if a link could not be ended, 2 if the command line is wrong.
    """
    requests = [ShareRevokeRequest(share) for share in dict.fromkeys(shares)]
    end(daemon.call(lambda client: failures(client, "share/revoke", requests)))
