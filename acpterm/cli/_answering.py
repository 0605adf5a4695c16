"""Answers questions for `acpterm approve` and `acpterm deny`."""

from collections.abc import Sequence
from typing import NoReturn

from acpterm.acp.approvals import AnswerRequest, ApprovalInfo, Decision
from acpterm.cli._daemon import call, end
from acpterm.cli._output import echo
from acpterm.client.user.approval_format import short_id
from acpterm.client.user.blocking_client import BlockingClient
from acpterm.client.user.format import summary_line
from acpterm.jsonrpc import RpcError


def answer_each(
    config: str | None,
    socket: str | None,
    ids: Sequence[str],
    decision: Decision,
    *,
    always: bool,
    reason: str | None = None,
) -> NoReturn:
    """Answer the questions with these ids, print what was allowed or refused, and exit.

    Without ids, answer the only question that waits.
    `reason` is a text for the agent; None if the user gives no reason. `config` and `socket` are
    the values of the options that `at_daemon` adds. The exit status is 1 if a question could not be
    answered, else 0.

    With `always`, each answer also applies to later commands of the same session that begin with
    the question's prefix (the first words of its command). `allow` applies only to commands in the
    same directory. If a question has no prefix, `deny` applies only to exactly the same command,
    and `allow` fails.
    """

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

    end(call(config, socket, work))


def _line(info: ApprovalInfo, decision: Decision, *, always: bool) -> str:
    word = "allowed" if decision == "allow" else "refused"
    what = summary_line(info.command)
    if always:
        prefix = what if info.prefix is None else summary_line(" ".join(info.prefix))
        what += f" (and {prefix} in the rest of the session)"
    return f"{short_id(info.approval_id)}  {word}: {what}"
