"""One tool: its name, description, schemas and annotations, and the function that executes it.

The schemas of the params and of the structured result come from msgspec Structs.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from acpterm.mcp import types
from acpterm.mcp.arguments import decode
from acpterm.mcp.call import Call

P = TypeVar("P", bound=msgspec.Struct)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The result of a call: a text, after the line `state`, and structured content."""

    text: str
    state: str | None = None
    data: msgspec.Struct | None = None


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


@dataclass(frozen=True, kw_only=True)
class Tool(Generic[P]):
    """A tool. `execute` may raise `ToolError`; its message becomes the result."""

    name: str
    description: str
    params: type[P]
    result: type[msgspec.Struct] | None
    execute: Callable[[Call, P], Awaitable[Reply]] = field(repr=False)
    continued_by: tuple[str, str] = ("terminal_wait", "sessionId")
    reads_only: bool = False
    destructive: bool = False
    idempotent: bool = False

    def describe(self, *, structured: bool) -> types.WireTool:
        result = self.result if structured else None
        return types.WireTool(
            name=self.name,
            description=self.description,
            input_schema=_without_null(object_schema(self.params)),
            output_schema=None if result is None else object_schema(result),
            annotations=types.ToolAnnotations(
                read_only_hint=self.reads_only,
                destructive_hint=self.destructive,
                idempotent_hint=self.idempotent,
                open_world_hint=not self.reads_only,
            ),
        )

    async def run(self, call: Call, arguments: Any) -> Reply:
        return await self.execute(call, decode(self.name, arguments, self.params))


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null from a schema: models can omit a parameter instead."""
    for value in schema["properties"].values():
        kinds = [kind for kind in value.pop("anyOf", ()) if kind != {"type": "null"}]
        if len(kinds) == 1:
            value |= {**kinds[0], **value}
        elif kinds:
            value["anyOf"] = kinds
        if value.get("default", ...) is None:
            del value["default"]
    return schema


def object_schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a Struct, without a reference at its root."""
    schema = msgspec.json.schema(struct)
    definitions: dict[str, Any] = schema.get("$defs", {})
    root: dict[str, Any] = definitions.pop(struct.__name__)
    root.pop("title", None)
    root.pop("description", None)
    root.setdefault("properties", {})
    return {**root, "$defs": definitions} if definitions else root
