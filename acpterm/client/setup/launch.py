"""The command by which agents start acpterm: its name, or its path if that is not found."""

import os
import shutil
import sys
from typing import Final, NamedTuple

# The PATH of a program that the desktop starts has at least these directories.
_DESKTOP_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
# Variables that decide which daemon and which settings acpterm uses.
_VARIABLES: Final = (
    "ACPTERM_CONFIG",
    "ACPTERM_SOCKET",
    "ACPTERM_USER_SOCKET",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
)


class Launch(NamedTuple):
    """How an agent starts acpterm: a command, its arguments, and additional environment."""

    command: str
    args: list[str]
    env: dict[str, str]


def acpterm_words(*, from_desktop: bool) -> list[str]:
    """Return the words that start acpterm: its name, or its path if the name is not found.

    With `from_desktop` the agent has the PATH of the desktop; otherwise that of a shell, without a
    virtual environment that is activated now.
    """
    own = _own_path()
    if own is None:
        return [sys.executable, "-P", "-m", "acpterm"]
    found = shutil.which("acpterm", path=_DESKTOP_PATH if from_desktop else _shell_path())
    return ["acpterm"] if found and os.path.realpath(found) == os.path.realpath(own) else [own]


def environment() -> dict[str, str]:
    """Return the variables that acpterm needs from agents which clear the environment."""
    found = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
    # acpterm finds this directory without the variable.
    if found.get("XDG_RUNTIME_DIR") == f"/run/user/{os.getuid()}":
        del found["XDG_RUNTIME_DIR"]
    return found


def is_acpterm(words: list[str], command: str) -> bool:
    """Return whether a command line runs `acpterm COMMAND`."""
    if words[1:4] == ["-P", "-m", "acpterm"]:
        return words[4:5] == [command]
    name = os.path.basename(words[0]) if words else ""
    return name in ("acpterm", "acpterm.pyz") and words[1:2] == [command]


def _own_path() -> str | None:
    """Return the absolute path of the acpterm that runs; None if no file on the PATH starts it.

    The wrappers of packages run `python -m acpterm`, which does not know their path.
    """
    linked = shutil.which("acpterm", path=_shell_path())
    called = sys.argv[0]
    if os.path.basename(called) == "__main__.py":
        return linked
    if os.sep not in called:
        called = shutil.which(called) or called
    own = os.path.abspath(called)
    # A link on the PATH, as pipx makes, outlives the environment that it points to.
    return linked if linked and os.path.realpath(linked) == os.path.realpath(own) else own


def _shell_path() -> str:
    """Return PATH without the directories of an activated virtual environment."""
    active = os.environ.get("VIRTUAL_ENV")
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if active:
        directories = [path for path in directories if not path.startswith(active + os.sep)]
    return os.pathsep.join(path for path in directories if os.path.isabs(path))
