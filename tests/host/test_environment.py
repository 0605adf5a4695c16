"""What programs inherit: environment, signals, descriptors, umask and limits."""

import os
import resource
import shutil
import signal
import sys
from contextlib import asynccontextmanager

import pytest
import trio

from acpterm import __version__
from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from tests.support.agent import agent_at, agent_of
from tests.support.cases import each_case
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_here, agent_on_stdio, host_here
from tests.support.processes import environment
from tests.support.signals import blocked_or_ignored
from tests.support.user import user_of


def variables(**values):
    return [{"name": name, "value": value} for name, value in values.items()]


def read_variables(output):
    return dict(line.split("=", 1) for line in output.splitlines())


async def env_of(agent, **more):
    output, status = await agent.run("env", args=[], **more)
    assert status["exitCode"] == 0
    return read_variables(output)


# The layers of the environment: the execution context's, the terminal's, the agent's.


async def test_environment_layers_are_context_terminal_and_agent(monkeypatch):
    monkeypatch.setenv("ASKERS", "x y")
    monkeypatch.setenv("BOTH", "context")
    monkeypatch.setenv("TERM", "dumb")
    async with agent_here() as agent:
        env = await env_of(agent, env=variables(BOTH="agent", OWN="é 'q' $HOME"))
        assert env["ASKERS"] == "x y"
        assert env["BOTH"] == "agent"
        assert env["OWN"] == "é 'q' $HOME"
        assert env["TERM"] == "xterm-256color"
        assert env["HOME"] == os.environ["HOME"]
        # It does not affect the next terminal.
        env = await env_of(agent)
        assert env["BOTH"] == "context"
        assert "OWN" not in env


PAGERS = (
    "PAGER", "AWS_PAGER", "BAT_PAGER", "DELTA_PAGER", "GH_PAGER", "GIT_PAGER", "MANPAGER",
    "SYSTEMD_PAGER",
)  # fmt: skip


async def test_terminal_sets_type_pagers_and_id(monkeypatch):
    for name in (*PAGERS, "LESS"):
        monkeypatch.setenv(name, "the context's")
    async with agent_here() as agent:
        terminal = await agent.create("env", args=[])
        await agent.wait(terminal)
        env = read_variables((await agent.output(terminal))["output"])
    assert env["TERM"] == "xterm-256color"
    assert {name: env[name] for name in PAGERS} == dict.fromkeys(PAGERS, "cat")
    assert env["LESS"] == "FRX"
    assert env["ACPTERM_TERMINAL_ID"] == terminal


async def test_agents_variables_override_the_terminals():
    overrides = {"TERM": "vt100", "PAGER": "less", "GIT_PAGER": "", "COLUMNS": "33", "LINES": "7"}
    async with agent_here() as agent:
        env = await env_of(agent, env=variables(**overrides))
    assert overrides.items() <= env.items()


async def test_agent_env_setting_overrides_pagers_and_the_agent_overrides_it():
    async with agent_here(agent_env={"GH_PAGER": "less", "LESS": "", "MORE": "x"}) as agent:
        env = await env_of(agent, env=variables(LESS="R"))
    assert (env["GH_PAGER"], env["LESS"], env["MORE"], env["BAT_PAGER"]) == (
        "less",
        "R",
        "x",
        "cat",
    )


async def test_users_terminal_keeps_the_users_pagers(monkeypatch):
    monkeypatch.setenv("GH_PAGER", "less -S")
    for name in ("BAT_PAGER", "LESS"):
        monkeypatch.delenv(name, raising=False)
    async with host_here(agent_env={"MORE": "x"}) as host, user_of(host) as user:
        env = await users_env(user)
    assert env["GH_PAGER"] == "less -S"
    assert not {"BAT_PAGER", "LESS", "MORE"} & env.keys()


@pytest.mark.skipif(not shutil.which("less"), reason="less is not installed")
async def test_less_exits_when_the_text_fits_on_the_screen(agent):
    with trio.fail_after(DEADLINE_S):
        output, status = await agent.run("printf 'one\\ntwo\\n' | less")
    assert (output.strip(), status["exitCode"]) == ("one\ntwo", 0)


async def test_agent_cannot_set_the_terminals_id(agent):
    own = variables(ACPTERM_TERMINAL_ID="mine")
    terminal = await agent.create("env", args=[], env=own)
    await agent.wait(terminal)
    env = read_variables((await agent.output(terminal))["output"])
    assert env["ACPTERM_TERMINAL_ID"] == terminal


