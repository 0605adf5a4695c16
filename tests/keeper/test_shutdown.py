"""Which processes are killed when the keeper shuts down."""

import signal
import subprocess
import sys
import time

import pytest

from acpterm.keeper.programs.system import started_at
from tests.keeper.terminals import is_alive, not_left
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll_blocking

_END = """
import sys
from types import SimpleNamespace
from acpterm.keeper.programs.shutdown import end_programs

pid, started, reaped_at = int(sys.argv[1]), *map(float, sys.argv[2:])
child = SimpleNamespace(pid=pid, started=started)
exited = SimpleNamespace(child=child, exit=(0, 0.0, 0, reaped_at, 0), leader=None)
end_programs(SimpleNamespace(by_name={"one": exited}, by_pid={}))
"""


def _end_session(pid: int, started: float, reaped_at: float) -> None:
    """Run `end_programs` for a keeper with one terminal, whose program has ended.

    The program had the pid `pid`. `started` and `reaped_at` are seconds of CLOCK_BOOTTIME.
    """
    arguments = [str(pid), str(started), str(reaped_at)]
    subprocess.run([sys.executable, "-c", _END, *arguments], check=True)


@pytest.mark.costly
@pytest.mark.parametrize("is_leader_reaped", [True, False])
@pytest.mark.parametrize(("reaped_after_s", "is_killed"), [(-1.0, False), (1.0, True)])
def test_session_is_killed_only_if_it_is_older_than_the_reuse_of_its_pid(
    is_leader_reaped, reaped_after_s, is_killed
):
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    command = ["/bin/sh", "-c", "sleep 60 >&2 & echo $!"]
    leader = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    member = int(leader.stdout.readline())
    leader.stdout.close()
    # The shell may have started long after `before`.
    reused_at = (time.clock_gettime(time.CLOCK_BOOTTIME) if is_killed else before) + reaped_after_s
    with not_left(member):
        poll_blocking(lambda: not is_alive(leader.pid))
        if is_leader_reaped:
            leader.wait()
        _end_session(leader.pid, started=before, reaped_at=reused_at)
        assert is_alive(member) != is_killed
    leader.wait()


@pytest.mark.costly
@pytest.mark.parametrize(("earlier_s", "is_killed"), [(0.0, True), (10.0, False)])
def test_session_is_killed_only_if_its_leader_was_started_with_the_program(earlier_s, is_killed):
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as leader:
        # A program that ended while no keeper was running has a late time of its end.
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        _end_session(leader.pid, started_at(leader.pid) - earlier_s, reaped_at=now)
        if is_killed:
            assert leader.wait(DEADLINE_S) == -signal.SIGKILL
        assert leader.poll() is None or is_killed
        leader.kill()
