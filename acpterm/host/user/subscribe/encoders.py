"""The two formats in which a subscriber gets tool calls and the terminals in them.

- `V1MetaEncoder`: ACP v1 messages. Terminals are described in the `_meta` of their tool call, with
  the keys that agents use for terminals of their own: `terminal_info`, then `terminal_output` (text
  to append) and `terminal_exit`. The editor Zed has introduced these keys. Zed reads
  `terminal_info` only from a `tool_call`, so the first update that shows a terminal is sent as a
  `tool_call` with all members. If the call was sent before, Zed recognises it by its id.
- `V2Encoder`: ACP v2 messages: `tool_call_update` (v2 has no `tool_call`), `terminal_update` and
  `terminal_output_chunk` (bytes in base64).

An encoder returns the `update` values of `session/update` notifications, in the order in which they
must be sent. Each is valid by its schema, whatever the agent has sent (see below). An encoder
serves only one subscriber: `V1MetaEncoder` holds back the incomplete character at the end of a
terminal's output.

- `call`: an update of a tool call. `infos` are the terminals that it is the first to show; with
  `needs_whole_call`, it must then have all members of the call.
- `output`: output of a terminal, `call` being the first tool call that showed it. `lost` bytes are
  missing before it; with `replace`, it replaces all earlier output.
- `ended`: how a terminal's program ended; None if it is running again.
- `forget`: the last update of a terminal was sent.

An invalid value that is optional in the schema is dropped. If the schema requires the value, the
object that contains it is dropped. If that object is required too, the object around it is dropped,
and so on. Members that are not in the schema are dropped, except `_meta`.

ACP v2 is stricter than v1 about URIs, paths (which must be absolute) and times, and represents a
diff as a patch (`git_patch`).
"""

import base64
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from acpterm.acp.base import DEFAULT_ON_ERROR, SKIP_INVALID_ITEMS, MetaIn, Wire
from acpterm.acp.lenient import decode
from acpterm.acp.session import (
    Content,
    Diff,
    Terminal,
    ToolCallContent,
    ToolCallLocation,
    ToolCallUpdate,
)
from acpterm.acp.terminal_updates import META_KEYS, Info, MetaEncoder, ProgramExit
from acpterm.jsonrpc import RpcError

Update: TypeAlias = dict[str, Any]

_NAMES: Final = {
    "title": "title",
    "name": "name",
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

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]*", re.ASCII)
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_Size: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_CONTEXT_LINES: Final = 3
_NO_NEWLINE: Final = "\\ No newline at end of file\n"


class _Annotations(Wire, omit_defaults=True):
    audience: Annotated[
        list[Literal["assistant", "user"]] | None, DEFAULT_ON_ERROR, SKIP_INVALID_ITEMS
    ] = None
    last_modified: Annotated[str | None, DEFAULT_ON_ERROR] = None
    priority: Annotated[float | None, DEFAULT_ON_ERROR] = None
    meta: MetaIn = field(default=None, name="_meta")


class _Block(Wire, omit_defaults=True, kw_only=True):
    annotations: Annotated[_Annotations | None, DEFAULT_ON_ERROR] = None
    meta: MetaIn = field(default=None, name="_meta")


class _Text(_Block, tag_field="type", tag="text", omit_defaults=True, kw_only=True):
    text: str


class _Image(_Block, tag_field="type", tag="image", omit_defaults=True, kw_only=True):
    data: str
    mime_type: str
    uri: Annotated[str | None, DEFAULT_ON_ERROR] = None


class _Audio(_Block, tag_field="type", tag="audio", omit_defaults=True, kw_only=True):
    data: str
    mime_type: str


class _Link(_Block, tag_field="type", tag="resource_link", omit_defaults=True, kw_only=True):
    name: str
    uri: str
    title: Annotated[str | None, DEFAULT_ON_ERROR] = None
    description: Annotated[str | None, DEFAULT_ON_ERROR] = None
    mime_type: Annotated[str | None, DEFAULT_ON_ERROR] = None
    size: Annotated[_Size | None, DEFAULT_ON_ERROR] = None


class _Resource(Wire, omit_defaults=True):
    """An embedded resource, which has either `text` or a `blob` in base64."""

    uri: str
    text: str | UnsetType = UNSET
    blob: str | UnsetType = UNSET
    mime_type: Annotated[str | None, DEFAULT_ON_ERROR] = None
    meta: MetaIn = field(default=None, name="_meta")


class _Embedded(_Block, tag_field="type", tag="resource", omit_defaults=True, kw_only=True):
    resource: _Resource


Block: TypeAlias = _Text | _Image | _Audio | _Link | _Embedded


class _Holder(Wire):
    content: Block


def sanitize(call: str, fields: dict[str, Raw]) -> ToolCallUpdate:
    """Return an update of a tool call without its invalid parts: valid by ACP v1 ("Tool Calls")."""
    members = {**fields, "sessionUpdate": "tool_call_update", "toolCallId": call}
    update = decode(msgspec.json.encode(members), ToolCallUpdate)
    if update.content:
        update.content = [item for item in map(_sanitize_item, update.content) if item is not None]
    return update


