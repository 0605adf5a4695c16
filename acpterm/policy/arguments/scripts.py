"""Checks of the arguments of awk and sed, whose scripts can execute commands and write files."""

import re
from collections.abc import Sequence
from typing import Final

from acpterm.policy.arguments.options import because

_SED_OPTION: Final = re.compile(r"-[nEruz]+|--quiet|--silent|--regexp-extended|--debug")
_SED_SCRIPT: Final = re.compile(
    r"(?:(?:\d+|\$)?(?:,(?:\d+|\$))?[pdq=]"
    r"|s([/|#,])(?:(?!\1)[^\\\n]|\\.)*+\1(?:(?!\1)[^\\\n]|\\.)*+\1[gpI\d]*+)"
)
# `|` is a pipe to or from a command, `@` loads an extension, and a backslash at the end of a line
# can split a word of this list.
_AWK_UNSAFE: Final = re.compile(r"system|getline|[|@]|/inet|\\\n")


def sed(arguments: Sequence[str]) -> str:
    """Return why sed could execute a command or write a file; empty if it could not."""
    scripts: list[str] = []
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        if arguments[at] in ("-e", "--expression"):
            at += 1
            scripts += arguments[at : at + 1]
        elif not _SED_OPTION.fullmatch(arguments[at]):
            return because(arguments[at])
        at += 1
    scripts = scripts or list(arguments[at : at + 1])
    if any(one.startswith("-") for one in arguments[at:]):
        return "an option after the script may execute a command or write a file"
    if not all(_SED_SCRIPT.fullmatch(script) for script in scripts):
        return "the script may execute a command or write a file"
    return ""


def awk(arguments: Sequence[str]) -> str:
    """Return why awk could load code, execute a command or write a file; else empty."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        argument = arguments[at]
        at += 1
        if argument == "--":
            break
        if argument in ("-F", "-v"):
            at += 1
        elif not argument.startswith(("-F", "-v")) or argument.startswith("--"):
            return f"the option {argument} may load code"
    if at >= len(arguments):
        return ""
    program = arguments[at].replace("||", "")
    # The expression `print.*>` would take quadratic time.
    is_output = ">" in program.partition("print")[2]
    if is_output or _AWK_UNSAFE.search(program):
        return "the program may execute a command or write a file"
    return ""
