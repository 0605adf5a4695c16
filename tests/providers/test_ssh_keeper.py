"""Terminals that the other host's daemon keeps: they survive what connects them."""

import os
import signal
import tempfile

import pytest
import trio

from acpterm.terminal.status import EndedBy
from tests.support.containers import shell
from tests.support.depth import DEADLINE_S
from tests.support.places import pids, release, remove_directory_there, run, ssh_provider, start
from tests.support.pools import running_pool
from tests.support.processes import alive
from tests.support.sshd import ACPTERM, remote_daemon, running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

STUBBORN = (
    "trap '' TERM HUP; echo $$ >>pids; setsid sleep 1000 & echo $! >>pids;"
    "echo ready; while :; do sleep 0.1; done"
)


@pytest.fixture
def server(tmp_path):
    """Return a server of the test's own, which it may break."""
    with running(tmp_path) as found:
        yield found


@pytest.fixture
def there(server):
    """Return the daemon that runs on the host of `server`."""
    with remote_daemon(server) as found:
        yield found


def keeping(server, **more):
    return server.place(keeper=ACPTERM, connect_timeout=10.0, **more)


def kept_terminals(there):
    """Return the terminals of the daemon on the other host."""
    return there.request("terminal/list")["terminals"]


async def until(condition, timeout_s=DEADLINE_S):
    with trio.fail_after(timeout_s):
        while not condition():
            await trio.sleep(0.05)


async def ready(terminal, word="ready"):
    await until(lambda: word in terminal.text.text())


def is_there(path):
    return os.path.exists(path)


def numbers(terminal):
    return [int(line) for line in terminal.text.text().split()]


async def test_program_runs_in_a_terminal_of_the_daemon_there(
    server, there, runtime_directory, workspace
):
    async with ssh_provider(keeping(server)) as ssh, running_pool() as pool:
        started = await start(ssh, pool, shell(workspace, "echo ready; read _; exit 3"))
        await ready(started.terminal)
        (kept,) = kept_terminals(there)
        assert kept["name"].startswith("kept-")
        started.terminal.keyboard.type(b"\r")
        status = await started.terminal.wait_exited()
        assert (status.code, status.ended_by, status.host) == (3, EndedBy.EXITED, "box")
        await release(ssh, pool, started)
        await until(lambda: kept_terminals(there) == [])


async def test_query_of_a_kept_program_is_answered_once(
    server, there, runtime_directory, workspace
):
    read = "{ head -c 1; timeout --foreground 2 cat; } | od -An -c"
    line = f"stty raw -echo; printf '\\033[6n'; {read}; echo ready"
    async with ssh_provider(keeping(server)) as ssh, running_pool() as pool:
        started = await start(ssh, pool, shell(workspace, line))
        await ready(started.terminal)
        text = started.terminal.text.text()
        assert text.count("R") == 1, text
        await release(ssh, pool, started)


async def test_kept_program_is_lost_if_its_directory_there_has_been_removed(
    server, there, runtime_directory, workspace
):
    async with ssh_provider(keeping(server)) as ssh:
        await remove_directory_there(ssh, workspace)
        status, text = await run(ssh, shell(workspace, "true"))
        assert (status.code, status.ended_by) == (255, EndedBy.LOST)
        assert text == "acpterm: the connection to this host was replaced\n"
        assert (await run(ssh, shell(workspace, "exit 3")))[0].code == 3


async def test_output_is_whole_although_the_connection_is_cut_twice(
    server, there, runtime_directory, workspace
):
    line = "i=0; while [ $i -lt 600 ]; do echo $i; i=$((i+1)); sleep 0.01; done; exit 7"
    async with ssh_provider(keeping(server)) as ssh, running_pool() as pool:
        started = await start(ssh, pool, shell(workspace, line))
        for word in ("\n50\n", "\n250\n"):
            await ready(started.terminal, word)
            server.cut()
        with trio.fail_after(60):
            status = await started.terminal.wait_exited()
        assert (status.code, status.ended_by) == (7, EndedBy.EXITED)
        assert numbers(started.terminal) == list(range(600))
        await release(ssh, pool, started)


async def test_output_of_a_flood_is_whole_or_says_what_is_missing(
    server, there, runtime_directory, workspace
):
    async with ssh_provider(keeping(server)) as ssh, running_pool() as pool:
        started = await start(ssh, pool, shell(workspace, "seq 300000"), limit=4_000_000)
        await ready(started.terminal, "\n1000\n")
        server.cut()
        with trio.fail_after(60):
            assert (await started.terminal.wait_exited()).code == 0
        text = started.terminal.text.text()
        if "bytes are missing here" not in text:
            assert text == "".join(f"{number}\n" for number in range(1, 300_001))
        await release(ssh, pool, started)


