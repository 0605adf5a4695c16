"""The daemon as a systemd service: handed sockets, notifications, the units."""

import configparser
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trio

from acpterm.config import Settings, default_socket, user_socket
from tests.support import starting
from tests.support.agent import agent_at
from tests.support.daemon import listens
from tests.support.polling import poll
from tests.support.processes import alive, environment
from tests.support.starting import ACPTERM
from tests.support.user import user_at

UNITS = Path(__file__).parents[2] / "systemd"


# Executes the daemon with descriptors from 3 on, as systemd does.
HAND_OVER = """
import fcntl, os, sys
pid, count, fds, *command = sys.argv[1:]
fds = [int(fd) for fd in fds.split()]
copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in fds]
for fd in fds:
    os.close(fd)
for number, copy in enumerate(copies):
    os.dup2(copy, 3 + number)
os.environ["LISTEN_PID"] = pid.replace("self", str(os.getpid()))
os.environ["LISTEN_FDS"] = count
os.execv(command[0], command)
"""


@contextmanager
def handed(tmp_path, fds, *arguments, pid="self", count=None, **more):
    """Run `acpterm serve` with the descriptors `fds` handed over as systemd does.

    `pid` and `count` are LISTEN_PID and LISTEN_FDS, by default the right values. Yield the process;
    kill it at the end.
    """
    count = str(len(fds)) if count is None else count
    numbers = " ".join(map(str, fds))
    hand_over = [sys.executable, "-S", "-c", HAND_OVER, pid, count, numbers]
    env = environment(XDG_RUNTIME_DIR=str(tmp_path / "runtime"), **more)
    with (tmp_path / "stderr").open("ab") as stderr:
        running = subprocess.Popen(
            [*hand_over, *ACPTERM, "serve", *arguments], env=env, stderr=stderr, pass_fds=fds
        )
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def stderr_of(tmp_path) -> str:
    return (tmp_path / "stderr").read_text()


def bound(path, kind=socket.SOCK_STREAM, *, listening=True) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(str(path))
    if listening:
        sock.listen()
    return sock


# Handed over


@pytest.mark.long
async def test_handed_socket_is_served_and_neither_locked_nor_removed(tmp_path):
    path = str(tmp_path / "handed.sock")
    with bound(path) as sock, handed(tmp_path, [sock.fileno()]) as running:
        async with agent_at(path) as agent:
            assert (await agent.run("echo served"))[0] == "served\n"
        running.terminate()
        assert await poll(running.poll) == 0
        assert sorted(os.listdir(tmp_path)) == ["handed.sock", "stderr"]
        # It still listens: the next connection starts the next daemon.
        assert listens(path)
    assert "handed over" in stderr_of(tmp_path)


@pytest.mark.long
async def test_all_handed_sockets_are_served(tmp_path):
    paths = [str(tmp_path / name) for name in ("one", "two")]
    with ExitStack() as stack:
        fds = [stack.enter_context(bound(path)).fileno() for path in paths]
        stack.enter_context(handed(tmp_path, fds))
        for path in paths:
            async with agent_at(path) as agent:
                assert (await agent.run(f"echo {path}"))[0] == f"{path}\n"


@pytest.mark.long
async def test_users_socket_is_recognised_by_its_path_beside_the_agents(tmp_path):
    paths = [str(tmp_path / name) for name in ("agent.sock", "user.sock")]
    with ExitStack() as stack:
        fds = [stack.enter_context(bound(path)).fileno() for path in paths]
        stack.enter_context(handed(tmp_path, fds))
        async with agent_at(paths[0]) as agent, user_at(paths[1]) as user:
            terminal = await agent.create("sleep 60")
            assert [one["terminalId"] for one in await user.list()] == [terminal]


@pytest.mark.long
async def test_users_socket_is_bound_beside_a_handed_agents_socket(tmp_path):
    path = str(tmp_path / "handed.sock")
    with bound(path) as sock, handed(tmp_path, [sock.fileno()]):
        await poll(lambda: listens(f"{path}.user"))
        async with agent_at(path) as agent, user_at(f"{path}.user") as user:
            terminal = await agent.create("sleep 60")
            assert [one["terminalId"] for one in await user.list()] == [terminal]


