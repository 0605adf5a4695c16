"""The paths of the sockets, of the settings file and of the recordings."""

import os
import sys

from acpterm.config.settings import Settings


def default_socket() -> str:
    """Return the default path of the socket for agents.

    It is in the user's runtime directory. Without one it is in a directory of the user's own in
    `/tmp`, as with tmux: the listener refuses a directory that belongs to another user.
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


def agent_socket(settings: Settings) -> str:
    """Return the absolute path of the socket for agents."""
    return os.path.abspath(settings.socket or default_socket())


def user_socket(settings: Settings, agents: str | None = None) -> str:
    """Return the absolute path of the user's socket.

    By default it is in the directory of the agents' socket `agents`, which defaults to that of the
    settings.
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
        # As platformdirs does it, by the XDG Base Directory Specification.
        home = os.environ.get("XDG_CONFIG_HOME", "")
        home = home if os.path.isabs(home) else os.path.expanduser("~/.config")
        directory = os.path.join(home, "acpterm")
    return os.path.join(directory, "config.toml")