async def test_output_continues_although_the_host_does_not_notice_the_loss(
    server, there, runtime_directory, workspace
):
    """The host keeps the old connection, from which nothing reads: the program must not stop."""
    with server.config.open("a") as config:
        config.write("  ServerAliveInterval 1\n  ServerAliveCountMax 2\n")
    line = "echo ready; until [ -e go ]; do sleep 0.02; done; seq 600000; exit 4"
    async with ssh_provider(keeping(server)) as ssh, running_pool() as pool:
        started = await start(ssh, pool, shell(workspace, line))
        await ready(started.terminal)
        stuck = server.connections()
        for process in stuck:
            process.suspend()
        try:
            (workspace / "go").touch()
            with trio.fail_after(60):
                status = await started.terminal.wait_exited()
            assert (status.code, status.ended_by) == (4, EndedBy.EXITED)
            assert started.terminal.text.text().endswith("\n599999\n600000\n")
        finally:
            for process in stuck:
                process.kill()
        await release(ssh, pool, started)


async def test_input_and_size_arrive_once_after_a_reconnection(
    server, there, runtime_directory, workspace
):
    # The input may arrive before the size.
    sized = "until stty size | grep '19 71'; do sleep 0.02; done"
    line = f"echo ready; read a; echo got $a; {sized}; read b; echo got $b; exit 5"
    async with ssh_provider(keeping(server)) as ssh, running_pool() as pool:
        started = await start(ssh, pool, shell(workspace, line), size=(80, 24))
        await ready(started.terminal)
        server.go_away()
        started.terminal.keyboard.type(b"on")
        started.terminal.keyboard.type(b"e\r")
        started.terminal.resize(71, 19)
        await trio.sleep(0.5)
        assert "got" not in started.terminal.text.text()
        server.start()
        await ready(started.terminal, "got one\n19 71\n")
        server.cut()
        started.terminal.keyboard.type(b"two\r")
        assert (await started.terminal.wait_exited()).code == 5
        lines = started.terminal.text.text().split("\n")
        assert lines == ["ready", "one", "got one", "19 71", "two", "got two", ""]
        await release(ssh, pool, started)


async def test_input_that_was_not_acknowledged_is_typed_once(
    server, there, runtime_directory, workspace
):
    line = (
        "stty raw -echo; echo ready; until [ -e go ]; do sleep 0.02; done; "
        "head -c 20000 >got; timeout --foreground 1 cat >more; exit 5"
    )
    typed = "".join(f"{number:04}\n" for number in range(4000)).encode()
    async with ssh_provider(keeping(server)) as ssh, running_pool() as pool:
        started = await start(ssh, pool, shell(workspace, line))
        await ready(started.terminal)
        started.terminal.keyboard.type(typed)
        # The daemon there has taken what the program does not read.
        await trio.sleep(1)
        server.cut()
        await trio.sleep(1)
        (workspace / "go").touch()
        with trio.fail_after(30):
            assert (await started.terminal.wait_exited()).code == 5
        assert (workspace / "got").read_bytes() == typed
        assert (workspace / "more").read_bytes() == b""
        await release(ssh, pool, started)


@pytest.mark.parametrize("end", ["exit 4", "kill -KILL $$", "exit 137"])
async def test_program_that_exits_while_disconnected_is_reported_later(
    server, there, runtime_directory, workspace, end
):
    async with ssh_provider(keeping(server)) as ssh, running_pool() as pool:
        line = f"echo ready; until [ -e go ]; do sleep 0.02; done; echo last; echo x >over; {end}"
        started = await start(ssh, pool, shell(workspace, line))
        await ready(started.terminal)
        server.go_away()
        (workspace / "go").touch()
        await until((workspace / "over").exists)
        await trio.sleep(0.3)
        assert started.terminal.exit is None
        server.start()
        with trio.fail_after(30):
            status = await started.terminal.wait_exited()
        expected = {"exit 4": (4, None), "exit 137": (137, None)}.get(end, (None, "SIGKILL"))
        assert (status.code, status.signal) == expected
        assert status.ended_by == EndedBy.EXITED
        assert started.terminal.text.text() == "ready\nlast\n"
        await release(ssh, pool, started)
        await until(lambda: kept_terminals(there) == [])