@pytest.mark.long
async def test_programs_do_not_inherit_systemds_variables(tmp_path):
    path = str(tmp_path / "handed.sock")
    inherited = {
        "LISTEN_FDNAMES": "x",
        "NOTIFY_SOCKET": str(tmp_path / "none"),
        "WATCHDOG_USEC": "1",
    }
    with bound(path) as sock, handed(tmp_path, [sock.fileno()], **inherited):
        async with agent_at(path) as agent:
            names = (await agent.run("env | cut -d= -f1; ls /proc/self/fd"))[0].split()
            assert not {"LISTEN_PID", "LISTEN_FDS", *inherited} & set(names)
            assert "PATH" in names
            assert names[-4:] == ["0", "1", "2", "3"], "3 is the directory that ls reads"


@pytest.mark.parametrize("pid", ["1", "", "x", "selfself"])
@pytest.mark.long
async def test_descriptors_handed_to_another_process_are_left_alone(tmp_path, pid):
    path, handed_path = tmp_path / "run" / "agent.sock", tmp_path / "handed.sock"
    with bound(handed_path) as sock:
        arguments = ("--socket", str(path))
        with handed(tmp_path, [sock.fileno()], *arguments, pid=pid) as running:
            await poll(lambda: listens(str(path)))
            async with agent_at(str(path)) as agent:
                assert (await agent.run("echo served"))[0] == "served\n"
            running.terminate()
            assert await poll(running.poll) == 0
    assert not path.exists()


@contextmanager
def no_listener(tmp_path, what):
    """Return a descriptor that is not a listening Unix stream socket."""
    if what == "a file":
        fd = os.open(tmp_path, os.O_RDONLY)
    elif what == "a datagram socket":
        fd = bound(tmp_path / "s", socket.SOCK_DGRAM, listening=False).detach()
    elif what == "a socket that does not listen":
        fd = bound(tmp_path / "s", listening=False).detach()
    elif what == "a socket of packets":
        fd = bound(tmp_path / "s", socket.SOCK_SEQPACKET).detach()
    else:
        fd = socket.create_server(("127.0.0.1", 0)).detach()
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    "what",
    [
        "a file",
        "a datagram socket",
        "a socket that does not listen",
        "a socket of packets",
        "a socket of the network",
    ],
)
@pytest.mark.long
async def test_unusable_descriptor_is_named_in_the_error(tmp_path, what):
    with no_listener(tmp_path, what) as fd, handed(tmp_path, [fd]) as running:
        assert await poll(running.poll) == 1
    wrong = "descriptor 3, handed over by LISTEN_FDS, is no listening Unix stream socket"
    assert stderr_of(tmp_path).startswith(f"acpterm: {wrong}")
    assert len(stderr_of(tmp_path).splitlines()) == 1


@pytest.mark.long
async def test_missing_descriptor_is_named_in_the_error(tmp_path):
    path = tmp_path / "handed.sock"
    with bound(path) as sock, handed(tmp_path, [sock.fileno()], count="2") as running:
        assert await poll(running.poll) == 1
    assert stderr_of(tmp_path).startswith("acpterm: descriptor 4, handed over by LISTEN_FDS, is no")
    assert len(stderr_of(tmp_path).splitlines()) == 1


@pytest.mark.parametrize("count", ["x", "-1", "", "²", "1.0"])
@pytest.mark.long
async def test_invalid_descriptor_count_is_named_in_the_error(tmp_path, count):
    with handed(tmp_path, [], count=count) as running:
        assert await poll(running.poll) == 1
    assert stderr_of(tmp_path) == f"acpterm: LISTEN_FDS is {count!r}, and should be a number\n"


