"""The guards of the providers' background tasks."""

import errno

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from acpterm.config import Settings
from acpterm.config.places import SlurmPlace, SshPlace
from acpterm.host.policy import HostPolicy
from acpterm.providers.guarded_tasks import keep_running, run_guarded
from acpterm.pty.tracking.marks import Daemon
from tests.support.depth import DEADLINE_S

NO_DESCRIPTORS = OSError(errno.EMFILE, "Too many open files")


async def test_failure_of_a_guarded_task_is_logged(capsys):
    async def fail(number):
        await trio.lowlevel.checkpoint()
        raise ValueError(f"failure {number}")

    await run_guarded("some task", fail, 7)
    assert "failure 7" in "".join(capsys.readouterr())


async def test_task_is_started_again_until_it_returns(autojump_clock):
    starts = []

    async def fail_twice():
        starts.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if len(starts) < 3:
            raise NO_DESCRIPTORS

    await keep_running("some task", fail_twice)
    assert starts[1] - starts[0] < starts[2] - starts[1]


async def test_task_that_fails_while_it_is_cancelled_is_cancelled():
    async def fail_at_the_end():
        try:
            await trio.sleep_forever()
        finally:
            raise NO_DESCRIPTORS

    async def run():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_at_the_end)
            nursery.start_soon(trio.sleep_forever)

    with trio.fail_after(DEADLINE_S), trio.move_on_after(0.05) as scope:
        await keep_running("some task", run)
    assert scope.cancelled_caught


@pytest.fixture
def starts(monkeypatch):
    """Replace all providers by ones whose background task fails.

    Return a list, to which each of them adds its name when the task starts.
    """
    found = []

    class Place:
        isolation = "none"

        def __init__(self, name):
            self.name = name

        async def prepare(self, command): ...
        async def clean_up(self, token): ...
        async def check(self): ...
        def program(self, token): ...
        def end_session(self, session): ...

        async def run(self):
            found.append(self.name)
            await trio.lowlevel.checkpoint()
            raise NO_DESCRIPTORS

    monkeypatch.setattr("acpterm.host.policy.make", lambda name, **_: Place(name))
    return found


async def test_place_that_fails_ends_nothing_else_and_is_started_again(starts, autojump_clock):
    policy = HostPolicy(Settings(ssh={"box": SshPlace()}), (), Daemon.of(1, None))
    async with trio.open_nursery() as nursery:
        await nursery.start(policy.run)
        policy.provider("ssh:box")
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert len(starts) > 2


async def test_places_that_may_have_leftovers_are_run_from_the_start(starts):
    settings = Settings(
        ssh={"box": SshPlace(), "kept": SshPlace(keeper=True)}, slurm={"cpu": SlurmPlace()}
    )
    policy = HostPolicy(settings, (), Daemon.of(1, None))
    async with trio.open_nursery() as nursery:
        await nursery.start(policy.run)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    # On a slow machine they have failed and been started more than once.
    assert set(starts) == {"slurm:cpu", "ssh:kept"}
