"""Other processes of the user cannot copy descriptors of a host or of an attached window."""

import os
import pty
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
import trio

from acpterm.pty import linux
from tests.support import other_user
from tests.support.agent import agent_on
from tests.support.bounded import as_user
from tests.support.daemon import daemon, user_socket
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.processes import alive, environment
from tests.support.starting import ACPTERM
from tests.support.user import user_at, user_on

pytestmark = pytest.mark.skipif(not linux.AVAILABLE, reason="the attack is Linux's")

# Tries to get another process's descriptors and environment.
ATTACK = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])
pidfd = os.pidfd_open(pid)
for fd in range(3):
    if libc.syscall(438, pidfd, fd, 0) >= 0:  # pidfd_getfd
        print("pidfd_getfd")
for name in ("fd/0", "environ", "mem"):
    try:
        os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
        print(name)
    except OSError:
        pass
try:
    os.readlink(f"/proc/{pid}/fd/0")
    print("link")
except OSError:
    pass
"""


def attacked(pid):
    """Attack a process from another process of the same user; return what succeeded."""
    return set(other_user.python_as_user(ATTACK, str(pid)).split())


async def test_pidfd_getfd_works_on_an_ordinary_process():
    with other_user.directory():
        process = subprocess.Popen([*as_user(other_user.UID), "sleep", "60"], stdin=subprocess.PIPE)
        try:
            await poll(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
            assert {"pidfd_getfd", "environ", "link"} <= attacked(process.pid)
        finally:
            process.kill()
            process.stdin.close()
            process.wait()


@pytest.mark.long
async def test_descriptors_of_a_daemon_cannot_be_copied_but_its_programs_can():
    with other_user.directory() as path:
        async with other_user.daemon_of_user(path) as (process, socket):
            stream = await other_user.connect(str(path / "run" / "user.sock"))
            async with user_on(stream) as user:
                status = await user.request("status")
                assert status["keeperPid"] == process.pid
                assert attacked(status["keeperPid"]) == set()
                assert attacked(status["workerPid"]) == set()
            async with agent_on(await other_user.connect(socket)) as agent:
                terminal = await agent.create("echo $$; exec sleep 60", cwd=str(path))
                pid = int(await agent.until_output(terminal, "\n"))
                assert "environ" in attacked(pid)


@pytest.mark.long
async def test_descriptors_of_a_stdio_host_cannot_be_copied():
    with other_user.directory() as path:
        command = [*as_user(other_user.UID), *ACPTERM, "stdio", "--embedded"]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=other_user.variables(path),
        )
        try:
            process.stdin.write(
                b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
            )
            process.stdin.flush()
            assert b'"result"' in await trio.to_thread.run_sync(process.stdout.readline)
            with closing(linux.Children(process.pid)) as children:
                keepers = children.read()
            assert [attacked(pid) for pid in (process.pid, *keepers)] == [set()] * (
                1 + len(keepers)
            )
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait(DEADLINE_S)


WINDOWS = {"run": ["run", "sleep", "60"], "attach": ["attach", "@last"]}


@contextmanager
def window(path, socket, name):
    """Run the command `name` of `WINDOWS` on a terminal, as the other user; yield its pid.

    `path` is that user's directory, and `socket` the daemon's socket.
    """
    command, *rest = WINDOWS[name]
    words = [*as_user(other_user.UID), *ACPTERM, command, "--socket", socket, *rest]
    pid, master = pty.fork()
    if pid == 0:
        os.execvpe(words[0], words, other_user.variables(path))
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(master)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.long
async def test_descriptors_of_an_attached_window_cannot_be_copied(name):
    with other_user.directory() as path:
        async with other_user.daemon_of_user(path) as (_, socket):
            stream = await other_user.connect(str(path / "run" / "user.sock"))
            async with user_on(stream) as user:
                await user.request("terminal/create", {"command": "sleep 60", "cwd": str(path)})
                with window(path, socket, name) as pid:
                    with trio.fail_after(DEADLINE_S):
                        while not sum([one["attached"] for one in await user.list()]):
                            assert alive(pid)
                            await trio.sleep(0.05)
                    assert attacked(pid) == set()
                    # The daemon cannot inspect it, and need not.
                    if name == "run":
                        assert os.getcwd() in {one["cwd"] for one in await user.list()}


# Connects, and exits, leaving the connection to a child.
LEAVE = """
import os, socket, sys, time
from pathlib import Path
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
parent = os.getpid()
if os.fork():
    os._exit(0)
os.setsid()
while os.getppid() == parent:
    time.sleep(0.01)
try:
    sock.sendall(b'{"jsonrpc":"2.0","id":1,"method":"_acpterm/terminal/list","params":{}}\\n')
    answer = sock.recv(65536)
except OSError:
    answer = b"closed"
Path(sys.argv[2]).write_bytes(answer)
"""


async def test_connection_of_an_ended_process_is_not_the_users(tmp_path):
    env = environment(XDG_CONFIG_HOME=str(tmp_path))
    async with daemon(tmp_path, env=env) as (_, path):
        user_path = user_socket(path)
        async with user_at(user_path) as user:
            worker = (await user.request("status"))["workerPid"]
        # Even without an agent's terminal: an agent may have connected.
        assert b"has ended" in await left_connection(worker, user_path, tmp_path / "first")


async def left_connection(worker, path, answer):
    """Connect from a process that ends before the worker accepts; return the response.

    The process leaves the connection to its child, which sends a request and writes the response to
    the file `answer`.
    """
    stopped = psutil.Process(worker)
    stopped.suspend()
    try:
        await poll(lambda: stopped.status() == psutil.STATUS_STOPPED)
        await trio.run_process([sys.executable, "-c", LEAVE, path, str(answer)])
    finally:
        stopped.resume()
    # The file is there before the response is in it.
    return await poll(lambda: (answer.exists() and answer.read_bytes()) or None)
