"""A keeper that is a child of its worker."""

import os
import resource
import signal
import subprocess
import sys

import pytest
import trio

from acpterm.keeper import startup
from acpterm.keeper.reports import KeeperLostError
from acpterm.keeper.startup import embedded_keeper
from tests.keeper.terminals import is_alive, poll, run, spawn
from tests.pty.scarcity import no_descriptors

# Each of these programs starts a process that signals to its process group do not end.
STRAYS = {
    "background": "sleep 60 & echo $!; wait",
    "ignores signals": "trap '' HUP TERM INT; sleep 60 & echo $!; wait; sleep 60",
    "own session": "setsid sleep 60 & echo $!; wait",
    "own session, and its leader has exited": "trap '' HUP; setsid sleep 60 & echo $!; exit",
    "twice forked": "(setsid sh -c 'sleep 60 & echo $!; wait; :' &) ; sleep 60; :",
    "stopped": "sleep 60 & kill -STOP $!; echo $!; wait",
}


def memory_bytes(pid):
    """Return the virtual and the resident size of a process, in bytes."""
    with open(f"/proc/{pid}/statm") as file:
        return [int(pages) * resource.getpagesize() for pages in file.read().split()[:2]]


async def strays_of(keeper):
    """Start the programs `STRAYS` in `keeper`; return the pids of all processes that must end.

    These are the keeper, the programs, and the process that each program has started.
    """
    pids = [keeper.pid]
    for line in STRAYS.values():
        terminal = await spawn(keeper, line)
        await terminal.wait_for(lambda self: b"\n" in self.output)
        pids += [terminal.pid, int(terminal.output.splitlines()[0])]
        assert is_alive(pids[-1])
        terminal.close()
    return pids


async def test_keeper_uses_little_memory():
    async with embedded_keeper() as keeper:
        terminals = [await spawn(keeper, "read x; :") for _ in range(20)]
        assert memory_bytes(keeper.pid)[1] < 16 << 20
        for terminal in terminals:
            terminal.close()


def test_keeper_imports_only_allowed_modules():
    code = (
        f"import sys; sys.path.append({os.getcwd()!r})\n"
        "from acpterm.keeper.process import main, supervisor\n"
        "print(*sys.modules)"
    )
    command = [sys.executable, "-I", "-S", "-c", code]
    modules = set(subprocess.check_output(command, text=True).split())
    assert not {"trio", "ptyprocess", "typing", "signal", "socket", "re", "enum"} & modules
    own = {name for name in modules if name.startswith("acpterm.")}
    assert all(name.startswith("acpterm.keeper") for name in own)


