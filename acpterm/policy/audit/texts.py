"""The texts of an entry: redacted, limited in length, and valid Unicode."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from acpterm.runtime.redaction import may_have_secret, redact, redact_args

TEXT_CHARS: Final = 128 * 1024
"""The maximum length of a text in an entry, and of all arguments together, in characters.

Linux limits one argument, such as a shell line, to 128 KiB.
"""
_ARGS_MAX: Final = 4096
# A secret may be cut in two at the end of a text that is too long. So that much more is redacted,
# and then cut off.
_MARGIN_CHARS: Final = 8 * 1024


def redact_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of an entry with secrets redacted, and long texts cut.

    If something is cut, the field `omitted` is the number of characters left out.
    """
    texts = [value for value in fields.values() if isinstance(value, str)]
    lists = [value for value in fields.values() if isinstance(value, list | tuple)]
    joined = "\n".join(texts + [item for items in lists for item in items])
    is_long = len(joined) > TEXT_CHARS
    if not is_long and not may_have_secret(joined) and all(len(x) <= _ARGS_MAX for x in lists):
        return fields
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


def printable(value: Any) -> Any:
    """Return a value with all lone surrogates in its texts as escapes."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list | tuple):
        return [printable(item) for item in value]
    if isinstance(value, Mapping):
        return {printable(name): printable(item) for name, item in value.items()}
    return value


def _redact_text(text: str) -> tuple[str, int]:
    """Return the redacted text, and the number of characters left out."""
    if len(text) <= TEXT_CHARS:
        return redact(text), 0
    head = redact(text[: TEXT_CHARS + _MARGIN_CHARS])
    return head[: min(TEXT_CHARS, max(0, len(head) - _MARGIN_CHARS))], len(text) - TEXT_CHARS


def _redact_list(args: Sequence[str], program: str) -> tuple[list[str], int]:
    """Return the redacted arguments of `program`, and the number of characters left out."""
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