async def test_last_value_of_a_variable_wins(agent):
    two = variables(A="1") + variables(A="2")
    assert (await env_of(agent, env=two))["A"] == "2"


OF_ANOTHER_TERMINAL = """
    TMUX TMUX_PANE STY WINDOW ZELLIJ ZELLIJ_SESSION_NAME NVIM NVIM_LISTEN_ADDRESS VIM VIMRUNTIME
    MYVIMRC VIM_TERMINAL VIM_SERVERNAME INSIDE_EMACS EMACS KITTY_WINDOW_ID KITTY_LISTEN_ON
    WEZTERM_PANE ALACRITTY_SOCKET GHOSTTY_BIN_DIR ITERM_SESSION_ID LC_TERMINAL LC_TERMINAL_VERSION
    KONSOLE_DBUS_SESSION VTE_VERSION WT_SESSION WT_PROFILE_ID VSCODE_IPC_HOOK_CLI TERM_SESSION_ID
    TERMINAL_EMULATOR COLORFGBG SSH_TTY WINDOWID COLUMNS LINES TERMCAP GNOME_TERMINAL_SCREEN MC_SID
"""
OF_THE_DAEMON = (
    "LISTEN_FDS LISTEN_PID LISTEN_FDNAMES NOTIFY_SOCKET WATCHDOG_PID WATCHDOG_USEC OLDPWD"
)
KEPT = "CLAUDECODE DISPLAY SSH_AUTH_SOCK SSH_CONNECTION VIMINIT NVIM_APPNAME TMUX_TMPDIR EDITOR"
SET = {"COLORTERM": "truecolor", "TERM_PROGRAM": "acpterm", "TERM_PROGRAM_VERSION": __version__}
EDITORS = {"GIT_EDITOR": "true", "GIT_SEQUENCE_EDITOR": "true"}


async def users_env(user, **more):
    params = {"command": "env", "args": [], "env": [], **more}
    info = await user.request("_acpterm/terminal/create", params)
    of = {"terminalId": info["terminalId"]}
    await user.request("_acpterm/terminal/wait", of)
    return read_variables((await user.request("_acpterm/terminal/output", of))["text"])


async def test_what_describes_another_terminal_is_not_inherited_by_agents_and_users(monkeypatch):
    wrong, kept = f"{OF_ANOTHER_TERMINAL} {OF_THE_DAEMON}".split(), KEPT.split()
    for name in (*wrong, *kept, *SET):
        monkeypatch.setenv(name, "7")
    scripts = "/opt/code/extensions/git/dist"
    monkeypatch.setenv("GIT_ASKPASS", f"{scripts}/askpass.sh")
    monkeypatch.setenv("GIT_EDITOR", f"{scripts}/git-editor.sh")
    async with host_here() as host, user_of(host) as user, agent_of(host) as agent:
        users, agents = await users_env(user), await env_of(agent)
    for env in users, agents:
        assert not {*wrong, "GIT_ASKPASS"} & env.keys()
        assert {name: env[name] for name in kept} == dict.fromkeys(kept, "7")
        assert SET.items() <= env.items()
        assert "GPG_TTY" in env
    assert EDITORS.items() <= agents.items()
    assert not EDITORS.keys() & users.keys()


async def test_agents_variables_win_even_if_they_describe_another_terminal():
    own = {"TMUX": "x", "KITTY_WINDOW_ID": "1", "COLORTERM": "", "PWD": "/x", "GIT_EDITOR": "vi"}
    async with agent_here(agent_env={"GIT_SEQUENCE_EDITOR": "ed", "TERM_PROGRAM": "x"}) as agent:
        env = await env_of(agent, env=variables(**own))
    assert {**own, "GIT_SEQUENCE_EDITOR": "ed", "TERM_PROGRAM": "x"}.items() <= env.items()


@pytest.mark.parametrize("shell", ["bash", "sh"])
async def test_directory_is_the_one_that_was_asked_for_through_links(tmp_path, monkeypatch, shell):
    monkeypatch.setenv("PWD", "/usr")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    line = 'echo "$PWD"; pwd; pwd -P'
    async with agent_here() as agent:
        for asked in f"{tmp_path}/link", f"{tmp_path}/link/", f"{tmp_path}/./link":
            output, _ = await agent.run(shell, args=["-c", line], cwd=asked)
            assert output.splitlines() == [f"{tmp_path}/link"] * 2 + [f"{tmp_path}/real"]
        # Without its `..`, this path is another directory, which the shell must not print.
        (tmp_path / "real" / "inner").symlink_to("/usr")
        asked = f"{tmp_path}/real/inner/.."
        output, _ = await agent.run(shell, args=["-c", "pwd"], cwd=asked)
        assert output == "/\n"


