"""`acpterm approve`: let commands of agents run."""

from collections.abc import Sequence
from typing import NoReturn

import click

from acpterm.acp.approvals import AnswerRequest, ApprovalInfo, Decision
from acpterm.cli._daemon import ChosenDaemon, at_daemon, end
from acpterm.cli._output import echo
from acpterm.commands.approval_format import short_id
from acpterm.commands.blocking_client import BlockingClient
from acpterm.commands.format import summary_line
from acpterm.jsonrpc import RpcError


@click.command("approve")
@click.argument("ids", metavar="[ID…]", nargs=-1)
@click.option("--always", is_flag=True, help="Allow such commands in the rest of the session.")
@at_daemon
def command(ids: tuple[str, ...], always: bool, daemon: ChosenDaemon) -> None:
    """Allow the commands that the questions ID ask about. The first answer to a question counts.

    ID is a question's id or the beginning of it, as acpterm approvals shows it; @last is the newest
    question. Without ID, the only question that waits is answered.

    With --always, later commands of the agent's session in the same directory that have the same
    prefix are allowed without a question. The prefix is the first words of the command, which
    acpterm approvals --follow shows. If it shows no prefix, --always is an error.

    Exit status: 0 on success, 1 if a question could not be answered, 2 if the command line is
    wrong.
    """
    answer_each(daemon, ids, "allow", always=always)


def answer_each(
    daemon: ChosenDaemon,
    ids: Sequence[str],
    decision: Decision,
    *,
    always: bool,
    reason: str | None = None,
) -> NoReturn:
    def work(client: BlockingClient) -> list[str]:
        failures = []
        for identifier in dict.fromkeys(ids or [""]):
            request = AnswerRequest(identifier, decision, "always" if always else "once", reason)
            try:
                info = client.call("approval/answer", request, ApprovalInfo)
            except RpcError as error:
                failures.append(error.message)
            else:
                echo(_line(info, decision, always=always))
        return failures

    end(daemon.call(work))


def _line(info: ApprovalInfo, decision: Decision, *, always: bool) -> str:
    word = "allowed" if decision == "allow" else "refused"
    what = summary_line(info.command)
    if always:
        prefix = what if info.prefix is None else summary_line(" ".join(info.prefix))
        what += f" (and {prefix} in the rest of the session)"
    return f"{short_id(info.approval_id)}  {word}: {what}"
