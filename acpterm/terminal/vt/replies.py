"""The grammar of the replies that a program may get to its queries.

The emulator produces the replies. This grammar restricts them to numbers, states, colours and fixed
text; all other replies are dropped. Programs read a reply as if the user had typed it. So a hostile
file whose content a program prints must not be able to choose the text of a reply. Therefore no
reply contains titles, the answerback, the clipboard, identifiers of requests (OSC 5522, 99), names
of capabilities (XTGETTCAP) or unknown settings (DECRQSS).
"""

from __future__ import annotations

import re
from typing import Final

from acpterm import __version__

VERSION: Final = f"acpterm({__version__})"
CELL_SIZE: Final = (8, 16)  # pixels
FOREGROUND: Final = 0xD0D0D0
BACKGROUND: Final = 0x1C1C1C

# Device attributes: DA1 is a VT220 with colours, DA2 a VT220 as well, and DA3 has unit id 0.
CONFORMANCE_LEVEL: Final = 62
ANSI_COLOUR_FEATURE: Final = 22
DEVICE_TYPE: Final = 1
FIRMWARE_VERSION: Final = 10

_NUMBER: Final = rb"[0-9]{1,5}"
_COLOUR: Final = rb"rgb:[0-9a-f]{4}/[0-9a-f]{4}/[0-9a-f]{4}"
_REPLY: Final = b"|".join(
    (
        # CPR (position of the cursor); DSR (status); the dark or light colour scheme.
        rb"\x1b\[%b;%bR" % (_NUMBER, _NUMBER),
        rb"\x1b\[0n",
        rb"\x1b\[\?997;[12]n",
        # DA1, DA2, DA3.
        rb"\x1b\[\?%d;%dc" % (CONFORMANCE_LEVEL, ANSI_COLOUR_FEATURE),
        rb"\x1b\[>%d;%d;0c" % (DEVICE_TYPE, FIRMWARE_VERSION),
        rb"\x1bP!\|00000000\x1b\\",
        # DECRPM (state of a mode); kitty's keyboard flags.
        rb"\x1b\[\??%b;[0-4]\$y" % _NUMBER,
        rb"\x1b\[\?[0-9]{1,2}u",
        # The terminal size in pixels, the cell size in pixels, the terminal size in cells; and all
        # of these with mode 2048. Then the reply to XTVERSION.
        rb"\x1b\[[468];%b;%bt" % (_NUMBER, _NUMBER),
        rb"\x1b\[48(?:;[0-9]{1,7}){4}t",
        rb"\x1bP>\|%b\x1b\\" % re.escape(VERSION.encode()),
        # Colours.
        rb"\x1b\](?:4;[0-9]{1,3}|1[0-9]);%b(?:\a|\x1b\\)" % _COLOUR,
        # DECRPSS of a known setting: SGR, DECSTBM, DECSLRM, DECSCUSR; then of an unknown one.
        rb"\x1bP1\$r[0-9;:]{0,128}(?:m|r|s| q)\x1b\\",
        rb"\x1bP0\$r\x1b\\",
    )
)
_REPLIES: Final = re.compile(rb"(?:%b)+" % _REPLY)


def is_allowed(reply: bytes) -> bool:
    """Return whether a program may get `reply`: one or more replies of the forms above."""
    return _REPLIES.fullmatch(reply) is not None
