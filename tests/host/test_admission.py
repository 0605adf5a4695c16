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
from acpterm.jsonrpc import RpcError
from acpterm.pty import linux
from acpterm.pty.tracking import marks
from acpterm.pty.tracking.cgroup import Cgroups
from tests.pty.scarcity import no_descriptors
from tests.support.agent import agent_at
from tests.support.daemon import Daemon, daemon, user_socket
from tests.support.editor import create, of
from tests.support.polling import poll
from tests.support.processes import environment
from tests.support.proxies import editor_of
from tests.support.rpc import RpcClient, running
from tests.support.starting import ACPTERM
from tests.support.tmux import needs_tmux
from tests.support.user import user_at

pytestmark = pytest.mark.skipif(not linux.AVAILABLE, reason="the evidence is Linux's")

INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,'
    b'"clientCapabilities":{}}}\n'
)
TRACKING = ["cgroup", "subreaper"]

# peer.py SOCKET RESPONSE [STEP...]: takes the steps in order, requests the list of terminals, and
# writes the response to a file.
PEER = r"""
import json, os, resource, socket, subprocess, sys, time

INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
path, response, *steps = sys.argv[1:]
agent_path = path.replace("user.sock", "agent.sock")

def connect(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    return sock

def ask(sock, method, **params):
    message = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
    sock.sendall(json.dumps(message).encode() + b"\n")
    return json.loads(sock.makefile("rb").readline())["result"]

def hold(**own):
    global held
    held = connect(agent_path)
    return ask(held, "initialize", protocolVersion=1, _meta={"acpterm": own})

def until(condition):
    deadline = time.monotonic() + 30
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
        # The parent exits once its child has left the session, so that the child survives.
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
        # Afterwards neither the environment nor the limit identifies the terminal.
        resource.setrlimit(10, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        os.execve(sys.executable, [sys.executable, __file__, path, response, *steps], {})
    elif step == "hold":
        hold()
    elif step == "token":
        with connect(path) as sock:
            token = ask(sock, "_acpterm/approver", kind="editor")["token"]
    elif step.startswith("present="):
        own = hold(approver=token)["_meta"]["acpterm"]
        secret = own["resume"]
        assert own.get("approver", False) == (step[8:] == "accepted"), own
    elif step == "resume":
        own = hold(resume=secret)["_meta"]["acpterm"]
        assert not own["resumed"], own
    elif step.startswith("terminal="):
        # The rest is done in a terminal of the agent, over the socket of its MCP server.
        held = connect(step[9:])
        arguments = [__file__, path, response, *steps]
        ask(held, "terminal/create", sessionId="mcp", command=sys.executable, args=arguments)
        until(lambda: os.path.exists(response))
        sys.exit()
    elif step.startswith("stdio"):
        command = [sys.executable, "-m", "acpterm", "stdio", "--socket", agent_path]
        command = json.loads(step[6:] or "[]") + command
        pipe = subprocess.PIPE
        relay = subprocess.Popen(command, stdin=pipe, stdout=pipe)
        relay.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        relay.stdin.flush()
        relay.stdout.readline()
    elif step.startswith("touch="):
        open(step[6:], "w").close()
    elif step.startswith("wait="):
        until(lambda: os.path.exists(step[5:]))
    elif step.startswith("group="):
        with open(step[6:] + "/cgroup.procs", "w") as file:
            file.write("0")
with connect(path) as sock:
    sock.sendall(b'{"jsonrpc":"2.0","id":1,"method":"_acpterm/terminal/list","params":{}}\n')
    line = sock.makefile("rb").readline()
with open(response + ".part", "wb") as file:
    file.write(line)
os.rename(response + ".part", response)
"""


class PeerScript:
    """A script that connects to the user's socket, and the response that it receives."""

    def __init__(self, tmp_path, path):
        self.path = path
        self.user_path = user_socket(path)
        self._script = tmp_path / "peer.py"
        self._script.write_text(PEER)
        self._response = tmp_path / "response"

    def command(self, *steps):
        self._response.unlink(missing_ok=True)
        arguments = [str(self._script), self.user_path, str(self._response), *steps]
        return sys.executable, arguments

    async def error(self):
        """Wait for the response; return its error message, or None if it is a result."""
        message = json.loads(
            await poll(lambda: (self._response.exists() and self._response.read_text()) or None)
        )
        return message["error"]["message"] if "error" in message else None

    async def run(self, *steps, **popen):
        """Run the script as a child of this process, with the arguments `steps`.

        Return the error message of the response, or None if the response is a result.
        """
        command, arguments = self.command(*steps)
        child = subprocess.Popen([command, *arguments], start_new_session=True, **popen)
        try:
            return await self.error()
        finally:
            child.kill()
            child.wait()


