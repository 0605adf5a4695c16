"""The paths of the shell, the sockets, the settings file, the recordings and the audit log."""

import functools
import os
import sys
from typing import Final

from acpterm.config.settings import Settings

_BASH: Final = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")


def shell_path(settings: Settings) -> str:
    """Return the path of the shell that runs shell text."""
    return _default_shell() if settings.shell == "auto" else settings.shell


@functools.cache
def _default_shell() -> str:
    import shutil  # noqa: PLC0415  slow to import, and most commands need no shell

    # The directories of the system come first: PATH may have one that a program can write to.
    found = next((path for path in _BASH if os.access(path, os.X_OK)), None)
    return os.path.abspath(found or shutil.which("bash") or "/bin/sh")


def default_socket() -> str:
    """Return the default path of the socket for agents.

    The socket is in the user's runtime directory. If the user has no such directory, the socket is
    in a directory in `/tmp` whose name has the user's id, as with tmux. The listener refuses a
    directory that belongs to another user.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(runtime):
        runtime = _mac_runtime_dir() if sys.platform == "darwin" else f"/run/user/{os.getuid()}"
        if not os.access(runtime, os.W_OK):
            runtime = ""
    if runtime:
        return os.path.join(runtime, "acpterm", "agent.sock")
    return f"/tmp/acpterm-{os.getuid()}/agent.sock"  # noqa: S108  the listener checks it


def _mac_runtime_dir() -> str:
    import platformdirs  # noqa: PLC0415  slow to import

    return platformdirs.user_runtime_dir()


def default_record_dir() -> str:
    """Return the default directory of the recordings."""
    import platformdirs  # noqa: PLC0415  slow to import, and only the daemon needs it for this

    return os.path.join(platformdirs.user_state_dir("acpterm"), "recordings")


def default_audit_dir() -> str:
    """Return the default directory of the audit log."""
    return os.path.join(_state_dir(), "audit")


def setup_dir() -> str:
    """Return the directory of the records of `acpterm setup`."""
    return os.path.join(_state_dir(), "setup")


def web_dir(agents: str) -> str:
    """Return the directory of the HTTP server's logins, shares and tokens.

    Each daemon has a directory of its own; `agents` is the path of the daemon's socket for agents.
    """
    import hashlib  # noqa: PLC0415  slow to import, and only the daemon needs it

    name = hashlib.sha256(os.fsencode(agents)).hexdigest()[:16]
    return os.path.join(_state_dir(), "web", name)


def _state_dir() -> str:
    """Return acpterm's directory in the user's state directory."""
    if sys.platform == "darwin":
        import platformdirs  # noqa: PLC0415  slow to import

        return platformdirs.user_state_dir("acpterm")
    # As platformdirs, which is slow to import, by the XDG Base Directory Specification.
    home = os.environ.get("XDG_STATE_HOME", "")
    home = home if os.path.isabs(home) else os.path.expanduser("~/.local/state")
    return os.path.join(home, "acpterm")


def agent_socket(settings: Settings) -> str:
    """Return the absolute path of the socket for agents."""
    return os.path.abspath(settings.socket or default_socket())


def user_socket(settings: Settings, agents: str | None = None) -> str:
    """Return the absolute path of the socket for the user's commands.

    If `settings` has no such path, the socket is in the same directory as the socket for agents.
    `agents` is the path of the socket for agents; by default `agent_socket(settings)`.
    """
    if settings.user_socket:
        return os.path.abspath(settings.user_socket)
    directory, name = os.path.split(agents or agent_socket(settings))
    return os.path.join(directory, "user.sock" if name == "agent.sock" else f"{name}.user")


def default_file() -> str:
    """Return the default path of the settings file."""
    if sys.platform == "darwin":
        import platformdirs  # noqa: PLC0415  slow to import

        directory = platformdirs.user_config_dir("acpterm")
    else:
        # As platformdirs, which is slow to import, by the XDG Base Directory Specification.
        home = os.environ.get("XDG_CONFIG_HOME", "")
        home = home if os.path.isabs(home) else os.path.expanduser("~/.config")
        directory = os.path.join(home, "acpterm")
    return os.path.join(directory, "config.toml")
