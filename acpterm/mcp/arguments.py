"""The names under which models pass a parameter, and the conversion to a tool's params.

Models have learnt the parameters of other tools: `cmd` for `command`, `session_id` for `sessionId`.
A tool declares one name, and gets the value that the model passes under any name of the same group
(`_GROUPS`). Names are compared without case, hyphens and underscores. Unknown arguments are
ignored. An argument that is null counts as absent. A value of another type is accepted if it can
be meant (`_meant`), and `~` begins a directory.
"""

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
from msgspec.inspect import (
    BoolType,
    DictType,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    Type,
    UnionType,
    type_info,
)
from msgspec.structs import fields

from acpterm.mcp.tool_error import ToolError, shortened

P = TypeVar("P", bound=msgspec.Struct)

_GROUPS: Final = (
    ("command", "cmd", "script", "commandline"),
    ("sessionid", "terminalid", "id", "session", "terminal", "bashid", "shellid", "taskid"),
    ("stdin", "chars", "input", "text", "data"),
    ("cwd", "workdir", "workingdirectory", "directory", "dirpath", "dir"),
    ("runinbackground", "background", "isbackground"),
    ("maxoutput", "maxchars", "maxoutputchars"),
    ("keys", "key", "sendkeys"),
    ("waitfor", "expect", "untiltext"),
    ("pattern", "regex"),
    ("grep", "filter"),
)
_SECONDS: Final = ("timeoutseconds", "timeoutsec", "timeouts", "waitseconds")
_MILLISECONDS: Final = ("timeoutms", "yieldtimems", "timeoutmilliseconds", "waitms")
_ANY_UNIT: Final = "timeout"
"""A time limit under this name is in the unit that the tool declares; see `_LONGEST_S`."""
_NUMBERED: Final = "term-"
_LONGEST_S: Final = 1000
"""From this value on, a `timeout` for a tool that expects seconds is taken for milliseconds.

Claude's Bash, which models know, has a `timeout` in milliseconds.
"""


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _group(name: str) -> tuple[str, ...]:
    plain = _plain(name)
    return next((group for group in _GROUPS if plain in group), (plain,))


def decode(tool: str, arguments: Any, params: type[P]) -> P:
    """Return the arguments of a call as the tool's params. Raises `ToolError`."""
    given = _object(tool, arguments, params)
    plain = {_plain(name): value for name, value in reversed(given.items())}
    names = [field.encode_name for field in fields(params)]
    # A name that the tool declares is never a synonym of another parameter.
    free = {name: value for name, value in plain.items() if name not in map(_plain, names)}
    values: dict[str, Any] = {}
    for name in names:
        if name in given:
            values[name] = given[name]
        elif _plain(name) in plain:
            values[name] = plain[_plain(name)]
        else:
            found = _synonym(name, free)
            if found is not None:
                values[name] = found
    directory = next((name for name in values if "cwd" in _group(name)), None)
    types = {field.encode_name: type_info(field.type) for field in fields(params)}
    for name, value in values.items():
        kinds = _kinds(types[name])
        if name == "command" and isinstance(value, list) and not _has(kinds, ListType):
            values[name] = shlex.join(map(str, value))
        else:
            values[name] = _meant(value, kinds)
        if name == directory and isinstance(values[name], str):
            values[name] = os.path.expanduser(values[name])
    try:
        return msgspec.convert(values, params, strict=False)
    except msgspec.ValidationError as error:
        why = _wrong(values, params, types) or str(error)
        raise ToolError(f"{tool}: {why}; it takes {_summary(params)}") from error


def _object(tool: str, arguments: Any, params: type[msgspec.Struct]) -> dict[str, Any]:
    if isinstance(arguments, str):
        with suppress(ValueError):
            arguments = msgspec.json.decode(arguments or "{}")
    if not isinstance(arguments, dict | None):
        text = shortened(msgspec.json.encode(arguments).decode())
        takes = f"it takes {_summary(params)}"
        raise ToolError(f"{tool}: arguments is {text}, but must be an object; {takes}")
    return {name: value for name, value in (arguments or {}).items() if value is not None}