REPOSITORY = """
export GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e
git init --quiet --initial-branch=main . || exit 99
echo 1 >file; git add file; git commit --quiet -m one
git switch --quiet -c other; echo 2 >file; git commit --quiet -am two
git switch --quiet main; echo 3 >file; git commit --quiet -am three
"""
LOG = "git log --format=%s | tr '\\n' ' '"
GIT_LINES = {
    "commit": ("echo 4 >file; git commit -a", 1, "Aborting commit due to empty commit message."),
    "amend": (f"git commit --quiet --amend && {LOG}", 0, "three one"),
    "rebase --continue": (
        f"git rebase other; echo 4 >file; git add file; git rebase --continue && {LOG}",
        0,
        "three two one",
    ),
    "rebase -i": (f"git rebase --quiet -i HEAD~1 && {LOG}", 0, "three one"),
    "merge": (f"git merge --quiet -X ours other && {LOG}", 0, "Merge branch 'other' three two one"),
}


@pytest.mark.parametrize("case", GIT_LINES)
async def test_git_does_not_wait_in_an_editor(tmp_path, monkeypatch, case):
    monkeypatch.setenv("EDITOR", "sleep 60; :")
    monkeypatch.setenv("HOME", str(tmp_path))
    line, code, last = GIT_LINES[case]
    async with agent_here() as agent:
        with trio.fail_after(DEADLINE_S):
            output, status = await agent.run(REPOSITORY + line, cwd=str(tmp_path))
    assert status["exitCode"] == code, output
    assert output.strip().splitlines()[-1].strip() == last


async def test_editor_that_the_agent_sets_is_also_the_one_of_rebase(agent):
    env = await env_of(agent, env=variables(GIT_EDITOR="vi"))
    assert env["GIT_EDITOR"] == "vi"
    assert "GIT_SEQUENCE_EDITOR" not in env


async def test_setting_leaves_editors_alone(monkeypatch):
    monkeypatch.setenv("GIT_EDITOR", "vi")
    async with agent_here(disable_editors=False) as agent:
        env = await env_of(agent)
    assert env["GIT_EDITOR"] == "vi"
    assert "GIT_SEQUENCE_EDITOR" not in env


@each_case(("name", "value"), [("A=B", "x"), ("", "x"), ("A\0", "x"), ("A", "x\0")])
async def test_invalid_variable_is_refused_with_its_name_and_value(agent, name, value):
    with pytest.raises(RpcError) as caught:
        await agent.create("true", env=[{"name": name, "value": value}])
    assert caught.value.code == INVALID_PARAMS
    assert repr(name) in caught.value.message
    assert repr(value) in caught.value.message


@pytest.mark.long
async def test_variables_that_are_not_utf8_are_inherited(tmp_path):
    env = environment(XDG_CONFIG_HOME=str(tmp_path), ODD=os.fsdecode(b"\xff\xfe"))
    async with agent_on_stdio(tmp_path, env=env) as (_, agent):
        for own in {}, {"args": []}:
            command = "printenv" if own else "printenv ODD | od -An -tx1"
            output, _ = await agent.run(command, **({"args": ["ODD"]} if own else {}))
            assert output == ("��\n" if own else " ff fe 0a\n")


# Signals.


def ignore_and_block():
    """Set signal dispositions that a parent may leave to a host."""
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    blocked = (signal.SIGPIPE, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1, signal.SIGRTMIN + 3)
    signal.pthread_sigmask(signal.SIG_BLOCK, blocked)


@asynccontextmanager
async def host_at(tmp_path, way, **more):
    """Connect an agent to a host in another process, over stdio or a daemon's socket."""
    env = environment(XDG_CONFIG_HOME=str(tmp_path))
    if way == "stdio":
        async with agent_on_stdio(tmp_path, env=env, **more) as (process, agent):
            yield process, agent
    else:
        async with daemon(tmp_path, env=env, **more) as (process, path), agent_at(path) as agent:
            yield process, agent


