"""The shell that runs shell text."""

import functools
import os
import shutil
from typing import Final

_BASH: Final = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")


@functools.cache
def find_shell(setting: str) -> str:
    """Return the path of the shell that runs shell text; `setting` is the setting `shell`."""
    if setting != "auto":
        return setting
    # The directories of the system come first: PATH may have one that a program can write to.
    found = next((path for path in _BASH if os.access(path, os.X_OK)), None)
    return os.path.abspath(found or shutil.which("bash") or "/bin/sh")
