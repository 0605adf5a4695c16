"""The limits of control groups, in a kernel that has all controllers: `test_guest.py` runs it.

Each program that exhausts a resource first checks that the limit applies to it, and has a bound of
its own in case the limit fails. The guest is a further bound.
"""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from acpterm.commands.doctor import probes
from acpterm.config import Settings
from acpterm.pty.limits import Cause, LimitError
from acpterm.pty.program import Program
from acpterm.pty.tracking.cgroup import Cgroups
from acpterm.pty.tracking.controllers import DAEMON_GROUP
from acpterm.terminal.status import EndedBy
from tests.support.pools import running_pool

MIB = 1024 * 1024
ROOT = Path("/sys/fs/cgroup")
if "ACPTERM_IN_GUEST" not in os.environ:
    pytest.exit("these tests exhaust the machine: run tests/guest/test_guest.py", returncode=2)

# Defines `limit(file)`, which reads a file of the program's own control group.
OWN_GROUP = """
import os, sys, time
def limit(name):
    path = open("/proc/self/cgroup").read().strip().partition("::")[2]
    return open("/sys/fs/cgroup" + path + "/" + name).read().strip()
"""
HOG = """
assert limit("memory.max") == str(16 << 20), limit("memory.max")
assert limit("memory.swap.max") == "0"
kept = []
for number in range(64):
    kept.append(bytearray(b"x" * (1 << 20)))
print("allocated", len(kept))
"""
FORKS = """
assert limit("pids.max") == "8", limit("pids.max")
pids = []
try:
    for _ in range(40):
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        pids.append(pid)
except OSError as error:
    print("forks", len(pids), error.strerror)
for pid in pids:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
"""
BURN = """
assert limit("cpu.max") == "10000 100000", limit("cpu.max")
began, end = time.monotonic(), time.process_time() + 0.2
while time.process_time() < end:
    pass
print("wall", time.monotonic() - began)
"""
WRITE = """
assert limit("io.max").endswith("rbps=1048576 wbps=1048576 riops=max wiops=max"), limit("io.max")
import mmap
disk = os.open("/dev/ubda", os.O_WRONLY | os.O_DIRECT)
data = mmap.mmap(-1, 1 << 16)
began = time.monotonic()
for number in range(32):
    os.pwrite(disk, data, number << 16)
print("wall", time.monotonic() - began)
"""


def python(text):
    return Program(
        [sys.executable, "-I", "-S", "-c", OWN_GROUP + text],
        env=os.environ,
        cwd="/",
        umask=0o22,
    )


@pytest.fixture(autouse=True, scope="module")
def quick_keepers():
    """Replace the fixture of tests/conftest.py: start keepers as the daemon does, without a fork.

    A keeper that the ready process forks is not in the test's control group.
    """


async def output_of(pool, program, **limits):
    terminal = await pool.create(program, limits=limits)
    with trio.fail_after(20):
        status = await terminal.wait_exited()
    return status, terminal.text.text()


async def test_program_is_ended_by_its_memory_limit():
    async with running_pool() as pool:
        status, output = await output_of(pool, python(HOG), memory=16 * MIB)
        assert (status.signal, status.ended_by) == ("SIGKILL", EndedBy.LIMIT), output
        assert status.cause == Cause("memory", 16 * MIB)


async def test_memory_limit_ends_all_processes_of_the_terminal_together():
    async with running_pool() as pool:
        line = f"sleep 30 & exec 3<&0; \"{sys.executable}\" -I -S -c '{OWN_GROUP}{HOG}'; echo on"
        program = Program(["/bin/sh", "-c", line], env=os.environ, cwd="/", umask=0o22)
        status, output = await output_of(pool, program, memory=16 * MIB)
        assert status.ended_by is EndedBy.LIMIT, output
        assert "on" not in output.split()


async def test_program_that_is_killed_by_others_is_not_ended_by_its_memory_limit():
    async with running_pool() as pool:
        program = Program(["/bin/sh", "-c", "kill -9 $$"], env=os.environ, cwd="/", umask=0o22)
        status, _ = await output_of(pool, program, memory=16 * MIB)
        assert (status.signal, status.ended_by, status.cause) == ("SIGKILL", EndedBy.EXITED, None)


async def test_fork_fails_at_the_limit_of_processes():
    async with running_pool() as pool:
        status, output = await output_of(pool, python(FORKS), processes=8)
        assert (status.code, status.ended_by) == (0, EndedBy.EXITED), output
        assert output.startswith("forks 7 Resource temporarily unavailable")


async def test_program_gets_its_share_of_the_processor_only():
    async with running_pool() as pool:
        status, output = await output_of(pool, python(BURN), cpu=0.1)
        assert status.code == 0, output
        assert float(output.split()[1]) > 1.0, output


