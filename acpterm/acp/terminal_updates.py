"""The parts of a ``session/update`` in which an agent describes terminals that it runs itself.

Agents describe such terminals in two formats, which are decoded here to the same types:

- in `_meta` of a `tool_call` or `tool_call_update`: `terminal_info` (a terminal exists), then
  `terminal_output` or `terminal_output_delta` (text to append), and `terminal_exit`. `MetaEncoder`
  encodes this format, for editors that show it;
- in separate updates of ACP v2: `terminal_update` (an absent member keeps the previous value, a
  null member clears it) and `terminal_output_chunk` (bytes to append, in base64; a character may be
  split between two chunks).

Values that cannot be decoded are ignored without an error.
"""

import base64
import binascii
import codecs
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from acpterm.acp.raw_json import members, text

V2_KINDS: Final = ("terminal_update", "terminal_output_chunk")
META_KEYS: Final = ("terminal_info", "terminal_output", "terminal_output_delta", "terminal_exit")

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


class OutputUpdate(NamedTuple):
    """Output of a terminal. It replaces the previous output if `whole`, else it is appended."""

    terminal: str
    data: bytes
    whole: bool = False


class ExitUpdate(NamedTuple):
    """An agent's report of how a program ended; an `end` of None withdraws an earlier report."""

    terminal: str
    end: ProgramExit | None


TerminalUpdate: TypeAlias = Info | OutputUpdate | ExitUpdate


def without_terminals(meta: Raw | None) -> dict[str, Raw] | None:
    """Return `meta` without the members that `from_meta` reads; None if it has none of them."""
    found = members(meta)
    rest = {name: value for name, value in found.items() if name not in META_KEYS}
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
            yield OutputUpdate(terminal, data.encode())
    end = members(found.get("terminal_exit"))
    if (terminal := text(end.get("terminal_id"))) is not None:
        yield ExitUpdate(
            terminal, ProgramExit(_number(end.get("exit_code")), text(end.get("signal")))
        )


# Clears the screen and the scrollback, and moves the cursor to the top left.
_CLEAR: Final = "\x1b[2J\x1b[3J\x1b[H"
_CONTINUATION_BYTES_MAX: Final = 3  # of one character in UTF-8


class MetaEncoder:
    """Encodes one terminal as values of `_meta`, one for each update of a tool call.

    The incomplete character at the end of the output is held back.
    """

    def __init__(self, terminal: str) -> None:
        self._terminal = terminal
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def info(self, cwd: str | None) -> dict[str, Any]:
        """Encode that the terminal exists."""
        return self._meta("terminal_info", {} if cwd is None else {"cwd": cwd})

    def output(
        self, data: bytes, *, lost: int = 0, replace: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Encode output, before which `lost` bytes are missing, or which replaces all earlier."""
        text = ""
        if lost or replace:
            text = self._decoder.decode(b"", final=True)
        if replace:
            text += _CLEAR
        if lost:
            text += f"\r\n[{lost} bytes are missing]\r\n"
            # The rest of a character whose start is missing.
            start = 0
            while start < min(_CONTINUATION_BYTES_MAX, len(data)) and data[start] & 0xC0 == 0x80:
                start += 1
            data = data[start:]
        text += self._decoder.decode(data)
        if text:
            yield self._meta("terminal_output", {"data": text})

    def ended(self, end: ProgramExit) -> Iterator[dict[str, Any]]:
        """Encode how the program ended, after the incomplete character at the end of its output."""
        if rest := self._decoder.decode(b"", final=True):
            yield self._meta("terminal_output", {"data": rest})
        yield self._meta("terminal_exit", {"exit_code": end.code, "signal": end.signal})

    def _meta(self, kind: str, members: dict[str, Any]) -> dict[str, Any]:
        return {kind: {"terminal_id": self._terminal, **members}}


def from_v2(kind: str, update: dict[str, Raw]) -> Iterator[TerminalUpdate]:
    """Yield the terminal updates in a session update of ACP v2, in order."""
    terminal = text(update.get("terminalId"))
    if terminal is None:
        return
    if kind == "terminal_output_chunk":
        if (data := _bytes(update.get("data"))) is not None:
            yield OutputUpdate(terminal, data)
        return
    yield Info(terminal, text(update.get("cwd")), text(update.get("command")))
    if "output" in update:
        whole = _bytes(members(update["output"]).get("data"))
        if whole is not None or _is_null(update["output"]):
            yield OutputUpdate(terminal, whole or b"", whole=True)
    if "exitStatus" in update:
        end = members(update["exitStatus"])
        if end or bytes(update["exitStatus"]).startswith(b"{"):
            yield ExitUpdate(
                terminal, ProgramExit(_number(end.get("exitCode")), text(end.get("signal")))
            )
        elif _is_null(update["exitStatus"]):
            yield ExitUpdate(terminal, None)


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
