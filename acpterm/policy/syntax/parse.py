"""The entry point of the parser: finds a shell line's commands, and whether the line is plain.

A line is *plain* if it has no variables, substitutions, redirections to files or other complex
syntax. The package's docstring defines the term exactly. Only a plain line can be judged safe.
"""

import functools
import time
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from acpterm.policy.syntax.command import NO_CONSTANTS, Script
from acpterm.policy.syntax.plain import plain_words
from acpterm.policy.syntax.suspected import suspected
from acpterm.policy.syntax.walk import Walk
from acpterm.policy.words import TooLongError

if TYPE_CHECKING:
    from tree_sitter import Parser, Tree

JUDGED_BYTES_MAX: Final = 2 * 1024 * 1024
"""Maximum size of a command line that is judged, in bytes."""
UNTIMED_BYTES: Final = 256
"""A line of fewer bytes is parsed without a limit of CPU time."""
PARSE_TIME_S: Final = 0.004
"""Maximum CPU time of parsing `CHUNK_BYTES` of a line, in seconds.

This is hundreds of times the time of a usual line. Shorter lines may take the same time.
"""
CHUNK_BYTES: Final = 64 * 1024
"""Maximum size of a piece of a line that the parser gets at once, in bytes."""

_ODD_CATEGORIES: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"))


def parse(line: str, constants: Mapping[str, str] = NO_CONSTANTS) -> Script:
    """Return the commands of a line, and whether the line is plain. Raises `TooLongError`."""
    if len(line) > JUDGED_BYTES_MAX:
        raise TooLongError
    odd = _odd_characters(line)
    original = line
    if odd:
        # Shells do not separate words at such characters, but the user who reads the line may do
        # so, or another program that is given the line.
        line = line.translate(dict.fromkeys(map(ord, odd), " "))
    source = line.encode(errors="replace")
    if len(source) > JUDGED_BYTES_MAX:
        raise TooLongError
    tree = _tree(source)
    walk = Walk(source, constants)
    root = tree.root_node
    walk.run(root)
    commands = tuple(walk.commands())
    problem = walk.problem
    if odd:
        first = next(one for one in original if one in odd)
        problem = f"the unusual character {unicodedata.name(first, f'U+{ord(first):04X}')}"
    elif root.has_error:
        problem = "text that cannot be parsed"
    elif not problem and plain_words(line) != walk.words:
        problem = "text that two parsers read differently"
    found = tuple(suspected(original)) if root.has_error or odd else ()
    return Script(commands, problem, walk.danger, walk.variables.constants, found)


@functools.cache
def _parser() -> "Parser":
    # Loaded on first use, since most commands of acpterm parse no line.
    import tree_sitter_bash  # noqa: PLC0415
    from tree_sitter import Language, Parser  # noqa: PLC0415

    return Parser(Language(tree_sitter_bash.language()))


def _tree(source: bytes) -> "Tree":
    """Return the syntax tree of a line. Raises `TooLongError` after too much CPU time."""
    # tree-sitter takes time quadratic in the number of commands of a pipeline.
    parser = _parser()
    if len(source) < UNTIMED_BYTES:
        return parser.parse(source)
    deadline = time.thread_time() + PARSE_TIME_S * max(1, len(source) / CHUNK_BYTES)
    try:
        return parser.parse(
            lambda at, _: source[at : at + CHUNK_BYTES],
            progress_callback=lambda *_: time.thread_time() > deadline,
        )
    except ValueError:
        parser.reset()
        raise TooLongError from None


def _is_odd(character: str) -> bool:
    return character not in " \t\n" and unicodedata.category(character) in _ODD_CATEGORIES


def _odd_characters(line: str) -> frozenset[str]:
    if line.isascii() and line.isprintable():
        return frozenset()
    return frozenset(filter(_is_odd, set(line)))
