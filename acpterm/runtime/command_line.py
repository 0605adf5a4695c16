"""Commands with their arguments as one text.

`command_line` returns a text for lists, titles and messages, `shell_line` a text for a shell.
"""

import functools
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from typing import Final

# A shell found by PATH, or in a directory of the system: `./bash` may be any program.
_SHELL: Final = re.compile(r"((/usr)?/bin/|/usr/local/bin/|/opt/homebrew/bin/)?(|ba|da|k|z)sh")
# Options that neither take a value nor change what the shell executes.
_OPTION: Final = re.compile(r"-[eiluvx]+")
_COMMAND_OPTION: Final = re.compile(r"-[eiluvx]*c")

_BASH: Final = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")


@functools.cache
def find_shell(setting: str) -> str:
    """Return the path of the shell that runs shell text; `setting` is the setting `shell`."""
    if setting != "auto":
        return setting
    # The directories of the system come first: PATH may have one that a program can write to.
    found = next((path for path in _BASH if os.access(path, os.X_OK)), None)
    return os.path.abspath(found or shutil.which("bash") or "/bin/sh")


def command_line(command: str, args: Sequence[str] | None) -> str:
    """Return a command as a user would type it; the text may have several lines."""
    # Agents wrap commands in `sh -c LINE`: LINE is returned, but only if exactly LINE is executed,
    # since the user permits the command by this text.
    args = args or ()
    if (
        len(args) > 1
        and _SHELL.fullmatch(command)
        and _COMMAND_OPTION.fullmatch(args[-2])
        and all(map(_OPTION.fullmatch, args[:-2]))
    ):
        return args[-1]
    return shlex.join([command, *args]) if args else command


def shell_line(command: str, args: Sequence[str] | None) -> str:
    """Return shell text that runs `command`, itself shell text, with quoted `args`."""
    return f"{command} {shlex.join(args)}" if args else command
