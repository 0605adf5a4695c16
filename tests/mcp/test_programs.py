"""Interactive programs that a model drives through the session tools."""

import re
import shutil

import pytest
import trio

from tests.support.depth import DEADLINE_S
from tests.support.mcp import QUICK, mcp_tools

pytestmark = pytest.mark.long


def needs(program, package=None):
    """Return the mark of a test that needs a program."""
    return pytest.mark.skipif(
        shutil.which(program) is None,
        reason=f"needs {program}: apt-get install {package or program}",
    )


async def settled(tools, result, awaited):
    """Return `result`, unless it says that the program is still running, since it is slow.

    Then wait for `awaited`, such as `input`, and return the result of that.
    """
    if result.data["state"] != "running":
        return result
    return await tools.call("terminal_wait", sessionId="term-1", **{"for": awaited})


async def until_screen(tools, begins):
    """Wait until the screen begins with a text: a slow program may draw it after the result."""
    with trio.fail_after(DEADLINE_S):
        while not (await tools.call("terminal_screen", sessionId="term-1")).text.startswith(begins):
            await trio.sleep(0.02)


async def type_into(tools, text, **arguments):
    return await tools.call("terminal_continue", sessionId="term-1", stdin=text, **arguments)


@pytest.mark.parametrize(
    ("command", "prompt", "statement", "result", "leave"),
    [
        pytest.param("python3 -q", ">>>", "6 * 7\n", "42", "exit(3)\n", id="python3"),
        pytest.param(
            "node",
            ">",
            "6 * 7\n",
            "42",
            "process.exit(3)\n",
            id="node",
            marks=needs("node", "nodejs"),
        ),
        pytest.param(
            "sqlite3",
            "sqlite>",
            "select 6 * 7;\n",
            "42",
            ".exit 3\n",
            id="sqlite3",
            marks=needs("sqlite3"),
        ),
        pytest.param(
            "gdb -q -nx",
            "(gdb)",
            "print 6 * 7\n",
            "$1 = 42",
            "quit 3\n",
            id="gdb",
            marks=needs("gdb"),
        ),
    ],
)
async def test_repl_answers_and_exits(tmp_path, command, prompt, statement, result, leave):
    async with mcp_tools(tmp_path) as tools:
        started = await tools.call("terminal_start", command=command, cwd=str(tmp_path))
        started = await settled(tools, started, "input")
        assert "waits for input" in started.state
        assert f"\n{started.text}".rstrip().endswith(f"\n{prompt}")
        answered = await type_into(tools, statement)
        assert result in answered.data["output"].splitlines()
        assert answered.data["state"] == "waiting_for_input"
        left = await type_into(tools, leave)
    assert left.data["state"] == "exited"
    assert left.data["exitCode"] == 3


@needs("ssh-keygen", "openssh-client")
async def test_ssh_keygen_asks_for_a_passphrase_twice(tmp_path):
    key = tmp_path / "key"
    async with mcp_tools(tmp_path) as tools:
        started = await tools.call("terminal_start", command=f"ssh-keygen -t ed25519 -f {key}")
        started = await settled(tools, started, "input")
        assert "probably a password" in started.state
        again = await settled(tools, await type_into(tools, "long enough\n"), "input")
        assert "same passphrase again" in again.text
        done = await settled(tools, await type_into(tools, "long enough\n"), "exit")
        assert done.data["exitCode"] == 0
        output = await tools.call("terminal_output", sessionId="term-1")
    assert "long enough" not in output.text
    assert key.exists()


async def test_password_is_not_echoed(tmp_path):
    script = "read -rsp 'Password: ' secret; echo; echo length ${#secret}"
    async with mcp_tools(tmp_path) as tools:
        asked = await tools.call(
            "terminal_start", command=f'bash -c "{script}"'.replace("$", "\\$")
        )
        assert "waits for input, probably a password" in asked.state
        done = await type_into(tools, "hunter2\n")
        output = await tools.call("terminal_output", sessionId="term-1")
    assert done.data["output"] == "\nlength 7\n"
    assert "hunter2" not in output.text


