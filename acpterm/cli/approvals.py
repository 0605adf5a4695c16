"""`acpterm approvals`: list the questions to the user whether an agent's command may run."""

import time
from functools import partial

import click

from acpterm.acp.approvals import ApprovalInfo, ApprovalsResponse, AskedNotification
from acpterm.acp.user_api import NoParams
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import json_option
from acpterm.cli._output import echo_once, json_line, json_text
from acpterm.commands.approval_format import table


@click.command("approvals")
@click.option("-f", "--follow", "followed", is_flag=True, help="Print questions as they come.")
@json_option
@at_daemon
def command(*, followed: bool, as_json: bool, daemon: ChosenDaemon) -> None:
    """List the questions that wait for you: commands of agents that must be approved.

    ID is the beginning of the question's id; acpterm approve and acpterm deny accept it. LEFT is
    the time after which the command is refused; "-" means that the question has no time limit.

    With --follow, pending questions, new ones and their answers are printed until Ctrl-C. While
    this runs, commands that must be approved wait for your answer, even if no editor can ask you.
    In a terminal, keys answer the oldest question: y allows the command, n refuses it, and a allows
    it always, as acpterm approve --always does; q quits. The daemon is started if it is not
    running.

    With --json, an array is printed; with --follow, each line has the params of a notification:
    _acpterm/approval/asked or _acpterm/approval/withdrawn.

    Exit status: 0 on success or after Ctrl-C, 1 if the daemon cannot be reached or has ended.
    """
    if followed:
        raise SystemExit(_follow(daemon, as_json=as_json))
    response = daemon.request_running("approval/list", NoParams(), ApprovalsResponse)
    found: list[ApprovalInfo] = response.approvals if response else []
    echo_once(json_text(found) if as_json else table(found, time.time()))


def _follow(daemon: ChosenDaemon, *, as_json: bool) -> int:
    # These modules import trio.
    from msgspec import Raw  # noqa: PLC0415

    from acpterm.cli._async import call_async, echo_async  # noqa: PLC0415
    from acpterm.commands.approval_format import asked_lines, closed_line  # noqa: PLC0415
    from acpterm.commands.approvals import Change, KeyAnswers, follow_approvals  # noqa: PLC0415
    from acpterm.commands.client import UserClient  # noqa: PLC0415
    from acpterm.commands.events import until_ended  # noqa: PLC0415
    from acpterm.commands.keyboard import has_keyboard, quiet_keys  # noqa: PLC0415

    async def work(client: UserClient) -> int:
        keys = None if as_json or not has_keyboard() else KeyAnswers(client, echo_async)

        async def show(change: Change, params: Raw) -> None:
            if as_json:
                await echo_async(json_line(params))
            elif isinstance(change, AskedNotification):
                await echo_async(asked_lines(change.approval, has_keys=keys is not None))
            else:
                await echo_async(closed_line(change))
            if keys is not None:
                await keys.take(change)

        async def follow() -> None:
            await follow_approvals(client, show)

        with quiet_keys():
            return await until_ended(follow if keys is None else partial(keys.run, follow))

    return call_async(daemon, work, start=True)
