"""`Client.shell` with a real daemon: the states of a shell and of its commands."""

import glob
import os
import shutil
from pathlib import Path

import anyio
import pytest

import acpterm
from acpterm.api import shell_process
from acpterm.providers import landlock_exec
from tests.support.backends import on_both_backends
from tests.support.depth import DEADLINE_S
from tests.support.fish import data_home

ALL = pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
ROLES = pytest.mark.parametrize("role", ["agent", "user"])


def connect(settings, role="user", **options):
    agent = "tests" if role == "agent" else None
    return acpterm.connect(agent=agent, settings=settings, **options)


def shell_of(client, home, kind="bash", **options):
    env = {"HOME": home, "XDG_CONFIG_HOME": f"{home}/.config", "XDG_DATA_HOME": data_home(home)}
    return client.shell(kind, cwd=home, env=env, **options)


def usable(provider):
    """Skip the test if the provider does not work here."""
    if provider == "bubblewrap" and shutil.which("bwrap") is None:
        pytest.skip("requires bwrap: apt-get install bubblewrap")
    if provider == "landlock" and landlock_exec.abi() < landlock_exec.ABI_MIN:
        pytest.skip("requires Linux 6.12 with Landlock")


def write(path, text):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


@pytest.mark.costly
@ALL
@ROLES
@on_both_backends
async def test_commands_share_one_shell(settings, home, kind, role):
    async with connect(settings, role) as client, shell_of(client, home, kind) as shell:
        assert (shell.terminal, shell.busy, shell.kind) == (None, False, kind)
        done = await shell.run("mkdir sub; cd sub; echo in sub")
        assert (done.state, done.boundary, done.output) == ("done", "exact", "in sub\n")
        assert (done.exit_code, done.cwd, done.started_new) == (0, f"{home}/sub", False)
        done = await shell.run("false | true | sh -c 'exit 3'")
        assert (done.exit_code, done.pipe_status) == (3, [1, 0, 3])
        assert (await shell.run("pwd")).output == f"{home}/sub\n"
        terminal = shell.terminal
        assert (await terminal.info()).command.startswith(kind)
    assert glob.glob(f"{home}/.acpterm*") == []


@pytest.mark.long
@pytest.mark.costly
@ALL
@on_both_backends
async def test_ended_shell_is_replaced_and_the_result_says_so(settings, home, kind):
    async with connect(settings) as client, shell_of(client, home, kind) as shell:
        await shell.run("cd /")
        ended = await shell.run("echo last; exec sh -c 'exit 5'")
        assert (ended.state, ended.exit_code, ended.output) == ("shell_ended", 5, "last\n")
        assert ended.detail == (
            "the shell has ended (exit code 5); the next command starts another one"
        )
        assert (shell.terminal, shell.busy) == (None, False)
        done = await shell.run("echo new")
        assert (done.state, done.output, done.started_new) == ("done", "new\n", True)
        assert done.cwd == home
        assert not (await shell.run("true")).started_new


@on_both_backends
async def test_shell_killed_between_two_commands_is_replaced(settings, home):
    async with connect(settings) as client, shell_of(client, home) as shell:
        await shell.run("true")
        await shell.terminal.kill()
        await shell.terminal.wait(DEADLINE_S)
        done = await shell.run("echo new")
        assert (done.output, done.started_new) == ("new\n", True)


@on_both_backends
async def test_killed_shell_reports_the_signal(settings, home):
    async with connect(settings) as client, shell_of(client, home) as shell:
        ended = await shell.run("kill -9 $$")
        assert (ended.state, ended.exit_code) == ("shell_ended", None)
        assert "signal SIGKILL" in ended.detail


@pytest.mark.costly
@ALL
@on_both_backends
async def test_program_that_waits_for_input_is_reported_and_continued(settings, home, kind):
    async with connect(settings) as client, shell_of(client, home, kind) as shell:
        waits = await shell.run("sh -c 'printf Name:; read x; echo Hello $x; exit 4'")
        assert (waits.state, waits.output, waits.exit_code) == ("waiting_for_input", "Name:", None)
        assert shell.busy
        with pytest.raises(acpterm.ShellBusyError, match="has not ended"):
            await shell.run("echo never")
        await shell.terminal.write("Ada\r")
        done = await shell.wait(DEADLINE_S)
        assert (done.state, done.exit_code) == ("done", 4)
        assert done.output == "Name:Ada\nHello Ada\n"
        with pytest.raises(acpterm.ShellError, match="no command runs"):
            await shell.wait()


