"""Parses plain lines by a regular expression, without tree-sitter.

The docstring of the package `policy.syntax` says which lines are plain. This parser and the one
that uses tree-sitter must find the same words in a plain line.
"""

import re
from typing import Final

KEYWORDS: Final = frozenset(
    ("!", "[[", "]]", "{", "}", "if", "then", "elif", "else", "fi", "case", "esac", "for", "select",
     "while", "until", "do", "done", "in", "function", "coproc")
)  # fmt: skip
"""Reserved words of shells, such as `if`."""
_TOKEN: Final = re.compile(
    r"""(?P<blank>(?:[ \t]|\\\n)++)
    |(?P<redirection>(?:[0-9]+(?=[<>]))?(?:(?:>>?|<|>\||&>>?|>&)[ \t]*/dev/null(?=[ \t\n;|&]|$)
        |[<>]&[ \t]*(?:[0-9]+|-)(?=[ \t\n;|&<>]|$)))
    |(?P<operator>&&|\|\||[;|\n])
    |(?P<word>(?:[^\s'"\\;&|<>()$`\#]|\\[^\n]|'[^']*+'|"(?:[^"\\$`]|\\.)*+"|(?<=[^\s;&|<>])\#
        |\$(?![\w({'"@*\#?$!-]))++)
    """,
    re.DOTALL | re.VERBOSE,
)


def plain_words(line: str) -> list[list[str]] | None:
    """Return the raw words of each command of a plain line; None if the line is not plain."""
    commands: list[list[str]] = [[]]
    at, operator = 0, "\n"
    while at < len(line):
        match = _TOKEN.match(line, at)
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
    return None if any(words[0] in KEYWORDS for words in commands) else commands
