"""Values after the name of a secret: where a value ends, and whether the value can be a secret.

A value is a quoted string, a string in escaped quotes (as in JSON inside a shell line), or a word
up to the next space, quote or operator of the shell.
"""

import re
from functools import cache
from typing import Final

from acpterm.runtime.redaction.secret_names import Strength
from acpterm.runtime.redaction.tokens import REDACTED

# Each alternative has two groups: the text before the secret, such as a quote, and the secret.
VALUE: Final = re.compile(
    r"""(\\{1,3}+["'])([^"'\\]*+(?:\\[^"'\\][^"'\\]*+)*+)"""
    r"""|(\"{3}|'{3})([^"']++)"""
    r"""|('"'"'|'\\'')(?=[^\s'])([^']++)"""
    r"""|(\$?')((?:[^']|'\\''|'"'"')*+)"""
    r"""|(\$?")((?:[^"\\]|\\(?s:.))*+)"""
    r"""|()((?:[^\s"'`;&|<>()\\]|\\[^"'\n])++)"""
)
# A reference to a variable, the output of a command, or a placeholder.
_REFERENCE: Final = re.compile(
    r"\$(?:\w+|\{\w+\}|\(.*|)|\$\{\{.*|%\w+%|\{\{.*|<[^<>]*>?|\*+|\.{3}|…|@.*|`.*", re.DOTALL
)
_WORDS: Final = (
    "true false null none nil undefined yes no on off str string int bool bytes required optional "
    "env stdin prompt file pass auto default string secretstr token"
)
_SMALL: Final = re.compile(r"\d{1,3}")
_PATH: Final = re.compile(r"(?:~|\.{1,2})?(?:/[\w.@+ -]+)+/?|[A-Za-z]:[\\/].*|[\w.+-]*://.*")
_ORDINARY: Final = re.compile(
    # Words with a number; a number; a version, a date or a time; a module or a file's name.
    r"[A-Z]?[a-z]*(?:[-_.:/,][A-Z]?[a-z]*)*[-_.]?\d{0,4}|[\d.,:_+TZ/-]+|[\w-]+\.[a-z]{1,4}"
)
_DIGIT: Final = re.compile(r"\d")
_LETTER: Final = re.compile(r"[^\W\d_]")
_CHARS_CHECKED: Final = 4096


def is_reference(value: str) -> bool:
    """Return whether `value` cannot be a secret itself.

    This is true if `value` is empty, is redacted already, refers to a variable or to the output of
    a command, or is text such as `<password>`, `***` or `...`.
    """
    return not value or value.endswith(REDACTED) or bool(_REFERENCE.fullmatch(value))


def may_be_secret(value: str, certainty: Strength, *, is_certain: bool) -> bool:
    """Return whether `value`, which follows a name such as `password`, is a secret.

    `certainty` says how clearly the name indicates a secret. `is_certain` says whether the text is
    certainly a name and its value: true for `NAME=value`, for example, but false for `name: value`,
    which can be prose or code.
    """
    is_given = is_certain and certainty is not Strength.WEAK
    if not is_given and not _has_digit_and_letter(value, 6):
        return False
    if is_reference(value) or value.lower() in _words() or _SMALL.fullmatch(value):
        return False
    if certainty is Strength.STRONG:
        return True
    return not _is_path(value) if is_given else is_random(value)


def is_random(value: str) -> bool:
    """Return whether `value` looks like a generated secret, and not like a word or a number."""
    return (
        _has_digit_and_letter(value, 8)
        and not _is_path(value)
        and not _ORDINARY.fullmatch(value[:_CHARS_CHECKED])
    )


@cache
def _words() -> frozenset[str]:
    return frozenset(_WORDS.split())


def _has_digit_and_letter(value: str, chars_min: int) -> bool:
    head = value[:_CHARS_CHECKED]
    return len(value) >= chars_min and bool(_DIGIT.search(head) and _LETTER.search(head))


def _is_path(value: str) -> bool:
    """Return whether `value` is a path or a URL.

    Returns False if `value` looks like base64, since a secret in base64 may contain slashes.
    """
    if not _PATH.fullmatch(value[:_CHARS_CHECKED]):
        return False
    is_base64 = len(value) >= 32 and "." not in value and value.count("/") < 4
    return not (is_base64 and any(char.isdigit() for char in value) and not value.islower())
