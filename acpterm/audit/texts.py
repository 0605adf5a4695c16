"""Prepares the texts of an entry: redacts secrets, limits the length, and escapes surrogates."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from acpterm.runtime.redaction import redact, redact_args

TEXT_CHARS: Final = 128 * 1024
"""The maximum length of a text in an entry, and of all arguments together, in characters.

Linux limits one argument, such as a shell line, to 128 KiB.
"""
_ARGS_MAX: Final = 4096
# Cutting a text may cut a secret in two, and half a secret is not recognised. So the text is first
# redacted with this many more characters, which are then cut off.
_MARGIN_CHARS: Final = 8 * 1024
# Results are cached for texts of at most this length, such as ids and directories, which recur.
_REMEMBERED_CHARS: Final = 100


def redact_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields redacted and cut; `omitted` counts the characters that are cut."""
    changed = dict(fields)
    omitted = 0
    for name, value in fields.items():
        if isinstance(value, str):
            changed[name], cut = _redact_text(value)
            omitted += cut
        elif isinstance(value, list | tuple):
            program = fields.get("command")
            changed[name], cut = _redact_list(value, program if isinstance(program, str) else "")
            omitted += cut
    return changed | {"omitted": omitted} if omitted else changed


@lru_cache(maxsize=512)
def _redact_short(text: str) -> str:
    return redact(text)


def printable(value: Any) -> Any:
    """Return `value` with each lone surrogate in its texts, at any depth, replaced by an escape."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list | tuple):
        return [printable(item) for item in value]
    if isinstance(value, Mapping):
        return {printable(name): printable(item) for name, item in value.items()}
    return value


def _redact_text(text: str) -> tuple[str, int]:
    """Return the redacted text, of limited length, and the number of characters left out."""
    if len(text) <= _REMEMBERED_CHARS:
        return _redact_short(text), 0
    if len(text) <= TEXT_CHARS:
        return redact(text), 0
    head = redact(text[: TEXT_CHARS + _MARGIN_CHARS])
    return head[: min(TEXT_CHARS, max(0, len(head) - _MARGIN_CHARS))], len(text) - TEXT_CHARS


def _redact_list(args: Sequence[str], program: str) -> tuple[list[str], int]:
    kept: list[str] = []
    room, omitted = TEXT_CHARS, 0
    for index, argument in enumerate(args):
        if index >= _ARGS_MAX or room <= 0:
            omitted += sum(map(len, args[index:]))
            break
        text = argument
        if len(text) > room:
            text, cut = _redact_text(text)
            text, omitted = text[:room], omitted + max(cut, len(argument) - room)
        room -= len(text)
        kept.append(text)
    return redact_args(kept, program), omitted
