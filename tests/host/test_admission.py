"""Which processes the user's socket admits, and which it refuses."""

import json
import os
import pty
import resource
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
import trio

from acpterm.host.server import peer as peers
from acpterm.host.server.peer import PeerProcess
from acpterm.pty import linux
from acpterm.pty.tracking import marks
from acpterm.pty.tracking.cgroup import Cgroups
from tests.pty.scarcity import no_descriptors
from tests.support.agent import agent_at
from tests.support.daemon import Daemon, daemon
from tests.support.polling import poll
from tests.support.processes import alive, environment
from tests.support.starting import ACPTERM
from tests.support.tmux import needs_tmux
from tests.support.user import user_at

pytestmark = pytest.mark.skipif(not linux.AVAILABLE, reason="the evidence is Linux's")

INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,'
    b'"clientCapabilities":{}}}\n'
)
TRACKING = ["cgroup", "subreaper"]

# ask.py SOCKET ANSWER [STEP...]: takes the steps in order, asks for the list of terminals, and
# writes the answer to a file.
ASK = r"""
import json, os, resource, socket, subprocess, sys, time

INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
path, answer, *steps = sys.argv[1:]
agent_path = path.replace("user.sock", "agent.sock")

def connect(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    return sock

def hold():
    global held
    held = connect(agent_path)
    held.sendall(json.dumps(INITIALIZE).encode() + b"\n")
    held.recv(65536)

def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)

while steps:
    step, *steps = steps
    if step == "fork":
        if os.fork():
            time.sleep(60)
        os.setsid()
    elif step == "orphan":
        # The parent ends when its child has left the session, whose end would be the child's.
        before, (reads, writes) = os.getpid(), os.pipe()
        if os.fork():
            os.close(writes)
            os.read(reads, 1)
            os._exit(0)
        os.setsid()
        os.close(reads)
        os.close(writes)
        until(lambda: os.getppid() != before)
    elif step == "forget":
        # Neither the environment nor the limit says any more where this comes from.
        resource.setrlimit(10, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        os.execve(sys.executable, [sys.executable, __file__, path, answer, *steps], {})
    elif step == "hold":
        hold()
    elif step.startswith("stdio"):
        command = [sys.executable, "-m", "acpterm", "stdio", "--socket", agent_path]
        command = json.loads(step[6:] or "[]") + command
        pipe = subprocess.PIPE
        relay = subprocess.Popen(command, stdin=pipe, stdout=pipe)
        relay.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        relay.stdin.flush()
        relay.stdout.readline()
    elif step.startswith("wait="):
        until(lambda: os.path.exists(step[5:]))
    elif step.startswith("group="):
        with open(step[6:] + "/cgroup.procs", "w") as file:
            file.write("0")
with connect(path) as sock:
    sock.sendall(b'{"jsonrpc":"2.0","id":1,"method":"_acpterm/terminal/list","params":{}}\n')
    said = sock.makefile("rb").readline()
with open(answer + ".part", "wb") as file:
    file.write(said)
os.rename(answer + ".part", answer)
"""


class Asker:
    """A script that asks at the user's socket, and what it is answered."""

    def __init__(self, tmp_path, path):
        self.path = path
        self.user_path = path.replace("agent.sock", "user.sock")
        self._script = tmp_path / "ask.py"
        self._script.write_text(ASK)
        self._answer = tmp_path / "answer"

    def command(self, *steps):
        self._answer.unlink(missing_ok=True)
        arguments = [str(self._script), self.user_path, str(self._answer), *steps]
        return sys.executable, arguments

    async def answer(self):
        """Wait for the answer: the message of the error, or None if the list came."""
        message = json.loads(await poll(lambda: self._answer.exists() and self._answer.read_text()))
        return message["error"]["message"] if "error" in message else None

    async def alone(self, *steps, **how):
        """Run it as a child of the tests: the answer. It ends with them at the latest."""
        command, arguments = self.command(*steps)
        child = subprocess.Popen([command, *arguments], start_new_session=True, **how)
        try:
            return await self.answer()
        finally:
            child.kill()
            child.wait()