@pytest.mark.skipif(
    shutil.which("systemd-socket-activate") is None,
    reason="systemd-socket-activate is not installed (Debian: systemd)",
)
@pytest.mark.long
async def test_systemd_socket_activate_starts_the_daemon(tmp_path):
    path = str(tmp_path / "activated.sock")
    env = environment(XDG_RUNTIME_DIR=str(tmp_path))
    passed = [f"--setenv={name}" for name in ("XDG_RUNTIME_DIR", "PATH", "HOME") if name in env]
    command = ["systemd-socket-activate", *passed, "-l", path, *ACPTERM, "serve"]
    activator = start(command, env, tmp_path)
    try:
        await poll(lambda: "Listening on" in stderr_of(tmp_path))
        # Not started before the first connection.
        assert b"systemd-socket-activate" in running_as(activator.pid)
        async with agent_at(path) as agent:
            assert (await agent.request("initialize", {"protocolVersion": 1}))["protocolVersion"]
            assert b"serve" in running_as(activator.pid)
            assert (await agent.run("echo activated"))[0] == "activated\n"
            terminal = await agent.create("echo $$; sleep 60")
            pid = int(await agent.until_output(terminal, "\n"))
        async with agent_at(path) as agent:
            assert (await agent.run("echo again"))[0] == "again\n"
        activator.terminate()
        assert await poll(activator.poll) == 0
        assert not alive(pid)
        assert "activated.sock" in os.listdir(tmp_path), "it is not ours to remove"
    finally:
        activator.kill()
        activator.wait()


def start(command, env, tmp_path) -> subprocess.Popen[bytes]:
    with (tmp_path / "stderr").open("ab") as stderr:
        return subprocess.Popen(command, env=env, stderr=stderr)


def served(path, env, tmp_path) -> subprocess.Popen[bytes]:
    with (tmp_path / "stderr").open("ab") as stderr:
        return starting.start(["serve", "--socket", path], env=env, stderr=stderr)


def running_as(pid: int) -> bytes:
    """Return the command line of a process, separated by spaces."""
    line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return line[0] if b"systemd-socket-activate" in line[0] else b" ".join(line)


# Notifications


