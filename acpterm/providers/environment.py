"""The environment of a sandboxed program: the requested one, without secrets and hidden sockets.

A variable is removed if its name looks secret, if it names a socket or an agent that the sandbox
hides, or if its value is a hidden path. Whether the agent or the user has set the variable makes
no difference. `acpterm.pty.tracking.marks` adds the terminal's marks afterwards.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from acpterm.providers.secret_paths import is_below

_REMOVED: Final = frozenset(
    (
        *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "SSH_ASKPASS", "GIT_ASKPASS"),
        *("SUDO_ASKPASS", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DISPLAY"),
        *("WAYLAND_DISPLAY", "WAYLAND_SOCKET", "XAUTHORITY", "ICEAUTHORITY", "SESSION_MANAGER"),
        *("XDG_RUNTIME_DIR", "PULSE_SERVER", "PIPEWIRE_REMOTE", "DOCKER_HOST", "CONTAINER_HOST"),
        *("DOCKER_CERT_PATH", "KUBECONFIG", "TMUX", "TMUX_PANE", "TMUX_TMPDIR", "STY"),
        *("KITTY_LISTEN_ON", "KITTY_PUBLIC_KEY", "WEZTERM_UNIX_SOCKET", "ALACRITTY_SOCKET"),
        *("NVIM", "NVIM_LISTEN_ADDRESS", "VIM_SERVERNAME", "EMACS_SERVER_FILE"),
        *("VSCODE_IPC_HOOK", "VSCODE_IPC_HOOK_CLI", "VSCODE_GIT_IPC_HANDLE", "INVOCATION_ID"),
        *("VSCODE_GIT_ASKPASS_MAIN", "VSCODE_GIT_ASKPASS_NODE", "JOURNAL_STREAM", "NOTIFY_SOCKET"),
        *("CREDENTIALS_DIRECTORY", "LISTEN_FDS", "LISTEN_PID", "HISTFILE", "ACPTERM_SOCKET"),
        *("ACPTERM_USER_SOCKET", "ACPTERM_CONFIG", "BASH_ENV", "ENV"),
    )
)
_SECRET: Final = re.compile(
    r"(^|_)(TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|PWD|PASS|APIKEY|KEYS?|CREDENTIALS?|PAT"
    r"|AUTH|COOKIES?|JWT|DSN|WEBHOOK_URL|DATABASE_URL|CONNECTION_STRING)$",
    re.IGNORECASE,
)
# Variables whose names match, and that hold no secret.
_HARMLESS: Final = frozenset(("PWD", "OLDPWD"))
_SCHEME: Final = re.compile(r"^(unix:(path=|//)?|file://)")

# Variables that make the loader, or the C library, load code or files (ld.so(8)). The list is that
# of the variables that glibc ignores in setuid programs.
_LOADER_PREFIXES: Final = ("LD_", "MALLOC_", "GLIBC_")
_LOADER: Final = frozenset(
    (
        *("GCONV_PATH", "GETCONF_DIR", "HOSTALIASES", "LOCALDOMAIN", "LOCPATH", "NIS_PATH"),
        *("NLSPATH", "RESOLV_HOST_CONF", "RES_OPTIONS", "TZDIR", "TZ", "POSIXLY_CORRECT"),
    )
)


def sandbox_environment(
    env: Mapping[str, str], hidden: Iterable[str], *, tmpdir: str
) -> dict[str, str]:
    """Return `env` without secrets, and without the paths below `hidden`.

    `TMPDIR`, `TMP` and `TEMP` are set to `tmpdir` if they are in `env`, and `TMPDIR` always.
    """
    hidden = tuple(hidden)
    found = {
        name: value
        for name, value in env.items()
        if not is_secret(name) and not _is_hidden(name, value, hidden)
    }
    for name in ("TMP", "TEMP"):
        if name in found:
            found[name] = tmpdir
    return {**found, "TMPDIR": tmpdir}


def split_environment(env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables for the programs that set up a sandbox, and those only for inside.

    A variable such as `LD_PRELOAD` would make the former execute code outside the sandbox.
    """
    inner = {
        name: value
        for name, value in env.items()
        if name in _LOADER or name.startswith(_LOADER_PREFIXES)
    }
    return {name: value for name, value in env.items() if name not in inner}, inner


def is_secret(name: str) -> bool:
    """Return whether a variable of this name is kept from sandboxed programs."""
    return name in _REMOVED or (name not in _HARMLESS and _SECRET.search(name) is not None)


def _is_hidden(name: str, value: str, hidden: tuple[str, ...]) -> bool:
    if name in ("HOME", "PATH", "PWD", "OLDPWD", "TMPDIR", "TMP", "TEMP"):
        return False
    path = _SCHEME.sub("", value)
    return path.startswith("/") and any(is_below(path, directory) for directory in hidden)
