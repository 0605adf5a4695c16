"""The values of MCP that tools and questions use. Protocol versions 2024-11-05 to 2026-07-28.

These are the few that acpterm needs: the types of the SDK take a third of a second to import.
"""

from typing import Any, Literal

from msgspec import Struct


class TextContent(Struct, tag="text", tag_field="type", frozen=True):
    text: str


class CallToolResult(Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The result of `tools/call`. With `is_error`, the text is an error for the model."""

    content: list[TextContent]
    structured_content: Any = None
    is_error: bool = False


class ToolAnnotations(Struct, rename="camel", frozen=True, kw_only=True):
    """What a client may assume about a tool, for example to let it run without a question."""

    read_only_hint: bool
    destructive_hint: bool
    idempotent_hint: bool
    open_world_hint: bool


class WireTool(Struct, rename="camel", omit_defaults=True, kw_only=True):
    name: str
    description: str
    input_schema: dict[str, Any]
    annotations: ToolAnnotations
    output_schema: dict[str, Any] | None = None


class ElicitResult(Struct, kw_only=True):
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None
