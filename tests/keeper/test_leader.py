"""The leader of a terminal's session: what outlives a program, and what ends with the terminal."""

import base64
import os
import shutil
import signal
import subprocess

import pytest

from acpterm.keeper.programs import leader, spawn
from tests.keeper.terminals import is_alive, poll, run
from tests.keeper.terminals import spawn as start
from tests.support.polling import poll_blocking

SOURCES = os.path.dirname(leader.__file__)
BACKGROUNDS = {
    "plain": "sleep 60 & echo $!",
    "silent": "sleep 60 </dev/null >/dev/null 2>&1 & echo $!",
    "nohup": "nohup sleep 60 >/dev/null 2>&1 & echo $!",
    "setsid": "setsid sleep 60 >/dev/null 2>&1 & echo $!",
    "subshell": "(sleep 60 & echo $!)",
    "double fork": "(sh -c 'sleep 60 >/dev/null 2>&1 & echo $!' &) | cat",
    "job control": "set -m; sleep 60 >/dev/null 2>&1 & echo $!",
}
# The kernel hangs up those that are in the foreground group and do not ignore that.
HUNG_UP = ("plain", "silent", "subshell", "double fork")


def fact(pid, name):
    with open(f"/proc/{pid}/{name}") as file:
        return file.read()


@pytest.fixture(params=["leader", "fork"])
def limits(request):
    """Return limits with which a program is started in this way."""
    return ((4, 0, -1),) * (17 if request.param == "fork" else 1)


@pytest.mark.parametrize("kind", BACKGROUNDS)
async def test_background_outlives_its_program_and_ends_with_the_terminal(keeper, kind, limits):
    terminal = await start(keeper, "/bin/sh", "-c", BACKGROUNDS[kind], rlimits=limits)
    report = await terminal.wait_exited()
    output = await poll(lambda: terminal.output if b"\n" in terminal.output else b"")
    pid = int(output)
    assert os.waitstatus_to_exitcode(report.status) == 0
    assert is_alive(pid)

    keeper.forget(terminal.name)
    if kind in HUNG_UP:
        await poll(lambda: not is_alive(pid))
    else:
        os.kill(pid, signal.SIGKILL)
    await poll(lambda: not is_alive(terminal.found.session))
    terminal.close()


async def test_late_output_of_the_background_is_read(keeper, limits):
    terminal = await start(
        keeper, "(trap '' HUP; read x; echo LATE $x) </dev/tty & echo NOW", rlimits=limits
    )
    await terminal.wait_exited()
    await poll(lambda: b"NOW" in terminal.output)
    os.write(terminal.master, b"line\n")
    await poll(lambda: b"LATE line" in terminal.output)
    keeper.forget(terminal.name)
    terminal.close()


async def test_terminal_closes_when_the_last_process_of_its_background_has_ended(keeper):
    terminal = await start(keeper, "sleep 60 </dev/null >/dev/null 2>&1 & echo $!")
    await terminal.wait_exited()
    pid = int(await poll(lambda: terminal.output))
    assert terminal.end is None
    os.kill(pid, signal.SIGTERM)
    await terminal.wait_closed()
    await poll(lambda: not is_alive(terminal.found.session))
    keeper.forget(terminal.name)
    terminal.close()


async def test_leader_survives_signals_and_shows_nothing_of_the_command(keeper, limits):
    terminal = await start(
        keeper, "/bin/sh", "-c", "echo ready; read x; : secret-word", rlimits=limits
    )
    await poll(lambda: b"ready" in terminal.output)
    pid = terminal.found.session
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGTTOU):
        os.kill(pid, number)
    # The program may print before the leader has left the directory, or has become `cat`.
    await poll(lambda: os.readlink(f"/proc/{pid}/cwd") == "/")
    for name in "cmdline", "comm":
        await poll(lambda name=name: fact(pid, name).strip("\0\n") == "acpterm-session")
    assert is_alive(pid)
    keeper.forget(terminal.name)
    await poll(lambda: not is_alive(pid))
    terminal.close()


