"""`acpterm deny`: answer questions about agents' commands by refusing the commands."""

import click

from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli.approve import answer_each


@click.command("deny")
@click.argument("ids", metavar="[ID…]", nargs=-1)
@click.option("--always", is_flag=True, help="Refuse such commands in the rest of the session.")
@click.option("--reason", metavar="TEXT", help="Tell the agent why.")
@at_daemon
def command(ids: tuple[str, ...], always: bool, reason: str | None, daemon: ChosenDaemon) -> None:
    """Refuse the commands that the questions ID ask about. The first answer to a question counts.

    ID is a question's id or the beginning of it, as acpterm approvals shows it; @last is the newest
    question. Without ID, the only question that waits is answered. The agent gets an
    error with the reason.

    With --always, later commands of the agent's session that have the same prefix are refused
    without a question. The prefix is the first words of the command, which acpterm approvals
    --follow shows. If it shows no prefix, only the same command is refused.

    Exit status: 0 on success, 1 if a question could not be answered, 2 if the command line is
    wrong.
    """
    answer_each(daemon, ids, "deny", always=always, reason=reason)
