"""Names the program that waits for input, and the file that an editor or pager shows.

All that is known of a program comes from `/proc/PID/cmdline`, which the program can change.
"""

import os
import re
from typing import Final, NamedTuple

from acpterm.pty.linux import read_once

_EDITORS: Final = frozenset(
    (
        *("ed", "editor", "emacs", "helix", "hx", "jed", "joe", "kak", "mcedit", "mg", "micro"),
        *("nano", "ne", "nvim", "pico", "rvim", "vi", "view", "vim", "vimdiff", "zile"),
    )
)
_PAGERS: Final = frozenset(("less", "lv", "more", "most", "pager"))
_SHELLS: Final = frozenset(
    ("ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "xonsh", "zsh")
)
# At their prompt they edit the line themselves; in line mode they run `read`.
_EDITING_SHELLS: Final = frozenset(("bash", "fish", "ksh", "mksh", "tcsh", "xonsh", "zsh"))
# Options of editors and pagers that may take the next word as their value.
_VALUED: Final = frozenset(f"-{letter}".encode() for letter in "cefiloPpSsTtUuWwx") | {b"--cmd"}
_CMDLINE_BYTES_MAX: Final = 4096
_NAME_CHARS_MAX: Final = 40


class Waiter(NamedTuple):
    """A program that waits."""

    # `vim waits on COMMIT_EDITMSG`, `sh waits for input`, `bash is at its prompt`.
    sentence: str | None = None
    asks: bool = True  # not a shell at its prompt, an editor or a pager


def waiter_of(pid: int, *, reads_lines: bool = False) -> Waiter:
    """Return what is known of the process that waits. `reads_lines`: the PTY is in line mode."""
    try:
        argv = read_once(f"/proc/{pid}/cmdline", _CMDLINE_BYTES_MAX).split(b"\0")
    except OSError:
        return Waiter()
    # A login shell is `-bash`. A program that rewrites its argv puts a sentence there.
    name = _name(argv[0].partition(b" ")[0]).removeprefix("-")
    if not name:
        return Waiter()
    # Debian's vim is `vim.basic`.
    if name.partition(".")[0] not in _EDITORS | _PAGERS:
        runs_read = reads_lines and name in _EDITING_SHELLS
        if name in _SHELLS and _has_prompt(argv[1:]) and not runs_read:
            return Waiter(f"{name} is at its prompt", False)
        return Waiter(f"{name} waits for input")
    before, last = [b"", b"", *filter(None, argv[1:])][-2:]
    is_file = last and not last.startswith((b"-", b"+")) and before not in _VALUED
    return Waiter(f"{name} waits on {_name(last)}" if is_file else f"{name} waits", False)


def _has_prompt(args: list[bytes]) -> bool:
    """Return whether a shell with these arguments reads commands, so that it has a prompt."""
    if any(re.match(rb"-[a-zA-Z]*c", arg) for arg in args):
        return False
    is_interactive = any(arg in (b"-i", b"--rcfile", b"--init-file") for arg in args)
    return is_interactive or all(not arg or arg.startswith((b"-", b"+")) for arg in args)


def _name(path: bytes) -> str:
    """Return the last part of `path` as one line: another terminal shows it."""
    text = os.path.basename(path).decode(errors="replace")[:_NAME_CHARS_MAX]
    return "".join(character if character.isprintable() else "?" for character in text)