async def test_stopped_leader_ends_with_the_terminal(keeper):
    terminal = await start(keeper, "sleep 60; :")
    pid = terminal.found.session
    os.kill(pid, signal.SIGSTOP)
    keeper.forget(terminal.name)
    await poll(lambda: not is_alive(pid))
    terminal.close()


async def test_long_arguments_take_no_memory_in_the_leader(keeper):
    terminal = await start(keeper, "/bin/sh", "-c", f"echo ready; read x; : {'x' * 120_000}")
    await poll(lambda: b"ready" in terminal.output)
    memory = fact(terminal.found.session, "smaps_rollup").splitlines()
    assert sum(int(line.split()[1]) for line in memory if line.startswith("Private_")) < 150
    keeper.forget(terminal.name)
    terminal.close()


def test_cat_leads_the_session_on_a_machine_without_code(monkeypatch):
    monkeypatch.setattr(leader, "image", lambda: None)
    env = {**os.environ, "NAME": "x"}
    program = ["/bin/sh", "-c", "tty; read x"], env, "/", 0o22, [], None
    pid, master, found, way = spawn.spawn(program, 80, 24, None)
    assert way == "fork"
    assert os.read(master, 100).startswith(b"/dev/pts/")
    poll_blocking(lambda: fact(found.pid, "cmdline") == "acpterm-session\0")
    os.kill(found.pid, signal.SIGHUP)
    os.write(master, b"\n")
    assert os.waitpid(pid, 0)[1] == 0
    os.close(found.socket_fd)
    os.waitpid(found.pid, 0)
    os.close(master)


async def test_program_that_cannot_be_started_leaves_no_leader(keeper):
    await run(keeper, "no-such-program")
    await run(keeper, "true", cwd="/no/such/directory")
    await poll(lambda: not fact(keeper.pid, f"task/{keeper.pid}/children"))


@pytest.mark.parametrize("machine", leader.CODE)
def test_code_is_that_of_its_source(machine):
    if not shutil.which(f"{machine}-linux-gnu-as"):
        pytest.skip(f"no assembler: install binutils-{machine.replace('_', '-')}-linux-gnu")
    script = os.path.join(SOURCES, "assemble.sh")
    done = subprocess.run(["sh", script, machine], capture_output=True, check=True)
    assert base64.b64decode(done.stdout) == base64.b64decode(leader.CODE[machine])


@pytest.mark.long
def test_code_for_aarch64_starts_a_program(tmp_path, monkeypatch):
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if not emulator:
        pytest.skip("no emulator: install qemu-user-static")
    # The emulator has no CLONE_PARENT: `mov x0, #0xc100` becomes `mov x0, #0x4111`.
    code = base64.b64decode(leader.CODE["aarch64"])
    changed = code.replace(bytes.fromhex("002098d2"), bytes.fromhex("202288d2"))
    assert code.count(bytes.fromhex("002098d2")) == 1
    monkeypatch.setitem(leader.CODE, "aarch64", base64.b64encode(changed).decode())
    image = tmp_path / "leader"
    image.write_bytes(leader.elf("aarch64"))
    image.chmod(0o755)
    ours, other = spawn._socket_pair()
    ours.send(leader.block(str(tmp_path), 0o27, [(4, 0, 0)], in_cgroup=False))
    read, write = os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, other.fileno(), leader.SOCKET_FD),
        (os.POSIX_SPAWN_DUP2, write, 1),
    ]
    argv = [emulator, str(image), "/bin/sh", "sh", "-c", "pwd; umask; ulimit -c; echo $0 $1", "a"]
    pid = os.posix_spawn(emulator, [*argv, "b"], os.environ, file_actions=actions)
    other.close()
    os.close(write)
    assert leader.started(ours) > 0
    with open(read) as output:
        assert output.read() == f"{tmp_path}\n0027\n0\na b\n"
    ours.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