@pytest.mark.long
async def test_programs_are_killed_at_the_end_of_the_block():
    async with embedded_keeper() as keeper:
        pids = await strays_of(keeper)
    assert not [pid for pid in pids if is_alive(pid)]


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.long
async def test_programs_are_killed_when_the_worker_is_killed(copy):
    """With `copy`, another process still has the worker's end of the connection."""
    code = (
        "import os, time, trio\n"
        "from acpterm.keeper.startup import embedded_keeper\n"
        "from tests.keeper.test_embedded import strays_of\n"
        "async def main():\n"
        "    async with embedded_keeper() as keeper:\n"
        "        pids = await strays_of(keeper)\n"
        f"        copy = os.fork() if {copy} else 0\n"
        f"        if {copy} and not copy:\n"
        "            time.sleep(60)\n"
        "        print(*pids, copy, flush=True)\n"
        "        await trio.sleep_forever()\n"
        "trio.run(main)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    with process:
        *pids, copied = [int(pid) for pid in process.stdout.readline().split()]
        process.kill()
    assert len(pids) == 1 + 2 * len(STRAYS)
    await poll(lambda: not any(map(is_alive, pids)))
    if copy:
        os.kill(copied, signal.SIGKILL)


async def test_killed_keeper_is_reported_as_lost():
    terminal = None
    with pytest.raises(KeeperLostError, match="its process is gone"):  # noqa: PT012
        async with embedded_keeper() as keeper:
            terminal = await spawn(keeper, "sleep 60; :")
            os.kill(keeper.pid, signal.SIGKILL)
            await trio.sleep_forever()
    os.kill(terminal.pid, signal.SIGKILL)
    terminal.close()


async def test_error_in_the_block_is_raised_without_a_group():
    with pytest.raises(ZeroDivisionError):
        async with embedded_keeper():
            raise ZeroDivisionError


async def test_cancelled_spawn_leaves_no_program(keeper, tmp_path):
    mark = tmp_path / "mark"
    for _ in range(20):
        with trio.move_on_after(0.0005):
            terminal = await spawn(keeper, f"echo $$ >> {mark}; exec sleep 60")
            keeper.forget(terminal.name)
            terminal.close()
    assert (await run(keeper, "echo", "x")).output == "x\n"

    def all_ended():
        pids = mark.read_text().split() if mark.exists() else []
        return not any(os.path.exists(f"/proc/{pid}") for pid in pids)

    await poll(all_ended)


async def test_spawn_is_refused_before_the_last_descriptors_are_used(keeper):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.prlimit(keeper.pid, resource.RLIMIT_NOFILE, (80, hard))
    terminals = []
    with pytest.raises(OSError, match="the last 32 are reserved") as refused:  # noqa: PT012
        while True:
            terminals.append(await spawn(keeper, "read x; :"))
    assert refused.value.errno == 24
    assert len(terminals) >= 5
    # The existing terminal still works.
    os.write(terminals[0].master, b"\n")
    await terminals[0].wait_closed()
    for terminal in terminals:
        keeper.forget(terminal.name)
        terminal.close()
    assert (await run(keeper, "echo", "x")).output == "x\n"


async def test_spawn_is_refused_when_the_worker_has_no_descriptor_left(keeper):
    with no_descriptors(), pytest.raises(OSError, match="the worker has no descriptor left"):
        await spawn(keeper, "sleep 60; :", name="never")
    assert (await run(keeper, "echo", "x", name="never")).output == "x\n"


async def test_spawn_is_refused_without_memory_for_a_ring(keeper):
    size = memory_bytes(keeper.pid)[0]
    old = resource.prlimit(keeper.pid, resource.RLIMIT_AS, (size + (8 << 20), -1))
    with pytest.raises(OSError, match="Cannot allocate memory"):
        await spawn(keeper, "true", ring_size=64 << 20)
    resource.prlimit(keeper.pid, resource.RLIMIT_AS, old)
    assert (await run(keeper, "echo", "x")).output == "x\n"


async def test_invalid_spawn_is_refused(keeper):
    with pytest.raises(OSError, match="the keeper cannot start this"):
        await spawn(keeper, "true", ring_size=1 << 80)
    assert (await run(keeper, "echo", "x")).output == "x\n"


async def test_spawn_is_refused_when_the_name_is_in_use(keeper):
    terminal = await spawn(keeper, "sleep 60; :", name="one")
    with pytest.raises(FileExistsError):
        await spawn(keeper, "true", name="one")
    keeper.forget("one")
    terminal.close()


async def test_forgotten_terminals_leave_no_descriptor_open(keeper):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.prlimit(keeper.pid, resource.RLIMIT_NOFILE, (80, hard))
    # Spawns would soon be refused if each terminal leaked a descriptor.
    for _ in range(60):
        await run(keeper, "true")


def test_memory_and_descriptors_of_the_keeper_are_protected():
    code = (
        f"import sys; sys.path.append({os.getcwd()!r})\n"
        "from acpterm.keeper.process import main\n"
        "main.prepare_process()\n"
        "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    command = [sys.executable, "-I", "-S", "-c", code]
    assert subprocess.check_output(command) == b"0\n"


async def test_spawn_is_refused_without_a_pty(monkeypatch):
    main = (
        "import errno, os, runpy\n"
        "def openpty(): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
        "os.openpty = openpty\n"
        "runpy.run_path(%r, run_name='__main__')"
    )
    python, *flags, path = startup.keeper_command()
    command = [python, *flags, "-c", main % path]
    monkeypatch.setattr(startup, "keeper_command", lambda: command)
    async with embedded_keeper() as keeper:
        for _ in range(3):
            with pytest.raises(OSError, match="No space left on device"):
                await spawn(keeper, "true", name="one")


@pytest.fixture
def process_limit():
    """Return a function that prevents a process from forking; needs a pids control group."""
    group = f"/sys/fs/cgroup/pids/acpterm-test-{os.getpid()}"
    try:
        os.mkdir(group)
    except OSError:
        pytest.skip("this process may make no control group that limits processes")

    def limit(pid):
        with open(f"{group}/cgroup.procs", "w") as file:
            file.write(str(pid))
        with open(f"{group}/pids.max", "w") as file:
            file.write("1")

    yield limit
    os.rmdir(group)


async def test_spawn_is_refused_at_the_limit_of_processes(process_limit):
    async with embedded_keeper() as keeper:
        process_limit(keeper.pid)
        with pytest.raises(BlockingIOError, match="temporarily unavailable"):
            await spawn(keeper, "true")


@pytest.fixture
def cgroup():
    """Create a control group; yield its path."""
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        path = f"{root}/acpterm-test-{os.getpid()}"
        if os.path.exists(f"{root}/cgroup.procs"):
            try:
                os.mkdir(path)
            except OSError:
                continue
            yield path
            os.rmdir(path)
            return
    pytest.skip("this process may make no control group")


async def test_program_starts_in_the_requested_control_group(keeper, cgroup):
    directory = os.open(cgroup, os.O_RDONLY)
    ended = await run(keeper, "cat /proc/self/cgroup; tty; :", cgroup=directory)
    os.close(directory)
    assert ended.way == "leader"
    assert f"/{os.path.basename(cgroup)}\n" in ended.output
    assert "/dev/pts/" in ended.output


async def test_directory_that_is_no_control_group_is_refused(keeper, tmp_path):
    directory = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(OSError, match="Bad file descriptor"):
        await spawn(keeper, "true", cgroup=directory)
    os.close(directory)