@on_both_backends
async def test_pager_is_reported_as_waiting(settings, home):
    async with connect(settings) as client, shell_of(client, home) as shell:
        waits = await shell.run("seq 500 | less")
        assert waits.state == "waiting_for_input"
        assert (await shell.terminal.screen()).rows[0] == "1"
        await shell.terminal.write("q")
        assert (await shell.wait(DEADLINE_S)).exit_code == 0


@on_both_backends
async def test_command_over_its_timeout_continues_and_can_be_interrupted(settings, home):
    async with connect(settings) as client, shell_of(client, home) as shell:
        # A shell may ignore SIGINT until a program is in the foreground, so the program prints.
        running = await shell.run("sh -c 'echo begun; exec sleep 100'; echo never", timeout=0.5)
        with anyio.fail_after(DEADLINE_S):
            while running.state == "running" and not running.output:
                running = await shell.wait(0.5)
        assert (running.state, running.output, running.boundary) == ("running", "begun\n", "exact")
        assert shell.busy
        await shell.interrupt()
        done = await shell.wait(DEADLINE_S)
        assert (done.state, done.exit_code) == ("done", 130)
        assert done.output.startswith("begun\n")
        assert "never" not in done.output
        assert (await shell.run("echo works")).output == "works\n"


@pytest.mark.costly
@on_both_backends
async def test_cancelled_run_leaves_the_command_running(settings, home):
    async with connect(settings) as client, shell_of(client, home) as shell:
        await shell.run("true")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                shell.run, "touch begun; until [ -e go ]; do sleep 0.05; done; echo late"
            )
            while not await anyio.Path(home, "begun").exists():
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        assert shell.busy
        await anyio.Path(home, "go").touch()
        assert (await shell.wait(DEADLINE_S)).output == "late\n"


@on_both_backends
async def test_second_task_is_refused(settings, home):
    async with connect(settings) as client, shell_of(client, home) as shell:
        await shell.run("true")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shell.run, "sleep 60")
            while not shell.busy:
                await anyio.sleep(0.01)
            with pytest.raises(acpterm.ShellBusyError, match="another task"):
                await shell.run("true")
            tasks.cancel_scope.cancel()


@pytest.mark.long
@on_both_backends
async def test_users_own_command_in_the_shell_is_not_disturbed(settings, home, monkeypatch):
    monkeypatch.setattr(shell_process, "PROMPT_TIMEOUT_S", 0.3)
    async with connect(settings) as client, shell_of(client, home) as shell:
        await shell.run("true")
        await shell.terminal.write("echo begun; cat; echo users\r")
        begun = await shell.terminal.wait_for("^begun$", timeout=DEADLINE_S)
        assert begun.reason == "match"
        with pytest.raises(acpterm.ShellBusyError, match="the user runs a command"):
            await shell.run("echo never")
        await shell.terminal.write("\x04")
        monkeypatch.setattr(shell_process, "PROMPT_TIMEOUT_S", DEADLINE_S)
        done = await shell.run("echo works")
        assert (done.output, done.boundary) == ("works\n", "exact")


@on_both_backends
@pytest.mark.parametrize(
    ("command", "error", "message"),
    [
        ("echo a\0b", ValueError, r"must not contain NUL \(index 6\)"),
        ("echo \ud800", ValueError, r"must not contain a lone surrogate \(index 5\)"),
        (None, TypeError, "must be a str, not NoneType"),
    ],
)
async def test_command_that_is_no_text_is_refused(settings, home, command, error, message):
    async with connect(settings) as client, shell_of(client, home) as shell:
        with pytest.raises(error, match=message):
            await shell.run(command)
        assert shell.terminal is None


@pytest.mark.costly
# On one event loop: the profile allows three starts a minute.
async def test_refused_command_of_an_agent_does_not_reach_the_shell(settings, home):
    async with (
        connect(settings, "agent", profile="pool") as client,
        shell_of(client, home) as shell,
    ):
        await shell.run("true")
        with pytest.raises(acpterm.CommandRefused):
            await shell.run("kill 1")
        assert not shell.busy
        assert (await shell.run("echo works")).output == "works\n"


@pytest.mark.costly
@ALL
@on_both_backends
async def test_users_rc_is_read_first_unless_left_out(settings, home, kind):
    path = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/config.fish"}[kind]
    write(f"{home}/{path}", "alias mine='echo from rc'\n")
    async with connect(settings) as client:
        async with shell_of(client, home, kind) as shell:
            assert (await shell.run("mine")).output == "from rc\n"
        async with shell_of(client, home, kind, user_rc=False) as shell:
            assert (await shell.run("mine")).exit_code == 127


