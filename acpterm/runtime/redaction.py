"""Redaction: replaces secrets in text by `[redacted]`, before the text is written anywhere.

`secret_patterns` is the table of what is found. Besides its patterns, these are secrets: the value
after a name such as `password` (`--password=…`, `TOKEN=…`, a header, a member of JSON), the values
of some options of known programs, such as `-p` of mysql, and those of a secret of Kubernetes.

The rest of the text is kept, so that a reader recognises which secret was there: by the prefix of
the token, the name of the variable or option, or the user's name in a URL. Redaction is no
guarantee: a secret without a known prefix, name or option looks like any other word.
"""

import os
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

from acpterm.runtime.secret_patterns import (
    NAME_HINTS,
    NAMES,
    PATTERNS,
    PROGRAMS,
    SWITCHES,
    WORDS,
    Form,
    Strength,
    compiled,
)

REDACTED: Final = "[redacted]"
"""The text that replaces a secret."""

# Colours, and the continuation of a shell line, which may stand inside a secret or beside it.
_NOISE: Final = re.compile(r"\x1b\[[0-9;:]*m|\\\n")
_ENCODED: Final = re.compile("%(?:20|26|3[ADad]|40)")
_HINTS: Final = tuple((hint, pattern) for pattern in PATTERNS for hint in pattern.hints)
# The names that contain no other name. Every text that contains a name contains one of these.
_PROGRAM_HINTS: Final = tuple(
    name for name in PROGRAMS if not any(other in name and other != name for other in PROGRAMS)
)
# The values of a secret of Kubernetes, whatever their names.
_KUBERNETES: Final = r"((?m:^)\s{0,8}(?:data|stringData):[ ]*\n)((?:[ \t]{1,16}+\S[^\n]*(?:\n|$))+)"
_KUBERNETES_VALUE: Final = r"(:[ \t]+[\"']?)([^\s\"'|>][^\s\"']*)"

