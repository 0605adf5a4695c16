"""Programs in containers of a real podman run as on a terminal of the host."""

import itertools
import os
import shlex

import pytest

from tests.support.containers import JOB, command, containers, run, shell, start
from tests.support.polling import poll
from tests.support.pools import running_pool

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


async def test_program_has_the_workspace_the_size_and_the_exit_status(provider, workspace):
    # On a busy machine, podman sets the size only after the program's start. Until then it is 0 0,
    # for which busybox's stty exits with 0 and prints nothing on stdout.
    size = "until stty size 2>/dev/null | grep -v '^0 0'; do sleep 0.05; done"
    line = f"pwd; {size}; tty; echo made >new; exit 3"
    status, text = await run(provider, shell(workspace, line), size=(33, 7))
    assert (status.code, status.signal) == (3, None)
    assert text == f"{workspace}\n7 33\n/dev/pts/0\n"
    assert (workspace / "new").read_text() == "made\n"
    assert (workspace / "new").stat().st_uid == os.geteuid()
    assert containers() == []


async def test_program_has_its_arguments_unchanged(provider, workspace):
    words = ["", "a b", "'", '"', "$HOME", "*", "-x", "ü\n\\"]
    status, text = await run(provider, command(workspace, "printf", "<%s>", *words))
    assert (status.code, text) == (0, "".join(f"<{word}>" for word in words))


@pytest.mark.parametrize("name", ["a,b", 'q"uo"te', "co:lon", "spa ce", "ünï", "=", "$x"])
async def test_workspace_is_mounted_whatever_its_name(provider, workspace, name):
    directory = workspace / name
    directory.mkdir()
    status, text = await run(provider, shell(directory, "pwd; >there"))
    assert (status.code, text) == (0, f"{directory}\n")
    assert [path.name for path in directory.iterdir()] == ["there"]


async def test_workspace_is_at_a_path_with_symbolic_links_too(provider, workspace):
    (workspace / "real" / ".claude").mkdir(parents=True)
    (workspace / "link").symlink_to("real")
    line = "pwd; >there; : >.claude/x"
    _, text = await run(provider, shell(workspace / "link", line))
    assert text.startswith(f"{workspace}/link\n")
    assert "Read-only file system" in text
    assert (workspace / "real" / "there").exists()


async def test_program_that_does_not_exist_is_reported_as_by_a_shell(provider, workspace):
    status, text = await run(provider, command(workspace, "no-such-program", "x"))
    assert status.code == 127
    assert "no-such-program" in text
    assert "not found" in text


async def test_file_that_cannot_be_executed_is_reported_as_by_a_shell(provider, workspace):
    (workspace / "data").write_text("text")
    status, text = await run(provider, command(workspace, f"{workspace}/data"))
    assert status.code == 126
    assert "ermission denied" in text


@pytest.mark.parametrize(
    ("argv", "printed"),
    [
        (["echo one"], "from the fallback\n"),
        (["cd"], "from the fallback\n"),
        (["id", "-u"], f"{os.geteuid()}\n"),
        (["/bin/sh"], "# "),
    ],
)
async def test_fallback_runs_only_if_the_program_does_not_exist(provider, workspace, argv, printed):
    fallback = ["/bin/sh", "-c", 'echo "from the $1"', "sh", "fallback"]
    async with running_pool() as pool:
        wanted = command(workspace, *argv, fallback_argv=fallback)
        terminal, token = await start(provider, pool, wanted)
        await poll(lambda: printed in terminal.text.text())
    await provider.clean_up(token)


async def test_shell_that_the_image_lacks_is_replaced_by_its_own(provider, workspace):
    wanted = command(workspace, "/opt/zsh", "-c", "echo $0", shell="/opt/zsh")
    status, text = await run(provider, wanted)
    assert (status.code, text) == (0, "/bin/sh\n")


async def test_directory_outside_the_container_is_reported(provider, workspace):
    status, text = await run(provider, shell(workspace, "echo ran", cwd="/etc/ssh"))
    assert status.code == 126
    assert text == (
        "acpterm: /etc/ssh: cannot be the working directory: it is not in the container\n"
    )


async def test_program_that_a_signal_ends_has_the_status_of_a_shell(provider, workspace):
    status, text = await run(provider, shell(workspace, "kill -9 $$"))
    assert (status.code, status.signal, text) == (137, None, "")


