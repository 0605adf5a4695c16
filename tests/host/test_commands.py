"""Commands of agents: shell text, programs, working directories, errors."""

import os
import shutil
import subprocess
import sys
import termios
from fcntl import ioctl

import pytest
import trio

from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.runtime.command_line import find_shell
from tests.support.cases import each_case
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_here, agent_on_stdio

needs_bash = pytest.mark.skipif(not shutil.which("bash"), reason="requires bash")


def script(path, text, mode=0o755):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def variables(**values):
    return [{"name": name, "value": str(value)} for name, value in values.items()]


# Shell text: no `args`.


@each_case(
    ("command", "expected"),
    [
        pytest.param("printf 'b\\na\\n' | sort", "a\nb\n", id="pipe"),
        pytest.param("true && echo yes", "yes\n", id="and"),
        pytest.param("false || echo no", "no\n", id="or"),
        pytest.param("echo 'a  b' \"c  d\" e\\ f", "a  b c  d e f\n", id="quotes"),
        pytest.param("X=1 printenv X", "1\n", id="assignment"),
        pytest.param("cat <<END\none $((1 + 1))\nEND\n", "one 2\n", id="heredoc"),
        pytest.param("echo one\necho two\n", "one\ntwo\n", id="lines"),
        pytest.param("echo $((2 * 3)) `echo x` $(echo y)", "6 x y\n", id="substitution"),
        pytest.param("for i in 1 2; do echo $i; done", "1\n2\n", id="loop"),
        pytest.param("echo b; echo a >&2", "b\na\n", id="stderr"),
        pytest.param("  echo  spaces  ", "spaces\n", id="spaces"),
        pytest.param("(exit 3); echo $?", "3\n", id="subshell"),
        pytest.param("/bin/echo one two", "one two\n", id="path and words"),
        pytest.param("/bin/echo one | tr a-z A-Z", "ONE\n", id="path and pipe"),
    ],
)
async def test_command_without_args_is_shell_text(agent, command, expected):
    output, status = await agent.run(command)
    assert (output, status["exitCode"]) == (expected, 0)


async def test_shell_text_can_redirect_and_expand_names(agent, tmp_path):
    (tmp_path / "a.txt").touch()
    output, _ = await agent.run("echo hi >b.txt; echo *.txt", cwd=str(tmp_path))
    assert output == "a.txt b.txt\n"
    assert (tmp_path / "b.txt").read_text() == "hi\n"


async def test_null_args_count_as_absent(agent):
    assert (await agent.run("echo a | cat", args=None))[0] == "a\n"


# Programs: `args` present.


@each_case(
    "words",
    [
        ["$HOME", "*", "~", "`id`", "$(id)"],
        ["a b", "  ", "", "c\nd", "tab\there"],
        ["'", '"', "\\", "\\n", ";", "&&", "|", ">x", "#"],
        ["é→🙂", "-", "--", "-n"],
    ],
)
async def test_arguments_arrive_unchanged(agent, words, tmp_path):
    path = script(tmp_path / "show", '#!/bin/sh\nfor word; do printf "<%s>" "$word"; done\n')
    output, status = await agent.run(path, args=words)
    assert status["exitCode"] == 0
    assert output == "".join(f"<{word}>" for word in words)


async def test_program_with_empty_args_is_executed_even_with_spaces_in_its_path(agent, tmp_path):
    path = script(tmp_path / "with space" / "a $HOME tool", "#!/bin/sh\necho ran $#\n")
    assert (await agent.run(path, args=[]))[0] == "ran 0\n"


async def test_command_with_args_is_not_shell_text(agent):
    output, status = await agent.run("echo a; echo b", args=[])
    assert status["exitCode"] == 127
    assert "echo a; echo b: command not found" in output


