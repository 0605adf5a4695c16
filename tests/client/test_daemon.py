"""The daemon as the person's commands find it: running, to be started, about to end, or none."""

import fcntl
import os
import shutil
import signal
import subprocess

import pytest
import trio

from tests.support.commands import command_environment, run
from tests.support.daemon import daemon, listens
from tests.support.polling import poll
from tests.support.starting import ACPTERM
from tests.support.user import user_at


@pytest.fixture
def path(tmp_path):
    (tmp_path / "run").mkdir(mode=0o700)
    return str(tmp_path / "run" / "agent.sock")


async def ended(path):
    """End the daemon that a command has started."""
    async with user_at(path.replace("agent.sock", "user.sock")) as person:
        pid = (await person.request("status"))["pid"]
    os.kill(pid, signal.SIGTERM)
    await poll(lambda: not os.path.exists(path))


async def test_one_that_is_not_running_is_started_and_keeps_what_is_run_in_it(path):
    done = await run(path, "run", "-d", "--name", "web", "--", "sleep", "60")
    assert (done.status, done.out) == (0, "web\n")
    # It outlives the command, and the command after it finds the same.
    assert "web" in (await run(path, "ls")).out
    await ended(path)


async def test_a_daemon_with_a_terminal_does_not_end_because_nobody_is_connected(path):
    idle = {"ACPTERM_IDLE_EXIT": "0.3"}
    await run(path, "run", "-d", "--name", "web", "--", "sleep", "60", **idle)
    user = path.replace("agent.sock", "user.sock")
    with trio.move_on_after(1):
        await poll(lambda: not listens(user))
    assert listens(user)
    await run(path, "rm", "web")
    await poll(lambda: not os.path.exists(path))


async def test_one_that_a_service_manager_listens_for_is_woken(tmp_path, path):
    if shutil.which("systemd-socket-activate") is None:
        pytest.skip("systemd-socket-activate is not installed (Debian: systemd)")
    env = command_environment(path)
    passed = [f"--setenv={name}={env[name]}" for name in ("PATH", "XDG_CONFIG_HOME")]
    command = ["systemd-socket-activate", *passed, "-l", path, *ACPTERM, "serve"]
    manager = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    try:
        await poll(lambda: os.path.exists(path))
        done = await run(path, "run", "-d", "--name", "web", "--", "sleep", "60")
        assert (done.status, done.out) == (0, "web\n")
        assert f"pid {manager.pid}" in (await run(path, "status")).out
    finally:
        manager.terminate()
        await poll(lambda: manager.poll() is not None)


async def test_one_that_is_about_to_end_is_waited_for_and_another_started(path):
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    async with trio.open_nursery() as nursery:

        async def command():
            done = await run(path, "run", "-d", "--name", "web", "--", "sleep", "60")
            assert done == (0, "web\n", "")

        nursery.start_soon(command)
        # The first that is started finds the lock, says so and ends.
        await poll(lambda: "already listens" in log_of(path))
        os.unlink(f"{path}.lock")
        os.close(lock)
    await ended(path)


def log_of(path):
    try:
        with open(f"{path}.log") as log:
            return log.read()
    except FileNotFoundError:
        return ""


async def test_one_that_cannot_be_started_is_an_error_that_says_why(path):
    done = await run(path, "run", "-d", "--", "true", ACPTERM_TRACKING="nonsense")
    assert done.status == 1
    assert "tracking" in done.err
    done = await run("/proc/none/agent.sock", "run", "-d", "--", "true")
    assert done.status == 1
    assert "/proc/none" in done.err


@pytest.mark.parametrize("words", [("run", "-d", "--", "true"), ("stdio",)], ids=" ".join)
async def test_daemon_is_not_started_from_within_a_terminal(path, words):
    terminal = "term_" + 32 * "0"
    done = await run(path, *words, ACPTERM_TERMINAL_ID=terminal)
    assert done.status == 1
    assert "none is started from within a terminal" in done.err
    assert not listens(path)


def test_daemon_is_not_started_with_the_limit_of_a_terminal(path):
    limit = ["prlimit", f"--locks={(1 << 60) + 7}:"]
    done = subprocess.run(
        [*limit, *ACPTERM, "run", "-d", "--", "true"],
        env=command_environment(path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert "none is started from within a terminal" in done.stderr


LOOKS = [["ls"], ["status"], ["shutdown"], ["screen", "web"], ["run", "-d", "--", "true"]]


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
async def test_a_path_with_something_that_is_no_socket_is_an_error(tmp_path, words):
    file = tmp_path / "file"
    file.touch()
    for path, users in ((file, tmp_path / "user.sock"), (tmp_path / "agent.sock", file)):
        done = await run(str(path), *words, ACPTERM_USER_SOCKET=str(users))
        said = f"{file} is there and is no socket: remove it, or choose another --socket"
        assert done == (1, "", f"acpterm: {said}\n")
    assert file.read_bytes() == b""


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
async def test_a_path_that_is_too_long_for_a_socket_is_an_error(tmp_path, words):
    path = str(tmp_path / ("x" * (103 - len(os.fsencode(tmp_path)))))
    # It would do for the agents' socket.
    assert len(path) == 104
    done = await run(path, *words)
    said = f"{path}.user has 109 bytes, and a socket's path at most 107"
    assert done == (1, "", f"acpterm: {said}: choose a shorter one with --socket\n")
    assert os.listdir(tmp_path) == []


async def test_the_persons_socket_can_be_somewhere_else(tmp_path, path):
    env = {"ACPTERM_USER_SOCKET": str(tmp_path / "mine" / "here.sock")}
    assert (await run(path, "run", "-d", "--name", "web", "--", "sleep", "60", **env)).status == 0
    assert "web" in (await run(path, "ls", **env)).out
    assert (await run(path, "shutdown", **env)).status == 0
    assert not listens(path)


async def test_two_that_listen_in_one_folder_have_a_users_socket_each(tmp_path):
    other = str(tmp_path / "run" / "other.sock")
    async with daemon(tmp_path) as (_, first):
        await run(first, "run", "-d", "--name", "one", "--", "sleep", "60")
        assert (await run(other, "run", "-d", "--name", "two", "--", "sleep", "60")).status == 0
        assert "two" not in (await run(first, "ls")).out
        assert "two" in (await run(other, "ls")).out
        assert (await run(other, "shutdown")).status == 0
