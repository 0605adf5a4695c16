r"""Turns the raw words of a shell line into arguments: quotes, backslashes, braces, expansions.

A raw word is the text of a word as it is written: `r\m`, `"$X"/y`, `{a,b}`. A shell turns one raw
word into zero or more arguments (`Word`). A word from which the shell only removes quotes and
backslashes becomes a *literal* argument, whose text is exact. The text of other arguments is an
estimate that serves to find danger. In a plain line (`policy.syntax` defines *plain*), each
argument is literal, is a pattern of file names, is `~`, or begins with `~/`.

`UNKNOWN_TEXT` replaces text that is not known: the output of a command, or a variable of the
environment.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

UNKNOWN_TEXT: Final = "\ufffd"
"""Replaces text that is known only when the line is executed."""
PIPE_PATH: Final = f"/dev/fd/{UNKNOWN_TEXT}"
"""Replaces a process substitution, which a shell replaces by the path of a pipe."""
EXPANSIONS_MAX: Final = 128
"""Maximum expansions, and maximum opening braces, of a raw word that is judged."""
WORDS_MAX: Final = 64
"""Maximum words to which the braces of one raw word are expanded."""
BRACED_MAX: Final = 4096
"""Maximum characters of a raw word with braces that is judged."""

# Characters for private use. In text that is being built, they stand for braces and commas outside
# of quotes, and for the places where a shell splits the text.
_OPEN, _COMMA, _CLOSE, _SEPARATOR = "\ue000", "\ue001", "\ue002", "\ue003"
_MARKS: Final = re.compile("[\ue000-\ue003]")
_BRACES: Final = {"{": _OPEN, ",": _COMMA, "}": _CLOSE}
_UNMARKED: Final = str.maketrans({_OPEN: "{", _COMMA: ",", _CLOSE: "}"})

_SIMPLE: Final = re.compile(r"[\w@%+:./=^,-]+|\[")
_PLAIN_PIECE: Final = re.compile(r"[^\\'\"$`*?\[{},~<>]+")
_QUOTED_PIECE: Final = re.compile(r'[^\\"$`]+')
_SINGLE: Final = re.compile(r"'([^']*)'")
_ANSI_C: Final = re.compile(r"\$'((?:[^'\\]|\\.)*+)'", re.DOTALL)
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))",
    re.DOTALL,
)
_ESCAPES: Final = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v",
}  # fmt: skip
_PARAMETER: Final = re.compile(
    r"\$(?:(\w+|[@*#?!$-])|\{([#!]?)(\w+|[@*])((?:\[[^\]]*\])?)(?:(:?[-=+])(.*))?\})", re.DOTALL
)
_ECHO: Final = re.compile(
    r"(?:\$\(|`)\s*(?:echo|printf)\s+(?:-\w\s+|%s\s+|--\s+)*(['\"]?)([\w ./@%+:=-]+)\1\s*(?:\)|`)"
)
_RANGE: Final = re.compile(
    r"\ue000(\d{1,4}|[a-zA-Z])\.\.(\d{1,4}|[a-zA-Z])(?:\.\.-?\d{1,4})?\ue002"
)


class TooLongError(Exception):
    """The command exceeds a bound of the judgement, such as its length or depth of nesting."""


class Raw(NamedTuple):
    """A word as it is written, and where in the word each expansion begins and ends."""

    text: str
    expansions: tuple[tuple[int, int], ...]
    """The start and the end of each outermost expansion, as indexes in `text`, in order."""


class Word(NamedTuple):
    """An argument as a program receives it, as far as it is known."""

    text: str
    is_literal: bool = True
    """Whether the text is exact: no expansion, no glob, no brace, no tilde."""
    is_glob: bool = False
    """Whether the text is a pattern that the shell replaces by names of files."""

    @property
    def may_become_option(self) -> bool:
        """Whether the word is a pattern that may match a file name that begins with a dash."""
        return self.is_glob and self.text[:1] in ("*", "?", "[", "-", UNKNOWN_TEXT)


def words_of(raw: Raw, constants: Mapping[str, str], unknown: str = UNKNOWN_TEXT) -> list[Word]:
    """Return the arguments that a shell makes of a raw word. Raises `TooLongError`."""
    if _SIMPLE.fullmatch(raw.text):
        return [Word(raw.text)]
    text, is_literal, is_glob, is_quoted = _scan(raw, constants, unknown)
    if not _MARKS.search(text):
        return [Word(text, is_literal, is_glob)] if text or is_quoted or is_literal else []
    if _OPEN in text and len(text) > BRACED_MAX:
        raise TooLongError
    found = []
    for expanded in _expand_braces(text):
        pieces = expanded.split(_SEPARATOR)
        is_exact = is_literal and len(pieces) == 1 and expanded == text
        found += [
            Word(piece.translate(_UNMARKED), is_exact, is_glob)
            for piece in pieces
            if piece or is_quoted
        ]
    if len(found) == 1 and found[0].text == text.translate(_UNMARKED):
        # The shell does not expand these braces, such as those of `stash@{0}` or of find's `{}`.
        return [Word(found[0].text, is_literal, is_glob)]
    return [word._replace(is_literal=False) for word in found]


def _scan(  # noqa: C901, PLR0912, PLR0915  one state machine, a branch for each character
    raw: Raw, constants: Mapping[str, str], unknown: str
) -> tuple[str, bool, bool, bool]:
    """Return the text of a raw word, and whether it is literal, has a glob, and has quotes."""
    # Marks (`_MARKS`) stand for unquoted braces and commas, and for where a shell splits.
    source = raw.text
    starts = dict(raw.expansions)
    if len(starts) > EXPANSIONS_MAX or source.count("{") > EXPANSIONS_MAX:
        raise TooLongError
    out: list[str] = []
    is_literal, is_glob, is_quoted, in_quotes = True, False, False, False
    at, size = 0, len(source)
    while at < size:
        end = starts.get(at)
        if end is not None and end > at:
            if source[at:end] == "$?":
                out.append("0")
                at = end
                continue
            value = _value(source[at:end], constants, unknown)
            is_split = not in_quotes or source[at:end].endswith(("$@", "{@}", "[@]}"))
            out.append(_split(value, constants) if is_split else value)
            is_literal = False
            at = end
            continue
        piece = (_QUOTED_PIECE if in_quotes else _PLAIN_PIECE).match(source, at)
        if piece is not None:
            out.append(piece[0])
            at = piece.end()
            continue
        character = source[at]
        if character == '"':
            in_quotes = not in_quotes
            is_quoted = True
        elif character == "\\":
            following = source[at + 1 : at + 2]
            if in_quotes and following not in ("$", "`", '"', "\\", "\n"):
                out.append("\\")
                at += 1
                continue
            out.append("" if following == "\n" else following)
            at += 2
            continue
        elif in_quotes:
            # A `$` before other text, or a backquote where the line has an error.
            out.append(character)
            is_literal = is_literal and character == "$"
        elif character == "'" and (match := _SINGLE.match(source, at)):
            out.append(match[1])
            is_quoted = True
            at = match.end()
            continue
        elif character == "$" and (match := _ANSI_C.match(source, at)):
            # Some shells do not know this form, so the word is not literal.
            out.append(_ESCAPE.sub(_escaped, match[1]))
            is_literal, is_quoted = False, True
            at = match.end()
            continue
        elif character in "*?[":
            is_glob = True
            is_literal = False
            out.append(character)
        elif character == "~":
            is_literal = is_literal and at > 0 and source[at - 1] not in ":="
            out.append(character)
        elif character in _BRACES:
            out.append(_BRACES[character])
        else:
            # `$"…"` is a string to translate, whose `$` is dropped. A quote without an end is an
            # error of the line.
            if character != "$" or source[at + 1 : at + 2] != '"':
                out.append(character)
            is_literal = is_literal and character == "$" and source[at + 1 : at + 2] != '"'
        at += 1
    return "".join(out), is_literal, is_glob, is_quoted


def _escaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code:
        value = int(code, 16)
        return chr(value) if value <= 0x10FFFF else UNKNOWN_TEXT
    if match[4]:
        return chr(int(match[4], 8) & 0xFF)
    if match[5]:
        return chr(ord(match[5]) & 0x1F)
    return _ESCAPES.get(match[6], match[6])


def _value(expansion: str, constants: Mapping[str, str], unknown: str) -> str:
    """Return the value of a variable or of `$(echo WORDS)`; `unknown` for other expansions."""
    if expansion.startswith(("<(", ">(")):
        return PIPE_PATH
    match = _PARAMETER.fullmatch(expansion)
    if match is None:
        echo = _ECHO.fullmatch(expansion)
        return echo[2].strip() if echo else unknown
    simple, prefix, name, _, operator, default = match.groups()
    if prefix:
        indirect = constants.get(name) if prefix == "!" else None
        return constants.get(indirect, unknown) if indirect is not None else unknown
    if simple and simple[0].isdigit() and len(simple) > 1:
        # The name of a positional parameter without braces is one digit.
        return constants.get(simple[0], unknown) + simple[1:]
    value = constants.get(simple or name)
    if operator and (value is None or operator.endswith("+")):
        # Whether `x` is set may not be known: `${x:+word}` is tried as the word, and as nothing.
        is_unset = operator.endswith("+") and not value and not unknown
        return "" if is_unset else re.sub(r"""['"\\]""", "", default)
    return unknown if value is None else value


def _split(value: str, constants: Mapping[str, str]) -> str:
    separators = " \t\n" + constants.get("IFS", "")
    if not any(character in value for character in separators):
        return value
    return re.sub(f"[{re.escape(separators)}]+", _SEPARATOR, value)


def _expand_braces(text: str) -> list[str]:
    """Return the texts of the marked braces in `text`, at most `WORDS_MAX`."""
    done: list[str] = []
    waiting = [text]
    # Each round expands one pair of braces, or finds that a brace is literal.
    for _ in range(4 * WORDS_MAX):
        if not waiting or len(done) + len(waiting) > WORDS_MAX:
            break
        current = waiting.pop()
        variants = _expand_first(current)
        if variants is None:
            done.append(current)
        else:
            waiting += reversed(variants)
    return [*done, *reversed(waiting)][:WORDS_MAX]


def _expand_first(text: str) -> list[str] | None:
    """Expand the first braces, of a range such as `{1..9}` only the ends; None without braces."""
    begin = text.find(_OPEN)
    if begin < 0:
        return None
    if match := _RANGE.match(text, begin):
        return [text[:begin] + one + text[match.end() :] for one in match.group(1, 2)]
    edges, depth = [begin], 0
    for mark in _MARKS.finditer(text, begin + 1):
        if mark[0] == _OPEN:
            depth += 1
        elif mark[0] == _CLOSE and depth:
            depth -= 1
        elif mark[0] == _COMMA and not depth:
            edges.append(mark.start())
        elif mark[0] == _CLOSE and len(edges) > 1:  # bash skips a `}` before the first comma
            edges.append(mark.start())
            pieces = (text[left + 1 : right] for left, right in pairwise(edges))
            return [text[:begin] + piece + text[mark.end() :] for piece in pieces]
    return [f"{text[:begin]}{{{text[begin + 1 :]}"]
