"""Splits a compound command into words, without executing or expanding anything."""

import re
from typing import Final

# Words keep their quotes. A separator within quotes, or after a backslash, is part of a word.
_WORD: Final = re.compile(
    r"""(?:[^\s;|&"'\\]|\\.|"(?:[^"\\]|\\.)*"?|'[^']*'?|\\$|(?<!&)&(?!&))+""", re.DOTALL
)


def parse_compound_command(command: str) -> list[str]:
    """Split a line at ``&&``, ``||``, ``;`` and ``|``; return the words of all its commands.

    The result is one list of words, which does not show where a command begins.

    This is not a parser of shell syntax, and does not determine the levels of commands: the policy
    has a parser of its own.
    """
    return _WORD.findall(command)