@pytest.mark.costly
@on_both_backends
async def test_rc_that_starts_another_program_is_an_error_that_shows_its_output(
    settings, home, monkeypatch
):
    write(f"{home}/.bashrc", "echo Passphrase:; cat\n")
    async with connect(settings) as client, shell_of(client, home) as shell:
        for limit in 1, 5, DEADLINE_S:
            monkeypatch.setattr(shell_process, "START_TIMEOUT_S", limit)
            with pytest.raises(
                acpterm.ShellError, match=f"was not ready after {limit:g} s"
            ) as error:
                await shell.run("true")
            # On a busy machine, a shell may print nothing in so short a time.
            if "'Passphrase:'" in str(error.value):
                break
        assert "'Passphrase:'" in str(error.value)
        monkeypatch.setattr(shell_process, "START_TIMEOUT_S", DEADLINE_S)
        write(f"{home}/.bashrc", "exit 3\n")
        with pytest.raises(acpterm.ShellError, match="bash ended, before its prompt"):
            await shell.run("true")
        write(f"{home}/.bashrc", "")
        assert (await shell.run("echo works")).output == "works\n"


@pytest.mark.costly
@on_both_backends
async def test_large_output_keeps_its_last_part(settings, home, monkeypatch):
    monkeypatch.setattr(shell_process, "OUTPUT_BYTES", 1000)
    async with connect(settings) as client, shell_of(client, home) as shell:
        done = await shell.run("seq 100000; (exit 3)")
        assert (done.exit_code, done.boundary, done.truncated) == (3, "exact", True)
        assert done.output.endswith("99999\n100000\n")
        assert len(done.output) <= 1000


@on_both_backends
async def test_nonce_is_in_no_file_and_no_environment(settings, home):
    async with connect(settings) as client, shell_of(client, home) as shell:
        await shell.run("true")
        nonce, path = shell._running.directory.nonce, shell._running.directory.path
        assert os.stat(path).st_mode & 0o777 == 0o700
        assert nonce not in (await shell.run("env")).output
        found = await shell.run(f"grep -rl {nonce} {path}")
        # The file of the command itself.
        assert len(found.output.splitlines()) == 1, found
    assert glob.glob(path) == []


@pytest.mark.costly
@on_both_backends
async def test_shell_with_a_replaced_directory_is_ended_and_the_next_one_works(settings, home):
    async with connect(settings) as client, shell_of(client, home) as shell:
        await shell.run("true")
        directory = shell._running.directory.path
        await shell.run(f"mv {directory} {home}/moved; ln -s {home}/moved {directory}")
        with pytest.raises(acpterm.ShellError, match="private directory was replaced"):
            await shell.run("echo never")
        assert (shell.busy, shell.terminal) == (False, None)
        assert (await shell.run("echo works")).output == "works\n"
        os.unlink(directory)


def test_unknown_shell_is_an_error_that_lists_the_known(settings):
    async def main():
        async with connect(settings) as client:
            with pytest.raises(ValueError, match="one of bash, zsh, fish"):
                async with client.shell("tcsh"):
                    pass

    anyio.run(main)


@pytest.mark.costly
@pytest.mark.parametrize("provider", ["landlock", "bubblewrap"])
@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
@ROLES
@on_both_backends
async def test_isolated_shell_uses_a_hidden_directory_of_the_workspace(
    settings, home, provider, kind, role, monkeypatch
):
    usable(provider)
    monkeypatch.chdir(home)
    async with connect(settings, role, cwd=home) as client:
        async with shell_of(client, home, kind, provider=provider) as shell:
            done = await shell.run("echo hi; sh -c 'exit 3'")
            assert (done.boundary, done.exit_code, done.output) == ("exact", 3, "hi\n")
            assert (await shell.terminal.info()).provider == provider
            assert shell._running.directory.path.startswith(f"{home}/.acpterm-shell-")
            ignored = await shell.run("cat .acpterm-shell-*/.gitignore")
            assert ignored.output == "*\n"
        assert glob.glob(f"{home}/.acpterm*") == []


@pytest.mark.costly
@ALL
@pytest.mark.parametrize(
    "key", ["x", "/", *(pytest.param(key, marks=pytest.mark.long) for key in "abpecr")]
)
@on_both_backends
async def test_key_that_is_a_signal_does_not_prevent_later_commands(settings, home, kind, key):
    async with connect(settings) as client, shell_of(client, home, kind) as shell:
        assert (await shell.run(f"stty intr '{key}'")).exit_code == 0
        done = await shell.run("echo executed >>log; cat log; sh -c 'exit 3'")
        assert (done.state, done.boundary, done.exit_code) == ("done", "exact", 3), done
        assert done.output == "executed\n"