@needs("git")
@needs("vim")
async def test_git_rebase_in_an_editor_drops_a_commit(tmp_path):
    script = (
        "git init -q . && git config user.name me && git config user.email me@localhost && "
        "for n in 1 2 3; do echo $n > file$n && git add . && git commit -qm commit$n; done"
    )
    env = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_EDITOR": "vim -u NONE -N"}
    work = tmp_path / "work"
    work.mkdir()
    async with mcp_tools(tmp_path) as tools:
        made = await tools.call("terminal_bash", command=script, cwd=str(work))
        assert made.data["exitCode"] == 0, made.text
        await tools.call(
            "terminal_start",
            command="git rebase -i --root",
            cwd=str(work),
            env=env,
            name="rebase",
        )
        screen = await tools.call("terminal_screen", sessionId="rebase")
        assert screen.data["alternate"] is True
        assert re.search(r"^pick \w+ (# )?commit1$", screen.text, re.MULTILINE)
        # Delete the second line.
        done = await tools.call("terminal_continue", sessionId="rebase", stdin="2Gdd:wq\r")
        if done.data["state"] != "exited":
            done = await tools.call("terminal_wait", sessionId="rebase")
        assert done.data["exitCode"] == 0
        log = await tools.call("terminal_bash", command="git log --format=%s", cwd=str(work))
    assert log.data["output"] == "commit3\ncommit1\n"


@needs("vim")
async def test_vim_writes_what_was_typed(tmp_path):
    file = tmp_path / "text"
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command=f"vim -u NONE -N {file}", cols=60, rows=10)
        await type_into(tools, "ihello", keys=["Escape"])
        await until_screen(tools, "hello\n~\n")
        left = await type_into(tools, ":wq\r")
    assert left.data["exitCode"] == 0
    assert file.read_text() == "hello\n"


@needs("less")
async def test_less_finds_a_line(tmp_path):
    file = tmp_path / "text"
    file.write_text("".join(f"line {n}\n" for n in range(1000)))
    async with mcp_tools(tmp_path) as tools:
        await tools.call(
            "terminal_start", command=f"less {file}", cols=40, rows=10, env={"LESS": ""}
        )
        await type_into(tools, "/line 777\r")
        await until_screen(tools, "line 777\n")
        left = await type_into(tools, "q")
    assert left.data["exitCode"] == 0


@pytest.mark.exhaustive
async def test_progress_bar_of_10_mb_is_one_line_at_its_end(tmp_path):
    script = "for n in range(400001): print(f'\\r{n:>20} of 400000', end='')"
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call(
            "terminal_bash", command=f'python3 -c "{script}"; echo; echo done'
        )
    assert result.data["exitCode"] == 0
    assert result.data["totalBytes"] > 10_000_000
    assert result.data["output"].endswith("400000 of 400000\ndone\n")
    assert len(result.text) < 11_000


async def test_server_is_ready_once_its_port_is_in_the_output(tmp_path):
    (tmp_path / "index.html").write_text("it works")
    async with mcp_tools(tmp_path, **QUICK) as tools:
        command = "python3 -u -m http.server --bind 127.0.0.1 0"
        await tools.call("terminal_start", command=command, cwd=str(tmp_path), name="server")
        found = await tools.call("terminal_wait", sessionId="server", pattern=r"port \d+")
        (port,) = re.findall(r"port (\d+)", found.state)
        fetch = (
            "import urllib.request as r; "
            f"print(r.urlopen('http://127.0.0.1:{port}/').read().decode())"
        )
        fetched = await tools.call("terminal_bash", command=f'python3 -c "{fetch}"')
        assert fetched.data["output"] == "it works\n"
        log = await tools.call("terminal_output", sessionId="server", grep="GET /")
        assert '"GET / HTTP/1.1" 200' in log.text
        stopped = await tools.call("terminal_stop", sessionId="server")
    assert stopped.text == "Terminal session server terminated."


FULL_SCREEN = [
    pytest.param("vim -u NONE notes", id="vim", marks=needs("vim")),
    pytest.param("htop", id="htop", marks=needs("htop")),
    pytest.param("top", id="top", marks=needs("top", "procps")),
]


