"""The base of all wire types of ACP.

The rule: fields are in snake_case here and in camelCase on the wire. Members that are not modelled
are ignored. A field is annotated if an invalid value of it is tolerated. The annotations have the
names of the schema's, so that a test can compare the two.
"""

from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Raw, Struct, UnsetType

ON_ERROR: Final = "x-deserialize-default-on-error"
SKIP: Final = "x-deserialize-skip-invalid-items"

DEFAULT_ON_ERROR: Final = Meta(extra={ON_ERROR: True})
"""An invalid value counts as absent."""

SKIP_INVALID_ITEMS: Final = Meta(extra={SKIP: True})
"""An invalid item of the array is skipped."""


class Wire(Struct, rename="camel"):
    """A JSON object of ACP."""


MetaIn: TypeAlias = Annotated[dict[str, Raw] | None, DEFAULT_ON_ERROR]
"""A received ``_meta``: each member as raw JSON; None when absent."""

MetaOut: TypeAlias = Annotated[dict[str, Any] | None, DEFAULT_ON_ERROR] | UnsetType
"""A ``_meta`` to send: any JSON values or Structs; UNSET for none."""