async def test_shell_option_overrides_the_guess(agent, tmp_path):
    output, _ = await agent.run("echo a; echo", args=["b  c", "$HOME"], own={"shell": True})
    assert output == "a\nb  c $HOME\n"
    output, status = await agent.run("echo a; echo b", own={"shell": False})
    assert status["exitCode"] == 127
    assert "a\n" not in output
    path = script(tmp_path / "tool", "#!/bin/sh\necho ran\n")
    assert (await agent.run(path, own={"shell": False}))[0] == "ran\n"


# Paths with a space.


@pytest.fixture
def decoy(tmp_path):
    """Return the path `DIR/path with space/tool`, of which the first word is another program.

    This other program, `DIR/path`, must not be run: the test fails if it was.
    """
    script(tmp_path / "path", f"#!/bin/sh\necho decoy >{tmp_path}/mistake\n")
    yield tmp_path / "path with space" / "tool"
    assert not (tmp_path / "mistake").exists()


@each_case("more", [{}, {"args": []}, {"own": {"shell": False}}])
async def test_path_with_a_space_runs_the_whole_path(agent, decoy, more):
    script(decoy, "#!/bin/sh\necho tool\n")
    assert (await agent.run(str(decoy), **more))[0] == "tool\n"


@pytest.mark.parametrize("wrong", ["not executable", "no interpreter", "a directory"])
async def test_path_with_a_space_fails_when_it_cannot_be_executed(agent, decoy, wrong):
    if wrong == "a directory":
        decoy.mkdir(parents=True)
    elif wrong == "not executable":
        script(decoy, "#!/bin/sh\necho tool\n", 0o644)
    else:
        script(decoy, "#!/no/such/interpreter\necho tool\n")
    output, status = await agent.run(str(decoy))
    assert status["exitCode"] == 126
    assert f"{decoy}: cannot be run" in output


@each_case("more", [{}, {"args": []}, {"args": ["x"]}])
async def test_missing_interpreter_is_named_in_the_error(agent, tmp_path, more):
    path = script(tmp_path / "tool", "#!/no/such/python\necho shell text\n")
    output, status = await agent.run(path, **more)
    assert status["exitCode"] == 126
    assert output == (
        f"acpterm: {path}: cannot be run: its interpreter /no/such/python is not there\n"
    )


@pytest.mark.parametrize("is_program", [True, False])
async def test_missing_interpreter_is_named_for_a_program_found_by_path(
    agent, tmp_path, is_program
):
    script(tmp_path / "tool", "#!/no/such/python\necho shell text\n")
    path = variables(PATH=f"{tmp_path}:/usr/bin:/bin")
    more = {"args": []} if is_program else {}
    output, status = await agent.run("tool", env=path, **more)
    assert status["exitCode"] == (126 if is_program else 127)
    # The shell's message depends on its version.
    assert ("/no/such/python is not there" if is_program else "tool") in output


# Lookup of program names.


@pytest.mark.costly
@pytest.mark.parametrize("more", [{}, {"args": []}])
async def test_program_is_looked_up_in_the_agents_path(agent, tmp_path, monkeypatch, more):
    script(tmp_path / "agents" / "tool", "#!/bin/sh\necho the agents\n")
    script(tmp_path / "context" / "tool", "#!/bin/sh\necho the contexts\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/context:{os.environ['PATH']}")
    async with agent_here() as other:
        assert (await other.run("tool", **more))[0] == "the contexts\n"
        path = variables(PATH=f"{tmp_path}/agents")
        assert (await other.run("tool", env=path, **more))[0] == "the agents\n"
    output, status = await agent.run("cat", env=variables(PATH=f"{tmp_path}/agents"), **more)
    assert status["exitCode"] == 127
    assert "cat" in output


async def test_shell_text_uses_the_agents_path(agent, tmp_path):
    script(tmp_path / "tool", "#!/bin/sh\necho the agents\n")
    path = variables(PATH=f"{tmp_path}:/usr/bin:/bin")
    assert (await agent.run("tool | cat", env=path))[0] == "the agents\n"


