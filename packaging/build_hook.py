"""Add the commit to the wheel and the sdist, in the file `acpterm/commit`.

`acpterm --version` prints the commit. An sdist contains the file already. In a checkout there is no
such file: the command asks git for the commit.
"""

import os
import tempfile
from pathlib import Path
from subprocess import CalledProcessError, run
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILE = "acpterm/commit"


class CommitHook(BuildHookInterface[Any]):
    """The hook that hatchling calls around each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the commit of the checkout to a temporary file, and add the file to the package."""
        if version == "editable" or os.path.exists(os.path.join(self.root, FILE)):
            return
        commit = _commit(self.root)
        if commit is None:
            return
        self._directory = tempfile.TemporaryDirectory()
        path = Path(self._directory.name, "commit")
        path.write_text(f"{commit}\n", encoding="ascii")
        path.chmod(0o644)
        build_data["force_include"][str(path)] = FILE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary file."""
        del version, build_data, artifact_path
        if hasattr(self, "_directory"):
            self._directory.cleanup()


def _commit(root: str) -> str | None:
    """Return the commit of the checkout at `root`, or None if it is not a checkout.

    A commit with changes that are not committed ends with `-dirty`.
    """
    if not os.path.exists(os.path.join(root, ".git")):
        return None
    describe = ["git", "-C", root, "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty"]
    try:
        return run(describe, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, CalledProcessError):
        return None
