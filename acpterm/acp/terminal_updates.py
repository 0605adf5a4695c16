"""The parts of a ``session/update`` in which an agent describes terminals that it runs itself.

Agents describe such terminals in two formats, which are decoded here to the same types:

- in `_meta` of a `tool_call` or `tool_call_update`: `terminal_info` (a terminal exists), then
  `terminal_output` or `terminal_output_delta` (text to append), and `terminal_exit`;
- in separate updates of ACP v2: `terminal_update` (an absent member keeps the previous value, a
  null member clears it) and `terminal_output_chunk` (bytes to append, in base64; a character may be
  split between two chunks).

Values that cannot be decoded are ignored without an error.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from acpterm.acp.raw_json import members, text

V2_KINDS: Final = ("terminal_update", "terminal_output_chunk")
META_KEYS: Final = (
    "terminal_info",
    "terminal_output",
    "terminal_output_delta",
    "terminal_exit",
)

# The members of `rawOutput` that codex-acp sends, the most complete one first.
_RAW_OUTPUT_KEYS: Final = ("aggregated_output", "formatted_output", "stdout")


class ProgramExit(NamedTuple):
    """How a program ended: with an exit code, or by a signal. Both are None if that is unknown."""

    code: int | None
    signal: str | None


class Info(NamedTuple):
    """An agent's report that a terminal exists; `cwd` and `command` are None if not reported."""

    terminal: str
    cwd: str | None
    command: str | None


class Output(NamedTuple):
    """Output of a terminal. It replaces the previous output if `whole`, else it is appended."""

    terminal: str
    data: bytes
    whole: bool = False


class Exit(NamedTuple):
    """An agent's report of how a program ended; an `end` of None withdraws an earlier report."""

    terminal: str
    end: ProgramExit | None


TerminalUpdate: TypeAlias = Info | Output | Exit


_META_NAMES: Final = (
    "terminal_info",
    "terminal_output",
    "terminal_output_delta",
    "terminal_exit",
)


def without_terminals(meta: Raw | None) -> dict[str, Raw] | None:
    """Return `meta` without the members that `from_meta` reads; None if it has none of them."""
    found = members(meta)
    rest = {name: value for name, value in found.items() if name not in _META_NAMES}
    return rest if len(rest) < len(found) else None


def from_meta(meta: Raw | None) -> Iterator[TerminalUpdate]:
    """Yield the terminal updates in the `_meta` of a tool call, in order."""
    found = members(meta)
    info = members(found.get("terminal_info"))
    if (terminal := text(info.get("terminal_id"))) is not None:
        yield Info(terminal, text(info.get("cwd")), None)
    for name in ("terminal_output", "terminal_output_delta"):
        output = members(found.get(name))
        terminal, data = text(output.get("terminal_id")), text(output.get("data"))
        if terminal is not None and data is not None:
            yield Output(terminal, data.encode())
    end = members(found.get("terminal_exit"))
    if (terminal := text(end.get("terminal_id"))) is not None:
        yield Exit(terminal, ProgramExit(_number(end.get("exit_code")), text(end.get("signal"))))


def from_v2(kind: str, update: dict[str, Raw]) -> Iterator[TerminalUpdate]:
    """Yield the terminal updates in a session update of ACP v2, in order."""
    terminal = text(update.get("terminalId"))
    if terminal is None:
        return
    if kind == "terminal_output_chunk":
        if (data := _bytes(update.get("data"))) is not None:
            yield Output(terminal, data)
        return
    yield Info(terminal, text(update.get("cwd")), text(update.get("command")))
    if "output" in update:
        whole = _bytes(members(update["output"]).get("data"))
        if whole is not None or _is_null(update["output"]):
            yield Output(terminal, whole or b"", whole=True)
    if "exitStatus" in update:
        end = members(update["exitStatus"])
        if end or bytes(update["exitStatus"]).startswith(b"{"):
            yield Exit(terminal, ProgramExit(_number(end.get("exitCode")), text(end.get("signal"))))
        elif _is_null(update["exitStatus"]):
            yield Exit(terminal, None)


def from_raw_output(raw: Raw | None) -> str | None:
    """Return the output in a tool call's `rawOutput`, if any."""
    if (whole := text(raw)) is not None:
        return whole or None
    found = members(raw)
    for name in _RAW_OUTPUT_KEYS:
        if output := text(found.get(name)):
            return output + (text(found.get("stderr")) or "") if name == "stdout" else output
    return text(found.get("stderr")) or None


def _bytes(raw: Raw | None) -> bytes | None:
    encoded = text(raw)
    try:
        return None if encoded is None else base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None


def _number(raw: Raw | None) -> int | None:
    try:
        return None if raw is None else msgspec.json.decode(raw, type=int)
    except msgspec.DecodeError:
        return None


def _is_null(raw: Raw) -> bool:
    return bytes(raw) == b"null"
