"""The names under which models pass a parameter, and the conversion to a tool's params.

Models have learnt the parameters of other tools: `cmd` for `command`, `session_id` for `sessionId`.
A tool declares one name, and gets the value that the model passes under any name of the same group
(`_GROUPS`). Names are compared without case, hyphens and underscores. Unknown arguments are
ignored. An argument that is null counts as absent.
"""

import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import fields

from acpterm.mcp.tool_error import ToolError

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


def decode(tool: str, arguments: Mapping[str, Any] | None, params: type[P]) -> P:
    """Return the arguments of a call as the params of the tool `tool`.

    Raises `ToolError` if an argument is wrong or missing; the message says which, and what the tool
    takes.
    """
    given = {name: value for name, value in (arguments or {}).items() if value is not None}
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
    if isinstance(values.get("command"), list):
        values["command"] = _line(values["command"], params)
    for field in fields(params):
        name = field.encode_name
        if isinstance(values.get(name), str):
            values[name] = _unquoted(values[name], field.type)
    try:
        return msgspec.convert(values, params, strict=False)
    except msgspec.ValidationError as error:
        raise ToolError(f"{tool}: {error}; it takes {_summary(params)}") from error


def _unquoted(value: str, kind: Any) -> Any:
    """Return the argument `value`, prepared for the conversion to the type `kind`.

    If `kind` is a list, JSON text is decoded to a list of strings. If `kind` is a number, the
    string `term-1` becomes the string `1`, since a model may pass the name of a session in place of
    its number. Any other string is returned unchanged.
    """
    if "list" in str(kind) and value.lstrip().startswith("["):
        with suppress(ValueError):
            return msgspec.json.decode(value, type=list[str])
    return value.removeprefix(_NUMBERED) if "float" in str(kind) else value


def _synonym(name: str, free: Mapping[str, Any]) -> Any:
    """Return the value that was passed under another name of the parameter `name`.

    Return None if there is no such value. `free` has the arguments whose names the tool does not
    declare.
    """
    plain = _plain(name)
    if plain in (*_SECONDS, *_MILLISECONDS, _ANY_UNIT):
        return _duration(free, in_seconds=plain in _SECONDS)
    return next((free[other] for other in _group(name) if other in free), None)


def _duration(free: Mapping[str, Any], *, in_seconds: bool) -> Any:
    """Return the time limit that was passed, under whatever name; None if there is none.

    `free` is as in `_synonym`. The result is in seconds if `in_seconds` is true, else in
    milliseconds. A value that is no number is returned unchanged; it is refused later.
    """
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


def _line(command: list[Any], params: type[msgspec.Struct]) -> Any:
    """Return the words of `command` as one line of shell text.

    If the tool with these `params` takes a list of words, return `command` unchanged.
    """
    kind = next(field.type for field in fields(params) if field.encode_name == "command")
    takes_words = "list" in str(kind)
    return command if takes_words else shlex.join(map(str, command))


def _summary(params: type[msgspec.Struct]) -> str:
    """Return the parameters of a tool as text: `command (required), cwd, env`."""
    return ", ".join(
        f"{field.encode_name}{' (required)' if field.required else ''}" for field in fields(params)
    )
