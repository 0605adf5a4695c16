"""The allocations of sessions, with stubs of Slurm's commands."""

import os
from pathlib import Path

import pytest
import trio
import trio.testing

from acpterm.config.places import SlurmPlace
from acpterm.providers.provider import ProviderError
from acpterm.providers.slurm.allocations import Allocations
from acpterm.pty.tracking.marks import Daemon
from tests.support.places import slurm_provider
from tests.support.polling import poll

# A request that the controller does not know yet, and then grants.
SALLOC = """\
trap 'exit 1' TERM
echo $$ >"$DIRECTORY/salloc.pid"
while :; do sleep 0.02; done
"""
# Whether salloc may still get an allocation.
SCANCEL = """\
kill -0 "$(cat "$DIRECTORY/salloc.pid" 2>/dev/null)" 2>/dev/null && after=" too early"
echo "$*$after" >>"$DIRECTORY/cancelled"
"""
FAILING = "echo scancel: error: Unable to contact slurm controller >&2; exit 1"


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Return a function that puts a stub on the PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(name, text):
        path = tmp_path / name
        path.write_text("#!/bin/sh\n" + text.replace("$DIRECTORY", str(tmp_path)))
        path.chmod(0o755)

    make("salloc", SALLOC)
    make("scancel", SCANCEL)
    make("squeue", "echo RUNNING")
    return make


@pytest.fixture
async def nursery():
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()


@pytest.fixture
def allocations(stub, tmp_path):
    (directory := tmp_path / "place").mkdir()
    return Allocations(SlurmPlace(session=True), str(directory))


def cancelled(tmp_path):
    """Return the arguments of each scancel."""
    path = tmp_path / "cancelled"
    return path.read_text().splitlines() if path.exists() else []


def write(path, text):
    """Write the messages of salloc into the file of an allocation."""
    Path(path).write_text(text)


def messages(path):
    """Return the messages in the file of an allocation."""
    return Path(path).read_text()


def files(allocations):
    return os.listdir(allocations.path(""))


async def test_request_of_an_ended_session_is_ended_before_it_is_cancelled(
    allocations, nursery, tmp_path
):
    await allocations.find_or_request("s", nursery)
    await poll((tmp_path / "salloc.pid").exists)
    await allocations.end_session("s")
    (words,) = cancelled(tmp_path)
    assert words.startswith("--name=acpterm-")
    assert not words.endswith("too early")
    assert not files(allocations)


async def test_allocation_is_released_if_its_session_ends_while_it_is_requested(
    allocations, nursery, tmp_path
):
    nursery.start_soon(allocations.find_or_request, "s", nursery)
    await trio.testing.wait_all_tasks_blocked()
    await allocations.end_session("s")
    assert [words.endswith("too early") for words in cancelled(tmp_path)] == [False]
    assert not files(allocations)
    await poll(lambda: not allocations._requests)


async def test_pending_allocation_is_released_once_no_terminal_waits_for_it(
    allocations, nursery, tmp_path
):
    name = await allocations.find_or_request("s", nursery)
    await poll((tmp_path / "salloc.pid").exists)
    write(allocations.path(name), "salloc: Pending job allocation 5\n")
    for user in ("a", "b"):
        allocations.use(name, user)
    await allocations.leave(name, "a")
    assert not cancelled(tmp_path)
    await allocations.leave(name, "b")
    assert cancelled(tmp_path) == ["5"]
    assert not files(allocations)


async def test_granted_allocation_is_kept_for_the_next_terminal(allocations, nursery, tmp_path):
    name = await allocations.find_or_request("s", nursery)
    write(allocations.path(name), "salloc: Granted job allocation 5\n")
    allocations.use(name, "a")
    await allocations.leave(name, "a")
    assert not cancelled(tmp_path)
    assert files(allocations) == [name]


async def test_allocation_that_was_granted_after_an_error_is_used(allocations, nursery, tmp_path):
    name = await allocations.find_or_request("s", nursery)
    text = "salloc: error: Slurm controller not responding\nsalloc: Granted job allocation 5\n"
    write(allocations.path(name), text)
    assert await allocations.find_or_request("s", nursery) == name
    assert messages(allocations.path(name)) == text
    assert not cancelled(tmp_path)


async def test_allocation_that_failed_is_cancelled_before_the_next_is_requested(
    allocations, nursery, tmp_path
):
    name = await allocations.find_or_request("s", nursery)
    await poll((tmp_path / "salloc.pid").exists)
    write(allocations.path(name), "salloc: error: Slurm controller not responding\n")
    await allocations.find_or_request("s", nursery)
    assert [words.endswith("too early") for words in cancelled(tmp_path)] == [False]
    assert not messages(allocations.path(name))


async def test_record_of_an_allocation_is_kept_until_it_is_cancelled(
    allocations, nursery, stub, tmp_path
):
    name = await allocations.find_or_request("s", nursery)
    write(allocations.path(name), "salloc: Granted job allocation 5\n")
    stub("scancel", FAILING)
    await allocations.end_session("s")
    assert name in files(allocations)
    stub("squeue", "echo CANCELLED")
    allocations.distrust(name)
    with pytest.raises(ProviderError, match="cannot be released"):
        await allocations.find_or_request("s", nursery)
    stub("scancel", SCANCEL)
    await allocations.release_all()
    assert cancelled(tmp_path) == ["5"]
    assert not files(allocations)


def killed(socket_path):
    """Return the identity of a daemon that has ended."""
    return Daemon.of(os.getpid(), socket_path)._replace(ticks=1)


@pytest.mark.parametrize(
    ("config", "expected"), [("/etc/one.conf", ["5"]), ("/etc/other.conf", [])]
)
async def test_allocations_of_a_killed_embedded_host_are_released_by_the_next_daemon(
    stub, runtime_directory, tmp_path, config, expected
):
    place = SlurmPlace(session=True, config="/etc/one.conf")
    async with slurm_provider(place, killed(None)) as provider:
        left = provider._allocations.path("session-left")
        write(left, "salloc: Granted job allocation 5\n")
        provider._allocations.release_all = trio.lowlevel.checkpoint
    place = SlurmPlace(session=True, config=config)
    async with slurm_provider(place, Daemon.of(os.getpid(), "/run/test.sock")):
        await poll(lambda: os.path.exists(left) != bool(expected))
    assert cancelled(tmp_path) == expected
