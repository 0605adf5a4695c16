"""Reads the editor's capabilities, and adds terminals to them for the agent.

See ACP v1, "Initialization".
"""

from typing import NamedTuple

import msgspec
from msgspec import Raw, UnsetType

from acpterm.acp.raw_json import members, text
from acpterm.agents.envelope import is_true
from acpterm.agents.terminals import EXTENSIONS_META


class Capabilities(NamedTuple):
    has_terminals: bool = False
    replaces_content: bool = True
    """Whether the content in an update of a tool call replaces the earlier content, as it should.
    marimo 0.25, which does not name itself, appends it."""
    shows_beginnings: bool = False
    """Whether the editor shows only the beginning of a text: CodeCompanion 100 characters, and
    avante.nvim, which does not name itself, four lines."""
    shows_agent_terminals: bool = False
    """Whether the editor shows terminals that the agent runs itself (`_meta.terminal_output`)."""
    shows_notices: bool = False
    """Whether the editor shows notices for the user (`session.notices`)."""


def editor_capabilities(params: Raw | UnsetType) -> Capabilities:
    capabilities = members(members(params).get("clientCapabilities"))
    meta = members(capabilities.get("_meta"))
    notices = members(capabilities.get("session")).get("notices")
    name = text(members(members(params).get("clientInfo")).get("name"))
    return Capabilities(
        has_terminals=is_true(capabilities.get("terminal")),
        replaces_content=name not in (None, "marimo"),
        shows_beginnings=name in (None, "CodeCompanion.nvim"),
        shows_agent_terminals=is_true(meta.get("terminal_output")),
        shows_notices=notices is not None and bytes(notices) != b"null",
    )


def with_terminals(params: Raw | UnsetType, *, ours: bool) -> dict[str, object]:
    """Return the editor's `initialize` params with terminals added; `ours`: the host runs them.

    Params of ACP v2, which has no such capabilities, are returned unchanged.
    """
    fields = members(params)
    if "clientCapabilities" not in fields and "capabilities" in fields:
        return {**fields}
    capabilities = members(fields.get("clientCapabilities"))
    added: dict[str, object] = {"terminal": True} if ours else {}
    extensions = EXTENSIONS_META if ours else {}
    meta = {**members(capabilities.get("_meta")), **extensions, "terminal_output": True}
    return {**fields, "clientCapabilities": {**capabilities, **added, "_meta": meta}}


def protocol_version(result: Raw | UnsetType) -> int:
    """Return the protocol version in the agent's response to `initialize`; 1 if none is valid."""
    version = members(result).get("protocolVersion")
    try:
        return 1 if version is None else msgspec.json.decode(version, type=int)
    except msgspec.DecodeError:
        return 1
