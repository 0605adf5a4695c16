"""The daemon's socket: its path, its owner, and existing files at the path."""

import errno
import json
import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from acpterm.config import Settings
from acpterm.host.daemon import _accept
from acpterm.host.server.daemon_sockets import UnixListener, open_sockets
from acpterm.link.daemon import DaemonError, connect, read_lock
from acpterm.runtime.unix_socket import ListenError, peer_of
from tests.support.agent import agent_at
from tests.support.commands import run
from tests.support.daemon import daemon, listens, user_socket
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.processes import environment, process
from tests.support.user import user_at


def mode(path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def there(path) -> bool:
    return os.path.lexists(path)


async def refused(tmp_path: Path, path: str | Path) -> str:
    """Start a daemon that cannot listen at `path`; return its error message."""
    async with process(tmp_path, "serve", "--socket", str(path)) as running:
        assert await running.wait() == 1
        message = running.logged()
    assert message.startswith("acpterm: ")
    assert "Traceback" not in message
    assert len(message.splitlines()) == 1
    return message


def refusal(path: Path) -> str:
    """Open the sockets of a daemon that cannot listen at `path`; return the error."""
    with pytest.raises(ListenError) as caught:
        open_sockets(Settings(socket=str(path)), {}, {}, os.getpid())
    return str(caught.value)


@pytest.fixture
def bound(monkeypatch):
    """The path of each socket that was bound, and whether the agents' socket was locked then."""
    bound = []
    bind = UnixListener._bind

    def record(listener):
        bound.append((listener.path, there(Path(listener.path).with_name("agent.sock.lock"))))
        return bind(listener)

    monkeypatch.setattr(UnixListener, "_bind", record)
    return bound


@contextmanager
def opened_sockets(agent: Path, user: Path):
    settings = Settings(socket=str(agent), user_socket=str(user))
    sockets = open_sockets(settings, {}, {}, os.getpid())
    try:
        yield sockets
    finally:
        for kind in (sockets.user, sockets.agent):
            for listener in kind.listeners:
                listener.socket.close()
        sockets.remove()


async def test_users_socket_is_there_before_the_agents_socket(tmp_path, bound):
    agent, user = tmp_path / "agent.sock", tmp_path / "user.sock"
    with opened_sockets(agent, user):
        assert bound == [(str(user), True), (str(agent), True)]
    assert list(tmp_path.iterdir()) == []


async def test_users_socket_is_bound_again_first_when_both_are_removed(
    tmp_path, bound, autojump_clock
):
    agent, user = tmp_path / "agent.sock", tmp_path / "user.sock"
    host = SimpleNamespace(serve_agent_socket=None, serve_user_socket=None)
    keeper = SimpleNamespace(put=lambda *_: None)
    accepting = trio.CancelScope()
    with opened_sockets(agent, user) as sockets:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_accept, accepting, host, sockets, keeper)
            # Several times, since trio runs tasks in a random order.
            for _ in range(10):
                bound.clear()
                agent.unlink()
                user.unlink()
                await poll(lambda: agent.exists() and user.exists())
                assert bound == [(str(user), True), (str(agent), True)]
            accepting.cancel()


# Path and owner


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="another system's structure")
def test_large_uid_of_a_peer_is_not_negative():
    class Socket:
        def getsockopt(self, _level, _name, size):
            return struct.pack("iII", 17, 2**32 - 10, 5)[:size]

    assert peer_of(Socket()) == (2**32 - 10, 17)


@pytest.mark.long
async def test_socket_is_by_default_in_a_private_runtime_directory(tmp_path):
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    env = environment(XDG_RUNTIME_DIR=str(runtime), XDG_CONFIG_HOME=str(tmp_path))
    path = runtime / "acpterm" / "agent.sock"
    async with process(tmp_path, "serve", env=env, umask=0) as running:
        await poll(lambda: listens(str(path)))
        assert mode(path) == 0o600
        assert mode(path.parent) == 0o700
        assert mode(f"{path}.lock") == 0o600
        async with agent_at(str(path)) as agent:
            assert (await agent.run("umask"))[0] == "0022\n", "it is the execution context's"
        running.terminate()
        assert await running.wait() == 0
    assert os.listdir(path.parent) == []