@pytest.mark.parametrize("command", FULL_SCREEN)
async def test_result_of_a_full_screen_program_is_its_screen(tmp_path, command):
    (tmp_path / "notes").write_text("remember the milk\n" * 60)
    settings = {"tool_max_interval": 60.0, "tool_settle_interval": 60.0}
    async with mcp_tools(tmp_path, **settings) as tools:
        with trio.fail_after(30):
            started = await tools.call("terminal_start", command=command, cwd=str(tmp_path))
        screen = await tools.call("terminal_screen", sessionId="term-1")
        assert "full screen 200x40" in started.state
        assert "terminal_continue with keys · terminal_screen]" in started.state
        # Where the program redraws by itself, a few rows are not the same.
        same = set(started.data["output"].splitlines()) & set(screen.text.splitlines())
        assert len(same) >= min(2, len(screen.text.splitlines()) // 4 + 1)
        assert len(started.data["output"].splitlines()) <= 40
        keys = ["Escape", ":", "q", "!", "Enter"] if "vim" in command else ["q"]
        left = await tools.call("terminal_continue", sessionId="term-1", keys=keys)
    assert left.data["state"] == "exited"
    assert "~" not in left.data["output"]


SETS = {
    "terminal_bash": ("session", {"command": "htop"}, "keys"),
    "terminal_bash in a shell": ("session", {"command": "htop", "session": "s"}, "keys"),
    "exec_command": ("codex", {"cmd": "htop", "tty": True}, r'write_stdin with keys: "\u001b" Esc'),
    "Bash": ("claude", {"command": "htop"}, "no tool of this set presses keys"),
}


@needs("htop")
@pytest.mark.parametrize("name", SETS)
async def test_call_that_runs_a_full_screen_program_returns_once_it_is_drawn(
    tmp_path, bash_without_rc, name
):
    tool_set, arguments, hint = SETS[name]
    async with mcp_tools(tmp_path, tool_set) as tools:
        # htop never stops to draw, nor does it wait for input.
        with trio.fail_after(DEADLINE_S):
            result = await tools.call(name.partition(" ")[0], **arguments)
    assert "full screen 200x40" in result.state
    assert hint in result.state
    assert "PID" in result.data["output"]
    assert "has not ended after" not in result.text


@needs("git")
@pytest.mark.parametrize(
    "editor",
    [
        pytest.param("vim -u NONE -N", marks=needs("vim")),
        pytest.param("nano -I", marks=needs("nano")),
    ],
)
async def test_result_of_a_rebase_is_the_screen_of_its_editor(tmp_path, editor):
    script = (
        "git init -q . && git config user.name me && git config user.email me@localhost && "
        "for n in 1 2; do echo $n > file$n && git add . && git commit -qm commit$n; done"
    )
    env = f"GIT_CONFIG_GLOBAL=/dev/null GIT_SEQUENCE_EDITOR='{editor}'"
    work = tmp_path / "work"
    work.mkdir()
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_bash", command=script, cwd=str(work))
        shown = await tools.call(
            "terminal_bash", command=f"{env} git rebase -i --root", cwd=str(work)
        )
        assert "full screen 200x40" in shown.state
        lines = shown.data["output"].splitlines()
        assert len(lines) <= 40
        assert sum(line.startswith("pick ") for line in lines) == 2
        keys = ["Escape", ":", "q", "!", "Enter"] if "vim" in editor else ["C-x"]
        session = shown.data["id"]
        left = await tools.call("terminal_continue", sessionId=session, keys=keys)
        if left.data["state"] == "running":
            left = await tools.call("terminal_wait", sessionId=session)
    assert "Successfully rebased" in left.data["output"]
    assert "pick" not in left.data["output"]


@needs("vim")
async def test_result_of_a_persistent_shell_is_the_screen_of_its_editor(tmp_path, bash_without_rc):
    (tmp_path / "notes").write_text("remember the milk\n" * 60)
    arguments = {"command": "vim -u NONE notes", "session": "s", "cwd": str(tmp_path)}
    async with mcp_tools(tmp_path) as tools:
        shown = await tools.call("terminal_bash", **arguments)
        assert "full screen" in shown.state
        assert shown.data["output"].startswith("remember the milk\nremember")
        assert "terminal_screen" in shown.state
        await type_into(tools, ":q!\n")
        done = await tools.call("terminal_bash", command="echo back", session="s")
    assert done.data["output"] == "back\n"
