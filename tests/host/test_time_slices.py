"""The daemon requests short time slices, and its programs are scheduled as usual."""

import ctypes
import os
import struct
import subprocess

import pytest

from acpterm.pty import linux
from tests.support.agent import agent_at
from tests.support.daemon import daemon, user_socket
from tests.support.user import user_at

pytestmark = pytest.mark.skipif(not linux.AVAILABLE, reason="only Linux has sched_setattr")

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}


def time_slice(pid):
    """Return the time slice of a process, in nanoseconds."""
    attributes = ctypes.create_string_buffer(48)
    number = _SCHED_GETATTR[os.uname().machine]
    assert ctypes.CDLL(None).syscall(number, pid, attributes, len(attributes), 0) == 0
    return struct.unpack_from("=Q", attributes, 24)[0]


async def test_keeper_and_worker_have_short_slices_and_programs_have_not(tmp_path):
    async with daemon(tmp_path) as (_, path):
        async with user_at(user_socket(path)) as user:
            status = await user.request("status")
        for pid in (status["keeperPid"], status["workerPid"]):
            assert os.sched_getscheduler(pid) == os.SCHED_OTHER | os.SCHED_RESET_ON_FORK
            assert time_slice(pid) <= 100_000
        async with agent_at(path) as agent:
            terminal = await agent.create("echo $$; exec cat")
            pid = int(await agent.until_output(terminal, "\n"))
            assert os.sched_getscheduler(pid) == os.SCHED_OTHER
            with subprocess.Popen(["sleep", "60"]) as ordinary:
                assert time_slice(pid) == time_slice(ordinary.pid)
                ordinary.kill()
            assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)
