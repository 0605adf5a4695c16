"""`acpterm approve`: let commands of agents run."""

import click

from acpterm.cli._answering import answer_each
from acpterm.cli._options import at_daemon


@click.command("approve")
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
@click.option("--always", is_flag=True, help="Allow such commands in the rest of the session.")
@at_daemon
def command(ids: tuple[str, ...], always: bool, config: str | None, socket: str | None) -> None:
    """Let the commands run that the questions ID ask about. The first answer to a question counts.

    ID is a question's id or the beginning of it, as acpterm approvals shows it.

    With --always, all later commands of the agent's session that begin with the same words are
    allowed without a question; acpterm approvals --follow shows these words. For a command without
    such words, --always is an error.

    Exit status: 0 on success, 1 if a question could not be answered, 2 if the command line is
    wrong.
    """
    answer_each(config, socket, ids, "allow", always=always)