async def test_program_that_is_killed_while_disconnected_ends_with_the_reconnection(
    server, there, runtime_directory, workspace
):
    async with ssh_provider(keeping(server)) as ssh, running_pool(grace=0.2) as pool:
        started = await start(ssh, pool, shell(workspace, STUBBORN))
        await ready(started.terminal)
        server.go_away()
        started.terminal.kill(EndedBy.USER)
        with trio.fail_after(DEADLINE_S):
            status = await started.terminal.wait_exited()
        assert status.ended_by in (EndedBy.USER, EndedBy.LOST)
        await release(ssh, pool, started)
        assert all(map(alive, pids(workspace / "pids")))
        server.start()
        await until(lambda: not any(map(alive, pids(workspace / "pids"))))
        await until(lambda: kept_terminals(there) == [])


async def test_program_that_is_released_before_the_worker_dies_ends_by_the_next_one(
    server, there, runtime_directory, workspace
):
    async with ssh_provider(keeping(server)) as ssh, running_pool(grace=0.2) as pool:
        started = await start(ssh, pool, shell(workspace, STUBBORN))
        await ready(started.terminal)
        server.go_away()
        await release(ssh, pool, started)
        assert all(map(alive, pids(workspace / "pids")))
    server.start()
    async with ssh_provider(keeping(server)):
        await until(lambda: not any(map(alive, pids(workspace / "pids"))))
        await until(lambda: kept_terminals(there) == [])


async def test_terminal_is_lost_when_the_limit_has_passed(
    server, there, runtime_directory, workspace
):
    async with (
        ssh_provider(keeping(server, lost_timeout=10.0)) as ssh,
        running_pool(grace=0.2) as pool,
    ):
        started = await start(ssh, pool, shell(workspace, STUBBORN))
        await ready(started.terminal)
        server.go_away()
        with trio.fail_after(30):
            status = await started.terminal.wait_exited()
        assert (status.code, status.ended_by, status.host) == (255, EndedBy.LOST, "box")
        # The host is not reached: it ends the program by itself.
        await until(lambda: not any(map(alive, pids(workspace / "pids"))), 40)
        await release(ssh, pool, started)


@pytest.mark.exhaustive
@pytest.mark.long
async def test_terminal_is_lost_when_the_limit_has_passed_after_ssh_has_noticed_the_loss(
    server, there, runtime_directory, workspace
):
    with server.config.open("a") as config:
        config.write("  ServerAliveInterval 1\n  ServerAliveCountMax 2\n")
    async with (
        ssh_provider(keeping(server, lost_timeout=10.0)) as ssh,
        running_pool(grace=0.2) as pool,
    ):
        started = await start(ssh, pool, shell(workspace, STUBBORN))
        await ready(started.terminal)
        stuck = server.connections()
        for process in stuck:
            process.suspend()
        server.stop()
        try:
            with trio.fail_after(30):
                status = await started.terminal.wait_exited()
            assert (status.code, status.ended_by) == (255, EndedBy.LOST)
        finally:
            for process in stuck:
                process.kill()
        await until(lambda: not any(map(alive, pids(workspace / "pids"))), 40)
        await release(ssh, pool, started)


async def test_bridge_that_is_killed_ends_the_program(server, there, runtime_directory, workspace):
    async with ssh_provider(keeping(server)) as ssh, running_pool(grace=0.2) as pool:
        started = await start(ssh, pool, shell(workspace, STUBBORN))
        await ready(started.terminal)
        os.kill(started.terminal.pid, signal.SIGKILL)
        status = await started.terminal.wait_exited()
        assert (status.code, status.ended_by) == (255, EndedBy.LOST)
        await until(lambda: not any(map(alive, pids(workspace / "pids"))))
        await release(ssh, pool, started)
        await until(lambda: kept_terminals(there) == [])


async def test_bridge_that_hangs_up_ends_the_program(server, there, runtime_directory, workspace):
    async with ssh_provider(keeping(server)) as ssh, running_pool(grace=0.2) as pool:
        started = await start(ssh, pool, shell(workspace, "echo $$ >pids; echo ready; sleep 1000"))
        await ready(started.terminal)
        os.kill(started.terminal.pid, signal.SIGHUP)
        await until(lambda: not any(map(alive, pids(workspace / "pids"))))
        assert await started.terminal.wait_exited() is not None
        await release(ssh, pool, started)


