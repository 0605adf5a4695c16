"""Options and paths in the arguments of a program."""

import itertools
from collections.abc import Sequence


def matching_option(
    arguments: Sequence[str], letters: str, names: Sequence[str], values: str = ""
) -> str:
    """Return the first argument that is one of some options, or may be read as one.

    `letters` are short options, `values` the short options that take a value. `names` are long
    options, of which getopt accepts beginnings. After an option, `--` may be its value, so that it
    does not end the options.
    """
    skip = False
    for before, argument in itertools.pairwise(("", *arguments)):
        if skip:
            skip = False
            continue
        if argument == "--" and not before.startswith("-"):
            break
        if argument.startswith("--"):
            if _is_long(argument, names):
                return argument
        elif argument.startswith("-"):
            for at, letter in enumerate(argument[1:], 2):
                if letter in letters:
                    return argument
                if letter in values:
                    skip = at == len(argument)
                    break
    return ""


def _is_long(argument: str, names: Sequence[str]) -> bool:
    given = argument.partition("=")[0]
    return given != "--" and any(name.startswith(given) for name in names)


def because(argument: str) -> str:
    """Return why `argument` is not safe; empty if it is empty."""
    return f"{argument} makes it execute something or write a file" if argument else ""


def is_outside(path: str) -> bool:
    """Return whether a path may lead out of the current directory."""
    return path.startswith(("/", "~")) or ".." in path.split("/")
