"""Runs a test on both of anyio's event loops."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

BACKENDS = ("asyncio", "trio")


def on_both_backends(test: Callable[..., Awaitable[None]]) -> Any:
    """Make an async test a test that runs on asyncio and on trio; its arguments are fixtures."""

    @pytest.mark.parametrize("backend", BACKENDS)
    def run(backend: str, **fixtures: Any) -> None:
        anyio.run(functools.partial(test, **fixtures), backend=backend)

    # Not `functools.wraps`: with `__wrapped__` pytest would see the async function.
    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    backend = inspect.Parameter("backend", inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(test).parameters.values()
    run.__signature__ = inspect.Signature([*parameters, backend])
    run.__dict__.update(pytestmark=[*run.__dict__["pytestmark"], *getattr(test, "pytestmark", ())])
    return run
