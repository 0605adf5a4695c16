"""`session/update` notifications: partial decoding of the agent's, and encoding of our own.

All members stay raw JSON until they are needed, so replacing one member of an update leaves all
other members exactly as the agent sent them.
"""

from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Raw, UnsetType
from msgspec.json import encode

from acpterm.acp.raw_json import members, text
from acpterm.jsonrpc import encode_notification

TOOL_CALLS: Final = ("tool_call", "tool_call_update")
_FINAL_STATUSES: Final = ("completed", "failed")
SESSION_UPDATE: Final = "session/update"

SessionKey: TypeAlias = tuple[str, str]
"""A session's id, and the id of a terminal or a tool call in that session."""


class Update(NamedTuple):
    session: str
    kind: str
    """The value of `sessionUpdate`, such as `tool_call`."""
    fields: dict[str, Raw]
    """The members of `params.update`."""
    params: dict[str, Raw]
    """The members of `params`."""

    @property
    def tool_call(self) -> str | None:
        """The id of the tool call; None for other kinds of updates."""
        return text(self.fields.get("toolCallId")) if self.kind in TOOL_CALLS else None

    @property
    def ends_call(self) -> bool:
        return self.kind in TOOL_CALLS and text(self.fields.get("status")) in _FINAL_STATUSES

    def with_meta(self, meta: dict[str, Raw]) -> "Update":
        """Return the update with `meta` as its `_meta`, without one if it is empty."""
        rest = {name: value for name, value in self.fields.items() if name != "_meta"}
        return self._replace(fields={**rest, "_meta": Raw(encode(meta))} if meta else rest)

    def encode(self, **fields: Any) -> bytes:
        """Encode the update as a line; `fields` replace members, by their names on the wire."""
        update = {**self.fields, **fields}
        return encode_notification(SESSION_UPDATE, {**self.params, "update": update})


def parse_update(params: Raw | UnsetType) -> Update | None:
    """Parse the params of a `session/update`; return None if they are invalid."""
    outer = members(params)
    fields = members(outer.get("update"))
    session, kind = text(outer.get("sessionId")), text(fields.get("sessionUpdate"))
    if session is None or kind is None:
        return None
    return Update(session, kind, fields, outer)


def embedded_terminal(item: Raw) -> str | None:
    """Return the id of the terminal that an item of a tool call's content embeds, if any."""
    if b"terminal" not in bytes(item):
        return None
    fields = members(item)
    return text(fields.get("terminalId")) if text(fields.get("type")) == "terminal" else None


def encode_tool_call_update(call: SessionKey, **fields: Any) -> bytes:
    """Encode a `tool_call_update` with `fields`, by their names on the wire."""
    session, call_id = call
    update = {"sessionUpdate": "tool_call_update", "toolCallId": call_id, **fields}
    return encode_notification(SESSION_UPDATE, {"sessionId": session, "update": update})
