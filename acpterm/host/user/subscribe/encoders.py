"""The two forms in which a front end is told of tool calls and of the terminals in them.

- `MetaForm`: messages of ACP v1; what a terminal does is in `_meta` of its tool call, as agents
  tell clients of terminals that they have themselves: `terminal_info`, then `terminal_output`
  (text to append) and `terminal_exit`. Zed, from which this comes, takes `terminal_info` from a
  `tool_call` alone. So an update that is the first to show a terminal becomes a `tool_call` of the
  same id with all that is known of the call: Zed takes it for the same.
- `V2Form`: messages of ACP v2: `tool_call_update` (there is no `tool_call`), `terminal_update` and
  `terminal_output_chunk` (base64 of bytes).

Each gives the updates of a `session/update`, to be sent in that order; every one is valid by its
schema, whatever the agent has sent. A form is of one subscriber: it remembers the beginning of a
character whose rest is to come.
"""

import base64
import codecs
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Raw, UnsetType

from acpterm.acp import ToolCallUpdate
from acpterm.acp.terminal_updates import META_KEYS, ExitInfo, Info
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
# What clears a terminal: screen, scrollback and the cursor's place.
_CLEAR: Final = b"\x1b[2J\x1b[3J\x1b[H"
# A `tool_call` has a title.
_TITLE: Final = "tool call"
# Bytes that one character has at most after its first.
_REST: Final = 3


class UpdateEncoder(Protocol):
    """How a subscriber is told."""

    @property
    def needs_whole_call(self) -> bool:
        """Whether a call that shows a terminal for the first time has to be told as a whole."""

    def call(
        self, call: str, fields: dict[str, Raw], infos: Sequence[Info], *, first: bool
    ) -> list[Update]:
        """Tell of a call, the `first` time or again, and of terminals that it is first to show."""

    def output(
        self, call: str, terminal: str, data: bytes, *, lost: int = 0, anew: bool = False
    ) -> list[Update]:
        """Tell of output. `lost` bytes before it are missing; `anew`: it replaces what was before.

        `call` is the one in which the terminal was told of.
        """

    def ended(self, call: str, terminal: str, end: ExitInfo | None) -> list[Update]:
        """Tell how a terminal's program ended; None: that it has not."""

    def forget(self, terminal: str) -> None:
        """Learn that nothing more will be told of a terminal."""


class V1MetaEncoder:
    """Messages of ACP v1."""

    needs_whole_call: Final = True

    def __init__(self) -> None:
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}

    def call(
        self, call: str, fields: dict[str, Raw], infos: Sequence[Info], *, first: bool
    ) -> list[Update]:
        """See `Form`."""
        said = _members_of(sanitize(call, fields))
        if meta := said.pop("_meta", None):
            meta = {name: value for name, value in meta.items() if name not in META_KEYS}
        if not first and not infos:
            more = {"_meta": meta} if meta else {}
            return [_update(call, said, more)] if said or more else []
        # There is nothing to clear in a `tool_call`.
        told = {name: value for name, value in said.items() if not _is_null(value)}
        told.setdefault("title", _TITLE)
        updates = []
        # A message tells of one terminal.
        for info in infos[:-1]:
            some = {name: value for name, value in told.items() if name != "content"}
            updates.append(_tool_call(call, some, {"_meta": _info(info)}))
        last = {**(meta or {}), **(_info(infos[-1]) if infos else {})}
        updates.append(_tool_call(call, told, {"_meta": last} if last else {}))
        cleared = {name: value for name, value in said.items() if _is_null(value)}
        if cleared and not first:
            updates.append(_update(call, cleared, {}))
        return updates

    def output(
        self, call: str, terminal: str, data: bytes, *, lost: int = 0, anew: bool = False
    ) -> list[Update]:
        """See `Form`."""
        text = ""
        if lost or anew:
            text += self._rest(terminal)
        if anew:
            text += _CLEAR.decode()
        if lost:
            text += f"\r\n[{lost} bytes are missing]\r\n"
            data = _from_character(data)
        text += self._decoder(terminal).decode(data)
        return [_terminal_update(call, "terminal_output", terminal, data=text)] if text else []

    def ended(self, call: str, terminal: str, end: ExitInfo | None) -> list[Update]:
        """See `Form`."""
        if end is None:
            return []
        rest = self._rest(terminal)
        told = [_terminal_update(call, "terminal_output", terminal, data=rest)] if rest else []
        how = {"exit_code": end.code, "signal": end.signal}
        return [*told, _terminal_update(call, "terminal_exit", terminal, **how)]

    def forget(self, terminal: str) -> None:
        """See `Form`."""
        self._decoders.pop(terminal, None)

    def _decoder(self, terminal: str) -> codecs.IncrementalDecoder:
        if terminal not in self._decoders:
            self._decoders[terminal] = codecs.getincrementaldecoder("utf-8")("replace")
        return self._decoders[terminal]

    def _rest(self, terminal: str) -> str:
        """Give what is left of a character whose rest will not come."""
        decoder = self._decoders.pop(terminal, None)
        return decoder.decode(b"", final=True) if decoder else ""


