"""Redacts secrets that follow a name: values of variables, options, JSON members and headers."""

import re
from collections.abc import Callable
from functools import cache
from typing import Final

from acpterm.runtime.redaction.secret_names import Strength, is_switch, strength
from acpterm.runtime.redaction.tokens import REDACTED
from acpterm.runtime.redaction.values import VALUE, is_random, is_reference, may_be_secret

# Groups: the dashes of an option, the name, and the separator before a value. An option may be
# separated from its value by spaces only.
_NAME: Final = (
    r"(?<![\w.-])(-{1,2}(?=[A-Za-z]))?+([A-Za-z_][\w.-]{1,127}+)"
    r"""((?:\\{0,3}+["'])?+\]?+(?::\s?(?:str|[sS]tring)\b(?=\s?=))?+"""
    r"""\s{0,8}+(?::=|=>|=(?![=~])|:(?![:/])|(?<=["']),(?=\s{0,8}["']))\s{0,8}+"""
    r"""|(?(1)\s{1,8}+|(?!)))"""
)
_SCHEME: Final = r"(?i:(?:bearer|basic|token|digest|negotiate|apikey|bot|key)(?:\\?\s){1,4}+)"
_AUTHORIZATION: Final = rf"""\\?\s{{0,4}}(\\?["']?)({_SCHEME})?+([^\s"'\\,]++)"""
_COOKIE: Final = r"""(\\?["']?)([^\s"'\\=]{1,200}+=[^"'\\\n]*+)"""
_BEARER: Final = r"(?i:\b(bearer\s{1,4}))([\w.~+/=-]{16,}+)"
# `aws configure set NAME VALUE`, `npm config set NAME VALUE`, `setenv NAME VALUE`.
_SET: Final = (
    r"(?<![\w-])(?:set|setenv|add)\s{1,4}+(?:-\w+\s{1,4}+){0,3}+([^\s\"'=]{2,200}+)\s{1,4}+"
)
_INDENTATION_MAX: Final = 80
# A longer value without quotes is redacted unseen: the names in it would be judged with all that
# follows them, each time again.
_JUDGED_MAX: Final = 512


def redact_named(text: str, lower: str) -> str:
    """Redact each secret in `text` that follows the name of a secret; return the result.

    `lower` is `text` in lower case, which the caller has computed for its own checks.
    """
    text = _replace(text, _NAME, _after_name)
    if "set" in lower or "add" in lower:
        text = _replace(text, _SET, _after_set)
    return text


def redact_bearer(text: str) -> str:
    """Redact each token in `text` that follows the word Bearer; return the result."""
    return re.sub(
        _BEARER, lambda match: match[1] + (REDACTED if is_random(match[2]) else match[2]), text
    )


def option_strength(argument: str) -> Strength:
    """Return how certain it is that the argument after the option `argument` is a secret.

    Returns `Strength.NONE` if `argument` is no option, or contains its value after `=`.
    """
    if not argument.startswith("-") or "=" in argument:
        return Strength.NONE
    name = argument.lstrip("-")
    return Strength.NONE if len(name) < 2 or is_switch(name) else strength(name)


def _replace(
    text: str, pattern: str, find: Callable[[str, re.Match[str]], tuple[int, int] | None]
) -> str:
    """Redact the secret after each match of `pattern` in `text`; return the result.

    `find` returns the start and end of the secret; None if no secret follows the match. The next
    search begins after the secret. If there was no secret, it begins after the match, because the
    text that follows may contain other names.
    """
    search = _compiled(pattern).search
    pieces, position, copied = [], 0, 0
    while match := search(text, position):
        position = match.end()
        if found := find(text, match):
            start, position = found
            pieces += [text[copied:start], REDACTED]
            copied = position
    return "".join([*pieces, text[copied:]]) if pieces else text


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _after_name(text: str, match: re.Match[str]) -> tuple[int, int] | None:
    """Return the start and end of the secret after the name in `match`, a match of `_NAME`.

    Return None if there is no secret.
    """
    dashes, name, separator = match.groups()
    if dashes == "-" and name.startswith("D"):  # a property of Java or CMake
        name = name[1:]
    last = name.rpartition("-")[2].lower()
    if last in ("authorization", "cookie"):
        return _after_header(text, match.end(), last)
    certainty = strength(name)
    if certainty is Strength.NONE:
        return None
    sign = separator.strip("\\\"' \t\n")
    value = None if not sign and is_switch(name) else VALUE.match(text, match.end())
    if value is None:
        return None
    last_group = value.lastindex or 0
    is_quoted = bool(value[last_group - 1])
    if not is_quoted and len(value[last_group]) > _JUDGED_MAX:
        return value.span(last_group)
    is_tight = separator in ("=", ":=") or not sign
    previous = text[match.start() - 1 : match.start()]
    is_header = sign == ":" and "-" in name and (previous in "\"'\n" or separator == ":")
    is_option = separator == ":" and bool(dashes or previous == "/")
    is_certain = is_quoted or is_tight or is_header or is_option or _is_line(text, match, value)
    if (is_quoted or _is_whole(text, value, sign)) and may_be_secret(
        value[last_group], certainty, is_certain=is_certain
    ):
        return value.span(last_group)
    return None


def _is_line(text: str, name: re.Match[str], value: re.Match[str]) -> bool:
    """Return whether `name = value` or `name: value` is a line of its own, as in YAML and INI."""
    start = max(0, name.start() - _INDENTATION_MAX)
    _, newline, before = text[start : name.start()].rpartition("\n")
    return (
        name[3] in (": ", " = ", ":", " : ")
        and (bool(newline) or start == 0)
        and not before.strip(" \t-")
        and text[value.end() : value.end() + 1] in ("", "\n", "\r")
    )


def _is_whole(text: str, value: re.Match[str], sign: str) -> bool:
    """Return False if a value without quotes is an option (`-x`), a call (`f(`) or an index (`a[`).

    `value` is the match of the value in `text`. `sign` is the sign between the name and the value,
    such as `=`; empty if there are only spaces. A value after a sign is never an option.
    """
    word, end = value[0], value.end()
    if not sign and word.startswith("-"):
        return False
    return not (word.endswith("[") or text[end : end + 1] == "(")


def _after_header(text: str, position: int, name: str) -> tuple[int, int] | None:
    """Return the start and end of the secret in the header `name`; None if there is no secret.

    The value of the header starts at `position`.
    """
    if name == "cookie":
        cookie = _compiled(_COOKIE).match(text, position)
        return None if cookie is None or is_reference(cookie[2]) else cookie.span(2)
    match = _compiled(_AUTHORIZATION).match(text, position)
    if match is None or is_reference(match[3]) or not (match[2] or is_random(match[3])):
        return None
    return match.span(3)


def _after_set(text: str, match: re.Match[str]) -> tuple[int, int] | None:
    """Return the start and end of the secret after words like `set NAME`; None if there is none.

    `match` is the match of these words: `set`, `setenv` or `add`, and a name as group 1.
    """
    certainty = strength(re.split("[:/]", match[1])[-1][-128:])
    value = VALUE.match(text, match.end()) if certainty else None
    if value is None or not may_be_secret(value[value.lastindex or 0], certainty, is_certain=False):
        return None
    return value.span(value.lastindex or 0)
