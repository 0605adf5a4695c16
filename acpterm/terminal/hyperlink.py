"""Hyperlinks (OSC 8): what a program has said, kept with the style of what it covers.

A link is its parameters and its address with a semicolon between them, as they were said; none is
the empty string. What is no printable ASCII, or longer than VTE takes, is none.
"""

from __future__ import annotations

import re
from typing import Final

ADDRESS_MAX: Final = 2083
_PARAMETERS_MAX: Final = 250
_LINK: Final = re.compile(rf"[!-:<-~]{{0,{_PARAMETERS_MAX}}};[!-~]{{1,{ADDRESS_MAX}}}")


def link_of(said: str) -> str:
    """Give the link that a program has begun, from what is behind ``8;`` in the command."""
    return said if _LINK.fullmatch(said) else ""


def linked(link: str) -> str:
    """Begin a link, or end the one before."""
    return f"\x1b]8;{link or ';'}\x1b\\"
