"""Names the program that waits for input, and the file that an editor or pager shows.

All that is known of a program comes from `/proc/PID/cmdline`, which the program can change.
"""

import os
from typing import Final

from acpterm.pty.linux import read_once

_EDITORS: Final = frozenset(
    (
        *("ed", "editor", "emacs", "helix", "hx", "jed", "joe", "kak", "mcedit", "mg", "micro"),
        *("nano", "ne", "nvim", "pico", "rvim", "vi", "view", "vim", "vimdiff", "zile"),
    )
)
_PAGERS: Final = frozenset(("less", "lv", "more", "most", "pager"))
_CMDLINE_BYTES_MAX: Final = 4096
_NAME_CHARS_MAX: Final = 40


def sentence(pid: int) -> str | None:
    """Return which program waits: `vim waits on COMMIT_EDITMSG`, `sh waits for input`.

    `pid` is the pid of the process that waits. Returns None if its program is not known.
    """
    try:
        argv = read_once(f"/proc/{pid}/cmdline", _CMDLINE_BYTES_MAX).split(b"\0")
    except OSError:
        return None
    # A login shell is `-bash`. A program that rewrites its argv puts a sentence there.
    name = _name(argv[0].partition(b" ")[0]).removeprefix("-")
    if not name:
        return None
    # Debian's vim is `vim.basic`.
    if name.partition(".")[0] not in _EDITORS | _PAGERS:
        return f"{name} waits for input"
    files = [word for word in argv[1:] if word and not word.startswith((b"-", b"+"))]
    return f"{name} waits on {_name(files[-1])}" if files else f"{name} waits"


def _name(path: bytes) -> str:
    """Return the last part of `path` as one line: another terminal shows it."""
    text = os.path.basename(path).decode(errors="replace")[:_NAME_CHARS_MAX]
    return "".join(character if character.isprintable() else "?" for character in text)
