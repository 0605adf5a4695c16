"""Reads the options and operands of a program of which only a few options are known."""

import itertools
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


def given_option(texts: Sequence[str], letters: str, names: Sequence[str], values: str = "") -> str:
    """Return the first argument that is, or may be read as, one of the given options; else ""."""
    # `values` are other letters, whose value is skipped; after an option, `--` may be its value
    # and so does not end the options.
    skip = False
    for before, text in itertools.pairwise(("", *texts)):
        if skip:
            skip = False
            continue
        if text == "--" and not before.startswith("-"):
            break
        if text.startswith("--"):
            if _is_long(text.partition("=")[0], names):
                return text
        elif text.startswith("-"):
            for at, letter in enumerate(text[1:], 2):
                if letter in letters:
                    return text
                if letter in values:
                    skip = at == len(text)
                    break
    return ""


def has_option(texts: Sequence[str], letters: str, *names: str, values: str = "") -> bool:
    """Return whether one of the short options `letters` or of the long options is given."""
    return bool(given_option(texts, letters, names, values))


def is_spared(texts: Sequence[str], letters: str, *names: str, values: str = "") -> bool:
    """Return whether one of these options, with which nothing is lost, is certainly given."""
    end = texts.index("--") if "--" in texts else len(texts)
    return has_option(texts[:end], letters, *names, values=values)


def _is_long(text: str, names: Sequence[str]) -> bool:
    # getopt_long(3) accepts abbreviations.
    return text[:2] == "--" != text and any(one.startswith(text) for one in names)


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
