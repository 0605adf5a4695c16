"""`Loss`: what a command may lose, and what has to be so for that."""

import enum
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from acpterm.config.profiles import Kind


class Need(enum.StrEnum):
    """What has to be so for a loss to hold; `Loss.operands` says of which paths or names."""

    NOTHING = "nothing"
    ALIAS = "alias"
    """git has an alias of this name. Its finding is the text of the alias."""
    BRANCH = "branch"
    """The branches have commits that no other branch and no remote has."""
    CHANGED = "changed"
    """git: tracked files below the paths have changes that are not staged."""
    CLEANED = "cleaned"
    """git: `git clean` with these arguments removes something."""
    DEFAULT = "default"
    """git: a forced push of these branches, or the current one, drops commits that are only there,
    or is to the default branch."""
    DELETED = "deleted"
    """A file or directory exists, and git cannot restore it."""
    MANY = "many"
    """Several of these files have changes that git cannot restore."""
    MOVED = "moved"
    """The branch, the first operand, has commits that neither the second nor another ref has."""
    MISSING = "missing"
    """The package is not installed in the project."""
    OVERWRITTEN = "overwritten"
    """A file exists, and git cannot restore its content."""
    PUSHED = "pushed"
    """git: a commit that is rewritten (those after the operand, or HEAD) was pushed."""
    RESET = "reset"
    """git: tracked files have changes, staged or not, or commits after it are only here."""
    UNSAVED = "unsaved"
    """git: there are files with changes, or untracked ones that no build makes."""
    STASH = "stash"
    """git: there is something in the stash."""
    TAG = "tag"
    """git: a tag exists."""


NOUNS: Final[Mapping[Need, str]] = {
    Need.BRANCH: "branches", Need.MOVED: "branches", Need.STASH: "stashes", Need.TAG: "tags",
    Need.PUSHED: "commits", Need.DEFAULT: "commits", Need.MISSING: "packages",
}  # fmt: skip
"""What the names of a finding are, if there are several; by default, files."""


class Loss(NamedTuple):
    """What a command may lose, and what has to be known to be certain."""

    kind: Kind
    reason: str
    """What the command does; `{}` stands for the names of what is lost."""
    need: Need = Need.NOTHING
    operands: tuple[str, ...] = ()
    directory: str | None = ""
    """Where the command runs, seen from the directory of the line; None if that is not known."""
    is_plain: bool = True
    """Whether the loss counts where the fact cannot be found out: the words say enough."""

    def after_moves(self) -> "Loss":
        """Return the loss where HEAD and branches are no longer where the facts say."""
        if self.need not in (Need.BRANCH, Need.MOVED):
            return self
        names = self.operands[: 1 if self.need is Need.MOVED else None]
        operands = tuple("*" if "@{" in one else one for one in names)
        return self._replace(need=Need.BRANCH, operands=operands)

    def after_adding(self) -> "Loss | None":
        """Return what else is lost if the line has added files to git before; None if nothing."""
        if self.need in (Need.BRANCH, Need.MOVED):
            return Loss(Kind.WORK, THROWS, Need.UNSAVED, (), self.directory, is_plain=False)
        if self.need is not Need.RESET:
            return None
        paths = self.operands[1:]
        is_all = not paths or any(one.startswith(":") for one in paths)
        need = Need.UNSAVED if is_all else Need.DELETED
        return self._replace(need=need, operands=() if is_all else paths)

    def text(self, names: Sequence[str] | None) -> str:
        """Return the reason, with the names of what is lost; None if they are not known."""
        noun = NOUNS.get(self.need, "files")
        if not names or names == LATE:
            return self.reason.format(noun)
        shown = ", ".join(map(_printable, names[:NAMES_SHOWN]))
        if len(names) > NAMES_SHOWN:
            shown += f" and {len(names) - NAMES_SHOWN} more"
        return self.reason.format(shown if len(names) == 1 else f"{len(names)} {noun}: {shown}")


Finding: TypeAlias = tuple[str, ...] | None
"""The names of what is lost; empty if nothing is; None if it cannot be found out."""
LATE: Final = ("…",)
"""The finding of a fact that is not known in time: the loss counts."""
NO_FINDINGS: Final[Mapping["Loss", Finding]] = MappingProxyType({})
_NAME_CHARS_MAX: Final = 80
_ESCAPED: Final = {9: "\\t", 10: "\\n", 13: "\\r"}
NAMES_SHOWN: Final = 3
"""Maximum names of what is lost that a reason has."""

WORDS_MAX: Final = 400
"""Maximum words of a command that are examined for losses."""
WORD_CHARS_MAX: Final = 512
"""Maximum characters of a word that are examined for losses, other than of code and SQL."""
LINE_CHARS_MAX: Final = 1024
"""Maximum characters of a command's arguments that the rows of the table are compared with."""
TEXT_CHARS_MAX: Final = 8192
"""Maximum characters of SQL that are searched."""
CODE_CHARS_MAX: Final = 65_536
"""Maximum characters of code that are searched."""
THROWS: Final = "throws away changes in {}"


def _quoted(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if char.isprintable():
        return char
    # A byte that is not of UTF-8 is a surrogate.
    data = char.encode(errors="surrogateescape")
    return "".join(_ESCAPED.get(one, f"\\x{one:02x}") for one in data)


def _printable(name: str) -> str:
    """Return a file's name, which may have any bytes, as text for the user; a long one is cut."""
    text = name
    if not name.isprintable():
        # As bash quotes it.
        text = f"$'{''.join(map(_quoted, name))}'"
    return text if len(text) <= _NAME_CHARS_MAX else f"…{text[1 - _NAME_CHARS_MAX :]}"
