"""How a program ended, as a client tells it."""

from typing import NamedTuple


class End(NamedTuple):
    """How a program ended: by a code or a signal; both are None when nobody knows."""

    code: int | None
    signal: str | None
