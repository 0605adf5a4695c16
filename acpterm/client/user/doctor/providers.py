"""Checks of the providers that run terminals' programs, and of places (other hosts).

Each check runs one command with the provider or at the place.
"""

import time

from acpterm.client.user.doctor.check import CheckResult, missing, ok, problem
from acpterm.client.user.format import summary_line
from acpterm.config import Settings
from acpterm.providers.provider import ProviderError
from acpterm.providers.registry import make


async def provider(settings: Settings, name: str) -> CheckResult:
    """Check that the provider `name` works on this machine.

    A provider that does not work is a `problem` if the settings select it, otherwise `missing`.
    """
    try:
        return ok(name, await make(name, image=settings.image).check())
    except ProviderError as error:
        what = summary_line(str(error))
    if name == settings.provider:
        return problem(name, what, "no terminal of an agent can be created until this works")
    return missing(name, what, "only needed to run agents' commands in it")


async def place(settings: Settings, name: str) -> CheckResult:
    """Check that the place `name` can be reached, and report how many seconds that took."""
    began = time.monotonic()
    try:
        found = await make(name, places=settings.places).check()
    except ProviderError as error:
        return problem(name, summary_line(str(error)), "no terminal runs there until this works")
    return ok(name, f"{found} ({time.monotonic() - began:.1f} s)")