# Groups: the dashes of an option, or words such as `aws configure set`; the name; and the separator
# before a value, which is only spaces after an option or such a word.
_NAME: Final = (
    r"(?:((?<![\w.-])-{1,2}(?=[A-Za-z])"
    r"|(?<![\w-])(?:set|setenv|add)\s{1,4}+(?:-\w+\s{1,4}+){0,3}+"
    r"(?:[^\s\"'=]{0,200}[^\s\"'=\w.-]|\d+)?+)|(?<![\w.-]))"
    r"([A-Za-z_][\w.-]{1,127}+)"
    r"""((?:\\{0,3}+["'])?+\]?+(?::\s?(?:str|[sS]tring)\b(?=\s?=))?+"""
    r"""\s{0,8}+(?::=|=>|=(?![=~])|:(?![:/])|(?<=["']),(?=\s{0,8}["']))\s{0,8}+"""
    r"""|(?(1)\s{1,8}+|(?!)))"""
)
_SWITCHES: Final = frozenset(SWITCHES.split())
_WORDS: Final = frozenset(WORDS.split())
_NAME_CHARS_MAX: Final = 128
_SCHEME: Final = r"(?i:(?:bearer|basic|token|digest|negotiate|apikey|bot|key)(?:\\?\s){1,4}+)"
_HEADERS: Final = {
    "authorization": rf"""\\?\s{{0,4}}\\?["']?({_SCHEME})?+([^\s"'\\,]++)""",
    "cookie": r"""\\?["']?()([^\s"'\\=]{1,200}+=[^"'\\\n]*+)""",
}
_INDENTATION_MAX: Final = 80
# A longer value without quotes is redacted unseen: the names in it would be judged with all that
# follows them, each time again.
_JUDGED_MAX: Final = 512
# A value is a quoted string, a string in escaped quotes (as in JSON inside a shell line), or a word
# up to the next space, quote or operator. Each alternative has two groups: the text before the
# secret, such as a quote, and the secret.
_VALUE: Final = re.compile(
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
_SMALL: Final = re.compile(r"\d{1,3}")
_PATH: Final = re.compile(r"(?:~|\.{1,2})?(?:/[\w.@+ -]+)+/?|[A-Za-z]:[\\/].*|[\w.+-]*://.*")
_ORDINARY: Final = re.compile(
    # Words with a number; a number; a version, a date or a time; a module or a file's name.
    r"[A-Z]?[a-z]*(?:[-_.:/,][A-Z]?[a-z]*)*[-_.]?\d{0,4}|[\d.,:_+TZ/-]+|[\w-]+\.[a-z]{1,4}"
)
_DIGIT: Final = re.compile(r"\d")
_LETTER: Final = re.compile(r"[^\W\d_]")
_CHARS_CHECKED: Final = 4096
_PROGRAM_OR_OPTION: Final = (
    rf"(?<![\w-])(?P<program>{'|'.join(sorted(map(re.escape, PROGRAMS), key=len, reverse=True))})"
    r"(?=\s)|(?P<operator>[;&|\n])|(?<=\s)(?P<option>-{1,2}[A-Za-z][A-Za-z-]{0,15}=?)"
)
_PORT: Final = re.compile(r"\d{1,5}(?::\d{1,5})?")
# Options of one letter may be combined; the last one may have a value.
_COMBINED: Final = re.compile(r"[A-Za-z]{1,8}")
_DEPTH_MAX: Final = 8


def redact(text: str) -> str:
    """Return `text`, such as a shell line or a message, with the secrets in it redacted.

    If a secret is seen only without colours and without continued lines, or only percent-decoded,
    the whole text is returned in that form.
    """
    text = _redact(text)
    for simplified in (_without_noise, _decoded):
        form = simplified(text)
        if form != text and (redacted := _redact(form)) != form:
            text = redacted
    return text


def redact_args(args: Sequence[str], program: str = "") -> list[str]:
    """Return the arguments of `program`, a name or a path, with the secrets in them redacted.

    An argument may be a secret because of the option before it.
    """
    options = _options_of(program)
    certainty, form = Strength.NONE, None
    redacted = []
    for argument in args:
        if argument.startswith("-"):
            form, at = _option(argument, options) or (None, None)
            start = _secret_start(argument, at, form) if form and at is not None else None
            start = start or _secret_after_equals(argument)
            certainty = Strength.NONE if start else _option_strength(argument)
            form = form if start is None and at is None else None
            redacted.append(redact(argument) if start is None else argument[:start] + REDACTED)
            continue
        if form and form is not Form.ATTACHED:
            start = _secret_start(argument, 0, form)
            redacted.append(redact(argument if start is None else argument[:start] + REDACTED))
        elif certainty and "=" not in argument and _may_be_secret(argument, certainty):
            redacted.append(redact(argument) if _has_token(argument) else REDACTED)
        else:
            redacted.append(redact(argument))
            options = _options_of(argument) or options
        certainty, form = Strength.NONE, None
    return redacted


def redact_event(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Return a log event of structlog with the secrets in its values redacted.

    A traceback that is not formatted yet is not changed.
    """
    del logger, method
    for name, value in event.items():
        if name != "exc_info":
            event[name] = _redact_value(value, name, _DEPTH_MAX)
    return event


def _redact_value(value: Any, name: str, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth and isinstance(value, Mapping):
        return {key: _redact_value(item, str(key), depth - 1) for key, item in value.items()}
    if depth and isinstance(value, list | tuple):
        return [_redact_value(item, name, depth - 1) for item in value]
    text = value if isinstance(value, str) else repr(value)
    redacted = redact(text)
    certainty = strength(name)
    if certainty and _may_be_secret(redacted, certainty):
        redacted = REDACTED
    return value if redacted == text else redacted


def _without_noise(text: str) -> str:
    return _NOISE.sub("", text) if "\x1b" in text or "\\\n" in text else text


def _decoded(text: str) -> str:
    return unquote(text) if "%" in text and _ENCODED.search(text) else text


def _redact(text: str) -> str:
    text = _redact_patterns(text)
    lower = text.lower()
    if any(map(lower.__contains__, NAME_HINTS)):
        text = _replace(text, _NAME, _after_name)
    if any(map(text.__contains__, _PROGRAM_HINTS)):
        text = _redact_programs(text)
    return text


def _redact_patterns(text: str) -> str:
    lower = text.lower()
    done = None
    for hint, pattern in _HINTS:
        if hint in lower and pattern is not done:
            done = pattern
            is_random_only = pattern.must_be_random
            text = pattern.compiled().sub(_random_word if is_random_only else _word, text)
    if "kind: Secret" in text:
        text = compiled(_KUBERNETES).sub(
            lambda match: match[1] + compiled(_KUBERNETES_VALUE).sub(_word, match[2]), text
        )
    return text


def _word(match: re.Match[str]) -> str:
    start, inner = _unquoted(match[2])
    return match[0] if _is_reference(inner) else match[1] + start + REDACTED + start


def _random_word(match: re.Match[str]) -> str:
    return _word(match) if _is_random(_unquoted(match[2])[1]) else match[0]


def _unquoted(word: str) -> tuple[str, str]:
    """Return the quote before a word, which may be escaped, and the text in the quotes."""
    start = word[: len(word) - len(word.lstrip("\\\"'"))]
    return start, word[len(start) :].rstrip("\"'").removesuffix("\\") if start else word


def _replace(
    text: str, pattern: str, find: Callable[[str, re.Match[str]], tuple[int, int] | None]
) -> str:
    """Redact what `find` returns, a start and an end, for each match of `pattern` in `text`.

    The next search begins after the secret, or else after the match.
    """
    search = compiled(pattern).search
    pieces, position, copied = [], 0, 0
    while match := search(text, position):
        position = match.end()
        if found := find(text, match):
            start, position = found
            pieces += [text[copied:start], REDACTED]
            copied = position
    return "".join([*pieces, text[copied:]])


# Values after names.


@lru_cache(maxsize=1024)
def strength(name: str) -> Strength:
    """Return how certain it is that the value of `name` is a secret."""
    if len(name) > _NAME_CHARS_MAX or name in ("PWD", "OLDPWD"):
        return Strength.NONE
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)
    while words and words[-1].isdigit():
        words.pop()
    joined = "_".join(words).lower()
    if name == "KEY":
        return Strength.WEAK
    found = next((found for text, found in NAMES if compiled(text).search(joined)), Strength.NONE)
    if found is Strength.WEAK and name.isupper() and joined.endswith("_key"):
        return Strength.KEY
    return found


@lru_cache(maxsize=1024)
def _is_switch(name: str) -> bool:
    return re.split("[-_.]", name, maxsplit=1)[0].lower() in _SWITCHES


def _option_strength(argument: str) -> Strength:
    """Return how certain it is that the argument after this one, an option, is a secret."""
    name = argument.lstrip("-")
    if "=" in argument or len(name) < 2 or _is_switch(name):
        return Strength.NONE
    return strength(name)


def _secret_after_equals(argument: str) -> int | None:
    """Return where the secret of an option such as `--password=SECRET` starts; None without one."""
    option, equals, value = argument.partition("=")
    certainty = _option_strength(option) if equals else Strength.NONE
    if not certainty or _has_token(value) or not _may_be_secret(value, certainty):
        return None
    return len(option) + 1


def _has_token(argument: str) -> bool:
    return argument != REDACTED and _redact_patterns(argument).endswith(REDACTED)


def _after_name(text: str, match: re.Match[str]) -> tuple[int, int] | None:
    """Return the start and end of the secret after a name, a match of `_NAME`; None without one."""
    dashes, name, separator = match.groups()
    if dashes == "-" and name.startswith("D"):  # a property of Java or CMake
        name = name[1:]
    if header := _HEADERS.get(name.rpartition("-")[2].lower()):
        value = compiled(header).match(text, match.end())
        if value is None or _is_reference(value[2]):
            return None
        return None if value[1] is None and not _is_random(value[2]) else value.span(2)
    certainty = strength(name)
    sign = separator.strip("\\\"' \t\n")
    is_option = bool(dashes) and dashes.startswith("-")
    has_value = certainty and (sign or not (is_option and _is_switch(name)))
    value = _VALUE.match(text, match.end()) if has_value else None
    if value is None:
        return None
    last_group = value.lastindex or 0
    is_quoted = bool(value[last_group - 1])
    if not is_quoted and len(value[last_group]) > _JUDGED_MAX:
        return value.span(last_group)
    previous = text[match.start() - 1 : match.start()]
    is_certain = (sign or is_option) and (
        is_quoted
        or not sign
        or separator in ("=", ":=")
        # A header, or an option such as `/password:SECRET`.
        or (sign == ":" and "-" in name and (previous in "\"'\n" or separator == ":"))
        or (separator == ":" and (is_option or previous == "/"))
        or _is_line(text, match, value)
    )
    # Without quotes: an option, unless after a sign, a call or an index.
    is_code = not is_quoted and (
        (not sign and value[0].startswith("-"))
        or value[0].endswith("[")
        or text[value.end() : value.end() + 1] == "("
    )
    if is_code or not _may_be_secret(value[last_group], certainty, is_certain=bool(is_certain)):
        return None
    return value.span(last_group)


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


def _is_reference(value: str) -> bool:
    """Return whether `value` is empty, redacted, a reference to a variable, or a placeholder."""
    return not value or value.endswith(REDACTED) or bool(_REFERENCE.fullmatch(value))


def _may_be_secret(value: str, certainty: Strength, *, is_certain: bool = True) -> bool:
    """Return whether the value of a name is a secret.

    `is_certain` is false if the text may also be prose or code, such as `name: value`.
    """
    is_given = is_certain and certainty is not Strength.WEAK
    if not is_given and not _has_digit_and_letter(value, 6):
        return False
    if _is_reference(value) or value.lower() in _WORDS or _SMALL.fullmatch(value):
        return False
    if certainty is Strength.STRONG:
        return True
    return not _is_path(value) if is_given else _is_random(value)


def _is_random(value: str) -> bool:
    """Return whether `value` looks like a generated secret, and not like a word or a number."""
    return (
        _has_digit_and_letter(value, 8)
        and not _is_path(value)
        and not _ORDINARY.fullmatch(value[:_CHARS_CHECKED])
    )


def _has_digit_and_letter(value: str, chars_min: int) -> bool:
    head = value[:_CHARS_CHECKED]
    return len(value) >= chars_min and bool(_DIGIT.search(head) and _LETTER.search(head))


def _is_path(value: str) -> bool:
    if not _PATH.fullmatch(value[:_CHARS_CHECKED]):
        return False
    # A secret in base64 may contain slashes.
    is_base64 = len(value) >= 32 and "." not in value and value.count("/") < 4
    return not (is_base64 and any(char.isdigit() for char in value) and not value.islower())


# Options of programs.


def _options_of(program: str) -> Mapping[str, Form]:
    return PROGRAMS.get(os.path.basename(program), {})


def _redact_programs(text: str) -> str:
    options: Mapping[str, Form] = {}

    def find(text: str, match: re.Match[str]) -> tuple[int, int] | None:
        nonlocal options
        if match["program"] or match["operator"]:
            options = PROGRAMS.get(match["program"], {})
            return None
        found = _option(match["option"], options)
        if found is None:
            return None
        form, start = found
        end = match.end() if start is None else match.start() + start
        if start is None and form is not Form.ATTACHED:
            while text[end : end + 1] in (" ", "\t"):
                end += 1
        value = _VALUE.match(text, end)
        if value is None or value[0].startswith("-"):
            return None
        begin, stop = value.span(value.lastindex or 0)
        secret = _secret_start(text[:stop], begin, form)
        return None if secret is None else (secret, stop)

    return _replace(text, _PROGRAM_OR_OPTION, find)


def _option(word: str, options: Mapping[str, Form]) -> tuple[Form, int | None] | None:
    """Return the form of an option, and where its value starts in `word`; None: in the next word.

    Returns None if the option has no secret.
    """
    name, equals, _ = word.partition("=")
    after = len(name) + 1 if equals else None
    name = name.lstrip("-")
    if name in options:
        return options[name], after
    form = options.get(word[1:2])
    if form and form is not Form.NEXT:
        return form, 2
    if not word.startswith("--") and _COMBINED.fullmatch(name) and name[-1] in options:
        return options[name[-1]], after
    return None


def _secret_start(text: str, start: int, form: Form) -> int | None:
    """Return where the secret in the value `text[start:]` of an option starts; None without one."""
    value = text[start:]
    kept = 0
    if form is Form.SOURCE:
        kept = len("pass:") if value.startswith("pass:") else len(value)
    elif form is Form.USER:
        separator = re.search("[:,%=]", value)
        if separator and separator.end() < len(value):
            kept = separator.end()
        elif not _is_random(value):
            kept = len(value)
    is_port = form is Form.ANY and _PORT.fullmatch(value)
    return None if is_port or _is_reference(value[kept:]) else start + kept