async def test_environment_is_that_of_the_request_without_the_daemons(
    provider, workspace, monkeypatch
):
    monkeypatch.setenv("API_TOKEN", "secret")
    requested = {"MINE": "a=b\nc", "PATH": "/bin:/own", "LD_PRELOAD": "/evil.so", "TERM": "vt220"}
    env = {**os.environ, **requested, "LANG": "C.UTF-8"}
    await run(provider, shell(workspace, "env -0 >env", env=env, requested=requested))
    text = (workspace / "env").read_text()
    found = dict(entry.split("=", 1) for entry in text.split("\0") if entry)
    assert {name: found[name] for name in requested} == requested
    assert (found["TERM"], found["LANG"], found["HOME"]) == ("vt220", "C.UTF-8", "/tmp")
    assert "secret" not in text
    assert not any(name.startswith(("ACPTERM_", "CONTAINERS_")) for name in found)


async def test_variables_of_the_request_do_not_reach_the_engine(provider, workspace):
    requested = {"CONTAINERS_CONF": "/nowhere", "LD_PRELOAD": "/evil.so", "HOME": "/nowhere"}
    prepared = await provider.prepare(
        shell(workspace, "true", env={**os.environ, **requested}, requested=requested)
    )
    await provider.clean_up(prepared.token)
    assert not requested.items() & prepared.env.items()


async def test_typed_keys_reach_the_program_and_ctrl_c_interrupts_it(provider, workspace):
    trap = "trap 'echo interrupted; exit 5' INT"
    line = f'{trap}; echo ready; read line; echo "got $line"; while :; do :; done'
    async with running_pool() as pool:
        terminal, token = await start(provider, pool, shell(workspace, line))
        await poll(lambda: "ready" in terminal.text.text())
        # An engine would hold back Ctrl-P, since Ctrl-P Ctrl-Q would detach it.
        terminal.keyboard.type(b"typ")
        await poll(lambda: "typ" in terminal.text.text())
        terminal.keyboard.type(b"\x10")
        await poll(lambda: "typ^P" in terminal.text.text())
        terminal.keyboard.type(b"\x11ed\r")
        await poll(lambda: "got typ" in terminal.text.text())
        terminal.keyboard.type(b"\x03")
        status = await terminal.wait_exited()
        assert status.code == 5
        # The terminal echoes ^C before, in or after the line.
        assert terminal.text.text().replace("^C", "").endswith("interrupted\n")
    await provider.clean_up(token)


async def test_program_follows_the_size_of_the_terminal(provider, workspace):
    line = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done"
    async with running_pool() as pool:
        terminal, token = await start(provider, pool, shell(workspace, line))
        await poll(lambda: "ready" in terminal.text.text())
        rows = itertools.cycle((18, 19))

        def is_followed():
            # Just after the start, podman misses a change of the size: change it again.
            terminal.resize(71, next(rows))
            return "19 71" in terminal.text.text()

        await poll(is_followed)
    await provider.clean_up(token)


async def test_shell_is_interactive_with_job_control(provider, workspace):
    (workspace / "job").write_text(JOB)
    async with running_pool() as pool:
        terminal, token = await start(provider, pool, command(workspace, "sh", "-i"))
        await poll(lambda: "#" in terminal.text.text())
        terminal.keyboard.type(b"sh job\r")
        await poll(lambda: "begun\n" in terminal.text.text())
        terminal.keyboard.type(b"\x1a")
        await poll(lambda: "Stopped" in terminal.text.text())
        terminal.keyboard.type(b"fg\r")
        await poll(lambda: "continued\n" in terminal.text.text())
        terminal.keyboard.type(b"\x03")
        await poll(lambda: terminal.text.text().endswith("# "))
        terminal.keyboard.type(b"exit 4\r")
        status = await terminal.wait_exited()
        assert status.code == 4
        assert "can't access tty" not in terminal.text.text()
    await provider.clean_up(token)


async def test_orphans_are_reaped(provider, workspace):
    # The orphan ends while the program runs.
    script = "(true & echo $! >orphan); while [ -d /proc/$(cat orphan) ]; do :; done; echo reaped"
    status, text = await run(provider, shell(workspace, script))
    assert (status.code, text) == (0, "reaped\n")


async def test_limits_of_the_terminal_hold_in_the_container(provider, workspace):
    prepared = await provider.prepare(shell(workspace, "ulimit -n"))
    line = f"ulimit -n 333; exec {shlex.join(prepared.argv)}"
    from acpterm.pty.program import Program

    async with running_pool() as pool:
        program = Program(["/bin/sh", "-c", line], prepared.env, "/", 0o22)
        terminal = await pool.create(program)
        await terminal.wait_exited()
        assert terminal.text.text() == "333\n"
    await provider.clean_up(prepared.token)


async def test_check_describes_the_container(provider):
    before = containers()
    line = await provider.check()
    assert line.startswith("podman ")
    assert "no network" in line
    assert "a system call filter" in line
    assert containers() == before
