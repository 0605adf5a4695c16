"""Which processes are killed when the keeper shuts down."""

import subprocess
import sys
import time

import pytest

from tests.keeper.terminals import is_alive, not_left
from tests.support.polling import poll_blocking

_END = """
import sys
from types import SimpleNamespace
from acpterm.keeper.programs.shutdown import end_programs

pid, reaped_at = int(sys.argv[1]), float(sys.argv[2])
exited = SimpleNamespace(child=SimpleNamespace(pid=pid), exit=(0, 0.0, 0, reaped_at, 0))
end_programs(SimpleNamespace(by_name={"one": exited}, by_pid={}))
"""


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
    with not_left(member):
        poll_blocking(lambda: not is_alive(leader.pid))
        if is_leader_reaped:
            leader.wait()
        arguments = [str(leader.pid), str(before + reaped_after_s)]
        subprocess.run([sys.executable, "-c", _END, *arguments], check=True)
        assert is_alive(member) != is_killed
    leader.wait()
