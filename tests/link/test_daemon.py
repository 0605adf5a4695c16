"""How the user's commands find or start a daemon."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
from functools import partial

import pytest
import trio

from acpterm.config import Settings
from acpterm.link import daemon as client_daemon
from acpterm.link.daemon import DaemonError, NoAnswerError, connect
from tests.support.commands import command_environment, run
from tests.support.daemon import daemon, listens, user_socket
from tests.support.polling import poll
from tests.support.processes import environment
from tests.support.starting import ACPTERM
from tests.support.user import user_at


@pytest.fixture
def path(tmp_path):
    (tmp_path / "run").mkdir(mode=0o700)
    return str(tmp_path / "run" / "agent.sock")


async def shut_down(path):
    """Shut down the daemon that a command has started."""
    async with user_at(user_socket(path)) as user:
        pid = (await user.request("status"))["pid"]
    os.kill(pid, signal.SIGTERM)
    await poll(lambda: not os.path.exists(path))


@pytest.mark.long
async def test_run_starts_a_daemon_that_outlives_it_when_none_runs(path):
    result = await run(path, "run", "-d", "--name", "web", "--", "sleep", "60")
    assert (result.status, result.out) == (0, "web\n")
    # The daemon outlives the command, and the next command finds it.
    assert "web" in (await run(path, "ls")).out
    await shut_down(path)


@pytest.mark.long
async def test_environment_of_the_starter_does_not_set_the_policy_of_all(tmp_path, path):
    file = tmp_path / "acpterm" / "config.toml"
    file.parent.mkdir()
    file.write_text('provider = "landlock"\nprofile = "confirm"\n')
    open_file = tmp_path / "open.toml"
    open_file.write_text('provider = "local"\nprofile = "open"\n')
    weak = {
        "XDG_CONFIG_HOME": str(tmp_path),
        "ACPTERM_CONFIG": str(open_file),
        "ACPTERM_PROVIDER": "local",
        "ACPTERM_PROFILE": "open",
        "ACPTERM_MCP_ELICITATION_APPROVES": "true",
        "ACPTERM_AUDIT": "false",
        "ACPTERM_SHELL": "/bin/true",
        "ACPTERM_IDLE_EXIT": "7",
    }
    status, _, err = await run(path, "stdio", **weak)
    assert status == 0
    assert "does not take ACPTERM_AUDIT, ACPTERM_CONFIG, ACPTERM_MCP_ELICITATION_APPROVES, " in err
    for again in False, True:
        if again:
            assert (await run(path, "restart", **weak)).status == 0
        found = json.loads((await run(path, "status", "--json")).out)
        assert (found["provider"], found["profile"]) == ("landlock", "confirm")
        assert found["sources"] == {
            "provider": str(file),
            "profile": str(file),
            "idle_exit": "the environment's ACPTERM_IDLE_EXIT",
            "log_level": "the environment's ACPTERM_LOG_LEVEL",
            "socket": "the flags",
        }
        shown = (await run(path, "status")).out
        assert f"provider        landlock, by {file}\n" in shown
        # One source a line, for a window of 80 columns.
        assert f"\nsettings        provider, profile by {file}\n" in shown
        assert f"\n{'':16}idle_exit by the environment's ACPTERM_IDLE_EXIT\n" in shown
        for words in ((), ("--json",)):
            assert "landlock" in (await run(path, "provider", "get", *words)).out
    await shut_down(path)


@pytest.mark.long
async def test_own_serve_takes_the_environment_and_the_provider_list_says_so(tmp_path):
    file = tmp_path / "config.toml"
    env = environment(XDG_CONFIG_HOME=str(tmp_path), ACPTERM_PROVIDER="landlock")
    async with daemon(tmp_path, env=env) as (_, path):
        listed = (await run(path, "provider", "list")).out
        assert "\n* landlock" in listed
        by = "the running daemon uses landlock, by the environment's ACPTERM_PROVIDER"
        assert listed.endswith(f"\n{by}\n")
        words = ("provider", "set", "local", "--config", str(file))
        assert (await run(path, *words)).err == f"acpterm: {by}, which takes precedence\n"


@pytest.mark.long
async def test_idle_daemon_stays_while_it_has_a_terminal(path):
    idle = {"ACPTERM_IDLE_EXIT": "0.3"}
    await run(path, "run", "-d", "--name", "web", "--", "sleep", "60", **idle)
    user = user_socket(path)
    with trio.move_on_after(1):
        await poll(lambda: not listens(user))
    assert listens(user)
    await run(path, "rm", "web")
    await poll(lambda: not os.path.exists(path))


@pytest.mark.long
async def test_run_activates_a_daemon_whose_socket_a_service_manager_holds(tmp_path, path):
    if shutil.which("systemd-socket-activate") is None:
        pytest.skip("systemd-socket-activate is not installed (Debian: systemd)")
    env = command_environment(path)
    passed = [f"--setenv={name}={env[name]}" for name in ("PATH", "XDG_CONFIG_HOME")]
    command = ["systemd-socket-activate", *passed, "-l", path, *ACPTERM, "serve"]
    manager = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    try:
        await poll(lambda: os.path.exists(path))
        result = await run(path, "run", "-d", "--name", "web", "--", "sleep", "60")
        assert (result.status, result.out) == (0, "web\n")
        assert f"pid {manager.pid}" in (await run(path, "status")).out
    finally:
        manager.terminate()
        await poll(lambda: manager.poll() is not None)


@pytest.mark.long
async def test_run_waits_for_an_ending_daemon_and_starts_another(path):
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    async with trio.open_nursery() as nursery:

        async def command():
            result = await run(path, "run", "-d", "--name", "web", "--", "sleep", "60")
            assert result == (0, "web\n", "")

        nursery.start_soon(command)
        # The first daemon finds the lock, reports it and exits.
        await poll(lambda: "already listens" in log_of(path))
        os.unlink(f"{path}.lock")
        os.close(lock)
    await shut_down(path)


def log_of(path):
    try:
        with open(f"{path}.log") as log:
            return log.read()
    except FileNotFoundError:
        return ""


async def test_run_fails_with_the_reason_when_no_daemon_can_start(path):
    result = await run(path, "run", "-d", "--", "true", ACPTERM_TRACKING="nonsense")
    assert result.status == 1
    assert "tracking" in result.err
    result = await run("/proc/none/agent.sock", "run", "-d", "--", "true")
    assert result.status == 1
    assert "/proc/none" in result.err


@pytest.mark.parametrize("words", [("run", "-d", "--", "true"), ("stdio",)], ids=" ".join)
async def test_daemon_is_not_started_from_within_a_terminal(path, words):
    terminal = "term_" + 32 * "0"
    result = await run(path, *words, ACPTERM_TERMINAL_ID=terminal)
    assert result.status == 1
    assert "none is started from within a terminal" in result.err
    assert not listens(path)


def test_daemon_is_not_started_with_the_limit_of_a_terminal(path):
    limit = ["prlimit", f"--locks={(1 << 60) + 7}:"]
    result = subprocess.run(
        [*limit, *ACPTERM, "run", "-d", "--", "true"],
        env=command_environment(path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=30,
    )
    assert result.returncode == 1
    assert "none is started from within a terminal" in result.stderr


FULL = "does not answer: its queue of connections is full"


@contextlib.contextmanager
def full_queue(path):
    """Yield a socket that listens at `path`, and whose queue of connections is full."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen(0)
        result = None
        while result != errno.EAGAIN:
            client = sockets.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            result = client.connect_ex(path)
        yield listener


