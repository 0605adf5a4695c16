"""Lines of text, which end at line feeds only, as for terminals, editors and grep."""

from io import StringIO


def split_lines(text: str) -> list[str]:
    """Return the lines of `text` with their line feeds; the last line may have none.

    `str.splitlines` would also end lines at characters such as U+2028.
    """
    return StringIO(text, newline="\n").readlines()
