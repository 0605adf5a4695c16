"""Redacts the secrets in log events, as a processor of structlog."""

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from acpterm.runtime.redaction.redact import may_have_secret, redact
from acpterm.runtime.redaction.secret_names import Strength, strength
from acpterm.runtime.redaction.tokens import REDACTED
from acpterm.runtime.redaction.values import may_be_secret

_DEPTH_MAX: Final = 8


def redact_event(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Return `event` with the secrets in its values redacted; other parameters are ignored.

    A traceback that is not formatted yet is not changed.
    """
    del logger, method
    for name, value in event.items():
        if name != "exc_info":
            event[name] = _redact(value, name, _DEPTH_MAX)
    return event


def _redact(value: Any, name: str, depth: int) -> Any:
    """Return `value`, which has the name `name` in the event, with the secrets in it redacted.

    Mappings and sequences are redacted to `depth` levels. Any other object is replaced by its
    redacted `repr` if the `repr` has a secret, and otherwise returned unchanged.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _redact_text(value, name)
    if depth and isinstance(value, Mapping):
        return {key: _redact(item, str(key), depth - 1) for key, item in value.items()}
    if depth and isinstance(value, list | tuple):
        return [_redact(item, name, depth - 1) for item in value]
    text = repr(value)
    redacted = _redact_text(text, name)
    return value if redacted == text else redacted


def _redact_text(text: str, name: str) -> str:
    if may_have_secret(text):
        text = redact(text)
    certainty = strength(name)
    if certainty is not Strength.NONE and may_be_secret(text, certainty, is_certain=True):
        return REDACTED
    return text
