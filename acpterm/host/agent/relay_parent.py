"""Find the agent behind `acpterm stdio`, a process that relays the messages of its parent.

The parent is the agent, with two exceptions. A wrapper that only starts the relay, such as `npx`,
is skipped: the agent is then the nearest ancestor that is not a wrapper. A process that starts
programs for the user, such as an interactive shell, is not an agent, because everything that the
user runs descends from it. Wrappers and shells are recognised by their names, which any program can
choose: see docs/security.md.
"""

import os
import re
from typing import Final

from acpterm.pty import linux, processes
from acpterm.pty.linux import ProcStat

_SERVERS: Final = (
    b"systemd",
    b"init",
    b"sshd",
    b"sshd-session",
    b"dropbear",
    b"mosh-server",
    b"tmux: server",
    b"screen",
    b"SCREEN",
    b"cron",
    b"crond",
)
_SHELLS: Final = (b"sh", b"bash", b"dash", b"zsh", b"fish", b"ksh", b"mksh", b"tcsh", b"csh")
_WRAPPERS: Final = (b"uv", b"uvx", b"npm", b"npx", b"pnpm", b"yarn", b"pipx", b"env", b"timeout")
# npm replaces its own command line, and so its name, by a description of what it is doing.
_NPM_TITLE: Final = re.compile(rb"(npm|npx|pnpm|yarn)\b")
_NPM_SCRIPT: Final = re.compile(rb"(npm|npx|pnpm|yarn)(-cli)?(\.c?js)?")
_COMMAND_OPTION: Final = re.compile(rb"-[a-zA-Z]*c[a-zA-Z]*")
_WRAPPERS_MAX: Final = 16


def agent_behind(relay: ProcStat) -> ProcStat | None:
    """Return the agent's process behind a relay; None if there is none to be seen."""
    process = relay
    for _ in range(_WRAPPERS_MAX):
        # A process that opened a terminal for its child serves the user: agents use pipes.
        if process.ppid <= 1 or _leads_terminal(process):
            return None
        parent = processes.identity(process.ppid)
        if parent is None or parent.started > process.started:
            return None
        name = linux.name_of(parent.pid)
        words = linux.arguments_of(parent.pid)
        if name in _SERVERS or _is_interactive_shell(parent, name, words):
            return None
        if not _is_wrapper(name, words):
            return parent
        process = parent
    return None


def _leads_terminal(process: ProcStat) -> bool:
    return process.sid == process.pid and linux.has_terminal(process.pid)


def _is_interactive_shell(process: ProcStat, name: bytes, words: list[bytes]) -> bool:
    if name not in _SHELLS or _has_command(words):
        return False
    # The shell that leads a terminal may have arguments that are files: `--rcfile FILE`.
    return _leads_terminal(process) or (
        linux.has_terminal(process.pid) and all(word.startswith(b"-") for word in words[1:])
    )


def _is_wrapper(name: bytes, words: list[bytes]) -> bool:
    if name in _SHELLS:
        return _has_command(words)
    if name in _WRAPPERS or _NPM_TITLE.match(name):
        return True
    script = os.path.basename(words[1]) if len(words) > 1 else b""
    return name in (b"node", b"MainThread") and _NPM_SCRIPT.fullmatch(script) is not None


def _has_command(words: list[bytes]) -> bool:
    """Return whether a shell was called with `-c COMMAND`; `words` is the shell's argv."""
    for word in words[1:]:
        if not word.startswith(b"-"):
            return False
        if _COMMAND_OPTION.fullmatch(word):
            return True
    return False
