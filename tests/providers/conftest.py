"""Fixtures of the tests of providers."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from acpterm.providers import landlock_exec
from acpterm.providers.bubblewrap import BubblewrapProvider
from acpterm.providers.container import ContainerProvider
from acpterm.providers.landlock import LandlockProvider
from acpterm.providers.local import LocalProvider
from tests.support import containers, sandboxes
from tests.support import slurm as slurm_support
from tests.support import sshd as sshd_support
from tests.support.places import slurm_provider, ssh_provider


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
    """Let the command `podman` in this process run the podman of the tests.

    Return the environment variables that select it.
    """
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


@pytest.fixture(scope="session")
def sshd(tmp_path_factory):
    """Return a running server that the tests share."""
    if sshd_support.SSHD is None:
        pytest.skip("requires sshd: apt-get install openssh-server")
    with sshd_support.running(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def runtime_directory(monkeypatch):
    """Make a new directory the user's runtime directory; its path is short, for sockets."""
    with tempfile.TemporaryDirectory(prefix="acpterm-test-") as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        yield directory


@pytest.fixture
async def ssh(sshd, runtime_directory):
    """Return a provider whose connections are open during the test."""
    async with ssh_provider(sshd.place()) as provider:
        yield provider


@pytest.fixture(scope="session")
def kept_place(sshd):
    """Return a place where a running daemon keeps the terminals."""
    with sshd_support.remote_daemon(sshd):
        yield sshd.place(keeper=sshd_support.ACPTERM)


@pytest.fixture
async def kept(kept_place, runtime_directory):
    """Return a provider whose terminals a daemon on the other host keeps."""
    async with ssh_provider(kept_place) as provider:
        yield provider
        assert provider._keeper.is_open


@pytest.fixture(scope="session")
def cluster():
    """Return a running cluster that the tests share; its paths are short, for sockets."""
    if slurm_support.MISSING:
        pytest.skip(f"requires {', '.join(slurm_support.MISSING)}: apt-get install slurm-wlm munge")
    with (
        tempfile.TemporaryDirectory(prefix="acpterm-slurm-") as directory,
        slurm_support.running(Path(directory)) as slurm,
    ):
        yield slurm


@pytest.fixture
def idle_cluster(cluster):
    """Return the shared cluster, without a job at the beginning and at the end of the test."""
    cluster.cancel_all()
    yield cluster
    cluster.cancel_all()


@pytest.fixture
async def slurm(cluster, runtime_directory):
    """Return a provider whose programs share an allocation during the test."""
    job = cluster.allocate("--cpus-per-task=2", "--ntasks=1")
    async with slurm_provider(cluster.place(job=int(job))) as provider:
        yield provider
    cluster.cancel(job)


@pytest.fixture(
    params=[
        "local",
        pytest.param("ssh", marks=pytest.mark.cluster),
        pytest.param("kept", marks=pytest.mark.cluster),
        pytest.param("slurm", marks=pytest.mark.cluster),
    ]
)
def anywhere(request):
    """Return each provider that runs programs as the user, here or elsewhere."""
    return LocalProvider() if request.param == "local" else request.getfixturevalue(request.param)