@asynccontextmanager
async def asker_at_daemon(tmp_path, **more):
    if more.get("ACPTERM_TRACKING") == "cgroup":
        if (groups := Cgroups.find()) is None:
            pytest.skip("takes control groups")
        groups.close()
    env = environment(XDG_CONFIG_HOME=str(tmp_path), **more)
    async with daemon(tmp_path, env=env) as (_, path):
        yield Asker(tmp_path, path)


async def test_program_of_the_user_is_admitted(tmp_path):
    async with asker_at_daemon(tmp_path) as asker, agent_at(asker.path) as agent:
        await agent.create("sleep 60")
        assert await asker.alone() is None
        assert await asker.alone("orphan", "forget") is None


@pytest.mark.parametrize("tracking", TRACKING)
async def test_orphan_of_an_agents_terminal_is_refused_when_it_has_no_marks(tmp_path, tracking):
    async with (
        asker_at_daemon(tmp_path, ACPTERM_TRACKING=tracking) as asker,
        agent_at(asker.path) as agent,
        user_at(asker.user_path) as person,
    ):
        await person.request("terminal/create", {"command": "sleep 60"})
        command, arguments = asker.command("orphan", "forget")
        await agent.create(command, args=arguments)
        answer = await asker.answer()
        assert "this is the user's endpoint" in answer
        if tracking == "subreaper":
            assert "nothing says from which" in answer
            assert "run the command outside of acpterm's terminals" in answer


@pytest.mark.parametrize("group", ["elsewhere", "the user's"])
async def test_process_that_moved_to_another_control_group_is_refused(tmp_path, group):
    if (found := Cgroups.find()) is None:
        pytest.skip("takes control groups")
    above = os.path.dirname(found.handover()[0])
    found.close()
    elsewhere = f"{above}/elsewhere-of-tests-{os.getpid()}"
    os.mkdir(elsewhere)
    try:
        async with (
            asker_at_daemon(tmp_path, ACPTERM_TRACKING="cgroup") as asker,
            agent_at(asker.path) as agent,
            user_at(asker.user_path) as person,
        ):
            made = await person.request("terminal/create", {"command": "sleep 60"})
            own = group_of_terminal(made["terminalId"], above)
            assert own
            target = elsewhere if group == "elsewhere" else own
            command, arguments = asker.command("orphan", f"group={target}")
            terminal = await agent.create(command, args=arguments)
            assert f"you run in an agent's terminal ({terminal})" in await asker.answer()
    finally:
        await poll(lambda: removed(elsewhere))


def group_of_terminal(terminal, above):
    for name in os.listdir(above):
        if os.path.isdir(path := f"{above}/{name}/{terminal}"):
            return path
    return None


def removed(group):
    try:
        os.rmdir(group)
    except OSError:
        return False
    return True


async def test_survivor_of_another_daemon_is_refused_by_its_environment(tmp_path):
    async with asker_at_daemon(tmp_path) as asker:
        answer = await asker.alone(env={**os.environ, marks.TERMINAL: "term_" + "0" * 32})
        assert "a terminal that this daemon does not have" in answer
        assert "in a window of your own" in answer


async def test_survivor_of_another_daemon_is_refused_by_its_limit(tmp_path):
    def mark():
        ((limit, soft, hard),) = marks.rlimits("term_" + "0" * 32)
        resource.setrlimit(limit, (soft, hard))

    async with asker_at_daemon(tmp_path) as asker:
        answer = await asker.alone(env={}, preexec_fn=mark)
        assert "a terminal that this daemon does not have" in answer


@pytest.mark.parametrize("tracking", TRACKING)
async def test_program_of_a_promoted_terminal_is_refused(tmp_path, tracking):
    async with (
        asker_at_daemon(tmp_path, ACPTERM_TRACKING=tracking) as asker,
        agent_at(asker.path) as agent,
        user_at(asker.user_path) as person,
    ):
        command, arguments = asker.command(f"wait={tmp_path}/promoted")
        terminal = await agent.create(command, args=arguments)
        assert (await person.terminal_request("promote", terminal))["owner"] == "user"
        (tmp_path / "promoted").touch()
        assert f"you run in an agent's terminal ({terminal})" in await asker.answer()