@asynccontextmanager
async def peer_script(tmp_path, **more):
    if more.get("ACPTERM_TRACKING") == "cgroup":
        if (groups := Cgroups.find()) is None:
            pytest.skip("requires control groups")
        groups.close()
    env = environment(XDG_CONFIG_HOME=str(tmp_path), **more)
    async with daemon(tmp_path, env=env) as (_, path):
        yield PeerScript(tmp_path, path)


async def test_program_of_the_user_is_admitted(tmp_path):
    async with peer_script(tmp_path) as script, agent_at(script.path) as agent:
        await agent.create("sleep 60")
        assert await script.run() is None
        assert await script.run("orphan", "forget") is None


@pytest.mark.costly
@pytest.mark.parametrize("tracking", TRACKING)
async def test_orphan_of_an_agents_terminal_is_refused_when_it_has_no_marks(tmp_path, tracking):
    async with (
        peer_script(tmp_path, ACPTERM_TRACKING=tracking) as script,
        agent_at(script.path) as agent,
        user_at(script.user_path) as user,
    ):
        await user.request("terminal/create", {"command": "sleep 60"})
        command, arguments = script.command("orphan", "forget")
        await agent.create(command, args=arguments)
        error = await script.error()
        assert "this is the user's endpoint" in error
        if tracking == "subreaper":
            assert "nothing says from which" in error
            assert "run the command outside of acpterm's terminals" in error


@pytest.mark.costly
@pytest.mark.parametrize("group", ["elsewhere", "the user's"])
async def test_process_that_moved_to_another_control_group_is_refused(tmp_path, group):
    if (groups := Cgroups.find()) is None:
        pytest.skip("requires control groups")
    above = os.path.dirname(groups.base)
    groups.close()
    elsewhere = f"{above}/elsewhere-of-tests-{os.getpid()}"
    os.mkdir(elsewhere)
    try:
        async with (
            peer_script(tmp_path, ACPTERM_TRACKING="cgroup") as script,
            agent_at(script.path) as agent,
            user_at(script.user_path) as user,
        ):
            created = await user.request("terminal/create", {"command": "sleep 60"})
            own = group_of_terminal(created["terminalId"], above)
            assert own
            target = elsewhere if group == "elsewhere" else own
            command, arguments = script.command("orphan", f"group={target}")
            terminal = await agent.create(command, args=arguments)
            assert f"you run in an agent's terminal ({terminal})" in await script.error()
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
    async with peer_script(tmp_path) as script:
        error = await script.run(env={**os.environ, marks.TERMINAL: "term_" + "0" * 32})
        assert "a terminal that this daemon does not have" in error
        assert "in a window of your own" in error


@pytest.mark.long
async def test_survivor_of_another_daemon_is_refused_by_its_limit(tmp_path):
    def mark():
        ((limit, soft, hard),) = marks.rlimits("term_" + "0" * 32)
        resource.setrlimit(limit, (soft, hard))

    async with peer_script(tmp_path) as script:
        error = await script.run(env={}, preexec_fn=mark)
        assert "a terminal that this daemon does not have" in error


@pytest.mark.costly
@pytest.mark.parametrize("tracking", TRACKING)
async def test_program_of_a_promoted_terminal_is_refused(tmp_path, tracking):
    async with (
        peer_script(tmp_path, ACPTERM_TRACKING=tracking) as script,
        agent_at(script.path) as agent,
        user_at(script.user_path) as user,
    ):
        command, arguments = script.command(f"wait={tmp_path}/promoted")
        terminal = await agent.create(command, args=arguments)
        assert (await user.terminal_request("promote", terminal))["owner"] == "user"
        (tmp_path / "promoted").touch()
        assert f"you run in an agent's terminal ({terminal})" in await script.error()


@pytest.mark.costly
@pytest.mark.parametrize("tracking", TRACKING)
async def test_background_processes_of_the_users_terminal_are_admitted(tmp_path, tracking):
    async with (
        peer_script(tmp_path, ACPTERM_TRACKING=tracking) as script,
        agent_at(script.path) as agent,
        user_at(script.user_path) as user,
    ):
        await agent.create("sleep 60")
        for steps in ([], ["orphan"]):
            command, arguments = script.command(*steps)
            await user.request("terminal/create", {"command": command, "args": arguments})
            assert await script.error() is None


@pytest.mark.parametrize("steps", [["hold"], ["hold", "fork"], ["stdio"], ["stdio", "fork"]])
@pytest.mark.long
async def test_descendant_of_a_process_with_an_agents_connection_is_refused(tmp_path, steps):
    async with peer_script(tmp_path) as script:
        error = await script.run(*steps, cwd=os.getcwd())
        assert "holds an agent's connection: ask the user" in error


