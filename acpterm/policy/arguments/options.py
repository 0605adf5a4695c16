"""Options and paths in the arguments of a program."""

from collections.abc import Sequence


def matching_option(
    arguments: Sequence[str], letters: str, names: Sequence[str], values: str = ""
) -> str:
    """Return the first argument that is one of some options, or may be read as one.

    `letters` are short options, `values` the short options that take a value. `names` are long
    options, of which getopt accepts beginnings.
    """
    skip = False
    for argument in arguments:
        if skip:
            skip = False
            continue
        if argument == "--":
            break
        if argument.startswith("--"):
            given = argument.partition("=")[0]
            if any(name.startswith(given) for name in names):
                return argument
        elif argument.startswith("-"):
            for at, letter in enumerate(argument[1:], 2):
                if letter in letters:
                    return argument
                if letter in values:
                    skip = at == len(argument)
                    break
    return ""


def because(argument: str) -> str:
    """Return why `argument` is not safe; empty if it is empty."""
    return f"{argument} makes it execute something or write a file" if argument else ""


def is_outside(path: str) -> bool:
    """Return whether a path may lead out of the current directory."""
    return path.startswith(("/", "~")) or ".." in path.split("/")