async def test_disk_writes_are_slowed_down():
    async with running_pool() as pool:
        status, output = await output_of(pool, python(WRITE), disk_io=MIB)
        assert status.code == 0, output
        assert float(output.split()[1]) > 1.5, output


async def test_terminal_without_limits_has_none_beside_one_with_limits():
    async with running_pool() as pool:
        await output_of(pool, python(FORKS), processes=8)
        status, output = await output_of(pool, python('print(limit("pids.max"))'))
        assert output == "max\n"
        assert status.cause is None


async def test_doctor_sees_each_limit_enforced():
    results = await probes.limits(Settings())
    found = "enforced here: memory, cpu, processes, disk_io, open_files, file_size"
    assert [(result.state, result.found) for result in results] == [("ok", found)]


@contextmanager
def service(controllers="+memory +pids +cpu +io"):
    """Move this process to a group that is delegated, as a systemd service is."""
    group = ROOT / f"service-{os.urandom(4).hex()}"
    (ROOT / "cgroup.subtree_control").write_text(controllers)
    group.mkdir()
    os.setxattr(group, "trusted.delegate", b"1")
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield group
    finally:
        for procs in group.glob("**/cgroup.procs"):
            for pid in procs.read_text().split():
                (ROOT / "cgroup.procs").write_text(pid)
        for directory, _, _ in os.walk(group, topdown=False):
            os.rmdir(directory)


async def test_daemon_of_a_service_leaves_the_group_that_passes_controllers_on():
    with service() as group:
        async with running_pool(tracking="cgroup") as pool:
            assert not (group / DAEMON_GROUP).exists()
            status, output = await output_of(pool, python(HOG), memory=16 * MIB)
            assert status.ended_by is EndedBy.LIMIT, output
            assert (group / "cgroup.procs").read_text() == ""
            moved = (group / DAEMON_GROUP / "cgroup.procs").read_text().split()
            assert set(moved) == {str(os.getpid()), str(pool._keeper.pid)}
            # The next daemon creates its groups beside the group that this one has moved to.
            other = Cgroups.find()
            assert os.path.dirname(other.base) == str(group)
            other.close()


async def test_service_can_be_started_again_beside_programs_that_outlived_it():
    with service() as group:
        async with running_pool(tracking="cgroup") as pool:
            program = python("sys.stdin.readline()" + HOG)
            limits = {"memory": 16 * MIB}
            terminal = await pool.create(program, limits=limits)
            pool._trees.release_controllers()
            (group / "cgroup.procs").write_text(str(os.getpid()))
            # The next worker restores the terminal.
            restored = pool._trees.enforce_again(terminal.id, limits)
            assert (restored.limits, restored.unenforced) == (limits, ())
            assert str(os.getpid()) in (group / DAEMON_GROUP / "cgroup.procs").read_text().split()
            terminal.keyboard.type(b"\n")
            with trio.fail_after(20):
                status = await terminal.wait_exited()
            assert status.cause == Cause("memory", 16 * MIB)


async def test_limit_is_refused_when_the_group_also_has_other_processes():
    with service() as group:
        # The child of a child is no process of the daemon's.
        line = "sleep 30 & echo; wait"
        shell = subprocess.Popen(["/bin/sh", "-c", line], stdout=subprocess.PIPE)
        shell.stdout.read(1)
        async with running_pool(tracking="cgroup") as pool:
            with pytest.raises(LimitError, match="also has processes of others") as raised:
                await output_of(pool, python(HOG), memory=16 * MIB)
            assert (raised.value.limit, raised.value.value) == ("memory", 16 * MIB)
            assert pool.terminals == {}
            assert not any(group.glob("acpterm-*/term_*"))
            # Limits of processes do not need a control group.
            status, output = await output_of(pool, python("print(1)"), open_files=64)
            assert (status.code, output) == (0, "1\n")
        for pid in (group / "cgroup.procs").read_text().split():
            if int(pid) != os.getpid():
                os.kill(int(pid), signal.SIGKILL)
        shell.stdout.close()
        shell.wait()


async def test_limit_is_refused_when_its_controller_is_not_delegated():
    (ROOT / "cgroup.subtree_control").write_text("-memory -pids -cpu -io")
    with service("+pids"):
        async with running_pool(tracking="cgroup") as pool:
            with pytest.raises(
                LimitError, match=r"is not delegated to acpterm: .*controllers has pids$"
            ):
                await output_of(pool, python(HOG), memory=16 * MIB)
            limits = {"memory": 16 * MIB, "processes": 8}
            terminal = await pool.create(python(FORKS), limits=limits, strict=False)
            await terminal.wait_exited()
            assert [error.limit for error in terminal.enforcement.unenforced] == ["memory"]
            assert terminal.enforcement.limits == {"processes": 8}
            assert terminal.text.text().startswith("forks 7"), terminal.text.text()
