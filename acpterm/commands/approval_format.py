"""Formats questions to the user as text, for `acpterm approvals`.

All results are safe to print: control and invisible characters in them are escaped.
"""

import time
from collections.abc import Sequence
from typing import Final

from acpterm.acp.approvals import ApprovalInfo, WithdrawnNotification
from acpterm.commands.format import ago, columns, span, summary_line
from acpterm.runtime.sanitize import one_line

# Characters shown of an id: enough to be unambiguous.
_ID_CHARS: Final = 8
# Maximum length of the agent's name and of the level, in characters.
_WORD_CHARS_MAX: Final = 24
_HEADER: Final = ("ID", "AGE", "LEFT", "AGENT", "LEVEL", "DIRECTORY", "COMMAND")
# How a question was answered, for each value of `ApprovalAnswer.by`.
_WORDS: Final = {
    "approvals": "in a terminal",
    "page": "on the page",
    "editor": "in the editor",
    "prompt": "at acpterm prompt",
    "timeout": "no answer in time",
    "cancelled": "no longer asked",
    "unattended": "there was no way to ask",
}


def short_id(identifier: str) -> str:
    """Return the beginning of a question's id that commands show and accept."""
    return summary_line(identifier[:_ID_CHARS])


def table(questions: Sequence[ApprovalInfo], now: float) -> str:
    header, *rows = columns([_HEADER, *(_row(info, now) for info in questions)]).split("\n")
    reasons = (summary_line(info.reason) for info in questions)
    pairs = zip(rows, reasons, strict=True)
    return "\n".join([header, *(f"{row}\n          {reason}" for row, reason in pairs)])


def _row(info: ApprovalInfo, now: float) -> tuple[str, ...]:
    left = "-" if info.remaining_ms is None else span(info.remaining_ms / 1000)
    return (
        short_id(info.approval_id),
        ago(info.asked_at, now),
        left,
        _agent(info),
        one_line(info.level, _WORD_CHARS_MAX),
        summary_line(info.cwd),
        summary_line(info.command),
    )


def _agent(info: ApprovalInfo) -> str:
    return one_line(info.agent or info.connection, _WORD_CHARS_MAX)


def asked_lines(info: ApprovalInfo, *, has_keys: bool = False) -> str:
    """Return the lines that show a new question; without keys, with the commands that answer it."""
    short = short_id(info.approval_id)
    answers = f"acpterm approve {short}, acpterm deny {short}"
    if info.prefix is not None:
        answers += f", acpterm approve --always {short} ({summary_line(' '.join(info.prefix))})"
    when = time.strftime("%H:%M:%S", time.localtime(info.asked_at / 1000))
    left = "" if info.remaining_ms is None else f", {span(info.remaining_ms / 1000)} left"
    about = f"{one_line(info.level)}{left}"
    first = f"{when}  {short}  {_agent(info)} asks ({about}): {summary_line(info.command)}"
    where = f"          in {summary_line(info.cwd)}: {summary_line(info.reason)}"
    return "\n".join([first, where] if has_keys else [first, where, f"          {answers}"])


def keys_line(info: ApprovalInfo) -> str:
    """Return the line that asks for a key to answer a question; it rings the bell."""
    always = (
        "" if info.prefix is None else f", a always allows {summary_line(' '.join(info.prefix))}"
    )
    back = " (acpterm undo can bring back all of it)" if info.can_undo else ""
    return f"\a          {short_id(info.approval_id)}: y allows{back}, n refuses{always}"


def closed_line(withdrawn: WithdrawnNotification) -> str:
    answer = withdrawn.answer
    word = "allowed" if answer.decision == "allow" else "refused"
    always = " always" if answer.scope == "always" else ""
    how = _WORDS.get(answer.by, one_line(answer.by))
    reason = f": {one_line(answer.reason)}" if answer.reason else ""
    start = f"{time.strftime('%H:%M:%S')}  {short_id(withdrawn.approval_id)}"
    return f"{start}  {word}{always} ({how}{reason})"