@pytest.mark.parametrize("way", ["stdio", "daemon"])
@pytest.mark.long
async def test_signals_are_at_their_defaults_whatever_the_host_inherited(tmp_path, way):
    async with host_at(tmp_path, way, preexec_fn=ignore_and_block) as (_, agent):
        look = ["-E", "^Sig(Blk|Ign)", "/proc/self/status"]
        for _ in range(2):
            assert not blocked_or_ignored((await agent.run("grep", args=look))[0])
        # The host is still notified of its children.
        for code in 0, 3:
            with trio.fail_after(DEADLINE_S):
                _, status = await agent.run(f"true | cat; exit {code}")
            assert (status["exitCode"], status["signal"]) == (code, None)
        assert (await agent.run("kill -INT $$"))[1]["signal"] == "SIGINT"
        # The writer ends by SIGPIPE instead of writing forever.
        with trio.fail_after(DEADLINE_S):
            assert (await agent.run("yes | head -n 1"))[0] == "y\n"


@pytest.mark.parametrize("tracking", ["cgroup", "subreaper"])
@pytest.mark.long
async def test_exit_status_is_known_when_the_hosts_parent_ignored_sigchld(tmp_path, tracking):
    def ignore():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    env = environment(XDG_CONFIG_HOME=str(tmp_path), ACPTERM_TRACKING=tracking)
    async with agent_on_stdio(tmp_path, env=env, preexec_fn=ignore) as (process, agent):
        try:
            for code in 0, 1, 127:
                _, status = await agent.run(f"exit {code}")
                assert status["exitCode"] == code
        except EOFError:
            if tracking in process.logged():
                pytest.skip("this host may make no control groups")
            raise


# Descriptors.


@pytest.mark.parametrize("way", ["stdio", "daemon"])
@pytest.mark.long
async def test_program_inherits_no_descriptor_of_the_host(tmp_path, way):
    reads, writes = os.pipe()
    try:
        async with host_at(tmp_path, way, pass_fds=(reads, writes)) as (_, agent):
            waiting = [await agent.create("read x") for _ in range(3)]
            for _ in range(3):
                output, _ = await agent.run("ls", args=["-l", "/proc/self/fd"])
                lines = [line.split(maxsplit=8)[8] for line in output.splitlines()[1:]]
                own = [line.split(" -> ") for line in lines]
                assert [number for number, _ in own] == ["0", "1", "2", "3"]
                assert len({target for _, target in own[:3]}) == 1
                assert own[0][1].startswith("/dev/pts/")
                assert own[3][1].startswith("/proc/")
            for terminal in waiting:
                await agent.release(terminal)
    finally:
        os.close(reads)
        os.close(writes)


@pytest.mark.long
async def test_concurrent_programs_do_not_inherit_each_others_descriptors(tmp_path):
    async with host_at(tmp_path, "daemon") as (_, agent):
        requests = [
            await agent.start(
                "terminal/create", {"sessionId": agent.session, "command": "echo /proc/$$/fd/*"}
            )
            for _ in range(20)
        ]
        for id_ in requests:
            terminal = (await agent.result(id_))["terminalId"]
            await agent.wait(terminal)
            output = (await agent.output(terminal))["output"]
            numbers = [path.rpartition("/")[2] for path in output.split()]
            # dash keeps the directory open while it lists it.
            assert numbers in (["0", "1", "2"], ["0", "1", "2", "3"])


# Umask, limits and directory.

LIMITS = {
    resource.RLIMIT_NOFILE: (111, 222),
    resource.RLIMIT_CORE: (0, 0),
    resource.RLIMIT_FSIZE: (10_000_000, 20_000_000),
}
SHOW = "umask; ulimit -Sn; ulimit -Hn; ulimit -Sc; ulimit -Sf; ulimit -Hf; pwd"


def shown(cwd):
    # bash counts file sizes in blocks of 1024 bytes.
    return f"0027\n111\n222\n0\n{10_000_000 // 1024}\n{20_000_000 // 1024}\n{cwd}\n"


def be_modest():
    os.umask(0o27)
    for limit, both in LIMITS.items():
        resource.setrlimit(limit, both)


@pytest.mark.long
async def test_umask_limits_and_directory_are_the_hosts_over_stdio(tmp_path):
    directory = tmp_path / "directory"
    directory.mkdir()
    # The host must find its own package from another directory.
    env = environment(XDG_CONFIG_HOME=str(tmp_path), PYTHONPATH=os.getcwd())
    more = {"preexec_fn": be_modest, "cwd": str(directory), "env": env}
    async with agent_on_stdio(tmp_path, **more) as (process, agent):
        assert (await agent.run(SHOW))[0] == shown(directory)
        # The host has raised its own limit of open files.
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (222, 222)


