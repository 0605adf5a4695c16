"""Reads the tables: what commands lose by their words, and the names of files and programs.

`commands.tsv`: programs; kind; reason; what their arguments, joined by spaces, begin with, where
`<options>` is `_OPTIONS` and `<local>` is `_LOCAL`. `<code>` is the code of any interpreter, and
`<sql>` what a client of a database is given. `names.tsv`: list; the place in which a path counts;
patterns of paths, or words.
"""

import functools
import pkgutil
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from acpterm.config.profiles import Kind

_OPTIONS: Final = r"(?:-\S+ (?:[^-\s]\S* )??)*"
# The address of a request to this machine, and no other.
_LOCAL: Final = (
    r"(?!.*https?://(?!<here>))(?!(?:.* )?(?:-x|--(?:pre)?proxy|--socks\S*)[ =])"
    r"(?!.*(?:^|(?<!Host:) )(?!<here>)[\w-]+(?:\.[\w-]+)+(?::\d+)?/).*(?:^| )<here>"
).replace(
    "<here>",
    r"(?:\w+://)?(?:[^/ @]*@)?(?:localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0)"
    r"(?![\w.-]|[^/ ]*@)",
)
_PLACES: Final = {
    "anywhere": r"(?:^|[/:=@])",
    "home": r"^(?:~[\w-]*|/home/[^/]+|/root|/Users/[^/]+)/",
    "root": "^",
}
_Row: TypeAlias = tuple[str, Kind, str, str]
Check: TypeAlias = tuple[re.Pattern[str], Kind, str]


# Read and compiled on first use, since most commands of acpterm judge nothing.
def _read(name: str) -> list[list[str]]:
    text = (pkgutil.get_data(__package__, name) or b"").decode()
    return [line.split("\t") for line in text.splitlines()[1:]]


@functools.cache
def _rows() -> dict[str, list[_Row]]:
    found: dict[str, list[_Row]] = {}
    for row in msgspec.convert(_read("commands.tsv"), list[_Row]):
        for program in row[0].split():
            found.setdefault(program, []).append(row)
    return found


def checks_of(program: str) -> Sequence[Check]:
    """Return what the arguments of a program may begin with, and what they lose then."""
    return [_check(row) for row in _rows().get(program, ())]


# Not by the programs' names: those in no row have any length.
@functools.cache
def _check(row: _Row) -> Check:
    _, kind, reason, pattern = row
    pattern = pattern.replace("<options>", _OPTIONS).replace("<local>", _LOCAL)
    return re.compile(pattern, re.DOTALL), kind, reason


@functools.cache
def _names(name: str) -> dict[str, list[str]]:
    """Return the names of a list, by their places."""
    found: dict[str, list[str]] = {}
    for list_name, place, names in _read("names.tsv"):
        if list_name == name:
            found.setdefault(place, []).append(names)
    return found


@functools.cache
def listed_words(name: str) -> frozenset[str]:
    """Return the words of a list, such as `git`: its commands that lose nothing."""
    return frozenset(" ".join(_names(name)[""]).split())


@functools.cache
def listed_paths(name: str) -> re.Pattern[str]:
    """Return the pattern of the paths or names of a list, such as `secret`."""
    places = (f"{_PLACES[one]}(?:{'|'.join(names)})$" for one, names in _names(name).items())
    return re.compile("|".join(places))
