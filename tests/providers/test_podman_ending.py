"""Containers of a real podman are gone after a terminal was closed, however its processes ended."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
import trio

from acpterm.providers.container import ContainerProvider, container_name
from acpterm.pty.tracking.marks import Daemon
from acpterm.terminal.status import EndedBy
from tests.support.containers import IMAGE, command, containers, run, shell, start
from tests.support.polling import poll
from tests.support.pools import running_pool
from tests.support.processes import alive

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]

# A process outside of the terminal's session and a stubborn program.
STUBBORN = "trap '' TERM HUP; setsid sleep 1000 & echo ready; while :; do sleep 0.02; done"


def state_of(token, *names):
    """Return numbers that podman has recorded about the container of `token`."""
    form = " ".join(f"{{{{.State.{name}}}}}" for name in names)
    found = subprocess.run(
        ["podman", "inspect", f"--format={form}", container_name(token)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(one) for one in found.stdout.split()]


def processes_of(token):
    """Return the monitor of the container of `token`, then the processes of the container."""
    init, monitor = map(psutil.Process, state_of(token, "Pid", "ConmonPid"))
    return [monitor, init, *init.children(recursive=True)]


async def ready(terminal):
    await poll(lambda: "ready" in terminal.text.text())


async def test_killed_program_may_clean_up_before_it_ends(provider, workspace):
    trap = "trap 'sleep 0.2; echo ended >file; exit 7' TERM"
    line = f"{trap}; echo ready; while :; do sleep 0.02; done"
    async with running_pool(grace=20.0) as pool:
        terminal, token = await start(provider, pool, shell(workspace, line))
        await ready(terminal)
        terminal.kill(EndedBy.AGENT)
        status = await terminal.wait_exited()
        # Just after the start, podman does not handle signals yet, and dies of the signal itself.
        # With 127 it has failed to learn the status, as on a busy machine, but has recorded it.
        code = state_of(token, "ExitCode")[0] if status.code == 127 else status.code
        assert code == 7 or status.signal == "SIGTERM"
        assert status.ended_by == EndedBy.AGENT
        pool.release(terminal, EndedBy.AGENT)
        await terminal.wait_closed()
        assert (workspace / "file").read_text() == "ended\n"
        await provider.clean_up(token)
        assert container_name(token) not in containers()


@pytest.mark.parametrize("tracking", ["auto", "subreaper"])
async def test_release_ends_all_processes_of_a_container_and_removes_it(
    provider, workspace, tracking
):
    async with running_pool(tracking, grace=0.2) as pool:
        terminal, token = await start(provider, pool, shell(workspace, STUBBORN))
        await ready(terminal)
        found = processes_of(token)
        assert len(found) >= 4
        pool.release(terminal, EndedBy.AGENT)
        await terminal.wait_closed()
        assert not any(alive(process.pid) for process in found)
        assert container_name(token) in containers()
        await provider.clean_up(token)
        assert container_name(token) not in containers()
        await provider.clean_up(token)


async def test_background_processes_end_with_the_program(provider, workspace):
    async with running_pool() as pool:
        line = "sleep 1000 & echo ready; read _"
        terminal, token = await start(provider, pool, shell(workspace, line))
        await ready(terminal)
        found = processes_of(token)
        terminal.keyboard.type(b"\r")
        assert (await terminal.wait_exited()).code == 0
        await poll(lambda: not any(alive(process.pid) for process in found[1:]))
    await provider.clean_up(token)


async def test_container_of_a_killed_worker_is_removed_by_the_next_one(
    provider, workspace, podman_env
):
    """The container's engine and monitor are killed, too, so nothing else removes the container."""
    async with running_pool(grace=0.2) as pool:
        terminal, token = await start(provider, pool, shell(workspace, STUBBORN))
        await ready(terminal)
        for process in [psutil.Process(terminal.pid), *processes_of(token)[:1]]:
            process.kill()
        pool.release(terminal, EndedBy.AGENT)
        await terminal.wait_closed()
    assert container_name(token) in containers()
    await ContainerProvider("podman", IMAGE).clean_up(token)
    assert container_name(token) not in containers()


