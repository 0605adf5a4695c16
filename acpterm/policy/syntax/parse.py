"""The entry point of the parser: finds a shell line's commands, and whether the line is plain."""

import functools
import itertools
import re
import time
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from acpterm.policy.syntax.command import NO_CONSTANTS, Script, SimpleCommand
from acpterm.policy.syntax.walk import COMMANDS_MAX, CommandWalk
from acpterm.policy.words import Raw, TooLongError, Word, words_of

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

SUSPECTED_MAX: Final = 64
"""Maximum pieces of a line, and maximum words of each piece, that are examined."""

_SEPARATORS: Final = re.compile("[;&|\n()`\r\x0b\x0c\x85\u2028\u2029]+")
_PUNCTUATION: Final = re.compile(r"[\s{},'\"$]+")
_KEYWORDS: Final = frozenset(
    ("!", "[[", "]]", "{", "}", "if", "then", "elif", "else", "fi", "case", "esac", "for", "select",
     "while", "until", "do", "done", "in", "function", "coproc")
)  # fmt: skip
# Parses plain lines without tree-sitter. Both parsers must find the same words in a plain line.
_PLAIN_TOKEN: Final = re.compile(
    r"""(?P<blank>(?:[ \t]|\\\n)++)
    |(?P<redirection>(?:[0-9]+(?=[<>]))?(?:(?:>>?|<|>\||&>>?|>&)[ \t]*/dev/null(?=[ \t\n;|&]|$)
        |[<>]&[ \t]*(?:[0-9]+|-)(?=[ \t\n;|&<>]|$)))
    |(?P<operator>&&|\|\||[;|\n])
    |(?P<word>(?:[^\s'"\\;&|<>()$`\#]|\\[^\n]|'[^']*+'|"(?:[^"\\$`]|\\.|\$\?)*+"|(?<=[^\s;&|<>])\#
        |\$\?|\$(?![\w({'"@*\#?$!-]))++)
    """,
    re.DOTALL | re.VERBOSE,
)


_QUOTED: Final = re.compile(r"""'[^']*+'|"(?:[^"\\]|\\.)*+"|\\.""", re.DOTALL)


# A command is judged several times: by each profile, with the facts, and whether it may write.
_RECENT_CHARS_MAX: Final = 4096


def parse(line: str, constants: Mapping[str, str] = NO_CONSTANTS) -> Script:
    """Return the commands of a line, and whether the line is plain. Raises `TooLongError`."""
    if len(line) > _RECENT_CHARS_MAX:
        return _parse(line, constants)
    return _recently_parsed(line, tuple(constants.items()))


@functools.lru_cache(16)
def _recently_parsed(line: str, constants: tuple[tuple[str, str], ...]) -> Script:
    return _parse(line, dict(constants))


def _parse(line: str, constants: Mapping[str, str]) -> Script:
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
    walk = CommandWalk(source, constants)
    root = tree.root_node
    walk.run(root)
    commands = tuple(walk.commands())
    problem = walk.problem
    if odd:
        first = next(one for one in original if one in odd)
        problem = f"the unusual character {unicodedata.name(first, f'U+{ord(first):04X}')}"
    elif root.has_error:
        problem = "text that cannot be parsed"
    elif not problem and _plain_words(line) != walk.words:
        problem = "text that two parsers read differently"
    texts = [original] if root.has_error or odd else walk.suspected
    return Script(commands, problem, walk.danger, walk.variables.constants, tuple(texts))


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


def _plain_words(line: str) -> list[list[str]] | None:
    """Return the raw words of each command of a plain line; None if the line is not plain."""
    commands: list[list[str]] = [[]]
    at, operator = 0, "\n"
    while at < len(line):
        match = _PLAIN_TOKEN.match(line, at)
        if match is None:
            return None
        at = match.end()
        if match.lastgroup == "operator":
            if commands[-1]:
                commands.append([])
                operator = match[0]
            elif match[0] != "\n":
                return None
        elif match.lastgroup == "word":
            commands[-1].append(match[0])
    if not commands[-1]:
        commands.pop()
        if operator in ("&&", "||", "|"):
            return None
    return None if any(words[0] in _KEYWORDS for words in commands) else commands


def unquoted(line: str) -> str:
    """Return a plain line with `_` for what its quotes and backslashes take the meaning from."""
    return _PLAIN_TOKEN.sub(
        lambda token: _QUOTED.sub(_masked, token[0]) if token["word"] else token[0], line
    )


def _masked(quoted: re.Match[str]) -> str:
    return re.sub(r"[^\w/.-]", "_", quoted[0].strip("'\"\\"))


def suspected_in(texts: Collection[str]) -> Iterator[SimpleCommand]:
    """Yield the possible commands of `Script.suspected`. Raises `TooLongError`."""
    yield from itertools.chain.from_iterable(map(suspected, texts))
    if len(texts) > COMMANDS_MAX:
        raise TooLongError


def suspected(line: str) -> Iterator[SimpleCommand]:
    """Yield possible commands of a line that cannot be parsed."""
    # Each piece is read twice: without its quotes and backslashes, and as words of a shell.
    for text in itertools.islice(filter(str.strip, _SEPARATORS.split(line)), SUSPECTED_MAX):
        expanded = itertools.chain.from_iterable(
            words_of(Raw(word, ()), NO_CONSTANTS) for word in text.split()[:SUSPECTED_MAX]
        )
        simple = _PUNCTUATION.sub(" ", text.replace("\\", "")).split()[:SUSPECTED_MAX]
        for words in (simple, [word.text for word in expanded]):
            while words and words[0] in _KEYWORDS:
                del words[0]
            if words:
                yield SimpleCommand(tuple(Word(word, is_literal=False) for word in words))
