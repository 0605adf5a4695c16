"""Programs run alike whatever the login shell of the host is, and whatever it has installed."""

import os
import shutil
import signal

import pytest

from acpterm.terminal.status import EndedBy
from tests.providers.test_behaviour import NASTY, PRINT_ARGV
from tests.support.containers import command, shell
from tests.support.places import release, run, ssh_provider, start, survive_hangup
from tests.support.polling import poll
from tests.support.pools import running_pool
from tests.support.sshd import login_shell, running

pytestmark = pytest.mark.cluster

SHELLS = ("bash", "dash", "zsh", "fish", "tcsh", "busybox sh")


@pytest.fixture(params=SHELLS)
def shell_server(request, tmp_path):
    """Return a server whose users have this login shell, which prints when it starts."""
    words = request.param.split()
    if (path := shutil.which(words[0])) is None:
        pytest.skip(f"requires {words[0]}")
    with running(tmp_path, login_shell([path, *words[1:]])) as server:
        home = tmp_path / "home"
        for name in (".zshenv", ".tcshrc", ".cshrc"):
            (home / name).write_text("echo a noisy start\n")
        fish = home / ".config" / "fish"
        fish.mkdir(parents=True)
        (fish / "config.fish").write_text("echo a noisy start\n")
        yield server


async def test_program_has_its_arguments_environment_and_status(
    shell_server, runtime_directory, workspace
):
    requested = {"MINE": "a=b\nc'd\"\\ $HOME !x", "NASTY": NASTY, "WITH.DOT": "dot"}
    async with ssh_provider(shell_server.place()) as ssh:
        words = ["", "it's", "\\", "!x", "*", NASTY]
        wanted = command(workspace, "python3", "-c", PRINT_ARGV, *words)
        _, text = await run(ssh, wanted)
        found = bytes.fromhex(text.split("\n")[-1]).split(b"\0")
        assert found == [os.fsencode(word) for word in words]
        argv = ["cp", "/proc/self/environ", "env"]
        await run(ssh, command(workspace, *argv, requested=requested))
        entries = (workspace / "env").read_bytes().split(b"\0")
        found = dict(entry.split(b"=", 1) for entry in entries if entry)
        for name, value in requested.items():
            assert found[os.fsencode(name)] == os.fsencode(value)
        assert (await run(ssh, shell(workspace, "exit 255")))[0].code == 255
        assert (await run(ssh, shell(workspace, "kill -KILL $$")))[0].signal == "SIGKILL"


@pytest.fixture
def without_perl(tmp_path):
    """Return a server on whose PATH there is no perl."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for directory in ("/bin", "/usr/bin"):
        for name in os.listdir(directory):
            if "perl" not in name and not (programs / name).is_symlink():
                (programs / name).symlink_to(f"{directory}/{name}")
    with running(tmp_path, login_shell(["env", f"PATH={programs}", "sh"])) as server:
        yield server


async def test_host_without_perl_runs_programs_too(without_perl, runtime_directory, workspace):
    async with ssh_provider(without_perl.place()) as ssh:
        _, text = await run(ssh, shell(workspace, "command -v perl; echo none"))
        assert text == "none\n"
        requested = {"MINE": "a\nb'é", "NASTY": NASTY, "_": "x", "UID": "7"}
        words = ["", "it's", "\\", "x\n", NASTY]
        wanted = command(workspace, "python3", "-c", PRINT_ARGV, *words, requested=requested)
        _, text = await run(ssh, wanted)
        assert bytes.fromhex(text).split(b"\0") == [os.fsencode(word) for word in words]
        line = 'printf "%s" "$MINE" >mine; printf "%s" "$NASTY" >nasty; exit 3'
        status, _ = await run(ssh, shell(workspace, line, requested=requested))
        assert status.code == 3
        assert (workspace / "mine").read_text() == "a\nb'é"
        assert (workspace / "nasty").read_bytes() == os.fsencode(NASTY)
        assert (await run(ssh, shell(workspace, "kill -KILL $$")))[0].signal == "SIGKILL"
        status, text = await run(ssh, command(workspace, "no-such-program"))
        assert (status.code, text) == (127, "acpterm: no-such-program: command not found\n")
        fallback = ["/bin/sh", "-c", "echo fallback"]
        _, text = await run(ssh, command(workspace, "echo one", fallback_argv=fallback))
        assert text == "fallback\n"
        _, there = await run(ssh, shell(workspace, "umask"))
        _, text = await run(ssh, shell(workspace, "umask", umask=0o007))
        assert int(text, 8) == int(there, 8) | 0o007


async def test_host_without_perl_passes_a_hangup_signal_on(
    without_perl, runtime_directory, workspace
):
    async with ssh_provider(without_perl.place()) as ssh:
        await survive_hangup(ssh, workspace)


async def test_host_without_perl_tells_a_lost_connection_from_a_hangup_signal(
    without_perl, runtime_directory, workspace
):
    async with ssh_provider(without_perl.place()) as ssh, running_pool() as pool:
        started = await start(ssh, pool, shell(workspace, "echo ready; read _"))
        await poll(lambda: "ready" in started.terminal.text.text())
        os.kill(started.terminal.pid, signal.SIGKILL)
        status = await started.terminal.wait_exited()
        assert (status.code, status.ended_by) == (255, EndedBy.LOST)
        await release(ssh, pool, started)


async def test_host_without_perl_passes_keys_on(without_perl, runtime_directory, workspace):
    async with ssh_provider(without_perl.place()) as ssh, running_pool() as pool:
        line = "trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.02; done"
        started = await start(ssh, pool, shell(workspace, line))
        await poll(lambda: "ready" in started.terminal.text.text())
        started.terminal.keyboard.type(b"\x03")
        assert (await started.terminal.wait_exited()).code == 5
        await release(ssh, pool, started)
