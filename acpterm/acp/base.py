"""What every wire type of ACP has in common.

The rule: a field is spelt in Python's way here and in camelCase on the wire, members that are
not modelled are ignored, and a field says itself when a bad value of it is forgiven. It does
so with the words of the schema, so that the two can be compared.
"""

from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Raw, Struct, UnsetType

ON_ERROR: Final = "x-deserialize-default-on-error"
SKIP: Final = "x-deserialize-skip-invalid-items"

DEFAULT_ON_ERROR: Final = Meta(extra={ON_ERROR: True})
"""A bad value counts as absent."""

SKIP_INVALID_ITEMS: Final = Meta(extra={SKIP: True})
"""A bad item of the array is left out."""


class Wire(Struct, rename="camel"):
    """A JSON object of ACP."""


MetaIn: TypeAlias = Annotated[dict[str, Raw] | None, DEFAULT_ON_ERROR]
"""A received ``_meta``: each member as it came, None when absent."""

MetaOut: TypeAlias = Annotated[dict[str, Any] | None, DEFAULT_ON_ERROR] | UnsetType
"""A ``_meta`` to send: any JSON values or Structs, UNSET for none."""
