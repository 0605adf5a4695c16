"""The version of acpterm and the commit that it was built from."""

import os
import subprocess

from acpterm import __version__

# Arguments of git that print the commit, and whether files were changed since.
_DESCRIBE = ["describe", "--always", "--abbrev=12", "--exclude=*", "--dirty"]
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def version_line() -> str:
    """Return what `acpterm --version` prints."""
    return f"acpterm, version {__version__} ({_commit() or 'unknown commit'})"


def _commit() -> str | None:
    """Return `commit HASH`: the commit that the package was built from, or that is checked out.

    In a checkout with changed files, the result ends with `-dirty`. Return None if the commit is
    unknown.
    """
    try:
        with open(os.path.join(_PACKAGE, "commit"), encoding="ascii") as file:
            return f"commit {file.read().strip()}"
    except OSError:
        pass
    # Use only a checkout that directly contains the package, not one around a virtual environment.
    checkout = os.path.dirname(_PACKAGE)
    if not os.path.exists(os.path.join(checkout, ".git")):
        return None
    try:
        found = subprocess.run(
            ["git", "-C", checkout, *_DESCRIBE],
            check=True,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return f"commit {found.stdout.strip()}"