async def test_relative_path_is_resolved_in_the_working_directory(agent, tmp_path):
    script(tmp_path / "bin" / "tool", "#!/bin/sh\necho here $1\n")
    assert (await agent.run("./bin/tool", cwd=str(tmp_path)))[0] == "here\n"
    assert (await agent.run("bin/tool", args=["x"], cwd=str(tmp_path)))[0] == "here x\n"


# The shell.


@pytest.fixture
def startup_files(tmp_path):
    """Return the environment of a home whose shell startup files all report that they were read."""
    names = ".profile", ".bashrc", ".bash_profile", ".bash_login", ".zshrc", ".kshrc", "env"
    for name in names:
        (tmp_path / name).write_text(f"echo {name} was read\n")
    return {"HOME": str(tmp_path), "ENV": str(tmp_path / "env")}


@needs_bash
async def test_shell_is_bash_and_reads_no_startup_file(startup_files, monkeypatch):
    # As if ssh had started the daemon: bash then reads ~/.bashrc even for -c.
    monkeypatch.setenv("SSH_CLIENT", "192.0.2.1 1 22")
    monkeypatch.setenv("BASH_ENV", startup_files["ENV"])
    monkeypatch.delenv("SHLVL", raising=False)
    async with agent_here() as agent:
        output, _ = await agent.run(
            'echo "$BASH" "$0" $#; echo "<$->"; shopt login_shell', env=variables(**startup_files)
        )
    shell, flags, login = output.splitlines()
    assert shell == f"{find_shell('auto')} {find_shell('auto')} 0"
    assert not set("im") & set(flags[1:-1])
    assert login.split() == ["login_shell", "off"]


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/dash", "/bin/bash"])
async def test_configured_shell_runs_shell_text(startup_files, shell):
    if not os.access(shell, os.X_OK):
        pytest.skip(f"requires {shell}")
    async with agent_here(shell=shell) as agent:
        output, _ = await agent.run('echo "$0"; echo "<$->"', env=variables(**startup_files))
    name, flags = output.splitlines()
    assert name == shell
    assert not set("im") & set(flags[1:-1])


@needs_bash
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("[[ abc == a* ]] && echo yes", "yes\n"),
        ("cat <(echo a) <(echo b)", "a\nb\n"),
        ("a=(x y z); echo ${a[1]} ${#a[@]}", "y 3\n"),
        ("echo {1..3} a{b,c}", "1 2 3 ab ac\n"),
        ("cat <<<here", "here\n"),
        ("x=abcdef; echo ${x:2:2}", "cd\n"),
        ("set -o pipefail; false | true; echo $?", "1\n"),
        ("function f { echo f; }; f", "f\n"),
        ("pushd / >/dev/null; pwd", "/\n"),
        ("echo -e 'a\\tb'", "a\tb\n"),
        ("echo hi &>/dev/null; echo $'a\\nb'", "a\nb\n"),
        ("echo 'echo sourced' >file; source ./file", "sourced\n"),
    ],
)
async def test_syntax_of_bash_is_understood(agent, tmp_path, command, expected):
    output, status = await agent.run(command, cwd=str(tmp_path))
    assert (output, status["exitCode"]) == (expected, 0)


@needs_bash
@pytest.mark.parametrize("more", [{}, {"args": ["-c", "greet you"]}])
async def test_exported_functions_reach_the_command(monkeypatch, more):
    monkeypatch.setenv("BASH_FUNC_greet%%", "() {  echo hello $1\n}")
    async with agent_here() as agent:
        command = "bash" if more else "greet you"
        assert (await agent.run(command, **more))[0] == "hello you\n"


@pytest.mark.costly
@pytest.mark.parametrize(
    "command", ["if then", "echo 'unterminated", "echo $(", "for", "cat <<E |", ")", "echo a; done"]
)
async def test_syntax_error_exits_with_a_status(agent, command):
    with trio.fail_after(DEADLINE_S):
        output, status = await agent.run(command)
    # No shell reports an unterminated here-document; what follows it here is an error.
    assert status["exitCode"] != 0
    assert status["signal"] is None
    assert output


