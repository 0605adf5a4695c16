"""The settings of the terminal tools for agents, and how they differ between agents.

The settings `tool_…` are for all agents. A table `[[tools_for]]` in the settings file overrides
them for the agents whose name matches. An MCP client sends its name when it connects. A client can
send any name, so these settings are no protection from an agent.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import asdict

AtTimeout: TypeAlias = Literal["continue", "kill"]
"""What happens to a command at its time limit."""

Seconds = Annotated[float, Meta(ge=0, le=3600)]
Characters = Annotated[int, Meta(ge=100, le=10_000_000)]


class ToolSettings(Struct, frozen=True, kw_only=True):
    """The settings `tool_…` that apply to one agent; the profile's provider if None."""

    min_interval: float = 1.0
    settle_interval: float = 2.0
    max_interval: float = 30.0
    crop_output: int = 10_000
    timeout_seconds: float = 60.0
    at_timeout: AtTimeout = "continue"
    structured: bool = False
    provider: str | None = None


class ToolsFor(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table `[[tools_for]]`: settings of the terminal tools for some agents.

    If several tables match an agent, each setting comes from the first of them that sets it.
    """

    agent: Annotated[str, Meta(title="Pattern (`*`, `?`) of the name of the MCP client.")]
    min_interval: Annotated[
        Seconds | None, Meta(title="Instead of the setting `tool_min_interval`.")
    ] = None
    settle_interval: Annotated[
        Seconds | None, Meta(title="Instead of the setting `tool_settle_interval`.")
    ] = None
    max_interval: Annotated[
        Seconds | None, Meta(title="Instead of the setting `tool_max_interval`.")
    ] = None
    crop_output: Annotated[
        Characters | None, Meta(title="Instead of the setting `tool_crop_output`.")
    ] = None
    timeout_seconds: Annotated[
        Seconds | None, Meta(title="Instead of the setting `tool_timeout_seconds`.")
    ] = None
    at_timeout: Annotated[
        AtTimeout | None, Meta(title="Instead of the setting `tool_at_timeout`.")
    ] = None
    structured: Annotated[bool | None, Meta(title="Instead of the setting `tool_structured`.")] = (
        None
    )
    provider: Annotated[
        str | None,
        Meta(
            title="Provider of the agent's terminals; it must isolate programs more strictly than "
            "the provider of the profile."
        ),
    ] = None


def resolve_tools(default: ToolSettings, tables: Iterable[ToolsFor], agent: str) -> ToolSettings:
    """Return the settings of the tools for `agent`, each from the first table that sets it."""
    values = asdict(default)
    unset = set(values)
    for table in tables:
        if not fnmatchcase(agent, table.agent):
            continue
        for name in list(unset):
            if (value := getattr(table, name)) is not None:
                values[name] = value
                unset.discard(name)
    return ToolSettings(**values)
