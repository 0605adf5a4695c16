"""Decode params and results from JSON, exactly as leniently as ACP's schema requires.

A value that fits its type is decoded in one step. Only a value that does not fit is decoded again,
field by field. In a field with the schema's annotation ``x-deserialize-default-on-error``, an
invalid value is treated as absent. In an array with ``x-deserialize-skip-invalid-items``, an
invalid item is skipped. Both apply at any depth. Any other invalid value is an error that names the
value.
"""

from typing import Any, Final, TypeVar

from msgspec import Raw, Struct, UnsetType

from acpterm.acp.raw_json import DECODE_ERRORS, ITEMS_DECODER, MEMBERS_DECODER
from acpterm.acp.schema import FieldSchema, fields_of, schema_of_struct, struct_for
from acpterm.jsonrpc import INVALID_PARAMS, RpcError, excerpt, quote

S = TypeVar("S", bound=Struct)
_LARGE_BYTES: Final = 256 * 1024
# Memory of decoded values, for a byte of JSON: 8 for `[1,1]`, some 16 for short strings.
_MEMORY_PER_BYTE: Final = 16


def decode(raw: Raw | UnsetType | bytes, into: type[S], where: str = "params") -> S:
    """Decode the JSON `raw` as the Struct type `into`; errors name it `where`.

    Raises RpcError (-32602) for a missing or invalid value that must not be ignored (see `base`).
    `Raw` fields of the result are slices of `raw` and keep its memory alive.
    """
    schema = schema_of_struct(into)
    if isinstance(raw, UnsetType) or bytes(memoryview(raw)[:5]) == b"null":
        raise RpcError(INVALID_PARAMS, f"{where} is missing: it must be {schema.expected}")
    size = memoryview(raw).nbytes
    if size > _LARGE_BYTES:
        # msgspec 0.22 crashes if there is no memory for many small values; this raises MemoryError.
        bytes(_MEMORY_PER_BYTE * size)
    try:
        value: S = schema.decoder.decode(raw)
    except DECODE_ERRORS:
        value = _read(Raw(raw), schema, where)
    return value


def _read(raw: Raw, schema: FieldSchema, where: str) -> Any:
    """Decode `raw` without the invalid parts that `schema` tolerates; raise RpcError for others."""
    try:
        return schema.decoder.decode(raw)
    except DECODE_ERRORS:
        first = bytes(memoryview(raw)[:1])
    try:
        if first == b"{" and schema.structs:
            members = MEMBERS_DECODER.decode(raw)
            struct = struct_for(schema.structs, members)
            if struct is not None:
                return _read_members(members, struct, where)
        if first == b"[" and schema.items is not None:
            return _read_items(ITEMS_DECODER.decode(raw), schema, schema.items, where)
    except DECODE_ERRORS:
        pass
    raise RpcError(INVALID_PARAMS, f"{where} is {excerpt(raw)}: it must be {schema.expected}")


def _read_members(members: dict[str, Raw], struct: type[Struct], where: str) -> Struct:
    if struct.__struct_config__.forbid_unknown_fields:
        known = [field.wire_name for field in fields_of(struct)]
        for name in members:
            if name not in known:
                what = f"{where} has no member {quote(name)}: there are {', '.join(known)}"
                raise RpcError(INVALID_PARAMS, what)
    values = {}
    for field in fields_of(struct):
        inside = f"{where}.{field.wire_name}"
        if field.wire_name not in members:
            if field.required:
                expected = field.schema.expected
                raise RpcError(INVALID_PARAMS, f"{inside} is missing: it must be {expected}")
            continue
        try:
            values[field.name] = _read(members[field.wire_name], field.schema, inside)
        except RpcError:
            if not field.schema.default_on_error:
                raise
    return struct(**values)


def _read_items(raws: list[Raw], schema: FieldSchema, items: FieldSchema, where: str) -> list[Any]:
    values = []
    for index, raw in enumerate(raws):
        try:
            values.append(_read(raw, items, f"{where}[{index}]"))
        except RpcError:
            if not schema.skip_invalid_items:
                raise
    return values
