"""Params and results out of JSON, as forgiving as the schema and no more.

The rule: a value that fits its type is decoded in one go. Only one that does not is read
again, field by field: where the schema says ``x-deserialize-default-on-error`` a bad value
counts as absent, where it says ``x-deserialize-skip-invalid-items`` a bad item is left out,
at any depth; anywhere else a bad value is an error that names it.
"""

from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct, UnsetType

from acpterm.acp.schema import FieldSchema, fields_of, schema_of_struct, struct_for
from acpterm.jsonrpc import INVALID_PARAMS, RpcError, excerpt

S = TypeVar("S", bound=Struct)

# A wrong type; a string that is half a surrogate pair or not UTF-8; nesting too deep for
# where we are on the stack.
_BAD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_members: Final = msgspec.json.Decoder(dict[str, Raw])
_items: Final = msgspec.json.Decoder(list[Raw])


def decode(raw: Raw | UnsetType | bytes, into: type[S], where: str = "params") -> S:
    """Return the value of type `into` in `raw`; null counts as absent.

    `where` is what messages call the value. Raises RpcError (-32602) if the value is absent
    or is bad where the schema does not forgive it. Raw values in what is returned refer to
    `raw`, and keep it alive.
    """
    shape = schema_of_struct(into)
    if isinstance(raw, UnsetType) or bytes(memoryview(raw)[:5]) == b"null":
        raise RpcError(INVALID_PARAMS, f"{where} is missing: it must be {shape.expected}")
    try:
        value: S = shape.decoder.decode(raw)
    except _BAD:
        value = _read(Raw(raw), shape, where)
    return value


def _read(raw: Raw, shape: FieldSchema, where: str) -> Any:
    """Return a value with what is forgiven left out of it, else raise RpcError."""
    try:
        return shape.decoder.decode(raw)
    except _BAD:
        first = bytes(memoryview(raw)[:1])
    try:
        if first == b"{" and shape.structs:
            members = _members.decode(raw)
            struct = struct_for(shape.structs, members)
            if struct is not None:
                return _read_members(members, struct, where)
        if first == b"[" and shape.items is not None:
            return _read_items(_items.decode(raw), shape, shape.items, where)
    except _BAD:
        pass
    raise RpcError(INVALID_PARAMS, f"{where} is {excerpt(raw)}: it must be {shape.expected}")


def _read_members(members: dict[str, Raw], struct: type[Struct], where: str) -> Struct:
    values = {}
    for field in fields_of(struct):
        inside = f"{where}.{field.wire_name}"
        if field.wire_name not in members:
            if field.required:
                right = field.schema.expected
                raise RpcError(INVALID_PARAMS, f"{inside} is missing: it must be {right}")
            continue
        try:
            values[field.name] = _read(members[field.wire_name], field.schema, inside)
        except RpcError:
            if not field.schema.default_on_error:
                raise
    return struct(**values)


def _read_items(raws: list[Raw], shape: FieldSchema, items: FieldSchema, where: str) -> list[Any]:
    values = []
    for index, raw in enumerate(raws):
        try:
            values.append(_read(raw, items, f"{where}[{index}]"))
        except RpcError:
            if not shape.skip_invalid_items:
                raise
    return values
