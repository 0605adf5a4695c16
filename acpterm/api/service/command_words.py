"""Splits shell text into its words, without executing or expanding anything."""

import re
from typing import Final

# Words keep their quotes. A separator within quotes, or after a backslash, is part of a word.
_WORD: Final = re.compile(
    r"""(?:[^\s;|&"'\\]|\\.|"(?:[^"\\]|\\.)*"?|'[^']*'?|\\$|(?<!&)&(?!&))+""", re.DOTALL
)


def parse_compound_command(command: str) -> list[str]:
    """Return the words of all commands that ``&&``, ``||``, ``;`` and ``|`` separate.

    It is no parser of shell syntax: the levels of commands come from the policy.
    """
    return _WORD.findall(command)
