"""The base of all wire types of ACP.

Names of fields are in snake_case here and in camelCase on the wire. Members that have no field are
ignored. A field has one of the annotations below if an invalid value of the field is tolerated. The
annotations have the same names as in ACP's schema, so that a test can compare them with the schema.
"""

from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Raw, Struct, UnsetType

ON_ERROR: Final = "x-deserialize-default-on-error"
SKIP: Final = "x-deserialize-skip-invalid-items"

DEFAULT_ON_ERROR: Final = Meta(extra={ON_ERROR: True})
"""Annotation of a field: an invalid value is treated as absent."""

SKIP_INVALID_ITEMS: Final = Meta(extra={SKIP: True})
"""Annotation of an array: an invalid item is skipped."""


class Wire(Struct, rename="camel"):
    """The base class of all JSON objects of ACP and of acpterm's own methods."""


MetaIn: TypeAlias = Annotated[dict[str, Raw] | None, DEFAULT_ON_ERROR]
"""The type of a received ``_meta``: each member as raw JSON; None if absent."""

MetaOut: TypeAlias = Annotated[dict[str, Any] | None, DEFAULT_ON_ERROR] | UnsetType
"""The type of a ``_meta`` to send: JSON values or Structs by name; UNSET omits ``_meta``."""
