"""Fixtures of the tests of providers."""

import pytest

from acpterm.providers.podman import ContainerProvider
from tests.support import containers


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
