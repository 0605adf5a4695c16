"""What a method is: the type of its params, and what handles it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from acpterm.acp import Wire


class Method(NamedTuple):
    """One method. Its handler gives the result, or a coroutine that does when it has to wait."""

    params: type[Wire]
    handle: Callable[..., Any]
    takes_id: bool = False
    """Whether the handler is given the request's id, behind its params."""
    acts_first: bool = False
    """Whether the handler acts before it waits: it is not called when nothing more may wait."""
    result_at_once: Wire | None = None
    """The result without waiting for the end of what the handler has begun, when nothing more may
    wait. So a client with too many requests can still end what they wait for."""


class MethodTable(NamedTuple):
    """All that one kind of peer may ask, and tell."""

    requests: Mapping[str, Method]
    notifications: Mapping[str, Method]