def program(path, text):
    """Create an executable whose process has the name of the file; return its path."""
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize("wrapper", ["uv", "uvx", "npx", "npm exec acpter", "sh -c", "both"])
@pytest.mark.long
async def test_agent_behind_a_wrapper_of_stdio_is_refused(tmp_path, wrapper):
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh"]
    words = shell if wrapper == "sh -c" else []
    if not words:
        run = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
        name = "npm exec acpter" if wrapper == "both" else wrapper
        words = [program(tmp_path / name, run), *(shell if wrapper == "both" else [])]
    async with peer_script(tmp_path) as script:
        # The connecting process is a child of the agent, not of the wrapper.
        error = await script.run(f"stdio={json.dumps(words)}", "fork", cwd=os.getcwd())
        assert "holds an agent's connection: ask the user" in error


@pytest.mark.parametrize("server", ["sshd", "sshd-session", "tmux: server"])
@pytest.mark.long
async def test_descendant_of_a_server_that_started_stdio_is_admitted(tmp_path, server):
    async with peer_script(tmp_path) as script:
        _, (_, *arguments) = script.command("stdio")
        words = [program(tmp_path / server, PEER), *arguments]
        with subprocess.Popen(words, start_new_session=True) as child:
            try:
                assert await script.error() is None
            finally:
                child.kill()


@pytest.mark.parametrize("shell", ["first", "nested"])
@pytest.mark.long
async def test_descendant_of_an_interactive_shell_that_started_stdio_is_admitted(tmp_path, shell):
    requests, answers = tmp_path / "requests", tmp_path / "answers"
    os.mkfifo(requests)
    async with peer_script(tmp_path) as script:
        command, arguments = script.command()
        stdio = shlex.join([*ACPTERM, "stdio", "--socket", script.path])
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
                assert await script.error() is None
        finally:
            os.close(master)
            os.kill(pid, signal.SIGKILL)
            await trio.to_thread.run_sync(os.waitpid, pid, 0)


@needs_tmux
@pytest.mark.long
async def test_process_in_tmux_is_admitted_when_stdio_runs_in_another_window(tmp_path):
    requests, answers = tmp_path / "requests", tmp_path / "answers"
    requests.write_bytes(INITIALIZE)
    async with peer_script(tmp_path) as script:
        command, arguments = script.command()
        stdio = shlex.join([*ACPTERM, "stdio", "--socket", script.path])
        # Its input stays open.
        relay = f"(cat {requests}; sleep 60) >{tmp_path}/pipe & exec {stdio}"
        os.mkfifo(tmp_path / "pipe")
        tmux = ["tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null"]
        relay += f" <{tmp_path}/pipe >{answers}"
        await trio.run_process([*tmux, "new-session", "-d", relay], env=environment())
        try:
            await poll(lambda: answers.exists() and answers.read_bytes().endswith(b"\n"))
            await trio.run_process([*tmux, "new-window", shlex.join([command, *arguments])])
            assert await script.error() is None
        finally:
            await trio.run_process([*tmux, "kill-server"])


