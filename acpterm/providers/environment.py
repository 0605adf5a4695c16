"""Builds the environment of a sandboxed program: without secrets, and without hidden paths.

A variable is removed if its name looks like that of a secret, if it is listed here because it
names a socket, a file or a helper (such as ssh-agent) that the sandbox hides, or if its value is a
hidden path. It does not matter whether an AI agent or the user has set the variable.
`acpterm.pty.tracking.marks` adds the terminal's marks afterwards.
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
        *("DOCKER_CERT_PATH", "KUBECONFIG", "TMUX_TMPDIR", "EMACS_SERVER_FILE"),
        *("INVOCATION_ID", "JOURNAL_STREAM", "CREDENTIALS_DIRECTORY", "HISTFILE"),
        *("ACPTERM_SOCKET", "ACPTERM_USER_SOCKET", "ACPTERM_CONFIG", "BASH_ENV", "ENV"),
    )
)
FORWARDED: Final = re.compile(
    r"LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR(?:_FORCE)?|[A-Z_]*PAGER|LESS"
)
"""The names of the variables of this machine that a container or another host gets, too.

Those that acpterm, the settings and the request set (`Command.requested`) come after them.
"""
_SECRET: Final = re.compile(
    r"(^|_)(TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|PWD|PASS|APIKEY|KEYS?|CREDENTIALS?|PAT"
    r"|AUTH|COOKIES?|JWT|DSN|WEBHOOK_URL|DATABASE_URL|CONNECTION_STRING)$",
    re.IGNORECASE,
)
# Variables that hold no secret although their names match `_SECRET`.
_HARMLESS: Final = frozenset(("PWD", "OLDPWD"))
_SCHEME: Final = re.compile(r"^(unix:(path=|//)?|file://)")

# Variables that make the loader or the C library load code or files: those that glibc ignores in
# setuid programs (ld.so(8)).
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
    """Return `env` without secrets and without values that are `hidden` paths or below."""
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
    """Split `env` into variables for what sets up a sandbox, and those only for inside."""
    # A variable such as LD_PRELOAD would make the former execute code outside of the sandbox.
    inner = {
        name: value
        for name, value in env.items()
        if name in _LOADER or name.startswith(_LOADER_PREFIXES)
    }
    return {name: value for name, value in env.items() if name not in inner}, inner


def is_secret(name: str) -> bool:
    """Return whether the variable `name` is removed because of its name."""
    return name in _REMOVED or (name not in _HARMLESS and _SECRET.search(name) is not None)


def _is_hidden(name: str, value: str, hidden: tuple[str, ...]) -> bool:
    if name in ("HOME", "PATH", "PWD", "OLDPWD", "TMPDIR", "TMP", "TEMP"):
        return False
    path = _SCHEME.sub("", value)
    return path.startswith("/") and any(is_below(path, directory) for directory in hidden)