async def test_worker_of_the_daemon_there_is_replaced_unnoticed(
    server, there, runtime_directory, workspace
):
    line = "i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); sleep 0.01; done; exit 7"
    async with ssh_provider(keeping(server)) as ssh, running_pool() as pool:
        started = await start(ssh, pool, shell(workspace, line))
        await ready(started.terminal, "\n50\n")
        os.kill(there.request("status")["workerPid"], signal.SIGKILL)
        with trio.fail_after(60):
            assert (await started.terminal.wait_exited()).code == 7
        assert numbers(started.terminal) == list(range(300))
        await release(ssh, pool, started)


async def test_end_of_the_daemon_there_ends_the_program_and_the_next_one_gets_another(
    server, there, runtime_directory, workspace
):
    async with ssh_provider(keeping(server)) as ssh, running_pool(grace=0.2) as pool:
        started = await start(ssh, pool, shell(workspace, STUBBORN))
        await ready(started.terminal)
        there.process.kill()
        with trio.fail_after(30):
            status = await started.terminal.wait_exited()
        assert (status.code, status.ended_by) == (255, EndedBy.LOST)
        await until(lambda: not any(map(alive, pids(workspace / "pids"))))
        await release(ssh, pool, started)
        assert (await run(ssh, shell(workspace, "exit 3")))[0].code == 3
        assert ssh._keeper.is_open
    await shut_down(server)


async def test_program_has_the_umask_and_the_environment_of_a_login(
    server, there, runtime_directory, workspace
):
    line = "umask; echo $HOME; echo ${LC_TEST-unset}; echo $SSH_CONNECTION | wc -w"
    async with ssh_provider(keeping(server)) as ssh:
        _, kept = await run(ssh, shell(workspace, line))
    async with ssh_provider(server.place()) as ssh:
        _, direct = await run(ssh, shell(workspace, line))
    assert kept == direct


# Hosts without a daemon that can be used


async def test_daemon_there_is_started_if_there_is_none(server, runtime_directory, workspace):
    async with ssh_provider(keeping(server)) as ssh, running_pool() as pool:
        started = await start(ssh, pool, shell(workspace, "echo ready; read _; exit 3"))
        await ready(started.terminal)
        assert (server.directory / "run" / "acpterm" / "user.sock").exists()
        server.cut()
        started.terminal.keyboard.type(b"\r")
        assert (await started.terminal.wait_exited()).code == 3
        await release(ssh, pool, started)
    await shut_down(server)


async def shut_down(server):
    """End the daemon that was started on the other host."""
    env = {**os.environ, "XDG_RUNTIME_DIR": str(server.directory / "run")}
    await trio.run_process([ACPTERM, "shutdown"], env=env, capture_stdout=True)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (None, "not found"),
        ('echo \'{"version": "99.1", "userSocket": "/x"}\'', "acpterm 99.1 is there"),
        ("echo 'No such option: --start'; exit 2", "No such option"),
    ],
)
async def test_programs_run_without_a_daemon_if_none_can_be_used(
    server, runtime_directory, workspace, tmp_path, script, problem
):
    command = tmp_path / "acpterm of another version"
    if script is not None:
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
    async with ssh_provider(server.place(keeper=str(command))) as ssh:
        status, text = await run(ssh, shell(workspace, "echo there; exit 3"))
        assert (status.code, text) == (3, "there\n")
        assert problem in await ssh.check()


async def test_server_that_forwards_no_sockets_is_reported(tmp_path, runtime_directory, workspace):
    with running(tmp_path, "AllowStreamLocalForwarding no") as server, remote_daemon(server):
        async with ssh_provider(keeping(server)) as ssh:
            assert (await run(ssh, shell(workspace, "exit 3")))[0].code == 3
            assert "AllowStreamLocalForwarding" in await ssh.check()


async def test_check_says_which_version_keeps_terminals(server, there, runtime_directory):
    async with ssh_provider(keeping(server)) as ssh:
        assert "terminals are kept there by acpterm" in await ssh.check()


async def test_connection_of_the_user_is_used_and_has_no_forward_left(
    server, there, runtime_directory, workspace
):
    with tempfile.TemporaryDirectory() as short:
        with server.config.open("a") as config:
            config.write(f"  ControlPath {short}/users\n")
        assert server.client("-M", "-N", "-f") == 0
        async with ssh_provider(keeping(server)) as ssh:
            assert (await run(ssh, shell(workspace, "exit 2")))[0].code == 2
            assert is_there(ssh._keeper.socket)
        assert not is_there(ssh._keeper.socket)
        assert server.client("-O", "check") == 0
        assert server.client("-O", "exit") == 0
