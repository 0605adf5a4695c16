"""Adds tables to TOML text, and removes them, without a change to anything else in the text.

A new table is appended; but inside an inline table (`servers = {…}`), which TOML does not allow
extending later, it is added inside the braces.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from acpterm.setup.json_edit import ParseError

_LINE: Final = re.compile(r"\(at line (\d+)")
_BOM: Final = "\ufeff"


def parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix(_BOM))
    except tomllib.TOMLDecodeError as error:
        found = _LINE.search(str(error))
        # If the message has no position, the error is at the end of the text.
        line = int(found[1]) if found else text.count("\n") + 1
        raise ParseError(str(error).partition(" (at ")[0], line) from None


def add(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    data: Any = parse(text)
    for depth, name in enumerate(path[:-1]):
        data = data.get(name, {})
        if not isinstance(data, dict):
            raise ParseError(f'"{".".join(path[: depth + 1])}" is not a table', 1)
    end = "\r\n" if "\r\n" in text else "\n"
    table = tomlkit.table()
    for name, value in entry.items():
        table[name] = _inline(value)
    block = f"[{tomlkit.key(list(path)).as_string()}]\n{tomlkit.dumps(table)}"
    before = text if not text or text.endswith("\n") else text + end
    appended = before + (end if text.strip(f"{_BOM} \t\r\n") else "") + block.replace("\n", end)
    try:
        tomllib.loads(appended.removeprefix(_BOM))
    except tomllib.TOMLDecodeError:
        return _add_inside(text, path, entry)
    return appended


def remove(text: str, path: Sequence[str], *, parents: int) -> str:
    """Return `text` without the table at `path`, and up to `parents` tables that became empty."""
    bom = _BOM if text.startswith(_BOM) else ""
    document = tomlkit.parse(text.removeprefix(_BOM))
    for depth in range(len(path), max(len(path) - parents, 1) - 1, -1):
        around: Any = document
        for name in path[: depth - 1]:
            around = around[name]
        if depth < len(path) and around[path[depth - 1]]:
            break
        del around[path[depth - 1]]
    return bom + tomlkit.dumps(document)


def _add_inside(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    bom = _BOM if text.startswith(_BOM) else ""
    try:
        document = tomlkit.parse(text.removeprefix(_BOM))
        around: Any = document
        for name in path[:-1]:
            around = around[name]
        around[path[-1]] = _inline(entry)
    except (TOMLKitError, KeyError, TypeError) as error:
        raise ParseError(f'no table can be added to "{".".join(path[:-1])}": {error}', 1) from None
    return bom + tomlkit.dumps(document)


def _inline(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    table = tomlkit.inline_table()
    for name, item in value.items():
        table[name] = _inline(item)
    return table