async def test_clean_up_ends_a_container_that_still_runs(provider, workspace):
    async with running_pool(grace=0.2) as pool:
        terminal, token = await start(provider, pool, shell(workspace, STUBBORN))
        await ready(terminal)
        found = processes_of(token)
        await provider.clean_up(token)
        await poll(lambda: not any(alive(process.pid) for process in found))
        assert container_name(token) not in containers()
        await terminal.wait_exited()


async def test_prepared_command_that_never_started_is_cleaned_up(provider, workspace):
    prepared = await provider.prepare(shell(workspace, "true"))
    assert (workspace / ".claude").is_dir()
    await provider.clean_up(prepared.token)
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize("token", ["", "-a", "--all", "x" * 300, "a:b:c", "\udcff"])
async def test_clean_up_does_not_raise_for_any_token(provider, token):
    await provider.clean_up(token)


async def test_clean_up_returns_when_the_engine_is_gone(provider, workspace, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    await ContainerProvider("podman", IMAGE).clean_up("0:/workspace")


# Starts a container, prints its token and the pid of the keeper, and waits.
_DAEMON = """
import sys, trio
from pathlib import Path
from acpterm.keeper.startup import embedded_keeper
from acpterm.pty.tracking.trees import Trees
from acpterm.providers.container import ContainerProvider
from acpterm.terminal.pool import Pool
from tests.support.containers import IMAGE, shell, start

async def main(workspace, socket, line):
    async with embedded_keeper() as keeper, trio.open_nursery() as nursery:
        trees = Trees(parent=keeper.pid, socket_path=socket)
        pool = Pool(keeper, trees)
        await nursery.start(pool.run)
        provider = ContainerProvider("podman", IMAGE, trees.daemon)
        terminal, token = await start(provider, pool, shell(Path(workspace), line))
        while "ready" not in terminal.text.text():
            await trio.sleep(0.01)
        print(keeper.pid, token, flush=True)
        await trio.sleep_forever()

trio.run(main, *sys.argv[1:])
"""


async def killed_daemon(workspace, socket):
    """Start a daemon with a container, kill it and its keeper; return the container's token."""
    words = [sys.executable, "-c", _DAEMON, str(workspace), str(socket), STUBBORN]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as daemon:
        line = await trio.to_thread.run_sync(daemon.stdout.readline)
        pid, token = line.rstrip("\n").split(" ", 1)
        daemon.kill()
        os.kill(int(pid), signal.SIGKILL)
    await poll(lambda: not alive(int(pid)))
    return token


async def test_leftovers_of_a_killed_daemon_are_removed_by_the_next_daemon_on_its_socket(
    podman_env, workspace, tmp_path
):
    token = await killed_daemon(workspace, tmp_path / "socket")
    assert container_name(token) in containers()

    def provider(socket):
        return ContainerProvider("podman", IMAGE, Daemon.of(os.getpid(), str(tmp_path / socket)))

    assert await provider("other").remove_leftovers() == 0
    assert await provider("socket").remove_leftovers(held=[token]) == 0
    assert container_name(token) in containers()
    assert await provider("socket").remove_leftovers() == 1
    assert container_name(token) not in containers()


async def test_containers_of_a_running_daemon_are_no_leftovers(podman_env, workspace):
    async with running_pool(grace=0.2) as pool:
        daemon = Daemon.of(os.getpid(), None)
        provider = ContainerProvider("podman", IMAGE, daemon)
        terminal, token = await start(provider, pool, command(workspace, "cat"))
        await poll(lambda: container_name(token) in containers())
        assert await provider.remove_leftovers() == 0
        assert container_name(token) in containers()
        pool.release(terminal, EndedBy.AGENT)
        await terminal.wait_closed()
        await provider.clean_up(token)


async def test_nothing_is_left_after_several_terminals_at_the_same_time(provider, workspace):
    before = containers()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(run, provider, shell(workspace, "sleep 0.1 & echo x; exit 1"))
    assert containers() == before
    assert list(workspace.iterdir()) == []
