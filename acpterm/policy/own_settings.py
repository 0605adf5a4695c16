"""Recognises commands that change acpterm's own settings and rules, or the settings of agents.

Such a command could change what agents may run, so it is dangerous whatever the lists of the
profile say. Only the words of commands are examined: a program that opens the files without naming
them in its arguments is not recognised.
"""

import os.path
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from acpterm.policy.words import UNKNOWN_TEXT, Word

_COMMANDS: Final = (
    ("policy", "allow"),
    ("policy", "ask"),
    ("policy", "deny"),
    ("policy", "remove"),
    ("provider", "set"),
    ("provider", "select"),
    ("terminal", "provider", "set"),
    ("terminal", "provider", "select"),
    ("setup",),
)
_PYTHON: Final = re.compile(r"(?:python|pypy)[0-9.]*")
_MODULE: Final = re.compile(r"-[a-zA-Z]*?m(.*)", re.DOTALL)
_FILE: Final = re.compile(
    r"(?:^|/)acpterm/(?:config|rules)\.toml$|/(?:\.config|Application Support)/acpterm(?:/|$)"
    r"|^\.config/acpterm(?:/|$)"
)
# Programs that write, replace or remove each of their operands. `ln` and `link` give a file another
# name, through which it can be written.
_CHANGE_ALL: Final = frozenset(("tee", "mv", "rm", "unlink", "truncate", "ln", "link"))
# Programs that write to their last operand, or into the directory that an option names.
_CHANGE_LAST: Final = frozenset(("cp", "install", "rsync"))
_IN_PLACE: Final = re.compile(r"-[a-zA-Z]*i.*|--in.*")
_DIRECTORY: Final = re.compile(r"(?:--t[a-z-]*=|-[a-zA-Z]*t)(.+)", re.DOTALL)


def is_own_file(path: str) -> bool:
    """Return whether `path` looks like acpterm's settings or rules, or their directory."""
    return _FILE.search(os.path.normpath(path)) is not None


def changes_settings(words: Sequence[Word]) -> str:
    """Return why a command could change acpterm's or agents' settings; else empty."""
    name = words[0].text.rpartition("/")[2]
    rest = words[1:]
    if _PYTHON.fullmatch(name):
        name, rest = _module(rest)
    if name == "acpterm":
        return _own_command(rest)
    return next(
        (f"it changes {path}, acpterm's settings" for path in _written(name, rest)
         if is_own_file(path)), ""
    )  # fmt: skip


def _module(words: Sequence[Word]) -> tuple[str, Sequence[Word]]:
    """Return the package of the module that `python -m` executes, and the words after it."""
    for at, word in enumerate(words):
        if not word.text.startswith("-"):
            break
        if found := _MODULE.fullmatch(word.text):
            if found[1]:
                return found[1].partition(".")[0], words[at + 1 :]
            name = words[at + 1].text if words[at + 1 : at + 2] else ""
            return name.partition(".")[0], words[at + 2 :]
    return "", ()


def _own_command(words: Sequence[Word]) -> str:
    operands = [word for word in words if not word.text.startswith("-")]
    for command in _COMMANDS:
        if len(operands) >= len(command) and all(map(_may_be, operands, command)):
            break
    else:
        return ""
    if command == ("setup",):
        options = [word.text for word in words]
        is_list = len(operands) == 1 and "--skill" not in options
        if is_list or "--dry-run" in options or "--help" in options:
            return ""
        return "it changes agents' settings"
    return "it changes what agents may run, or where"


def _may_be(word: Word, expected: str) -> bool:
    """Return whether `word` is `expected`, or may become `expected` when a shell expands it."""
    if word.is_glob:
        return fnmatchcase(expected, word.text)
    return word.text == expected or UNKNOWN_TEXT in word.text


def _written(name: str, words: Sequence[Word]) -> list[str]:
    """Return the arguments that may be paths which the program `name` writes or removes."""
    texts = [word.text for word in words]
    if name in _CHANGE_ALL or (name == "sed" and any(map(_IN_PLACE.fullmatch, texts))):
        found = texts
    elif name in _CHANGE_LAST:
        after = [texts[at] for at in range(1, len(texts)) if _is_directory_option(texts[at - 1])]
        found = [*texts[-1:], *after]
    else:
        return []
    return [*found, *(match[1] for text in texts if (match := _DIRECTORY.fullmatch(text)))]


def _is_directory_option(text: str) -> bool:
    return re.fullmatch(r"-[a-zA-Z]*t|--t[a-z-]*", text) is not None
