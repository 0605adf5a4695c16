"""Providers do not block the event loop, nor each other, while a file system does not answer."""

import os
import tempfile
import threading

import pytest
import trio

from acpterm.providers import off_loop, placeholders
from acpterm.providers import workspace as workspace_module
from acpterm.providers.container import ContainerProvider
from acpterm.providers.container_argv import EngineSetup
from acpterm.providers.provider import Command
from tests.support.polling import poll

# More than a test needs, and little enough to fail soon if the event loop is blocked.
_ANSWER_TIMEOUT_S = 20.0

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


class Disk:
    """A directory whose files do not answer while `answers` is not set."""

    def __init__(self, path):
        self.path = path
        self.answers = threading.Event()
        self.is_asked = threading.Event()

    def wait(self, path):
        if str(path).startswith(str(self.path)):
            self.is_asked.set()
            if not self.answers.wait(_ANSWER_TIMEOUT_S):
                self.answers.set()


@pytest.fixture
def disk(monkeypatch, tmp_path):
    (tmp_path / "dead").mkdir()
    found = Disk(tmp_path / "dead")
    real = workspace_module._mode

    def mode(path):
        found.wait(path)
        return real(path)

    monkeypatch.setattr(workspace_module, "_mode", mode)
    yield found
    found.answers.set()


@pytest.fixture
def container(tmp_path, monkeypatch):
    """Return a provider whose engine is a script that always succeeds."""
    engine = tmp_path / "bin" / "podman"
    engine.parent.mkdir()
    engine.write_text("#!/bin/sh\n")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{engine.parent}:{os.environ['PATH']}")
    provider = ContainerProvider("podman", "debian:12")
    provider._setup = EngineSetup(
        "podman", "debian:12", (), "0:0", keeps_id=False, has_cgroup=False
    )
    return provider


@pytest.fixture(params=["bubblewrap", "landlock", "container"])
def provider(request):
    return request.getfixturevalue(request.param)


def command(directory):
    env = {"PATH": os.environ["PATH"]}
    return Command(("true",), None, env, str(directory), str(directory), "/bin/sh")


@pytest.mark.long
async def test_prepare_can_be_cancelled_and_cleans_up_later(provider, disk, tmp_path, monkeypatch):
    for name in ("tmp", "live"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(provider.prepare, command(disk.path))
        await poll(disk.is_asked.is_set)
        prepared = await provider.prepare(command(tmp_path / "live"))
        await provider.clean_up(prepared.token)
        nursery.cancel_scope.cancel()
    assert not disk.answers.is_set()
    assert off_loop._prepare_threads.borrowed_tokens == 1
    disk.answers.set()
    await poll(lambda: off_loop._prepare_threads.borrowed_tokens == 0)
    assert os.listdir(disk.path) == os.listdir(tmp_path / "tmp") == []


@pytest.mark.parametrize("provider", ["bubblewrap", "container"], indirect=True)
@pytest.mark.long
async def test_clean_up_can_be_cancelled_and_is_completed_later(provider, disk, monkeypatch):
    real = placeholders._candidates

    def candidates(path):
        disk.wait(path)
        return real(path)

    monkeypatch.setattr(placeholders, "_candidates", candidates)
    (disk.path / ".git").mkdir()
    disk.answers.set()
    prepared = await provider.prepare(command(disk.path))
    disk.answers.clear()
    disk.is_asked.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(provider.clean_up, prepared.token)
        await poll(disk.is_asked.is_set)
        nursery.cancel_scope.cancel()
    assert off_loop._clean_up_threads.borrowed_tokens == 1
    disk.answers.set()
    # Trio takes the thread's place back only while this test runs.
    await poll(lambda: off_loop._clean_up_threads.borrowed_tokens == 0)
    assert os.listdir(disk.path) == [".git"]


@pytest.mark.parametrize("provider", ["bubblewrap", "container"], indirect=True)
@pytest.mark.long
async def test_clean_up_keeps_the_placeholders_that_another_command_has_found(provider, disk):
    disk.answers.set()
    first = await provider.prepare(command(disk.path))
    assert (disk.path / ".envrc").is_dir()
    disk.answers.clear()
    disk.is_asked.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(provider.prepare, command(disk.path))
        await poll(disk.is_asked.is_set)
        nursery.start_soon(provider.clean_up, first.token)
        # The first placeholder that `prepare` finds is found before the clean-up, and the others
        # after it. Without a lock the clean-up would end at once.
        with trio.move_on_after(0.2):
            await poll(lambda: not (disk.path / ".envrc").exists())
        assert (disk.path / ".envrc").is_dir()
        disk.answers.set()
    assert (disk.path / ".envrc").is_dir()
