"""Lines of text, which end at line feeds only, as for terminals, editors and grep."""

from io import StringIO


def split_lines(text: str) -> list[str]:
    """Return lines with their line feeds. `str.splitlines` would also end at U+2028."""
    return StringIO(text, newline="\n").readlines()