async def test_command_fails_when_the_daemons_queue_of_connections_is_full(path):
    user = user_socket(path)
    with full_queue(user):
        result = await run(path, "ls")
    assert result == (1, "", f"acpterm: the daemon at {user} {FULL}\n")


@pytest.fixture
def starts(monkeypatch):
    """The daemons that `connect` would have started."""
    starts = []

    def start(*arguments):
        starts.append(arguments)
        raise DaemonError("a daemon is started")

    monkeypatch.setattr(client_daemon, "_start", start)
    return starts


@pytest.mark.parametrize(
    ("user", "full"), [(False, "agent"), (True, "user"), (True, "agent")], ids=str
)
def test_no_daemon_is_started_when_the_queue_of_connections_is_full(path, starts, user, full):
    path_of = {"agent": path, "user": user_socket(path)}
    with (
        full_queue(path_of[full]),
        pytest.raises(NoAnswerError, match=f"{path_of[full]} {FULL}"),
    ):
        connect(Settings(socket=path), user=user, start_timeout_s=0.1)
    assert not starts


async def test_connect_waits_when_the_queue_of_connections_is_full(path, starts, monkeypatch):
    attempts = []
    open_socket = client_daemon.open_socket

    def attempt(path):
        attempts.append(path)
        return open_socket(path)

    monkeypatch.setattr(client_daemon, "open_socket", attempt)
    with full_queue(path) as listener:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def connected():
                connecting = partial(connect, Settings(socket=path))
                (await trio.to_thread.run_sync(connecting)).close()

            await poll(lambda: len(attempts) > 1)
            listener.accept()[0].close()
    assert not starts


COMMANDS = [["ls"], ["status"], ["shutdown"], ["screen", "web"], ["run", "-d", "--", "true"]]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
async def test_command_fails_when_the_path_is_not_a_socket(tmp_path, words):
    file = tmp_path / "file"
    file.touch()
    for path, users in ((file, tmp_path / "user.sock"), (tmp_path / "agent.sock", file)):
        result = await run(str(path), *words, ACPTERM_USER_SOCKET=str(users))
        message = f"{file} is there and is no socket: remove it, or choose another --socket"
        assert result == (1, "", f"acpterm: {message}\n")
    assert file.read_bytes() == b""


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
async def test_command_fails_when_the_path_is_too_long_for_a_socket(tmp_path, words):
    path = str(tmp_path / ("x" * (103 - len(os.fsencode(tmp_path)))))
    # Short enough for the agents' socket.
    assert len(path) == 104
    result = await run(path, *words)
    message = f"{path}.user has 109 bytes, and a socket's path at most 107"
    assert result == (1, "", f"acpterm: {message}: choose a shorter one with --socket\n")
    assert os.listdir(tmp_path) == []


@pytest.mark.long
async def test_users_socket_may_be_in_another_directory(tmp_path, path):
    env = {"ACPTERM_USER_SOCKET": str(tmp_path / "mine" / "here.sock")}
    assert (await run(path, "run", "-d", "--name", "web", "--", "sleep", "60", **env)).status == 0
    assert "web" in (await run(path, "ls", **env)).out
    assert (await run(path, "shutdown", **env)).status == 0
    assert not listens(path)


@pytest.mark.long
async def test_daemons_in_one_directory_have_separate_users_sockets(tmp_path):
    other = str(tmp_path / "run" / "other.sock")
    async with daemon(tmp_path) as (_, first):
        await run(first, "run", "-d", "--name", "one", "--", "sleep", "60")
        assert (await run(other, "run", "-d", "--name", "two", "--", "sleep", "60")).status == 0
        assert "two" not in (await run(first, "ls")).out
        assert "two" in (await run(other, "ls")).out
        assert (await run(other, "shutdown")).status == 0