async def test_shell_does_not_depend_on_the_users(tmp_path, monkeypatch):
    fish = script(tmp_path / "fish", "#!/bin/sh\necho this is fish\n")
    monkeypatch.setenv("SHELL", fish)
    async with agent_here() as agent:
        output, _ = await agent.run('x=1; for i in a b; do echo "$i$x"; done; echo "$SHELL"')
        assert output == f"a1\nb1\n{fish}\n"
        output, _ = await agent.run("echo $x | cat", env=variables(SHELL=fish, x="y"))
        assert output == "y\n"


# Missing programs, and files that cannot be executed.


@each_case(
    ("command", "more"),
    [
        ("no-such-program", {}),
        ("no-such-program", {"args": []}),
        ("no-such-program", {"args": ["x"]}),
        ("no-such-program -x | cat; no-such-program", {}),
        ("/no/such/program", {}),
        ("/no/such/program", {"args": ["x"]}),
        ("/no/such/program with words", {}),
        ("./no-such-program", {"args": []}),
        ("-x", {}),
        ("-x y", {}),
    ],
)
async def test_missing_program_exits_with_127(agent, command, more):
    output, status = await agent.run(command, **more)
    assert (status["exitCode"], status["signal"]) == (127, None)
    assert command.split()[0] in output
    assert "not found" in output or "No such file or directory" in output


@each_case("how", ["{}", "{} one two", "exec {}", "args"])
async def test_file_that_is_not_executable_exits_with_126(agent, tmp_path, how):
    path = script(tmp_path / "tool", "#!/bin/sh\necho ran\n", 0o644)
    if how == "args":
        output, status = await agent.run(path, args=["x"])
    else:
        output, status = await agent.run(how.format(path))
    assert status["exitCode"] == 126
    assert path in output
    assert "ermission denied" in output


async def test_directory_is_not_executed(agent, tmp_path):
    output, status = await agent.run(str(tmp_path), args=[])
    assert status["exitCode"] == 126
    assert str(tmp_path) in output


async def refused(agent, command, **more):
    """Send a request that is refused; return the error message."""
    with pytest.raises(RpcError) as caught:
        await agent.create(command, **more)
    assert caught.value.code == INVALID_PARAMS
    return caught.value.message


@pytest.mark.parametrize("command", ["", " ", "\t\n"])
@pytest.mark.parametrize("more", [{}, {"args": []}, {"args": ["x"]}])
async def test_empty_command_is_refused(agent, command, more):
    message = await refused(agent, command, **more)
    assert repr(command) in message
    assert "empty" in message


@each_case(
    ("member", "value"),
    [
        ("cwd", 5),
        ("args", "x"),
        ("env", {"A": "b"}),
        ("env", [{"name": "A"}]),
        ("env", [{"value": "b"}]),
        *(("outputByteLimit", value) for value in (-1, 1.5, "9", True, 2**64, 2**70)),
    ],
)
async def test_invalid_member_is_refused_by_name_and_nothing_runs(agent, tmp_path, member, value):
    with pytest.raises(RpcError, match=member) as caught:
        await agent.create(f"touch {tmp_path}/ran", **{member: value})
    assert caught.value.code == INVALID_PARAMS
    assert (await agent.request("_acpterm/terminal/list", {"sessionId": agent.session})) == {
        "terminals": []
    }
    assert not (tmp_path / "ran").exists()


@each_case("cwd", ["sub/directory", ".", "~", "~/x", "C:\\x"])
async def test_relative_cwd_is_refused(agent, cwd):
    message = await refused(agent, "pwd", cwd=cwd)
    assert repr(cwd) in message
    assert "is not absolute" in message


async def test_missing_cwd_is_refused(agent, tmp_path):
    message = await refused(agent, "pwd", cwd=f"{tmp_path}/missing")
    assert f"{tmp_path}/missing" in message
    assert "does not exist" in message


