"""Makes the content of tool calls valid by the schema of ACP v1, and converts it to ACP v2.

Everything returned is valid, whatever an agent has sent. An invalid value that is optional in the
schema is dropped. If the schema requires the value, the object that contains it is dropped. If that
object is required too, the object around it is dropped, and so on. Members that are not in the
schema are dropped, except `_meta`.

ACP v2 is stricter than v1 about URIs, paths (which must be absolute) and times, and represents a
diff as a patch (`git_patch`).
"""

import os
import re
from collections.abc import Iterable
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
    TerminalContent,
    ToolCallContent,
    ToolCallLocation,
    ToolCallUpdate,
)
from acpterm.jsonrpc import RpcError

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
        case TerminalContent():
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
