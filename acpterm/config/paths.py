"""The paths of the sockets, of the settings file, of the recordings and of the audit log."""

import os
import pwd
import sys
from collections.abc import Mapping

from acpterm.config.settings import Settings


def default_socket() -> str:
    """Return the default path of the socket for agents."""
    # The same for all processes of a user, also those without XDG_RUNTIME_DIR.
    if chosen := _chosen_dir():
        return os.path.join(chosen, "acpterm", "agent.sock")
    first, *others = (os.path.join(directory, "agent.sock") for directory in default_dirs())
    if os.path.lexists(first):
        return first
    # A daemon that was started before the user's login, when there was no runtime directory.
    return next((path for path in others if _is_ours(path)), first)


def default_dirs() -> list[str]:
    """Return the directories of sockets that need no environment variable, the usual one first."""
    # In /tmp as with tmux; the listener refuses a directory of another user.
    runtime = _usual_runtime_dir()
    usual = [os.path.join(runtime, "acpterm")] if _is_ours(runtime) else []
    return [*usual, f"/tmp/acpterm-{os.getuid()}"]  # noqa: S108  the listener checks it


def _chosen_dir() -> str | None:
    # `su` and `sudo` may leave the variable as it was for the other user.
    named = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(named) or named == _usual_runtime_dir():
        return None
    return named if _is_ours(named) or not os.path.lexists(named) else None


def _usual_runtime_dir() -> str:
    return _mac_runtime_dir() if sys.platform == "darwin" else f"/run/user/{os.getuid()}"


def _is_ours(path: str) -> bool:
    """Return whether there is a file or directory at `path`, which belongs to this user."""
    try:
        return os.stat(path).st_uid == os.getuid()
    except OSError:
        return False


def _mac_runtime_dir() -> str:
    import platformdirs  # noqa: PLC0415  slow to import

    return platformdirs.user_runtime_dir()


def default_record_dir() -> str:
    """Return the default directory of the recordings."""
    import platformdirs  # noqa: PLC0415  slow to import, and only the daemon needs it for this

    return os.path.join(platformdirs.user_state_dir("acpterm"), "recordings")


def audit_dir(settings: Settings, environment: Mapping[str, str] = os.environ) -> str:
    """Return the directory of the audit log of a daemon with this environment."""
    return settings.audit_dir or os.path.join(_state_dir(environment), "audit")


def setup_dir() -> str:
    """Return the directory of the records of `acpterm setup`."""
    return os.path.join(_state_dir(), "setup")


def agents_dir() -> str:
    """Return the directory of the installed agents, and of the copies of registries."""
    return os.path.join(_state_dir(), "agents")


def undo_dir(environment: Mapping[str, str] = os.environ) -> str:
    """Return the directory of the snapshots of `acpterm undo`."""
    return os.path.join(_state_dir(environment), "undo")


def web_dir(agents: str) -> str:
    """Return the directory of logins, shares and tokens of the daemon with the socket `agents`."""
    import hashlib  # noqa: PLC0415  slow to import, and only the daemon needs it

    name = hashlib.sha256(os.fsencode(agents)).hexdigest()[:16]
    return os.path.join(_state_dir(), "web", name)


def _state_dir(environment: Mapping[str, str] = os.environ) -> str:
    """Return acpterm's directory in the user's state directory."""
    if sys.platform == "darwin":
        import platformdirs  # noqa: PLC0415  slow to import

        return platformdirs.user_state_dir("acpterm")
    # As platformdirs, which is slow to import, by the XDG Base Directory Specification.
    if os.path.isabs(named := environment.get("XDG_STATE_HOME", "")):
        return os.path.join(named, "acpterm")
    home = environment.get("HOME") or os.path.expanduser("~")
    return os.path.join(home, ".local", "state", "acpterm")


def account_home() -> str | None:
    """Return the user's home directory by the user database, whatever `HOME` is."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None


def agent_socket(settings: Settings) -> str:
    """Return the absolute path of the socket for agents."""
    return os.path.abspath(settings.socket or default_socket())


def user_socket(settings: Settings, agents: str | None = None) -> str:
    """Return the absolute path of the socket for the user's commands, beside that for agents."""
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


def file_in_home(home: str) -> str:
    """Return the default path of the settings file of the user with this home directory."""
    directory = "Library/Application Support" if sys.platform == "darwin" else ".config"
    return os.path.join(home, directory, "acpterm", "config.toml")


def is_usual_socket(path: str) -> bool:
    """Return whether a socket is where all the user's programs look for the daemon's."""
    directory = os.path.realpath(os.path.dirname(path))
    return directory in map(os.path.realpath, default_dirs())


def daemons_environment(socket: str) -> Mapping[str, str]:
    """Return what decides where the daemon at a socket keeps its state, if it does not say."""
    # A daemon that is started on demand takes neither HOME nor XDG_STATE_HOME.
    home = account_home() if is_usual_socket(socket) else None
    return os.environ if home is None else {"HOME": home}
