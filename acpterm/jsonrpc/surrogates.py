r"""Lines that are not quite JSON, made readable: for a reader that may be lenient.

The rule: only half of a surrogate pair (``\ud83d`` without ``\ude00``) is mended, as U+FFFD. It is
what JavaScript makes of a string that was cut in the wrong place, as a message that a model sends
piece by piece may be. A host refuses such a line, since a command with it is not what was meant.
"""

import re
from typing import Final

# A backslash that is escaped itself; a whole pair; a half.
_ESCAPE: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def replace_lone_surrogates(line: bytes) -> bytes:
    """Give a line with each half of a surrogate pair replaced; the same if there is none."""
    if b"\\ud" not in line and b"\\uD" not in line:
        return line
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], line)
