"""Fixtures of the tests of providers."""

import os
import shutil

import pytest

from acpterm.providers import landlock_exec
from acpterm.providers.bubblewrap import BubblewrapProvider
from acpterm.providers.landlock import LandlockProvider
from acpterm.providers.podman import ContainerProvider
from tests.support import containers, sandboxes


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
def sandbox(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def as_root():
    if os.geteuid() != 0:
        pytest.skip("requires root")


@pytest.fixture(scope="session")
def podman(tmp_path_factory):
    """Yield the environment variables of a podman with the image `containers.IMAGE`."""
    if why := containers.missing():
        pytest.skip(why)
    with containers.podman(tmp_path_factory.mktemp("podman")) as variables:
        yield variables


@pytest.fixture
def podman_env(podman, monkeypatch):
    """Make `podman` the podman of the tests in the environment of this process."""
    for name, value in podman.items():
        monkeypatch.setenv(name, value)
    return podman


@pytest.fixture(scope="session")
def shared_provider(podman):
    """Return a provider that tries podman once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in podman.items():
            patch.setenv(name, value)
        return ContainerProvider("podman", containers.IMAGE)


@pytest.fixture
def provider(podman_env, shared_provider):
    return shared_provider


@pytest.fixture
def workspace(tmp_path):
    directory = tmp_path / "work"
    directory.mkdir()
    return directory
