r"""Which shell reads a line, and the line as a POSIX shell reads it.

Lines are parsed as bash reads them. Other shells see a beginning of a command in places where bash
does not: `echo hi &>/dev/null rm -rf x` is one command of bash, and two of dash. So if it is not
certain that bash reads a line, it is judged twice: as it is written, and as `posix_text` returns
it. Words that only bash expands, such as `{a,b}`, begin no command in another shell.
"""

import re
from typing import Final, Literal, TypeAlias

Reader: TypeAlias = Literal["bash", "posix", "other"]
"""The shell that reads a line: certainly bash; a POSIX shell or bash; or any shell."""

# `&>`, `((` but not `$((`, `$'` and `$[`, `[[` but not `[[:alpha:]]`. With a backslash and a line
# end in between, the parser already reads these as a POSIX shell does.
_DIFFERENT: Final = re.compile(r"&(?=>)|(?<!\$)\((?=\()|\$(?=['\[])|\[(?=\[(?![:.=]))")
_CONTINUED: Final = re.compile(r"(?<=\S)(?:\\\n)+(?=\S)")
_POSIX: Final = {"&": "& ", "(": "( ", "$": "_", "[": "_"}
_READERS: Final[dict[str, Reader]] = {
    "bash": "bash", "rbash": "bash", "sh": "posix", "dash": "posix", "ash": "posix",
}  # fmt: skip


def reader_of(program: str) -> Reader:
    """Return how the shell `program`, a name or a path, reads a line."""
    return _READERS.get(program.rpartition("/")[2], "other")


def joined_text(line: str) -> str:
    """Return the line with the words joined that it continues on the next line."""
    # Also where a backslash and a line end stay as they are, as in single quotes.
    return _CONTINUED.sub("", line)


def posix_text(line: str) -> str:
    """Return the line with what only bash knows replaced by what a POSIX shell makes of it."""
    # Also in quotes: the result serves to find commands, not their exact words.
    return _DIFFERENT.sub(lambda found: _POSIX[found[0]], line)
