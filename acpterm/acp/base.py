"""The base class `Wire` of all wire types of ACP and of acpterm itself, and annotations of fields.

The name of a field is in snake_case here and in camelCase on the wire. A received member for which
the type has no field is ignored, unless the type forbids such members. An invalid value is an
error, except in a field with the annotation `DEFAULT_ON_ERROR`, `DEFAULT_ON_NULL` or
`SKIP_INVALID_ITEMS`, which are named `x-deserialize-…` in ACP's schema. A test derives from the
schema which values each field accepts.
"""

from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Raw, Struct, UnsetType

ON_ERROR: Final = "x-deserialize-default-on-error"
ON_NULL: Final = "x-deserialize-default-on-null"
SKIP: Final = "x-deserialize-skip-invalid-items"

DEFAULT_ON_ERROR: Final = Meta(extra={ON_ERROR: True})
"""Annotation of a field: an invalid value is treated as absent."""

DEFAULT_ON_NULL: Final = Meta(extra={ON_NULL: True})
"""Annotation of a field: null is treated as absent."""

SKIP_INVALID_ITEMS: Final = Meta(extra={SKIP: True})
"""Annotation of an array: an invalid item is skipped."""


class Wire(Struct, rename="camel"):
    """The base class of all JSON objects of ACP and of acpterm's own methods."""


MetaIn: TypeAlias = Annotated[dict[str, Raw] | None, DEFAULT_ON_ERROR]
"""The type of a received ``_meta``: each member as raw JSON; None if absent."""

MetaOut: TypeAlias = Annotated[dict[str, Any] | None, DEFAULT_ON_ERROR] | UnsetType
"""The type of a ``_meta`` to send: JSON values or Structs by name; UNSET omits ``_meta``."""
