"""The names of the sets of tools, as in `acpterm mcp --tools NAME`.

A module of its own, since the options of commands need the names, and `tool_sets` imports all
tools.
"""

from typing import Final, Literal, TypeAlias, get_args

ToolSetName: TypeAlias = Literal["session", "pool", "codex", "claude", "inspect"]
TOOL_SET_NAMES: Final[tuple[ToolSetName, ...]] = get_args(ToolSetName)