PEER = """
import json, socket, sys
path, command = sys.argv[1:]
sock = socket.socket(socket.AF_UNIX)
sock.connect(path)
lines = sock.makefile("rw")
def ask(method, **params):
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    print(json.dumps(message), file=lines, flush=True)
    return json.loads(lines.readline())["result"]
one = ask("terminal/create", sessionId="s", command=command)["terminalId"]
ask("terminal/wait_for_exit", sessionId="s", terminalId=one)
print(ask("terminal/output", sessionId="s", terminalId=one)["output"], end="")
"""


@pytest.mark.long
async def test_umask_limits_and_directory_are_the_connecting_processs_at_a_daemon(tmp_path):
    directory = tmp_path / "directory"
    directory.mkdir()
    env = environment(XDG_CONFIG_HOME=str(tmp_path))
    async with daemon(tmp_path, env=env) as (_, path):
        for _ in range(2):
            done = await trio.run_process(
                [sys.executable, "-S", "-c", PEER, path, SHOW],
                capture_stdout=True,
                preexec_fn=be_modest,
                cwd=directory,
            )
            assert done.stdout.decode() == shown(directory)
        # Another peer, with larger limits.
        async with agent_at(path) as agent:
            output, _ = await agent.run(SHOW)
            assert output.endswith(f"\n{os.getcwd()}\n")
            assert "\n111\n" not in output


async def test_initialize_can_send_the_execution_context(tmp_path):
    context = {
        "env": {"PATH": "/usr/bin:/bin", "MINE": "yes", "COLUMNS": "9"},
        "cwd": str(tmp_path),
        "umask": 0o27,
        "rlimits": {"NOFILE": [111, 222], "CORE": [0, 0], "NO_SUCH_LIMIT": [1, 1]},
    }
    async with agent_here() as agent:
        meta = {"acpterm": {"context": context}}
        params = {"protocolVersion": 1, "_meta": meta}
        await agent.request("initialize", params)
        output, _ = await agent.run("umask; ulimit -Sn; ulimit -Hn; ulimit -Sc; pwd")
        assert output == f"0027\n111\n222\n0\n{tmp_path}\n"
        env = await env_of(agent)
        assert env["MINE"] == "yes"
        assert env.keys() == {
            "PATH", "MINE", "TERM", *SET, *PAGERS, "LESS", *EDITORS, "PWD", "GPG_TTY", "SHLVL",
            "ACPTERM_TERMINAL_ID", "ACPTERM_DAEMON",
        }  # fmt: skip


@pytest.mark.long
async def test_host_without_descriptors_refuses_creates_and_can_end_terminals(tmp_path):
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    env = environment(XDG_CONFIG_HOME=str(tmp_path))
    async with agent_on_stdio(tmp_path, env=env, preexec_fn=few) as (_, agent):
        held = []

        async def hold_all_there_are():
            while len(held) < 128:
                held.append(await agent.create("read x"))

        with pytest.raises(RpcError, match=r"Too many open files.*release terminals"):
            await hold_all_there_are()
        assert len(held) > 10
        for terminal in held[1:]:
            await agent.release(terminal)
        assert (await agent.run("echo again"))[0] == "again\n"
        await agent.type(held[0], "x\n")
        assert (await agent.wait(held[0]))["exitCode"] == 0


@each_case(
    ("limit", "words"),
    [
        ([10**20, 10**20], "rlimits.NOFILE has 100000000000000000000: a limit is -1"),
        ([0, -2], "rlimits.NOFILE has -2: a limit is -1, for none, or 0 to 9223372036854775807"),
        ([200, 100], r"rlimits.NOFILE is \[200, 100\]: the soft limit, which comes first"),
        ([-1, 100], r"rlimits.NOFILE is \[-1, 100\]: the soft limit"),
    ],
)
async def test_invalid_limit_is_refused_by_its_name(agent, limit, words):
    context = {"rlimits": {"AS": [-1, -1], "NOFILE": limit}}
    params = {"protocolVersion": 1, "_meta": {"acpterm": {"context": context}}}
    with pytest.raises(RpcError, match=words) as caught:
        await agent.request("initialize", params)
    assert caught.value.code == -32602
    assert (await agent.run("echo works"))[0] == "works\n"
