"""Spares fish its work in a new home directory: it would read all manual pages of the machine."""

from pathlib import Path


def data_home(parent: str | Path) -> str:
    """Return a value for `XDG_DATA_HOME`: a directory in `parent`, created if it does not exist.

    In this directory fish finds a directory of generated completions, so it generates none. It
    would do so in the background, in a process that uses much time and outlives the shell.
    """
    directory = Path(parent) / ".local" / "share"
    (directory / "fish" / "generated_completions").mkdir(parents=True, exist_ok=True)
    return str(directory)