@pytest.mark.parametrize("tracking", TRACKING)
async def test_background_processes_of_the_users_terminal_are_admitted(tmp_path, tracking):
    async with (
        asker_at_daemon(tmp_path, ACPTERM_TRACKING=tracking) as asker,
        agent_at(asker.path) as agent,
        user_at(asker.user_path) as person,
    ):
        await agent.create("sleep 60")
        for steps in ([], ["orphan"]):
            command, arguments = asker.command(*steps)
            await person.request("terminal/create", {"command": command, "args": arguments})
            assert await asker.answer() is None


@pytest.mark.parametrize("steps", [["hold"], ["hold", "fork"], ["stdio"], ["stdio", "fork"]])
async def test_descendant_of_a_process_with_an_agents_connection_is_refused(tmp_path, steps):
    async with asker_at_daemon(tmp_path) as asker:
        answer = await asker.alone(*steps, cwd=os.getcwd())
        assert "holds an agent's connection: ask the user" in answer


def script(path, text):
    """Make a program that the system knows by the name of its file."""
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize("wrapper", ["uv", "uvx", "npx", "npm exec acpter", "sh -c", "both"])
async def test_agent_behind_a_wrapper_of_stdio_is_refused(tmp_path, wrapper):
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh"]
    words = shell if wrapper == "sh -c" else []
    if not words:
        run = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
        name = "npm exec acpter" if wrapper == "both" else wrapper
        words = [script(tmp_path / name, run), *(shell if wrapper == "both" else [])]
    async with asker_at_daemon(tmp_path) as asker:
        # The process that asks is a child of the agent, and none of the wrapper's.
        answer = await asker.alone(f"stdio={json.dumps(words)}", "fork", cwd=os.getcwd())
        assert "holds an agent's connection: ask the user" in answer


@pytest.mark.parametrize("server", ["sshd", "sshd-session", "tmux: server"])
async def test_descendant_of_a_server_that_started_stdio_is_admitted(tmp_path, server):
    async with asker_at_daemon(tmp_path) as asker:
        _, (_, *arguments) = asker.command("stdio")
        words = [script(tmp_path / server, ASK), *arguments]
        with subprocess.Popen(words, start_new_session=True) as child:
            try:
                assert await asker.answer() is None
            finally:
                child.kill()


@pytest.mark.parametrize("shell", ["first", "nested"])
async def test_descendant_of_an_interactive_shell_that_started_stdio_is_admitted(tmp_path, shell):
    requests, answers = tmp_path / "requests", tmp_path / "answers"
    os.mkfifo(requests)
    async with asker_at_daemon(tmp_path) as asker:
        command, arguments = asker.command()
        stdio = shlex.join([*ACPTERM, "stdio", "--socket", asker.path])
        pid, master = pty.fork()
        if not pid:
            os.execvp("bash", ["bash", "--norc", "--noprofile"])
        try:
            if shell == "nested":
                os.write(master, b"bash --norc --noprofile\n")
            os.write(master, f"{stdio} <{requests} >{answers} &\n".encode())
            with await trio.to_thread.run_sync(requests.open, "wb", abandon_on_cancel=True) as file:
                file.write(INITIALIZE)
                file.flush()
                await poll(lambda: answers.exists() and answers.read_bytes().endswith(b"\n"))
                os.write(master, (shlex.join([command, *arguments]) + "\n").encode())
                assert await asker.answer() is None
        finally:
            os.close(master)
            os.kill(pid, signal.SIGKILL)
            await trio.to_thread.run_sync(os.waitpid, pid, 0)


