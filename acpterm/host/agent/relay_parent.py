"""The agent behind a process that relays for its parent: `acpterm stdio`.

The parent is the agent, with exceptions. What only starts the relay is passed over, up to the
nearest ancestor that does more. What starts programs for the user is no agent: all that the user
runs descends from it. Both are recognised by their names, which anybody can choose: see
docs/security.md.
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
# npm writes what it does over its arguments, and so over its name.
_NPM_TITLE: Final = re.compile(rb"(npm|npx|pnpm|yarn)\b")
_NPM_SCRIPT: Final = re.compile(rb"(npm|npx|pnpm|yarn)(-cli)?(\.c?js)?")
_COMMAND_OPTION: Final = re.compile(rb"-[a-zA-Z]*c[a-zA-Z]*")
_WRAPPERS_MAX: Final = 16


def agent_behind(relay: ProcStat) -> ProcStat | None:
    """Return the process of the agent that `relay` speaks for; None if there is none to be seen."""
    process = relay
    for _ in range(_WRAPPERS_MAX):
        # What has opened a terminal for the process serves the user: an agent speaks over pipes.
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
    # The first shell of a terminal may have files as arguments, such as `--rcfile FILE`.
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
    """Return whether a shell was started with `-c`."""
    for word in words[1:]:
        if not word.startswith(b"-"):
            return False
        if _COMMAND_OPTION.fullmatch(word):
            return True
    return False