async def test_cwd_that_is_a_file_is_refused(agent, tmp_path):
    (tmp_path / "file").touch()
    message = await refused(agent, "pwd", cwd=f"{tmp_path}/file")
    assert f"{tmp_path}/file" in message
    assert "is not a directory" in message


@each_case(
    ("command", "more"),
    [("a\0b", {}), ("a", {"args": ["b\0c"]}), ("pwd", {"cwd": "/tmp\0x"})],
)
async def test_nul_character_is_refused(agent, command, more):
    assert "NUL" in await refused(agent, command, **more)


# The working directory.


async def test_cwd_defaults_to_the_sessions_then_to_the_execution_contexts(tmp_path, monkeypatch):
    for name in "context", "session", "other", "own":
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "context")
    async with agent_here() as agent:
        assert (await agent.run("pwd"))[0] == f"{tmp_path}/context\n"
        set_ = {"sessionId": agent.session, "cwd": f"{tmp_path}/session"}
        await agent.request("_acpterm/session/set", set_)
        assert (await agent.run("pwd"))[0] == f"{tmp_path}/session\n"
        assert (await agent.run("pwd", args=[], cwd=None))[0] == f"{tmp_path}/session\n"
        assert (await agent.run("pwd", cwd=f"{tmp_path}/own"))[0] == f"{tmp_path}/own\n"
        assert (await agent.run("pwd"))[0] == f"{tmp_path}/session\n"
        agent.session = "another"
        assert (await agent.run("pwd"))[0] == f"{tmp_path}/context\n"


@pytest.mark.parametrize("cwd", ["relative", ""])
async def test_session_refuses_an_invalid_cwd(agent, cwd):
    with pytest.raises(RpcError) as caught:
        await agent.request("_acpterm/session/set", {"sessionId": agent.session, "cwd": cwd})
    assert caught.value.code == INVALID_PARAMS
    assert repr(cwd) in caught.value.message


async def test_cwd_may_have_an_unusual_name(agent, tmp_path):
    directory = tmp_path / "a b $HOME 'é'\n;x"
    directory.mkdir()
    output, _ = await agent.run("basename \"$(pwd)\" | tr '\\n' '/'", cwd=str(directory))
    assert output == "a b $HOME 'é'/;x/"


# Programs that wait for input.


PAGERS = (
    "PAGER", "AWS_PAGER", "BAT_PAGER", "DELTA_PAGER", "GH_PAGER", "GIT_PAGER", "MANPAGER",
    "SYSTEMD_PAGER",
)  # fmt: skip


@pytest.fixture
def pagers(monkeypatch, tmp_path):
    """Return an environment whose pagers wait forever, so that a test notices if one is run."""
    pager = script(tmp_path / "pager", "#!/bin/sh\necho PAGER; exec sleep 60\n")
    for name in PAGERS:
        monkeypatch.setenv(name, pager)
    return pager


async def ended(agent, command, **more):
    with trio.fail_after(DEADLINE_S):
        output, status = await agent.run(command, **more)
    assert "PAGER" not in output
    return output, status


@pytest.fixture
def repository(tmp_path, pagers):
    """Create a git repository whose log fills more than a screen."""
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    path = str(tmp_path / "repository")
    body = "\n".join(f"line {number}" for number in range(200))
    who = {f"GIT_{a}_{b}": "a@b" for a in ("AUTHOR", "COMMITTER") for b in ("NAME", "EMAIL")}
    for arguments in (
        ["init", "-q", path],
        ["-C", path, "commit", "-q", "--allow-empty", "-m", body],
        ["-C", path, "config", "core.pager", pagers],
    ):
        subprocess.run(["git", *arguments], check=True, env={**os.environ, **who})
    return path


