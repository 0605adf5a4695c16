"""The two formats in which a subscriber gets tool calls and the terminals in them.

- `V1MetaEncoder`: ACP v1 messages. Terminals are described in the `_meta` of their tool call, with
  the keys that agents use for terminals of their own: `terminal_info`, then `terminal_output` (text
  to append) and `terminal_exit`. The editor Zed has introduced these keys. Zed reads
  `terminal_info` only from a `tool_call`, so the first update that shows a terminal is sent as a
  `tool_call` with all members. If the call was sent before, Zed recognises it by its id.
- `V2Encoder`: ACP v2 messages: `tool_call_update` (v2 has no `tool_call`), `terminal_update` and
  `terminal_output_chunk` (bytes in base64).

An encoder returns the `update` values of `session/update` notifications, in the order in which they
must be sent. Each is valid by its schema, whatever the agent has sent. An encoder serves only one
subscriber: `V1MetaEncoder` holds back the incomplete character at the end of a terminal's output.

- `call`: an update of a tool call. `infos` are the terminals that it is the first to show; with
  `needs_whole_call`, it must then have all members of the call.
- `output`: output of a terminal, `call` being the first tool call that showed it. `lost` bytes are
  missing before it; with `replace`, it replaces all earlier output.
- `ended`: how a terminal's program ended; None if it is running again.
- `forget`: the last update of a terminal was sent.
"""

import base64
import codecs
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Raw, UnsetType

from acpterm.acp.session import ToolCallUpdate
from acpterm.acp.terminal_updates import META_KEYS, Info, ProgramExit
from acpterm.host.user.subscribe.content import content_in_v2, locations_in_v2, sanitize

Update: TypeAlias = dict[str, Any]

_NAMES: Final = {
    "title": "title",
    "kind": "kind",
    "status": "status",
    "content": "content",
    "locations": "locations",
    "rawInput": "raw_input",
    "rawOutput": "raw_output",
    "_meta": "meta",
}
# Clears the screen and the scrollback, and moves the cursor to the top left.
_CLEAR: Final = b"\x1b[2J\x1b[3J\x1b[H"
# For a `tool_call` whose agent has sent no title, which the schema requires.
_DEFAULT_TITLE: Final = "tool call"
_CONTINUATION_BYTES_MAX: Final = 3  # of one character in UTF-8


class V1MetaEncoder:
    """Encodes updates for ACP v1, with terminals in `_meta`."""

    needs_whole_call: Final = True

    def __init__(self) -> None:
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}

    def call(
        self, call: str, fields: dict[str, Raw], infos: Sequence[Info], *, first: bool
    ) -> list[Update]:
        members = _members_of(sanitize(call, fields))
        if meta := members.pop("_meta", None):
            meta = {name: value for name, value in meta.items() if name not in META_KEYS}
        if not first and not infos:
            more = {"_meta": meta} if meta else {}
            return [_update(call, members, more)] if members or more else []
        # A `tool_call` is new to the client, so a null member has nothing to clear.
        present = {name: value for name, value in members.items() if not _is_null(value)}
        present.setdefault("title", _DEFAULT_TITLE)
        updates = []
        # Each message describes one terminal.
        for info in infos[:-1]:
            some = {name: value for name, value in present.items() if name != "content"}
            updates.append(_tool_call(call, some, {"_meta": _info(info)}))
        last = {**(meta or {}), **(_info(infos[-1]) if infos else {})}
        updates.append(_tool_call(call, present, {"_meta": last} if last else {}))
        cleared = {name: value for name, value in members.items() if _is_null(value)}
        if cleared and not first:
            updates.append(_update(call, cleared, {}))
        return updates

    def output(
        self, call: str, terminal: str, data: bytes, *, lost: int = 0, replace: bool = False
    ) -> list[Update]:
        text = ""
        if lost or replace:
            text += self._flush(terminal)
        if replace:
            text += _CLEAR.decode()
        if lost:
            text += f"\r\n[{lost} bytes are missing]\r\n"
            data = _skip_continuation(data)
        text += self._decoder(terminal).decode(data)
        return [_terminal_update(call, "terminal_output", terminal, data=text)] if text else []

    def ended(self, call: str, terminal: str, end: ProgramExit | None) -> list[Update]:
        if end is None:
            return []
        rest = self._flush(terminal)
        updates = [_terminal_update(call, "terminal_output", terminal, data=rest)] if rest else []
        status = {"exit_code": end.code, "signal": end.signal}
        return [*updates, _terminal_update(call, "terminal_exit", terminal, **status)]

    def forget(self, terminal: str) -> None:
        self._decoders.pop(terminal, None)

    def _decoder(self, terminal: str) -> codecs.IncrementalDecoder:
        if terminal not in self._decoders:
            self._decoders[terminal] = codecs.getincrementaldecoder("utf-8")("replace")
        return self._decoders[terminal]

    def _flush(self, terminal: str) -> str:
        """Drop the incomplete character at the end; return U+FFFD if there was one."""
        decoder = self._decoders.pop(terminal, None)
        return decoder.decode(b"", final=True) if decoder else ""