@needs_tmux
async def test_process_in_tmux_is_admitted_when_stdio_runs_in_another_window(tmp_path):
    requests, answers = tmp_path / "requests", tmp_path / "answers"
    requests.write_bytes(INITIALIZE)
    async with asker_at_daemon(tmp_path) as asker:
        command, arguments = asker.command()
        stdio = shlex.join([*ACPTERM, "stdio", "--socket", asker.path])
        # Its input stays open.
        relay = f"(cat {requests}; sleep 60) >{tmp_path}/pipe & exec {stdio}"
        os.mkfifo(tmp_path / "pipe")
        tmux = ["tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null"]
        relay += f" <{tmp_path}/pipe >{answers}"
        await trio.run_process([*tmux, "new-session", "-d", relay], env=environment())
        try:
            await poll(lambda: answers.exists() and answers.read_bytes().endswith(b"\n"))
            await trio.run_process([*tmux, "new-window", shlex.join([command, *arguments])])
            assert await asker.answer() is None
        finally:
            await trio.run_process([*tmux, "kill-server"])


async def test_agent_behind_a_proxy_is_refused(tmp_path):
    async with asker_at_daemon(tmp_path) as asker:
        command, arguments = asker.command("forget")
        words = [*ACPTERM, "proxy", "--socket", asker.path, "--", command, *arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
        with subprocess.Popen(words, **pipes) as proxy:
            proxy.stdin.write(INITIALIZE)
            proxy.stdin.flush()
            answer = await asker.answer()
        assert f"you descend from process {proxy.pid}, which holds" in answer


async def test_holder_is_known_to_the_next_worker_before_it_has_resumed(tmp_path):
    async with asker_at_daemon(tmp_path) as asker:
        command, arguments = asker.command("hold", f"wait={tmp_path}/killed", "fork")
        with subprocess.Popen([command, *arguments], start_new_session=True) as child:
            try:
                found = Daemon(None, asker.path)
                await poll(lambda: alive(child.pid))
                with trio.fail_after(10):
                    while not (await found.status())["agents"]:
                        await trio.sleep(0.01)
                await found.kill_worker()
                (tmp_path / "killed").touch()
                assert "holds an agent's connection" in await asker.answer()
            finally:
                child.kill()


async def test_refusal_of_a_process_that_has_ended_is_logged(tmp_path):
    code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    async with daemon(tmp_path, "--log-format", "json") as (running, path):
        found = Daemon(running, path)
        worker = (await found.status())["workerPid"]
        os.kill(worker, signal.SIGSTOP)
        try:
            child = subprocess.Popen([sys.executable, "-c", code, found.user_path])
            await trio.to_thread.run_sync(child.wait)
        finally:
            os.kill(worker, signal.SIGCONT)
        await poll(lambda: "connection refused" in running.logged())
        lines = map(json.loads, running.logged().splitlines())
        (refused,) = [line for line in lines if line["event"] == "connection refused"]
        assert refused["pid"] == child.pid
        assert "has ended" in refused["reason"]


@pytest.mark.parametrize("option", [peers._SO_PEERPIDFD, 0x7FFF], ids=["pidfd", "start time"])
async def test_peer_that_ends_after_the_check_is_known_to_have_ended(tmp_path, monkeypatch, option):
    monkeypatch.setattr(peers, "_SO_PEERPIDFD", option)
    path = str(tmp_path / "socket")
    code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); input()"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        child = subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE)
        accepted, _ = listener.accept()
        async with trio.SocketStream(trio.socket.from_stdlib_socket(accepted)) as stream:
            with PeerProcess(stream) as peer:
                assert peer.pid == child.pid
                assert peer.identity.pid == child.pid
                assert not peer.has_ended()
                child.communicate()
                assert peer.has_ended()
            with PeerProcess(stream) as peer:
                assert peer.identity is None


async def test_peer_that_cannot_be_inspected_leaves_no_descriptor_open():
    ours, theirs = socket.socketpair()
    with theirs:
        async with trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as stream:
            with PeerProcess(stream) as peer:
                if peer._pidfd < 0:
                    pytest.skip("takes a kernel with SO_PEERPIDFD")
            # The descriptor of the process is the last one: none is left to read its start time.
            with no_descriptors(but=1):
                for _ in range(3):
                    with pytest.raises(OSError, match="Too many open files"):
                        PeerProcess(stream)
                os.close(os.open(os.devnull, os.O_RDONLY))