async def test_git_log_does_not_wait_in_a_pager(agent, repository):
    output, status = await ended(agent, "git log", cwd=repository)
    assert status["exitCode"] == 0
    assert "line 199" in output
    assert (await ended(agent, "git", args=["show"], cwd=repository))[1]["exitCode"] == 0


@pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")
async def test_man_does_not_wait_in_a_pager(pagers, tmp_path):
    assert pagers
    lines = "".join(f"line {number}\n.br\n" for number in range(200))
    (tmp_path / "page.1").write_text(f".TH PAGE 1\n.SH NAME\npage\n.SH LINES\n{lines}")
    async with agent_here() as agent:
        await ended(agent, f"man {tmp_path}/page.1")


@pytest.mark.skipif(not shutil.which("systemctl"), reason="systemctl is not installed")
async def test_systemctl_does_not_wait_in_a_pager(pagers):
    assert pagers
    async with agent_here() as agent:
        for command in "systemctl --help", "systemctl status":
            await ended(agent, command)


@pytest.mark.parametrize("program", PAGERS[1:])
async def test_pager_variables_are_set_for_agents(pagers, program):
    assert pagers
    async with agent_here() as agent:
        output, _ = await ended(agent, f"seq 200 | ${{{program}:-${{PAGER:-less}}}}")
    assert output.endswith("\n200\n")


async def test_program_that_reads_its_terminal_delays_no_other(agent):
    reader = await agent.create('read x; echo "got <$x>"')
    waiting = await agent.start("terminal/wait_for_exit", agent.of(reader))
    for number in range(5):
        assert (await agent.run(f"echo {number}"))[0] == f"{number}\n"
    assert "exitStatus" not in await agent.output(reader)
    assert not agent.has_response(waiting)
    await agent.type(reader, "hello\n")
    assert (await agent.result(waiting))["exitCode"] == 0
    assert "got <hello>" in (await agent.output(reader))["output"]


PROMPT = (
    "exec </dev/null >/dev/null 2>&1\n"
    "printf 'Password: ' >/dev/tty\n"
    "read word </dev/tty\n"
    'printf "got <%s>\\n" "$word" >/dev/tty\n'
)


async def test_prompt_on_dev_tty_is_shown_and_answered_in_its_terminal(agent):
    other = await agent.create("read x")
    terminal = await agent.create(PROMPT)
    await agent.until_output(terminal, "Password: ")
    await agent.type(terminal, "secret\n")
    assert (await agent.wait(terminal))["exitCode"] == 0
    assert "got <secret>" in (await agent.output(terminal))["output"]
    assert (await agent.output(other))["output"] == ""


@pytest.mark.long
async def test_prompt_on_dev_tty_does_not_reach_the_hosts_terminal(tmp_path):
    master, slave = os.openpty()

    def lead():
        os.setsid()
        ioctl(slave, termios.TIOCSCTTY, 0)

    try:
        async with agent_on_stdio(tmp_path, preexec_fn=lead) as (_, agent):
            terminal = await agent.create(PROMPT)
            await agent.until_output(terminal, "Password: ")
            # Input of the other terminal must not reach this program.
            os.write(master, b"other\n")
            await agent.type(terminal, "secret\n")
            assert (await agent.wait(terminal))["exitCode"] == 0
            assert "got <secret>" in (await agent.output(terminal))["output"]
        os.set_blocking(master, False)
        assert os.read(master, 1000) == b"other\r\n"
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.long
async def test_program_leads_the_foreground_group_of_its_terminal(agent):
    code = (
        "import os; pid = os.getpid(); "
        "print(os.getsid(0) != os.getpgrp() == os.tcgetpgrp(0) == pid, os.ttyname(0) == "
        "os.ttyname(1) == os.ttyname(2), os.get_terminal_size())"
    )
    output, _ = await agent.run(sys.executable, args=["-S", "-c", code])
    assert output == "True True os.terminal_size(columns=200, lines=40)\n"
    output, _ = await agent.run("stty size", own={"cols": 33, "rows": 7})
    assert output == "7 33\n"
