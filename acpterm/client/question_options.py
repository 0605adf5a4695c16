"""The answers that a user can choose from when the host asks whether a command may run."""

from typing import Final

from acpterm.acp.agent import PermissionOption
from acpterm.acp.approvals import ApprovalInfo, Decision, Scope
from acpterm.client.sanitize import one_line
from acpterm.runtime.command_line import command_line

_PREFIX_CHARS_MAX: Final = 80
CHOICES: Final[dict[str, tuple[Decision, Scope]]] = {
    "allow_once": ("allow", "once"),
    "allow_always": ("allow", "always"),
    "reject_once": ("deny", "once"),
    "reject_always": ("deny", "always"),
}
"""Maps the id of each option to the decision on the command, and the scope of that decision."""


def question_options(info: ApprovalInfo) -> list[PermissionOption]:
    """Return the options that the user can choose from in answer to the question `info`.

    If the question has no prefix (`info.prefix`), there is no option "Always allow".
    """
    shown = "this command"
    options = [PermissionOption("allow_once", "Allow once", "allow_once")]
    if info.prefix is not None:
        prefix = command_line(info.prefix[0], info.prefix[1:])
        shown = f'"{one_line(prefix, _PREFIX_CHARS_MAX)}"'
        name = f"Always allow {shown} in this session"
        options.append(PermissionOption("allow_always", name, "allow_always"))
    name = f"Always reject {shown} in this session"
    options.append(PermissionOption("reject_once", "Reject", "reject_once"))
    options.append(PermissionOption("reject_always", name, "reject_always"))
    return options
