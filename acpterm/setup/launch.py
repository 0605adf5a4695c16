"""The command by which agents start acpterm: the name `acpterm`, or the path of this acpterm."""

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


class LaunchCommand(NamedTuple):
    """How an agent starts acpterm; `env` are the variables to add."""

    command: str
    args: list[str]
    env: dict[str, str]


def acpterm_words(*, from_desktop: bool) -> list[str]:
    """Return the words that start this acpterm: its name, if the agent's PATH finds it by that."""
    own = _own_path()
    if own is None:
        return [sys.executable, "-P", "-m", "acpterm"]
    found = shutil.which("acpterm", path=_DESKTOP_PATH if from_desktop else _shell_path())
    return ["acpterm"] if found and os.path.realpath(found) == os.path.realpath(own) else [own]


def environment() -> dict[str, str]:
    """Return the variables that an agent which clears its servers' environment must pass on."""
    found = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
    # acpterm finds this directory without the variable.
    if found.get("XDG_RUNTIME_DIR") == f"/run/user/{os.getuid()}":
        del found["XDG_RUNTIME_DIR"]
    return found


def is_acpterm(words: list[str], command: str) -> bool:
    if words[1:4] == ["-P", "-m", "acpterm"]:
        return words[4:5] == [command]
    name = os.path.basename(words[0]) if words else ""
    return name in ("acpterm", "acpterm.pyz") and words[1:2] == [command]


def _own_path() -> str | None:
    """Return the path of this acpterm; None if it is unknown."""
    linked = shutil.which("acpterm", path=_shell_path())
    called = sys.argv[0]
    if os.path.basename(called) == "__main__.py":
        # `python -m acpterm`, which a package's wrapper script may run.
        return linked
    if os.sep not in called:
        called = shutil.which(called) or called
    own = os.path.abspath(called)
    # Prefer a link on the PATH, such as pipx creates: it stays valid when the environment to which
    # it points is replaced.
    return linked if linked and os.path.realpath(linked) == os.path.realpath(own) else own


def _shell_path() -> str:
    """Return PATH without relative directories and those of the activated virtual environment."""
    active = os.environ.get("VIRTUAL_ENV")
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if active:
        directories = [path for path in directories if not path.startswith(active + os.sep)]
    return os.pathsep.join(path for path in directories if os.path.isabs(path))
