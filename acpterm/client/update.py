"""A `session/update` of the agent's, as far as the proxy looks into it; and such ones of our own.

What is not about terminals stays the JSON that it came as, member by member, so that an update of
which something was replaced says otherwise what it said.
"""

from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Raw, UnsetType

from acpterm.acp.raw_json import members, text
from acpterm.jsonrpc import encode_notification

TOOL_CALLS: Final = ("tool_call", "tool_call_update")
SESSION_UPDATE: Final = "session/update"

SessionKey: TypeAlias = tuple[str, str]
"""A session's id, and the id of a terminal or a tool call in it."""


class Update(NamedTuple):
    """What an update says."""

    session: str
    kind: str
    fields: dict[str, Raw]
    params: dict[str, Raw]

    @property
    def call(self) -> str | None:
        """The id of the tool call that it is about, if any."""
        return text(self.fields.get("toolCallId")) if self.kind in TOOL_CALLS else None

    def line(self, **fields: Any) -> bytes:
        """Write the update again, with some members replaced; named as on the wire."""
        update = {**self.fields, **fields}
        return encode_notification(SESSION_UPDATE, {**self.params, "update": update})


def read(params: Raw | UnsetType) -> Update | None:
    """Look into the params of a `session/update`; None if they are not what they should be."""
    outer = members(params)
    fields = members(outer.get("update"))
    session, kind = text(outer.get("sessionId")), text(fields.get("sessionUpdate"))
    if session is None or kind is None:
        return None
    return Update(session, kind, fields, outer)


def terminal_in(item: Raw) -> str | None:
    """Give the id of the terminal that an item of a tool call's content embeds, if it is one."""
    if b"terminal" not in bytes(item):
        return None
    found = members(item)
    return text(found.get("terminalId")) if text(found.get("type")) == "terminal" else None


def tool_call_update(call: SessionKey, **fields: Any) -> bytes:
    """Write an update of a tool call: all that changes is given here, named as on the wire."""
    session, identifier = call
    update = {"sessionUpdate": "tool_call_update", "toolCallId": identifier, **fields}
    return encode_notification(SESSION_UPDATE, {"sessionId": session, "update": update})