class V2Encoder:
    """Messages of ACP v2. `cwd`: the session's, if it is known."""

    needs_whole_call: Final = False

    def __init__(self, cwd: str | None = None) -> None:
        self.cwd = cwd

    def call(
        self, call: str, fields: dict[str, Raw], infos: Sequence[Info], *, first: bool
    ) -> list[Update]:
        """See `Form`."""
        updates = [_terminal(info) for info in infos]
        clean_fields = sanitize(call, fields)
        said = _members_of(clean_fields)
        if clean_fields.content:
            said["content"] = content_in_v2(clean_fields.content, self.cwd)
        if clean_fields.locations:
            said["locations"] = locations_in_v2(clean_fields.locations, self.cwd)
        if said.get("_meta"):
            kept = {name: v for name, v in said["_meta"].items() if name not in META_KEYS}
            said["_meta"] = kept
        if not said.get("_meta"):
            # To say that there is none would clear what there is.
            said.pop("_meta", None)
        if said or first:
            updates.append(_update(call, said, {}))
        return updates

    def output(
        self, call: str, terminal: str, data: bytes, *, lost: int = 0, anew: bool = False
    ) -> list[Update]:
        """See `Form`."""
        del call
        encoded = base64.b64encode(data).decode()
        if lost or anew:
            whole = {"output": {"data": encoded}}
            return [{"sessionUpdate": "terminal_update", "terminalId": terminal, **whole}]
        if not data:
            return []
        kind = "terminal_output_chunk"
        return [{"sessionUpdate": kind, "terminalId": terminal, "data": encoded}]

    def ended(self, call: str, terminal: str, end: ExitInfo | None) -> list[Update]:
        """See `Form`."""
        del call
        status = None
        if end is not None:
            said = {"exitCode": end.code, "signal": end.signal}
            status = {name: value for name, value in said.items() if value is not None}
            # The schema has a code of 32 bits, without a sign.
            if not 0 <= (end.code or 0) < 2**32:
                del status["exitCode"]
        return [{"sessionUpdate": "terminal_update", "terminalId": terminal, "exitStatus": status}]

    def forget(self, terminal: str) -> None:
        """See `Form`."""


def _members_of(update: ToolCallUpdate) -> dict[str, Any]:
    """Give what an update says, by the names of the wire."""
    said = {name: getattr(update, ours) for name, ours in _NAMES.items()}
    if update.meta is None:
        del said["_meta"]
    return {name: value for name, value in said.items() if not isinstance(value, UnsetType)}


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, Raw) and bytes(value) == b"null")


def _tool_call(call: str, said: Mapping[str, Any], more: Mapping[str, Any]) -> Update:
    return {"sessionUpdate": "tool_call", "toolCallId": call, **said, **more}


def _update(call: str, said: Mapping[str, Any], more: Mapping[str, Any]) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call, **said, **more}


def _terminal_update(call: str, what: str, terminal: str, **more: Any) -> Update:
    return _update(call, {}, {"_meta": {what: {"terminal_id": terminal, **more}}})


def _info(info: Info) -> dict[str, Any]:
    said = {"terminal_id": info.terminal}
    return {"terminal_info": said if info.cwd is None else {**said, "cwd": info.cwd}}


def _terminal(info: Info) -> Update:
    told = {"sessionUpdate": "terminal_update", "terminalId": info.terminal}
    if info.command is not None:
        told["command"] = info.command
    if info.cwd is not None and os.path.isabs(info.cwd):
        told["cwd"] = info.cwd
    return told


def _from_character(data: bytes) -> bytes:
    """Leave out the rest of a character whose beginning is missing."""
    start = 0
    while start < min(_REST, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