@pytest.mark.long
async def test_agent_behind_a_proxy_is_refused(tmp_path):
    async with peer_script(tmp_path) as script:
        command, arguments = script.command("forget")
        words = [*ACPTERM, "proxy", "--socket", script.path, "--", command, *arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
        with subprocess.Popen(words, **pipes) as proxy:
            proxy.stdin.write(INITIALIZE)
            proxy.stdin.flush()
            error = await script.error()
        assert f"you descend from process {proxy.pid}, which holds" in error


@pytest.mark.long
async def test_proxy_that_asks_the_user_is_admitted_and_its_agent_is_not(tmp_path):
    async with peer_script(tmp_path) as script, editor_of(tmp_path, script.path) as editor:
        await editor.open("/tmp")
        for _ in range(2):
            prompt = [{"type": "text", "text": "/terminal list"}]
            params = {"sessionId": editor.session, "prompt": prompt}
            await editor.request("session/prompt", params)
            assert "No active terminal sessions." in editor.texts_sent[-1]
            command, arguments = script.command()
            await editor.prompt({"do": "spawn", "argv": [command, *arguments]})
            assert "you descend from process" in await script.error()
            # The next worker knows which process may connect, before that process has resumed.
            await Daemon(None, script.path).kill_worker()


def mcp_socket(log):
    """Return the socket of the session's MCP server, once it is in the proxy's log."""
    # What follows the last line end is being written.
    *lines, _ = log.read_text().split("\n")
    for line in lines:
        message = json.loads(line)
        if message["dir"] == "proxy->agent" and message["msg"].get("method") == "session/new":
            (server,) = message["msg"]["params"]["mcpServers"]
            return server["env"][0]["value"]
    return None


@pytest.mark.long
async def test_agent_of_a_proxy_is_refused_whichever_way_it_comes(tmp_path):
    log = tmp_path / "log"
    options = ["--mcp", "--log", str(log)]
    async with (
        peer_script(tmp_path) as script,
        user_at(script.user_path) as user,
        editor_of(tmp_path, script.path, options=options) as editor,
    ):
        await user.request("terminal/create", {"command": "sleep 60"})
        await editor.open("/tmp")
        prompt = [{"type": "text", "text": "/terminal list"}]
        await editor.request("session/prompt", {"sessionId": editor.session, "prompt": prompt})
        assert "| sleep 60 " in editor.texts_sent[-1]
        mcp = await poll(lambda: mcp_socket(log))
        for steps, why in [
            ([], "you descend from process"),
            # The proxy adopts it.
            (["orphan", "forget"], "you descend from process"),
            ([f"terminal={mcp}"], "you run in an agent's terminal"),
            (["orphan", f"terminal={mcp}", "orphan"], "you run in an agent's terminal"),
            ([f"terminal={mcp}", "orphan", "forget"], "this is the user's endpoint"),
        ]:
            command, arguments = script.command(*steps)
            await editor.prompt({"do": "spawn", "argv": [command, *arguments]})
            assert why in await script.error()
        command, arguments = script.command()
        await editor.prompt(create(command, args=arguments), of("wait_for_exit"))
        assert "you run in an agent's terminal" in await script.error()
        # Over the socket of the MCP server there are neither the user's methods nor terminals.
        async with running(RpcClient(await trio.open_unix_socket(mcp))) as client:
            for method in ("approver", "approval/answer", "approval/list", "terminal/attach"):
                with pytest.raises(RpcError, match="there is no method"):
                    await client.request(f"_acpterm/{method}", {"kind": "editor"})
            listed = await client.request("_acpterm/terminal/list", {"sessionId": "mcp"})
            assert "sleep 60" not in json.dumps(listed)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("steps", "is_admitted"),
    [
        (["token", "present=accepted"], True),
        (["token", "present=accepted", "fork"], False),
        # The token alone is no right.
        (["token", "hold"], False),
        (["token", "fork", "hold"], False),
        # Nor is one that another process has got, or one that was used before.
        (["token", "fork", "present=refused"], False),
        (["token", "present=accepted", "fork", "present=refused"], False),
        (["token", "present=accepted", "fork", "resume"], False),
    ],
    ids=lambda steps: "-".join(steps) if isinstance(steps, list) else "",
)
async def test_only_the_process_that_has_become_an_approver_is_admitted(
    tmp_path, steps, is_admitted
):
    async with peer_script(tmp_path) as script:
        error = await script.run(*steps)
        if is_admitted:
            assert error is None
        else:
            assert "holds an agent's connection: ask the user" in error


@pytest.mark.long
async def test_holder_is_known_to_the_next_worker_before_it_has_resumed(tmp_path):
    async with peer_script(tmp_path) as script:
        held, killed = tmp_path / "held", tmp_path / "killed"
        command, arguments = script.command("hold", f"touch={held}", f"wait={killed}", "fork")
        with subprocess.Popen([command, *arguments], start_new_session=True) as child:
            try:
                running = Daemon(None, script.path)
                await poll(held.exists)
                await running.kill_worker()
                killed.touch()
                assert "holds an agent's connection" in await script.error()
            finally:
                child.kill()


async def test_refusal_of_a_process_that_has_ended_is_logged(tmp_path):
    code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    async with daemon(tmp_path, "--log-format", "json") as running:
        worker = (await running.status())["workerPid"]
        os.kill(worker, signal.SIGSTOP)
        try:
            child = subprocess.Popen([sys.executable, "-c", code, running.user_path])
            await trio.to_thread.run_sync(child.wait)
        finally:
            os.kill(worker, signal.SIGCONT)

        def refusals():
            # What follows the last line end is being written.
            *lines, _ = running.process.logged().split("\n")
            found = map(json.loads, lines)
            return [line for line in found if line["event"] == "connection refused"]

        (refused,) = await poll(refusals)
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
                    pytest.skip("requires a kernel with SO_PEERPIDFD")
            # The descriptor of the process is the last one: none is left to read its start time.
            with no_descriptors(but=1):
                for _ in range(3):
                    with pytest.raises(OSError, match="Too many open files"):
                        PeerProcess(stream)
                os.close(os.open(os.devnull, os.O_RDONLY))
