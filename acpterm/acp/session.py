"""``session/update`` and ``session/cancel``: tool calls are decoded, other updates stay raw JSON.

In a `tool_call_update`, an absent field (UNSET) keeps the previous value, and a null field (None)
clears the value.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from acpterm.acp.base import DEFAULT_ON_ERROR, SKIP_INVALID_ITEMS, MetaIn, Wire
from acpterm.acp.lenient import decode
from acpterm.acp.terminal import SessionId

ToolKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]
ToolCallStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]


class Content(Wire, tag_field="type", tag="content", omit_defaults=True):
    """A content block (text, image, …) in a tool call."""

    content: Raw
    meta: MetaIn = field(default=None, name="_meta")


class Diff(Wire, tag_field="type", tag="diff", omit_defaults=True):
    """A change of a file in a tool call; `old_text` is None for a new file."""

    path: str
    new_text: str
    old_text: Annotated[str | None, DEFAULT_ON_ERROR] = None
    meta: MetaIn = field(default=None, name="_meta")


class Terminal(Wire, tag_field="type", tag="terminal", omit_defaults=True):
    """A terminal that a tool call shows: created by ``terminal/create``, or run by the agent."""

    terminal_id: str
    meta: MetaIn = field(default=None, name="_meta")


ToolCallContent: TypeAlias = Content | Diff | Terminal


class ToolCallLocation(Wire, omit_defaults=True):
    """A file that a tool call reads or changes.

    ACP leaves open whether the first `line` is 0 or 1, so the agent's number is kept unchanged.
    """

    path: str
    line: Annotated[Annotated[int, Meta(ge=0, le=2**32 - 1)] | None, DEFAULT_ON_ERROR] = None
    meta: MetaIn = field(default=None, name="_meta")


class ToolCall(Wire, tag_field="sessionUpdate", tag="tool_call", omit_defaults=True):
    """A `tool_call`: the update that announces a new tool call."""

    tool_call_id: str
    title: str
    kind: Annotated[ToolKind, DEFAULT_ON_ERROR] = "other"
    status: Annotated[ToolCallStatus, DEFAULT_ON_ERROR] = "pending"
    content: Annotated[list[ToolCallContent], DEFAULT_ON_ERROR, SKIP_INVALID_ITEMS] = field(
        default_factory=list
    )
    locations: Annotated[list[ToolCallLocation], DEFAULT_ON_ERROR, SKIP_INVALID_ITEMS] = field(
        default_factory=list
    )
    raw_input: Annotated[Raw, DEFAULT_ON_ERROR] | UnsetType = UNSET
    raw_output: Annotated[Raw, DEFAULT_ON_ERROR] | UnsetType = UNSET
    name: Annotated[str | None, DEFAULT_ON_ERROR] = None
    meta: MetaIn = field(default=None, name="_meta")


class ToolCallUpdate(Wire, tag_field="sessionUpdate", tag="tool_call_update", omit_defaults=True):
    """A `tool_call_update`: changes of a tool call.

    An absent field (UNSET) keeps the previous value, a null field (None) clears it, and a list
    replaces the whole previous list. Some agents send a `tool_call_update` for a tool call that no
    `tool_call` has announced.
    """

    tool_call_id: str
    title: Annotated[str | None, DEFAULT_ON_ERROR] | UnsetType = UNSET
    kind: Annotated[ToolKind | None, DEFAULT_ON_ERROR] | UnsetType = UNSET
    status: Annotated[ToolCallStatus | None, DEFAULT_ON_ERROR] | UnsetType = UNSET
    content: (
        Annotated[list[ToolCallContent] | None, DEFAULT_ON_ERROR, SKIP_INVALID_ITEMS] | UnsetType
    ) = UNSET
    locations: (
        Annotated[list[ToolCallLocation] | None, DEFAULT_ON_ERROR, SKIP_INVALID_ITEMS] | UnsetType
    ) = UNSET
    raw_input: Annotated[Raw, DEFAULT_ON_ERROR] | UnsetType = UNSET
    raw_output: Annotated[Raw, DEFAULT_ON_ERROR] | UnsetType = UNSET
    name: Annotated[str | None, DEFAULT_ON_ERROR] | UnsetType = UNSET
    meta: MetaIn = field(default=None, name="_meta")


class OtherUpdate(Struct, frozen=True):
    """A session update that is not about a tool call, as raw JSON.

    Its kind may be one that ACP does not define.
    """

    kind: str
    raw: Raw


class SessionNotification(Wire, omit_defaults=True):
    """The params of ``session/update``; `update` is raw JSON, which `read_update` decodes."""

    session_id: SessionId
    update: Raw
    meta: MetaIn = field(default=None, name="_meta")


class CancelNotification(Wire, omit_defaults=True):
    """The params of ``session/cancel``: cancel the session's current turn."""

    session_id: SessionId
    meta: MetaIn = field(default=None, name="_meta")


class _Kind(Wire):
    session_update: Annotated[str, Meta(description="the kind of the update")]


def read_update(update: Raw) -> ToolCall | ToolCallUpdate | OtherUpdate:
    """Decode the `update` of a SessionNotification; raise RpcError (-32602) if it is invalid."""
    where = "params.update"
    kind = decode(update, _Kind, where).session_update
    if kind == "tool_call":
        return decode(update, ToolCall, where)
    if kind == "tool_call_update":
        return decode(update, ToolCallUpdate, where)
    return OtherUpdate(kind, update)
