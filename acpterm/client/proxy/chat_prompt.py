"""The chat command `/terminal` on the wire: in the editor's prompts, and in the list of commands.

See ACP v1, "Slash Commands".
"""

import re
import shlex
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from msgspec import Raw

from acpterm.acp.raw_json import items, members, text
from acpterm.client.chat.actions import DESCRIPTION, HINT, NAME
from acpterm.client.session_update import SESSION_UPDATE, Update
from acpterm.jsonrpc import encode_notification

COMMANDS_UPDATE: Final = "available_commands_update"
_COMMAND: Final = {"name": NAME, "description": DESCRIPTION, "input": {"hint": HINT}}
_PROMPT: Final = re.compile(rf"\s*/{NAME}(?!\S)(.*)", re.DOTALL)


def words_of(prompt: Raw | None) -> str | None:
    """Return the text after `/terminal` in the content blocks of a prompt.

    Return None if there is no text block, or if the first one does not begin with `/terminal`. The
    text of all text blocks is joined. If a resource follows text that ends with a space, the
    resource is a file that the user mentions, and its quoted path is inserted at this place. All
    other resources, and blocks of other kinds, are context that the editor has added: they are left
    out.
    """
    words: str | None = None
    for block in map(members, items(prompt)):
        kind = text(block.get("type"))
        if kind == "text":
            content = text(block.get("text")) or ""
            if words is not None:
                words += content
                continue
            found = _PROMPT.fullmatch(content)
            if found is None:
                return None
            words = found[1]
        elif kind in ("resource", "resource_link") and words is not None and words[-1:].isspace():
            resource = members(block.get("resource")) if kind == "resource" else block
            path = _path(text(resource.get("uri")))
            words += "" if path is None else shlex.quote(path)
    return words


def _path(uri: str | None) -> str | None:
    try:
        parts = urlsplit(uri or "")
    except ValueError:
        return None
    return unquote(parts.path) if parts.scheme == "file" and parts.path else None


def with_command(update: Update) -> bytes:
    """Encode an agent's list of commands with `/terminal` added.

    An agent's own command of that name is left out, since no prompt would reach it.
    """
    commands: list[Any] = [
        command
        for command in items(update.fields.get("availableCommands"))
        if text(members(command).get("name")) != NAME
    ]
    return update.encode(availableCommands=[*commands, _COMMAND])


def announcement(session: str) -> bytes:
    """Encode a list of commands that has only `/terminal`, for a session without another list."""
    update = {"sessionUpdate": COMMANDS_UPDATE, "availableCommands": [_COMMAND]}
    return encode_notification(SESSION_UPDATE, {"sessionId": session, "update": update})
