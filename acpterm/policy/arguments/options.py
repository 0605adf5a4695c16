"""Recognition of options and paths among the arguments of a program, for all checks."""

import itertools
from collections.abc import Sequence


def matching_option(
    arguments: Sequence[str], letters: str, names: Sequence[str], values: str = ""
) -> str:
    """Return the first argument that is, or may be read as, one of the given options; else ""."""
    # getopt_long(3) accepts abbreviations. `values` are other letters, whose value is skipped;
    # after an option, `--` may be its value and so does not end the options.
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
    """Return the reason for an unsafe option; "" for "", which is no option."""
    return f"{argument} makes it execute something or write a file" if argument else ""


def is_outside(path: str) -> bool:
    """Return whether a path may lead out of the working directory."""
    return path.startswith(("/", "~")) or ".." in path.split("/")
