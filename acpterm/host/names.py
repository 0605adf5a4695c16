"""Names of terminals: which names may be given, and which terminal a name means.

A terminal is *over* if it is released, or if the user owns it and its program has exited and is not
being restarted (`TerminalEntry.is_over`). The name of a terminal that is over may be given to
another terminal.
"""

import itertools
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from acpterm.host.entry import TerminalEntry
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, quote
from acpterm.runtime.bounded_dict import BoundedDict

LAST_NAME: Final = "@last"
# At the end of a requested name, this asks for a number that makes the name unique.
_NUMBER_MARK: Final = "-#"
# Longer numbers, which only an agent chooses, do not count.
_NUMBERED: Final = re.compile(r"(.*-)(\d{1,9})", re.DOTALL)
# The beginnings of names whose numbers are known; of others a number may come again.
_STEMS_MAX: Final = 1024
# Maximum characters of a name: short enough for a list, and for an error message.
_NAME_MAX: Final = 64
# How many ids an error message lists.
_LISTED_IDS_MAX: Final = 5
# Such names are refused, since they could be the beginning of another terminal's id.
_ID_PREFIX: Final = re.compile("[0-9a-f]{8,}")
# Parts of emoji that are not printable by themselves: joiners between characters, tags of a flag.
_JOINERS: Final = re.compile(
    r"(?<=[^\x00-\x7f\u200c\u200d])[\u200c\u200d](?=[^\x00-\x7f\u200c\u200d])"
    r"|(?<=\U0001f3f4)[\U000e0020-\U000e007e]{1,8}\U000e007f"
)


def find(entries: Sequence[TerminalEntry], name: str, *, own: bool = False) -> TerminalEntry:
    """Return the entry that `name` means: a name, a unique prefix of an id, or @last."""
    # With `own`, because the user is going to type, perhaps a password: the user's terminals come
    # first, even over ones, and @last is the user's. Otherwise an agent could get what is typed, by
    # creating a terminal just before, or by taking the name of one that is over.
    if name == LAST_NAME:
        return _find_last(entries, own=own)
    users = [entry for entry in entries if entry.is_trusted] if own else []
    if (entry := named(users, name) or named(entries, name)) is not None:
        return entry
    prefix = name if name.startswith("term_") else f"term_{name}"
    found = [entry for entry in entries if entry.id.startswith(prefix)] if name else []
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(entry.id for entry in found[:_LISTED_IDS_MAX])
        more = ", …" if len(found) > _LISTED_IDS_MAX else ""
        raise RpcError(
            INVALID_PARAMS, f"{len(found)} terminals begin with {quote(name)}: {ids}{more}"
        )
    raise RpcError(
        RESOURCE_NOT_FOUND,
        f"there is no terminal {quote(name)}: name one by its id, the beginning of its id, "
        f"its name, or {LAST_NAME}; see acpterm ls --all",
    )


def named(entries: Iterable[TerminalEntry], name: str) -> TerminalEntry | None:
    """Return the entry with this name: the one that is not over, or else the newest."""
    found = [entry for entry in entries if entry.name == name]
    return max(
        found, key=lambda entry: (not entry.is_over, entry.record.created_time), default=None
    )


class Numbers:
    """The numbers at the ends of names. None is given twice: an agent may repeat an old name."""

    def __init__(self) -> None:
        self._last: Final[BoundedDict[str, int]] = BoundedDict(_STEMS_MAX)

    def record(self, name: str) -> None:
        if found := _NUMBERED.fullmatch(name):
            stem, number = found[1], int(found[2])
            self._last[stem] = max(number, self._last.get(stem, 0))
            self._last.move_to_end(stem)

    def numbered(self, name: str, taken: Collection[str]) -> str:
        """Replace the `#` of a final `-#` by a number that was never used."""
        if not name.endswith(_NUMBER_MARK):
            return name
        stem = name[:-1]
        numbers = itertools.count(self._last.get(stem, 0) + 1)
        return next(one for n in numbers if (one := f"{stem}{n}") not in taken)


def _find_last(entries: Sequence[TerminalEntry], *, own: bool) -> TerminalEntry:
    for entry in reversed(entries):
        if entry.is_trusted or not own:
            return entry
    if entries:
        raise RpcError(
            RESOURCE_NOT_FOUND,
            f"none of the terminals is yours, and {LAST_NAME} is no agent's here: name an "
            "agent's by its id or its name; see acpterm ls",
        )
    raise RpcError(RESOURCE_NOT_FOUND, "there is no terminal yet")


def check_name(name: str) -> None:
    """Raise `RpcError` (-32602) if a terminal may not have this name."""
    is_reserved = name.startswith(("@", "-", "term_")) or _ID_PREFIX.fullmatch(name)
    if not name or is_reserved or not _is_printable(name) or len(name) > _NAME_MAX:
        raise RpcError(
            INVALID_PARAMS,
            f"name {quote(name)}: a name is not empty, is printable, has at most {_NAME_MAX} "
            "characters, does not begin with '@', '-' or 'term_', and is no beginning of an id "
            "(8 hexadecimal digits or more)",
        )


def _is_printable(name: str) -> bool:
    return not unicodedata.category(name[:1] or " ").startswith("M") and (
        _JOINERS.sub("", name).isprintable()
    )