def _kinds(kind: Type) -> list[Type]:
    kind = kind.type if isinstance(kind, Metadata) else kind
    kinds = kind.types if isinstance(kind, UnionType) else (kind,)
    plain = (each.type if isinstance(each, Metadata) else each for each in kinds)
    return [each for each in plain if not isinstance(each, NoneType)]


def _has(kinds: list[Type], kind: type[Type]) -> bool:
    return any(isinstance(each, kind) for each in kinds)


def _meant(value: Any, kinds: list[Type]) -> Any:
    """Return `value` as one of the types `kinds`, if it can be meant so; else unchanged."""
    if isinstance(value, str):
        is_array, is_object = value.lstrip().startswith("["), value.lstrip().startswith("{")
        if (is_array and _has(kinds, ListType)) or (is_object and _has(kinds, DictType)):
            with suppress(ValueError):
                return _meant(msgspec.json.decode(value), kinds)
        return value.removeprefix(_NUMBERED) if _has(kinds, FloatType) else value
    if isinstance(value, bool | int | float) and _has(kinds, StrType):
        return msgspec.json.encode(value).decode()
    for kind in kinds:
        if isinstance(kind, ListType) and isinstance(value, list):
            return [_meant(each, _kinds(kind.item_type)) for each in value]
        if isinstance(kind, DictType) and isinstance(value, dict):
            within = _kinds(kind.value_type)
            return {name: _meant(each, within) for name, each in value.items()}
    return value


def _wrong(
    values: Mapping[str, Any], params: type[msgspec.Struct], types: Mapping[str, Type]
) -> str | None:
    """Return which parameter is wrong, with its value, and what is accepted; None if none is."""
    for field in fields(params):
        name = field.encode_name
        if name not in values:
            if field.required:
                return f"{name} is missing"
            continue
        try:
            msgspec.convert(values[name], field.type, strict=False)
        except msgspec.ValidationError:
            given = shortened(msgspec.json.encode(values[name]).decode())
            return f"{name} is {given}, but must be {_words(types[name])}"
    return None


_WORDS: Final[Mapping[type[Type], str]] = {
    StrType: "a string",
    IntType: "an integer",
    FloatType: "a number",
    BoolType: "true or false",
    ListType: "an array of strings",
    DictType: "an object with strings",
}


def _words(kind: Type) -> str:
    """Return the values that a type accepts, as text: `a number over 0`."""
    texts = []
    for each in _kinds(kind):
        if isinstance(each, LiteralType):
            texts.append(f"one of {', '.join(map(str, each.values))}")
            continue
        text = _WORDS.get(type(each))
        if text is None:  # UNSET
            continue
        if isinstance(each, IntType | FloatType):
            text += "" if each.gt is None else f" over {each.gt:g}"
            text += "" if each.ge is None else f" from {each.ge:g} on"
            text += "" if each.le is None else f" up to {each.le:g}"
        if isinstance(each, ListType) and each.min_length:
            text += ", not an empty one"
        texts.append(text)
    return " or ".join(texts)


def _synonym(name: str, free: Mapping[str, Any]) -> Any:
    """Return the value that was passed under another name of the parameter; None if none was."""
    plain = _plain(name)
    if plain in (*_SECONDS, *_MILLISECONDS, _ANY_UNIT):
        return _duration(free, in_seconds=plain in _SECONDS)
    return next((free[other] for other in _group(name) if other in free), None)


def _duration(free: Mapping[str, Any], *, in_seconds: bool) -> Any:
    own, other = (_SECONDS, _MILLISECONDS) if in_seconds else (_MILLISECONDS, _SECONDS)
    for name in own:
        if name in free:
            return free[name]
    factor = 0.001 if in_seconds else 1000
    given: Any = next((free[name] for name in other if name in free), None)
    is_other = given is not None
    if not is_other:
        given = free.get(_ANY_UNIT)
    try:
        value = float(given)
    except (TypeError, ValueError):
        return given
    return value * factor if is_other or (in_seconds and value >= _LONGEST_S) else value


def _summary(params: type[msgspec.Struct]) -> str:
    return ", ".join(
        f"{field.encode_name}{' (required)' if field.required else ''}" for field in fields(params)
    )