@contextmanager
def manager(address):
    """Listen as the service manager does; yield the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(address)
        sock.setblocking(False)
        yield sock


def notified(sock: socket.socket) -> bytes | None:
    try:
        return sock.recv(1000)
    except BlockingIOError:
        return None


@pytest.mark.parametrize("kind", ["path", "abstract"])
@pytest.mark.long
async def test_service_manager_is_notified_of_readiness_and_end(tmp_path, kind):
    path = str(tmp_path / "run" / "agent.sock")
    name = f"{tmp_path}/notify" if kind == "path" else f"\0acpterm-test-{os.getpid()}-{id(path)}"
    env = environment(NOTIFY_SOCKET=name.replace("\0", "@"), XDG_RUNTIME_DIR=str(tmp_path))
    with manager(name) as sock:
        running = served(path, env, tmp_path)
        try:
            assert await poll(lambda: notified(sock)) == b"READY=1"
            # At once, not some time later.
            async with agent_at(path) as agent:
                assert (await agent.run("echo served"))[0] == "served\n"
                # Programs must not be able to notify the manager.
                assert (await agent.run("echo ${NOTIFY_SOCKET-none}"))[0] == "none\n"
                terminal = await agent.create("trap '' TERM; echo go; while :; do sleep 1; done")
                await agent.until_output(terminal, "go")
                assert notified(sock) is None
                running.send_signal(signal.SIGTERM)
                assert await poll(lambda: notified(sock)) == b"STOPPING=1"
                assert running.poll() is None, "notified when the shutdown begins"
            assert await poll(running.poll) == 0
            assert notified(sock) is None
        finally:
            running.kill()
            running.wait()


@pytest.mark.costly
@pytest.mark.parametrize("address", ["", "/none/such", "relative", "@", "x" * 200])
async def test_missing_service_manager_is_ignored(tmp_path, address):
    path = str(tmp_path / "run" / "agent.sock")
    env = environment(NOTIFY_SOCKET=address, XDG_RUNTIME_DIR=str(tmp_path))
    running = served(path, env, tmp_path)
    try:
        await poll(lambda: listens(path))
        running.terminate()
        assert await poll(running.poll) == 0
        assert "Traceback" not in stderr_of(tmp_path)
    finally:
        running.kill()
        running.wait()


async def test_service_manager_that_reads_nothing_delays_nothing(tmp_path):
    path, name = str(tmp_path / "run" / "agent.sock"), f"{tmp_path}/notify"
    env = environment(NOTIFY_SOCKET=name, XDG_RUNTIME_DIR=str(tmp_path))
    with manager(name), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler:
        filler.setblocking(False)
        fill(filler, name)
        running = served(path, env, tmp_path)
        try:
            await poll(lambda: listens(path))
            running.terminate()
            assert await poll(running.poll) == 0
        finally:
            running.kill()
            running.wait()


def fill(sock: socket.socket, name: str) -> None:
    while True:
        try:
            sock.sendto(b"x", name)
        except BlockingIOError:
            return


# The units


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str
    parser.read(UNITS / name)
    return parser


needs_systemd_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is not installed (Debian: systemd)",
)


async def systemd_analyze(tmp_path, *arguments) -> tuple[int, list[str]]:
    """Return the exit status of systemd-analyze, and the lines of its output about acpterm."""
    done = await trio.run_process(
        ["systemd-analyze", *map(str, arguments)],
        env=environment(HOME=str(tmp_path), XDG_RUNTIME_DIR=str(tmp_path)),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    lines = (done.stdout + done.stderr).decode().splitlines()
    return done.returncode, [line for line in lines if "acpterm" in line]


@needs_systemd_analyze
async def test_systemd_analyze_accepts_the_user_units(tmp_path):
    command = tmp_path / ".local" / "bin" / "acpterm"
    command.parent.mkdir(parents=True)
    command.symlink_to(Path(sys.executable).with_name("acpterm"))
    units = [UNITS / "acpterm.service", UNITS / "acpterm.socket"]
    assert await systemd_analyze(tmp_path, "--user", "verify", *units) == (0, [])


@needs_systemd_analyze
async def test_systemd_analyze_accepts_the_system_units(tmp_path):
    installed = str(Path(sys.executable).with_name("acpterm"))
    units = []
    for name in ("acpterm@.service", "acpterm@.socket"):
        text = (UNITS / name).read_text()
        # The manual page is not installed here.
        text = text.replace("/usr/bin/acpterm", installed).replace("man:acpterm(1)", "")
        (tmp_path / name).write_text(text)
        units.append(tmp_path / name)
    assert await systemd_analyze(tmp_path, "verify", *units) == (0, [])
    status, lines = await systemd_analyze(
        tmp_path, "security", "--offline=true", "--threshold=45", units[0]
    )
    assert status == 0, lines


def test_socket_unit_listens_at_the_default_path(monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    lines = (UNITS / "acpterm.socket").read_text().splitlines()
    listens_at = [line.partition("=")[2] for line in lines if line.startswith("ListenStream=")]
    paths = [path.replace("%t", "/run/user/1000") for path in listens_at]
    assert paths == [default_socket(), user_socket(Settings())]
    settings = unit("acpterm.socket")["Socket"]
    assert (settings["SocketMode"], settings["DirectoryMode"]) == ("0600", "0700")


def test_service_unit_runs_the_daemon_without_restricting_programs():
    settings = unit("acpterm.service")["Service"]
    assert settings["Type"] == "notify"
    assert settings["ExecStart"] == "%h/.local/bin/acpterm serve"
    assert settings["Delegate"] == "yes"
    assert settings["KillMode"] == "process"
    assert int(settings["TimeoutStopSec"]) > 5
    # All other settings concern the manager and acpterm itself, and are not inherited.
    assert set(settings) <= {
        "Type",
        "ExecStart",
        "ExecReload",
        "WatchdogSec",
        "FileDescriptorStoreMax",
        "Restart",
        "Delegate",
        "KillMode",
        "TimeoutStopSec",
        "OOMPolicy",
        "TasksMax",
    }


@pytest.mark.long
async def test_json_logs_name_the_handed_socket(tmp_path):
    path = tmp_path / "handed.sock"
    arguments = ("--log-format", "json")
    with bound(path) as sock, handed(tmp_path, [sock.fileno()], *arguments) as running:
        async with agent_at(str(path)) as agent:
            await agent.run("true")
        running.terminate()
        assert await poll(running.poll) == 0
    first = json.loads(stderr_of(tmp_path).splitlines()[0])
    assert (first["event"], first["socket"]) == ("listening", "handed over")
