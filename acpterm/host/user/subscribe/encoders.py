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
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Raw, UnsetType

from acpterm.acp.session import ToolCallUpdate
from acpterm.acp.terminal_updates import META_KEYS, Info, MetaEncoder, ProgramExit
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
# For a `tool_call` whose agent has sent no title, which the schema requires.
_DEFAULT_TITLE: Final = "tool call"


class V1MetaEncoder:
    """Encodes updates for ACP v1, with terminals in `_meta`."""

    needs_whole_call: Final = True

    def __init__(self) -> None:
        self._terminals: dict[str, MetaEncoder] = {}

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
            updates.append(_tool_call(call, some, {"_meta": self._info(info)}))
        last = {**(meta or {}), **(self._info(infos[-1]) if infos else {})}
        updates.append(_tool_call(call, present, {"_meta": last} if last else {}))
        cleared = {name: value for name, value in members.items() if _is_null(value)}
        if cleared and not first:
            updates.append(_update(call, cleared, {}))
        return updates

    def output(
        self, call: str, terminal: str, data: bytes, *, lost: int = 0, replace: bool = False
    ) -> list[Update]:
        metas = self._terminal(terminal).output(data, lost=lost, replace=replace)
        return [_update(call, {}, {"_meta": meta}) for meta in metas]

    def ended(self, call: str, terminal: str, end: ProgramExit | None) -> list[Update]:
        # The keys in `_meta` cannot express that a program is running again.
        metas = () if end is None else self._terminal(terminal).ended(end)
        return [_update(call, {}, {"_meta": meta}) for meta in metas]

    def forget(self, terminal: str) -> None:
        self._terminals.pop(terminal, None)

    def _terminal(self, terminal: str) -> MetaEncoder:
        return self._terminals.setdefault(terminal, MetaEncoder(terminal))

    def _info(self, info: Info) -> dict[str, Any]:
        return self._terminal(info.terminal).info(info.cwd)


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


def _terminal(info: Info) -> Update:
    update = {"sessionUpdate": "terminal_update", "terminalId": info.terminal}
    if info.command is not None:
        update["command"] = info.command
    if info.cwd is not None and os.path.isabs(info.cwd):
        update["cwd"] = info.cwd
    return update
