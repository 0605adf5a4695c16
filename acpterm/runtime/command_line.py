"""Commands as one line of text, for lists, titles and messages."""

import os
import re
import shlex
from collections.abc import Sequence
from typing import Final

_SHELL: Final = re.compile(r"(|ba|da|k|z)sh")
_COMMAND_OPTION: Final = re.compile(r"-[a-z]*c")


def command_line(command: str, args: Sequence[str] | None) -> str:
    """Return a command as one line, as a user would type it.

    A command such as `sh -c LINE` or `bash -l -c LINE` is returned as LINE, because some agents
    wrap every command in a shell. Without `args`, `command` may be shell text, and is returned
    unchanged.
    """
    args = args or ()
    if (
        len(args) > 1
        and _SHELL.fullmatch(os.path.basename(command))
        and _COMMAND_OPTION.fullmatch(args[-2])
    ):
        return args[-1]
    return shlex.join([command, *args]) if args else command


def shell_line(command: str, args: Sequence[str] | None) -> str:
    """Return shell text that runs `command` with `args`, each argument quoted.

    `command` is shell text itself, as with the option `shell` of `acp.agent_meta.CreateMeta`.
    """
    return f"{command} {shlex.join(args)}" if args else command
