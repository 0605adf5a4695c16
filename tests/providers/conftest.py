"""Fixtures: directories for a test, and each provider that runs programs in a sandbox."""

import os
import shutil

import pytest

from acpterm.providers import landlock_exec
from acpterm.providers.bubblewrap import BubblewrapProvider
from acpterm.providers.landlock import LandlockProvider
from tests.support import sandboxes


@pytest.fixture
def place():
    with sandboxes.place() as found:
        yield found


@pytest.fixture
def bubblewrap():
    if shutil.which("bwrap") is None:
        pytest.skip("requires bwrap: apt-get install bubblewrap")
    return BubblewrapProvider()


@pytest.fixture
def landlock():
    if landlock_exec.abi() < landlock_exec.ABI_MIN:
        pytest.skip("requires Linux 6.12 with Landlock")
    return LandlockProvider()


@pytest.fixture(params=["bubblewrap", "landlock"])
def provider(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def as_root():
    if os.geteuid() != 0:
        pytest.skip("requires root")
