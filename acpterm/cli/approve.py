"""`acpterm approve`: let commands of agents run."""

import click

from acpterm.cli._answering import answer_each
from acpterm.cli._options import at_daemon


@click.command("approve")
@click.argument("ids", metavar="[ID…]", nargs=-1)
@click.option("--always", is_flag=True, help="Allow such commands in the rest of the session.")
@at_daemon
def command(ids: tuple[str, ...], always: bool, config: str | None, socket: str | None) -> None:
    """Allow the commands that the questions ID ask about. The first answer to a question counts.

    ID is a question's id or the beginning of it, as acpterm approvals shows it; @last is the newest
    question. Without ID, the only question that waits is answered.

    With --always, later commands of the agent's session in the same directory that have the same
    prefix are allowed without a question. The prefix is the first words of the command, which
    acpterm approvals --follow shows. If it shows no prefix, --always is an error.

    Exit status: 0 on success, 1 if a question could not be answered, 2 if the command line is
    wrong.
    """
    answer_each(config, socket, ids, "allow", always=always)
