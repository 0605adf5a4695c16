"""Reads the options and operands of a program of which only a few options are known."""

import posixpath
import re
from collections.abc import Sequence

from acpterm.policy.words import UNKNOWN_TEXT


def operands_of(texts: Sequence[str], values: str = "") -> list[str]:
    """Return the arguments that are no options; letters in `values` are options with a value."""
    found: list[str] = []
    skip = False
    for at, text in enumerate(texts):
        if skip:
            skip = False
        elif text == "--":
            return [*found, *texts[at + 1 :]]
        elif text.startswith("-") and text != "-":
            skip = len(text) == 2 and text[1] in values
        else:
            found.append(text)
    return found


def has_option(texts: Sequence[str], letters: str, *names: str) -> bool:
    """Return whether one of the short options `letters` or of the long options is given."""
    # Programs accept the beginning of a long option.
    for text in texts:
        if text == "--":
            return False
        if text.startswith("--"):
            if _is_long(text.partition("=")[0], names):
                return True
        elif text.startswith("-") and any(letter in text[1:] for letter in letters):
            return True
    return False


def _is_long(text: str, names: Sequence[str]) -> bool:
    return text in names or (
        len(text) > len("--x")
        and text.startswith("--")
        and any(one.startswith(text) for one in names)
    )


def value_of(texts: Sequence[str], short: str, *names: str) -> str | None:
    """Return the value of an option, such as `-o x`, `-ox` or `--output=x`."""
    for at, text in enumerate(texts):
        name, equals, value = text.partition("=")
        if _is_long(name, names):
            return value if equals else "".join(texts[at + 1 : at + 2])
        if short and text.startswith(f"-{short}"):
            return text[2:] or "".join(texts[at + 1 : at + 2])
        if short and re.fullmatch(rf"-[a-zA-Z]+{short}", text):
            return "".join(texts[at + 1 : at + 2])
    return None


def enter(directory: str | None, target: str) -> str | None:
    """Return the directory that `cd target` leads to; None if that is not known."""
    if (
        UNKNOWN_TEXT in target
        or target == "-"
        or (target.startswith("~") and not re.match(r"~(?:/|$)", target))
    ):
        return None
    if target.startswith(("/", "~")):
        return target
    return None if directory is None else posixpath.normpath(posixpath.join(directory, target))
