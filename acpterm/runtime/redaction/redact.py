"""Redacts the secrets in a text, or in the arguments of a program."""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from acpterm.runtime.redaction.named_values import option_strength, redact_bearer, redact_named
from acpterm.runtime.redaction.phrases import has_phrase, redact_phrases
from acpterm.runtime.redaction.programs import (
    Form,
    Options,
    attached_secret,
    has_program,
    options_of,
    redact_programs,
    redact_value,
    secret_in_next,
)
from acpterm.runtime.redaction.secret_names import Strength, may_have_name
from acpterm.runtime.redaction.tokens import REDACTED, literals_in, redact_tokens
from acpterm.runtime.redaction.values import may_be_secret

# Colours, and the continuation of a shell line, which may stand inside a secret or beside it.
_NOISE: Final = re.compile(r"\x1b\[[0-9;:]*m|\\\n")
_ENCODED: Final = re.compile("%(?:20|26|3[ADad]|40)")


def may_have_secret(text: str) -> bool:
    """Return whether `redact` may change `text`: a fast check, which is False for most texts."""
    plain = _without_noise(text)
    return _may_have_secret(text) or any(
        form != text and _may_have_secret(form) for form in (plain, _decoded(plain))
    )


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


def _without_noise(text: str) -> str:
    return _NOISE.sub("", text) if "\x1b" in text or "\\\n" in text else text


def _decoded(text: str) -> str:
    return unquote(text) if "%" in text and _ENCODED.search(text) else text


def _may_have_secret(text: str) -> bool:
    return (
        may_have_name(lower := text.lower())
        or "bearer" in lower
        or has_phrase(text, lower)
        or has_program(text)
        or bool(literals_in(text))
    )


def _redact(text: str) -> str:
    if literals := literals_in(text):
        text = redact_tokens(text, literals)
    lower = text.lower()
    if may_have_name(lower) or has_phrase(text, lower):
        text = redact_phrases(text, lower)
        lower = text.lower()
    if may_have_name(lower):
        text = redact_named(text, lower)
    if "bearer" in lower:
        text = redact_bearer(text)
    if has_program(text):
        text = redact_programs(text)
    return text


def redact_args(args: Sequence[str], program: str = "") -> list[str]:
    """Return the arguments of `program`, a name or a path, with the secrets in them redacted.

    An argument may be a secret because of the option before it.
    """
    options: Options = options_of(program) or {}
    certainty = Strength.NONE
    form: Form | None = None
    redacted = []
    for argument in args:
        if argument.startswith("-"):
            start = attached_secret(argument, options) if options else None
            start = start or _secret_after_equals(argument)
            redacted.append(redact(argument) if start is None else argument[:start] + REDACTED)
            has_value = start is not None
            certainty = Strength.NONE if has_value else option_strength(argument)
            form = secret_in_next(argument, options) if options and not has_value else None
            continue
        if form:
            redacted.append(redact(redact_value(argument, form)))
        elif certainty and "=" not in argument and _is_secret(argument, certainty):
            redacted.append(redact(argument) if _has_token(argument) else REDACTED)
        else:
            redacted.append(redact(argument))
            options = options_of(argument) or options
        certainty, form = Strength.NONE, None
    return redacted


def _secret_after_equals(argument: str) -> int | None:
    """Return the index at which the secret of an option such as `--password=SECRET` starts.

    Returns None if there is no secret after an `=`.
    """
    option, equals, value = argument.partition("=")
    certainty = option_strength(option) if equals else Strength.NONE
    if not certainty or _has_token(value) or not _is_secret(value, certainty):
        return None
    return len(option) + 1


def _is_secret(argument: str, certainty: Strength) -> bool:
    return may_be_secret(argument, certainty, is_certain=True)


def _has_token(argument: str) -> bool:
    return bool(literals := literals_in(argument)) and redact_tokens(argument, literals).endswith(
        REDACTED
    )