@pytest.mark.long
async def test_missing_directories_are_created_and_private(tmp_path):
    path = tmp_path / "a" / "b" / "agent.sock"
    async with process(tmp_path, "serve", "--socket", str(path), umask=0):
        await poll(lambda: listens(str(path)))
        assert mode(path.parent) == mode(path.parent.parent) == 0o700
        assert mode(path) == 0o600


@pytest.mark.long
async def test_relative_path_is_in_the_working_directory(tmp_path):
    more = {"cwd": tmp_path, "env": environment(PYTHONPATH=os.getcwd())}
    tmp_path.chmod(0o700)
    async with process(tmp_path, "serve", "--socket", "it.sock", **more) as running:
        await poll(lambda: listens(str(tmp_path / "it.sock")))
        running.terminate()
        assert await running.wait() == 0
    assert not (tmp_path / "it.sock").exists()
    assert not (tmp_path / "it.sock.lock").exists()


CONNECT_AS_ANOTHER = """
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
stream = socket.socket(socket.AF_UNIX)
stream.connect(sys.argv[1])
try:
    stream.sendall(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\\n')
    print(stream.recv(1000))
except (BrokenPipeError, ConnectionResetError):
    print(b"")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_connection_of_another_user_is_closed(tmp_path):
    async with daemon(tmp_path, "--log-format", "json") as (running, path):
        # Within reach, as if modes were ignored: the uid must be checked anyway.
        os.chmod(path, 0o666)
        for directory in (Path(path).parent, *Path(path).parent.parents):
            if not mode(directory) & stat.S_IXOTH:
                directory.chmod(mode(directory) | stat.S_IXOTH)
        other = [sys.executable, "-S", "-c", CONNECT_AS_ANOTHER, path]
        done = await trio.run_process(other, capture_stdout=True)
        assert done.stdout == b"b''\n"
        refusals = [
            line for line in map(json.loads, running.logged().splitlines()) if "uid" in line
        ]
        assert [line["uid"] for line in refusals] == [65534]
        async with agent_at(path) as agent:
            assert (await agent.run("echo served"))[0] == "served\n"


# Existing files


async def test_stale_socket_is_replaced(tmp_path):
    path = tmp_path / "run" / "agent.sock"
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
    (path.parent / "agent.sock.lock").write_text("1\n")
    async with daemon(tmp_path) as (running, _), agent_at(str(path)) as agent:
        assert (await agent.run("echo served"))[0] == "served\n"
        running.terminate()
        await running.wait()
    assert os.listdir(path.parent) == []


async def test_live_socket_is_left_alone(tmp_path):
    async with daemon(tmp_path) as (running, path), agent_at(path) as agent:
        terminal = await agent.create("read line; echo got $line")
        message = await refused(tmp_path, path)
        assert f"a daemon already listens on {path} (pid {running.pid})" in message
        assert "--socket" in message
        await agent.type(terminal, "it\n")
        assert (await agent.wait(terminal))["exitCode"] == 0
        async with agent_at(path) as second:
            assert (await second.run("echo served"))[0] == "served\n"


async def test_socket_of_another_program_is_left_alone(tmp_path):
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        assert f"another program already listens on {path}" in refusal(path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    assert path.exists()
    assert not there(f"{path}.lock")


@pytest.mark.parametrize("what", ["file", "directory", "link"])
async def test_path_that_is_not_a_socket_is_refused_and_left_alone(tmp_path, what):
    path = tmp_path / "agent.sock"
    (tmp_path / "file").write_text("precious")
    if what == "file":
        path.write_text("precious")
    elif what == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "file")
    assert f"{path} is there and is no socket" in refusal(path)
    assert there(path)
    assert (tmp_path / "file").read_text() == "precious"
    assert not there(f"{path}.lock")


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o777])
async def test_directory_that_others_may_write_to_is_refused(tmp_path, bits):
    directory = tmp_path / "loose"
    directory.mkdir()
    directory.chmod(bits)
    message = refusal(directory / "agent.sock")
    assert f"mode {bits:o}" in message
    assert f"chmod 700 {directory}" in message
    assert os.listdir(directory) == []


async def test_sticky_directory_that_others_may_write_to_is_refused(tmp_path):
    directory = tmp_path / "sticky"
    directory.mkdir()
    directory.chmod(0o1777)
    # Another user's, in place of the log of a daemon that a command starts: open would block.
    os.mkfifo(directory / "agent.sock.log")
    message = refusal(directory / "agent.sock")
    assert "mode 1777" in message
    assert "choose a --socket in a directory of your own" in message
    # So that the mode of /tmp is not changed.
    assert "chmod" not in message
    with trio.fail_after(DEADLINE_S):
        done = await run(str(directory / "agent.sock"), "run", "-d", "true")
    assert done.status == 1
    assert "mode 1777" in done.err
    assert os.listdir(directory) == ["agent.sock.log"]


async def test_fifo_at_the_path_of_the_log_is_an_error(tmp_path):
    directory = tmp_path / "own"
    directory.mkdir(mode=0o700)
    os.mkfifo(directory / "agent.sock.log")
    with trio.fail_after(DEADLINE_S):
        done = await run(str(directory / "agent.sock"), "run", "-d", "true")
    assert done.status == 1
    assert "no daemon can be started" in done.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
async def test_directory_of_another_user_is_refused(tmp_path):
    directory = tmp_path / "theirs"
    directory.mkdir(mode=0o755)
    os.chown(directory, 65534, 65534)
    message = refusal(directory / "agent.sock")
    assert f"{directory} belongs to uid 65534" in message


async def test_path_too_long_for_a_socket_is_refused(tmp_path):
    message = refusal(tmp_path / ("x" * 120))
    assert "cannot listen on" in message
    assert "too long" in message


async def test_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot listen on" in refusal(tmp_path / "file" / "agent.sock")


@pytest.mark.long
async def test_one_of_several_daemons_that_start_at_once_wins(tmp_path):
    tmp_path.chmod(0o700)
    path = str(tmp_path / "agent.sock")
    # A stale socket, which each daemon would remove and replace.
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    command = [sys.executable, "-m", "acpterm", "serve", "--socket", path]
    for _ in range(2):
        logs = [tmp_path / f"log-{number}" for number in range(4)]
        running = [start(command, log) for log in logs]
        try:
            await poll(lambda running=running: sum(p.poll() is None for p in running) == 1)
            (winner,) = [p for p in running if p.poll() is None]
            await poll(lambda: listens(path))
            assert sorted(p.wait() for p in running if p is not winner) == [1, 1, 1]
            message = "".join(log.read_text() for log in logs)
            assert message.count(f"a daemon already listens on {path}") == 3
            async with agent_at(path) as agent:
                assert (await agent.run("echo served"))[0] == "served\n"
            winner.terminate()
            assert await poll(winner.poll) == 0
        finally:
            for p in running:
                with suppress(ProcessLookupError):
                    p.kill()
                p.wait()
    assert not there(path)
    assert not there(f"{path}.lock")


def start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as stderr:
        return subprocess.Popen(command, stderr=stderr, env=environment())


# Removal


@pytest.mark.long
async def test_foreign_socket_at_the_path_is_not_removed(tmp_path):
    async with daemon(tmp_path) as (running, path):
        os.unlink(path)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(path)
            other.listen()
            running.terminate()
            assert await running.wait() == 0
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
        assert os.listdir(Path(path).parent) == ["agent.sock"]


@pytest.mark.long
async def test_removed_sockets_are_bound_again(tmp_path):
    async with daemon(tmp_path) as (running, path):
        user_path = user_socket(path)
        async with agent_at(path) as agent, user_at(user_path) as user:
            terminal = await agent.create("sleep 60")
            worker = (await user.request("status"))["workerPid"]
            # With and without a lock file.
            for lock in ([], [f"{path}.lock"]):
                for file in (path, user_path, *lock):
                    os.unlink(file)
                await poll(lambda: listens(path) and listens(user_path))
                assert mode(path) == mode(user_path) == mode(f"{path}.lock") == 0o600
            assert (await agent.output(terminal))["output"] == ""
        # The next worker gets them, too.
        os.kill(worker, signal.SIGKILL)
        async with user_at(user_path) as user:
            assert (await user.request("status"))["workerPid"] != worker
        running.terminate()
        assert await running.wait() == 0
    assert os.listdir(os.path.dirname(path)) == []


@pytest.mark.long
async def test_lock_file_names_the_keeper_when_a_later_worker_has_created_it_again(tmp_path):
    async with daemon(tmp_path) as running:
        await running.kill_worker()
        keeper = (await running.status())["keeperPid"]
        for file in (running.path, f"{running.path}.lock"):
            os.unlink(file)
        await poll(lambda: listens(running.path))
        assert read_lock(Settings(socket=running.path)).pid == keeper


@pytest.mark.long
async def test_daemon_serves_on_when_a_replaced_socket_is_found_without_descriptors(tmp_path):
    async with (
        daemon(tmp_path) as (running, path),
        user_at(user_socket(path)) as user,
    ):
        worker = (await user.request("status"))["workerPid"]
        os.unlink(path)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(path)
        before = resource.prlimit(worker, resource.RLIMIT_NOFILE)
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (3, before[1]))
        await poll(lambda: "cannot be bound again" in running.logged())
        resource.prlimit(worker, resource.RLIMIT_NOFILE, before)
        await poll(lambda: listens(path))
        assert (await user.request("status"))["workerPid"] == worker


async def test_rebound_socket_without_a_listener_is_replaced(tmp_path):
    path = str(tmp_path / "run" / "agent.sock")
    ours = UnixListener(path, 1)
    with ours.listen():
        os.unlink(path)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(path)
            other.listen()
            assert not ours.is_removed()
        assert ours.is_removed()
        with ours.listen_again():
            assert not ours.is_removed()
            assert listens(path)
    ours.close()
    assert os.listdir(tmp_path / "run") == []


@contextmanager
def two_listeners(path):
    """Listen twice: the files of the first listener were removed before the second listened."""
    first, second = UnixListener(path, 1), UnixListener(path, 2)
    with first.listen():
        os.unlink(path)
        os.unlink(f"{path}.lock")
        with second.listen():
            yield first, second


async def test_lock_of_another_daemon_is_not_removed(tmp_path):
    path = str(tmp_path / "run" / "agent.sock")
    with two_listeners(path) as (first, second):
        first.close()
        assert there(path)
        # The file is still the second daemon's.
        with pytest.raises(ListenError, match=r"pid 2"):
            UnixListener(path, 3).listen()
        second.close()
    assert os.listdir(tmp_path / "run") == []


@pytest.mark.parametrize("call", ["ftruncate", "write"])
async def test_lock_is_free_when_the_lock_file_cannot_be_written(tmp_path, monkeypatch, call):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = str(tmp_path / "run" / "agent.sock")
    failing, next_ = UnixListener(path, 1), UnixListener(path, 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(ListenError, match="No space left"):
            failing.lock()
    next_.lock()
    next_.close()


async def test_path_that_another_daemon_has_taken_is_not_taken_back(tmp_path):
    path = str(tmp_path / "run" / "agent.sock")
    with two_listeners(path) as (first, second):
        os.unlink(path)
        assert first.is_removed()
        with pytest.raises(ListenError, match=r"already listens on .* \(pid 2\)"):
            first.listen_again()
        second.close()
        first.close()


@pytest.mark.long
async def test_lock_holder_is_named_while_the_socket_is_missing(tmp_path):
    async with daemon(tmp_path) as (running, path):
        async with user_at(user_socket(path)) as user:
            worker = (await user.request("status"))["workerPid"]
        os.kill(worker, signal.SIGSTOP)
        try:
            os.unlink(path)
            holds = rf"process {running.pid} holds the lock .*: wait a minute"
            connecting = partial(connect, Settings(socket=path), start_timeout_s=3)
            with pytest.raises(DaemonError, match=holds):
                await trio.to_thread.run_sync(connecting)
        finally:
            os.kill(worker, signal.SIGCONT)


@pytest.mark.long
async def test_daemon_ends_cleanly_after_its_socket_was_removed(tmp_path):
    async with daemon(tmp_path) as (running, path):
        os.unlink(path)
        os.unlink(f"{path}.lock")
        running.terminate()
        assert await running.wait() == 0
        assert "Traceback" not in running.logged()


@pytest.mark.long
async def test_daemon_works_with_every_standard_descriptor_closed(tmp_path):
    path = str(tmp_path / "agent.sock")
    tmp_path.chmod(0o700)
    command = f"exec {sys.executable} -m acpterm serve --socket {path} <&- >&- 2>&-"
    running = start(["/bin/sh", "-c", command], tmp_path / "log")
    try:
        await poll(lambda: listens(path) or running.poll() is not None)
        async with agent_at(path) as agent:
            await agent.send(b"nonsense to be logged\n")
            assert (await agent.run("echo served"))[0] == "served\n"
            assert (await agent.run("ls -l /proc/self/fd | grep -c /dev/pts"))[0] == "2\n"
        running.terminate()
        assert await poll(running.poll) == 0
    finally:
        running.kill()
        running.wait()
