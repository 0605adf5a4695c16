"""What the editor can do, and what the agent is told that it can (ACP v1, "Initialization")."""

from typing import NamedTuple

import msgspec
from msgspec import Raw, UnsetType

from acpterm.acp.raw_json import members
from acpterm.client.envelope import is_true
from acpterm.client.terminals import EXTENDED


class Capabilities(NamedTuple):
    """What the editor says of itself, as far as terminals are concerned."""

    terminals: bool = False
    """Whether it has terminals of its own."""
    shows: bool = False
    """Whether it shows terminals that an agent has (`_meta.terminal_output`)."""


def of_editor(params: Raw | UnsetType) -> Capabilities:
    """Read the capabilities in the params of the editor's `initialize`."""
    told = members(members(params).get("clientCapabilities"))
    meta = members(told.get("_meta"))
    return Capabilities(is_true(told.get("terminal")), is_true(meta.get("terminal_output")))


def with_terminals(params: Raw | UnsetType, *, ours: bool) -> dict[str, object]:
    """Give the same params, with what terminals there are among the client's capabilities.

    If they are `ours`, agents that know acpterm are told what else they can ask. What an editor
    says in the way of version 2 has no place for any of that.
    """
    said = members(params)
    if "clientCapabilities" not in said and "capabilities" in said:
        return {**said}
    told = members(said.get("clientCapabilities"))
    more: dict[str, object] = {"terminal": True} if ours else {}
    meta = {**members(told.get("_meta")), **(EXTENDED if ours else {}), "terminal_output": True}
    return {**said, "clientCapabilities": {**told, **more, "_meta": meta}}


def version(result: Raw | UnsetType) -> int:
    """Give the protocol's version that the agent's answer settles on; 1 if it does not say."""
    found = members(result).get("protocolVersion")
    try:
        return 1 if found is None else msgspec.json.decode(found, type=int)
    except msgspec.DecodeError:
        return 1