def _sanitize_item(item: ToolCallContent) -> ToolCallContent | None:
    if not isinstance(item, Content):
        return item
    block = _read_block(item.content)
    if block is None:
        return None
    return Content(content=Raw(msgspec.json.encode(block)), meta=item.meta)


def _read_block(raw: Raw) -> Block | None:
    try:
        block = decode(msgspec.json.encode({"content": raw}), _Holder).content
    except RpcError:
        return None
    if isinstance(block, _Embedded):
        resource = block.resource
        if isinstance(resource.text, UnsetType) and isinstance(resource.blob, UnsetType):
            return None
        if not isinstance(resource.text, UnsetType):
            resource.blob = UNSET
    return block


def content_in_v2(items: Iterable[ToolCallContent], cwd: str | None) -> list[Any]:
    """Convert sanitized content to ACP v2; drop what v2 does not allow."""
    return [new for item in items if (new := _item_in_v2(item, cwd)) is not None]


def _item_in_v2(item: ToolCallContent, cwd: str | None) -> Any:
    match item:
        case Terminal():
            return item
        case Diff():
            return _diff_in_v2(item, cwd)
        case Content():
            block = _read_block(item.content)
            if block is None or not _conform_to_v2(block):
                return None
            return Content(content=Raw(msgspec.json.encode(block)), meta=item.meta)


def _diff_in_v2(diff: Diff, cwd: str | None) -> dict[str, Any] | None:
    path = _absolute(diff.path, cwd)
    if path is None:
        return None
    operation = "add" if diff.old_text is None else "modify"
    new: dict[str, Any] = {
        "type": "diff",
        "changes": [{"operation": operation, "path": path, "fileType": "text"}],
    }
    if text := git_patch(path, diff.old_text, diff.new_text):
        new["patch"] = {"format": "git_patch", "text": text}
    return new if diff.meta is None else {**new, "_meta": diff.meta}


def locations_in_v2(
    locations: Iterable[ToolCallLocation], cwd: str | None
) -> list[ToolCallLocation]:
    """Return the locations with absolute paths; without `cwd`, drop those with relative paths."""
    return [
        ToolCallLocation(path=path, line=location.line, meta=location.meta)
        for location in locations
        if (path := _absolute(location.path, cwd)) is not None
    ]


def _absolute(path: str, cwd: str | None) -> str | None:
    if os.path.isabs(path):
        return path
    return os.path.normpath(os.path.join(cwd, path)) if cwd and path else None


def _conform_to_v2(block: Block) -> bool:
    """Remove from a block what ACP v2 does not allow; return whether the rest is valid."""
    if annotations := block.annotations:
        if annotations.priority is not None and not 0 <= annotations.priority <= 1:
            annotations.priority = None
        if annotations.last_modified is not None and not _is_time(annotations.last_modified):
            annotations.last_modified = None
    match block:
        case _Image():
            if block.uri is not None and not _URI.fullmatch(block.uri):
                block.uri = None
        case _Link():
            return _URI.fullmatch(block.uri) is not None
        case _Embedded():
            return _URI.fullmatch(block.resource.uri) is not None
        case _:
            pass
    return True


def _is_time(value: str) -> bool:
    if _TIME.fullmatch(value):
        with suppress(ValueError):
            return bool(datetime.fromisoformat(value.upper()))
    return False


def git_patch(path: str, old: str | None, new: str) -> str | None:
    """Return a git patch from `old` (None: a new file) to `new`; None if there is none."""
    # One hunk, from the first changed line to the last. A search for unchanged lines in between can
    # take very long, and this runs on the event loop.
    if not path.isprintable() or set(path) & set('"\\') or old == new:
        return None
    name = path.lstrip("/")
    head = [f"diff --git a/{name} b/{name}\n"]
    if old is None:
        head += ["new file mode 100644\n"]
    before, after = _split_lines(old or ""), _split_lines(new)
    if not before and not after:
        return "".join(head)
    head += [f"--- a/{name}\n" if old is not None else "--- /dev/null\n", f"+++ b/{name}\n"]
    start = _common_lines(before, after)
    end = _common_lines(before[start:][::-1], after[start:][::-1])
    first = max(0, start - _CONTEXT_LINES)
    tail = min(end, _CONTEXT_LINES)
    removed, added = before[start : len(before) - end], after[start : len(after) - end]
    kept_after = before[len(before) - end :][:tail]
    counts = [start - first + len(lines) + tail for lines in (removed, added)]
    hunk = f"@@ -{_hunk_range(first, counts[0])} +{_hunk_range(first, counts[1])} @@\n"
    lines = chain(
        (_patch_line(" ", line) for line in before[first:start]),
        (_patch_line("-", line) for line in removed),
        (_patch_line("+", line) for line in added),
        (_patch_line(" ", line) for line in kept_after),
    )
    return "".join([*head, hunk, *lines])


def _split_lines(text: str) -> list[str]:
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def _common_lines(one: list[str], two: list[str]) -> int:
    for number, (left, right) in enumerate(zip(one, two, strict=False)):
        if left != right:
            return number
    return min(len(one), len(two))


def _hunk_range(first: int, count: int) -> str:
    return f"{first + 1 if count else first},{count}"


def _patch_line(mark: str, line: str) -> str:
    return mark + line if line.endswith("\n") else f"{mark}{line}\n{_NO_NEWLINE}"


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