class V2Encoder:
    """Encodes updates for ACP v2; `cwd` makes relative paths absolute."""

    needs_whole_call: Final = False

    def __init__(self, cwd: str | None = None) -> None:
        self.cwd = cwd

    def call(
        self, call: str, fields: dict[str, Raw], infos: Sequence[Info], *, first: bool
    ) -> list[Update]:
        updates = [_terminal(info) for info in infos]
        clean_fields = sanitize(call, fields)
        members = _members_of(clean_fields)
        if clean_fields.content:
            members["content"] = content_in_v2(clean_fields.content, self.cwd)
        if clean_fields.locations:
            members["locations"] = locations_in_v2(clean_fields.locations, self.cwd)
        if members.get("_meta"):
            kept = {name: v for name, v in members["_meta"].items() if name not in META_KEYS}
            members["_meta"] = kept
        if not members.get("_meta"):
            # An empty `_meta` would clear the client's previous `_meta`.
            members.pop("_meta", None)
        if members or first:
            updates.append(_update(call, members, {}))
        return updates

    def output(
        self, call: str, terminal: str, data: bytes, *, lost: int = 0, replace: bool = False
    ) -> list[Update]:
        del call
        encoded = base64.b64encode(data).decode()
        if lost or replace:
            whole = {"output": {"data": encoded}}
            return [{"sessionUpdate": "terminal_update", "terminalId": terminal, **whole}]
        if not data:
            return []
        kind = "terminal_output_chunk"
        return [{"sessionUpdate": kind, "terminalId": terminal, "data": encoded}]

    def ended(self, call: str, terminal: str, end: ProgramExit | None) -> list[Update]:
        del call
        status = None
        if end is not None:
            members = {"exitCode": end.code, "signal": end.signal}
            status = {name: value for name, value in members.items() if value is not None}
            # In the schema the code is an unsigned integer of 32 bits.
            if not 0 <= (end.code or 0) < 2**32:
                del status["exitCode"]
        return [{"sessionUpdate": "terminal_update", "terminalId": terminal, "exitStatus": status}]

    def forget(self, terminal: str) -> None: ...


UpdateEncoder: TypeAlias = V1MetaEncoder | V2Encoder


def _members_of(update: ToolCallUpdate) -> dict[str, Any]:
    """Return the members that are set in an update, by their names on the wire."""
    members = {name: getattr(update, ours) for name, ours in _NAMES.items()}
    if update.meta is None:
        del members["_meta"]
    return {name: value for name, value in members.items() if not isinstance(value, UnsetType)}


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, Raw) and bytes(value) == b"null")


def _tool_call(call: str, members: Mapping[str, Any], more: Mapping[str, Any]) -> Update:
    return {"sessionUpdate": "tool_call", "toolCallId": call, **members, **more}


def _update(call: str, members: Mapping[str, Any], more: Mapping[str, Any]) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call, **members, **more}


def _terminal_update(call: str, what: str, terminal: str, **more: Any) -> Update:
    return _update(call, {}, {"_meta": {what: {"terminal_id": terminal, **more}}})


def _info(info: Info) -> dict[str, Any]:
    members = {"terminal_id": info.terminal}
    return {"terminal_info": members if info.cwd is None else {**members, "cwd": info.cwd}}


def _terminal(info: Info) -> Update:
    update = {"sessionUpdate": "terminal_update", "terminalId": info.terminal}
    if info.command is not None:
        update["command"] = info.command
    if info.cwd is not None and os.path.isabs(info.cwd):
        update["cwd"] = info.cwd
    return update


def _skip_continuation(data: bytes) -> bytes:
    """Return `data` without the rest of a character whose start is missing."""
    start = 0
    while start < min(_CONTINUATION_BYTES_MAX, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
