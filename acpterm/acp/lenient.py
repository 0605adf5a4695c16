"""Decode params and results from JSON, exactly as leniently as ACP's schema requires.

A value that fits its type is decoded in one step. Only a value that does not fit is decoded again,
field by field, as the annotations of `base` say, at any depth. Any other invalid value is an error
that names the value.

The `FieldSchema` of a field says which invalid values are ignored instead of refused, and describes
a valid value in words for error messages. The schemas of a Struct's fields are derived once, and
kept.
"""

import functools
import types
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Raw, Struct, UnsetType

from acpterm.acp.base import ON_ERROR, ON_NULL, SKIP
from acpterm.acp.raw_json import DECODE_ERRORS, ITEMS_DECODER, MEMBERS_DECODER
from acpterm.jsonrpc import INVALID_PARAMS, RpcError, excerpt, quote

S = TypeVar("S", bound=Struct)
_LARGE_BYTES: Final = 256 * 1024
# Memory of decoded values, for a byte of JSON: 8 for `[1,1]`, some 16 for short strings.
_MEMORY_PER_BYTE: Final = 16

_SIMPLE: Final[dict[Any, str]] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
}


class FieldSchema(NamedTuple):
    """How to decode one value, and which invalid values in it to ignore."""

    decoder: msgspec.json.Decoder[Any]  # of a value that is completely valid
    structs: tuple[type[Struct], ...]  # the Struct types that the value may have
    items: "FieldSchema | None"  # of each item, if it may be an array of any length
    default_on_error: bool  # an invalid value is treated as absent
    default_on_null: bool  # null is treated as absent
    skip_invalid_items: bool  # of the array
    expected: str  # follows "it must be" in messages


class Field(NamedTuple):
    name: str
    wire_name: str
    required: bool
    schema: FieldSchema


@functools.cache
def schema_of_struct(struct: type[Struct]) -> FieldSchema:
    return _schema_of(struct)


@functools.cache
def fields_of(struct: type[Struct]) -> tuple[Field, ...]:
    return tuple(
        Field(field.name, field.encode_name, field.required, _schema_of(field.type))
        for field in msgspec.structs.fields(struct)
    )


def struct_for(structs: tuple[type[Struct], ...], members: dict[str, msgspec.Raw]) -> Any:
    """Return the first type that fits an object: by its tag, without one, or as the only type."""
    for struct in structs:
        config = struct.__struct_config__
        if config.tag_field is None:
            return struct
        raw = members.get(config.tag_field)
        if raw is None and len(structs) == 1:
            return struct
        if raw is not None and bytes(raw) == msgspec.json.encode(config.tag):
            return struct
    return None


def _schema_of(annotation: Any) -> FieldSchema:
    metas = tuple(_metas(annotation))
    members = tuple(_members(annotation))
    flags = {key for meta in metas for key in meta.extra or ()}
    items = [get_args(member)[0] for member in members if get_origin(member) is list]
    descriptions = [meta.description for meta in metas if meta.description]
    return FieldSchema(
        decoder=msgspec.json.Decoder(annotation),
        structs=tuple(member for member in members if _is_struct(member)),
        items=_schema_of(items[0]) if items else None,
        default_on_error=ON_ERROR in flags,
        default_on_null=ON_NULL in flags,
        skip_invalid_items=SKIP in flags,
        expected=", ".join([_expected(annotation), *descriptions]),
    )


def _members(annotation: Any) -> Iterator[Any]:
    """Yield the types of a union, without `Annotated` and UnsetType."""
    if get_origin(annotation) is Annotated:
        yield from _members(get_args(annotation)[0])
    elif get_origin(annotation) in {Union, types.UnionType}:
        for member in get_args(annotation):
            yield from _members(member)
    elif annotation is not UnsetType:
        yield annotation


def _metas(annotation: Any) -> Iterator[Meta]:
    """Yield the `Meta` of a type, but not those of an array's items."""
    if get_origin(annotation) is Annotated:
        yield from (meta for meta in annotation.__metadata__ if isinstance(meta, Meta))
        yield from _metas(get_args(annotation)[0])
    elif get_origin(annotation) in {Union, types.UnionType}:
        for member in get_args(annotation):
            yield from _metas(member)


def _is_struct(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Struct)


def _words(plain: Any, metas: tuple[Meta, ...] = ()) -> str:
    """Describe the values of a type that is neither a union nor `Annotated`, such as "a string"."""
    origin, arguments = get_origin(plain), get_args(plain)
    words = _SIMPLE.get(plain, "a JSON value")
    if plain is int:
        words += "".join(_range(meta) for meta in metas)
    elif origin is Literal:
        words = " or ".join(f'"{value}"' for value in arguments)
    elif origin is list:
        words = f"an array, each item {_expected(arguments[0])}"
    elif origin is tuple:
        items = ", the next ".join(map(_expected, arguments))
        words = f"an array of {len(arguments)}, the first {items}"
    elif origin is dict:
        words = f"an object, each value {_expected(arguments[1])}"
    elif _is_struct(plain):
        names = [field.encode_name for field in msgspec.structs.fields(plain) if field.required]
        words = f"an object with {' and '.join(names)}" if names else "an object"
    return words


def _expected(annotation: Any) -> str:
    """Describe the values of a type, except null."""
    metas = tuple(_metas(annotation))
    plain = [member for member in _members(annotation) if member is not type(None)]
    return " or ".join(_words(member, metas) for member in plain)


def _range(meta: Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f", {meta.ge} to {meta.le}"
    return f", {meta.ge} or more" if meta.ge is not None else ""


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
        raw = members[field.wire_name]
        if field.schema.default_on_null and bytes(raw) == b"null":
            continue
        try:
            values[field.name] = _read(raw, field.schema, inside)
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
