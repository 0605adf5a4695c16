"""Connections to hosts: kept, shared, refused, lost."""

import os
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest
import trio

from acpterm.config.places import SshPlace
from acpterm.providers.provider import ProviderError
from acpterm.providers.ssh import control
from acpterm.providers.ssh.connections import Connections
from acpterm.providers.ssh.program import SshProgram
from acpterm.terminal.status import EndedBy
from tests.support.containers import shell
from tests.support.depth import DEADLINE_S
from tests.support.places import (
    pids,
    release,
    remove_directory_there,
    run,
    ssh_provider,
    start,
    survive_hangup,
)
from tests.support.polling import poll
from tests.support.pools import running_pool
from tests.support.processes import alive
from tests.support.sshd import new_key, running

pytestmark = pytest.mark.cluster

# A process outside of the terminal's session, and a stubborn program.
STUBBORN = (
    "trap '' TERM HUP; echo $$ >>pids; setsid sleep 1000 & echo $! >>pids;"
    "echo ready; while :; do sleep 0.1; done"
)


@pytest.fixture
def server(tmp_path):
    """Return a server of the test's own, which it may break."""
    with running(tmp_path) as found:
        yield found


def logins(server):
    return (server.directory / "log").read_text().count("Accepted publickey")


def masters(directory):
    """Return the processes of the master connections with sockets below a directory."""
    names = ["cmdline"]
    found = [(p, " ".join(p.info["cmdline"] or ())) for p in psutil.process_iter(names)]
    return [process for process, line in found if directory in line and " -M " in line]


def texts(directory):
    """Return the contents of the files in a directory; nothing if it does not exist."""
    return [path.read_text() for path in Path(directory).glob("*")]


async def ready(terminal):
    await poll(lambda: "ready" in terminal.text.text())


async def test_all_terminals_share_a_connection(server, runtime_directory, workspace):
    async with ssh_provider(server.place()) as ssh:
        for _ in range(3):
            assert (await run(ssh, shell(workspace, "exit 2")))[0].code == 2
    assert logins(server) == 1


async def test_nothing_is_left_when_the_provider_is_closed(server, runtime_directory, workspace):
    async with ssh_provider(server.place()) as ssh:
        _, text = await run(ssh, shell(workspace, "ls -ld /tmp/acpterm-*"))
        directory = ssh._connections.run_words.split()[-1]
        assert directory in text
        assert all(
            line.startswith("drwx------") for line in text.splitlines() if directory in line[10:]
        )
    assert texts(directory) == []
    await poll(lambda: server.connections() == [])


async def test_killed_terminal_does_not_end_the_connection(server, runtime_directory, workspace):
    async with ssh_provider(server.place()) as ssh, running_pool(grace=0.2) as pool:
        first = await start(ssh, pool, shell(workspace, "echo ready; read _; exit 4"))
        second = await start(ssh, pool, shell(workspace, STUBBORN))
        await ready(first.terminal)
        await ready(second.terminal)
        os.kill(second.terminal.pid, signal.SIGKILL)
        status = await second.terminal.wait_exited()
        assert (status.code, status.ended_by, status.host) == (255, EndedBy.LOST, "box")
        await poll(lambda: not any(map(alive, pids(workspace / "pids"))))
        first.terminal.keyboard.type(b"\r")
        assert (await first.terminal.wait_exited()).code == 4
        await release(ssh, pool, first)
        await release(ssh, pool, second)
    assert logins(server) == 1


async def test_secrets_are_in_no_command_line(server, runtime_directory, workspace):
    requested = {"API_TOKEN": "s3cr3t-value"}
    async with ssh_provider(server.place()) as ssh, running_pool() as pool:
        line = "echo ready; read _"
        started = await start(ssh, pool, shell(workspace, line, requested=requested))
        found = set()
        while "ready" not in started.terminal.text.text():
            found.update(
                " ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])
            )
            await trio.lowlevel.checkpoint()
        assert found
        assert not any("s3cr3t" in line for line in found)
        directory = ssh._connections.run_words.split()[-1]
        assert texts(directory)
        assert "s3cr3t" not in "".join(texts(directory))
        await release(ssh, pool, started)


async def test_variables_of_the_request_do_not_reach_ssh(server, runtime_directory, workspace):
    requested = {"LD_PRELOAD": "/evil.so", "HOME": "/nowhere", "SSH_AUTH_SOCK": "/nowhere"}
    async with ssh_provider(server.place()) as ssh:
        env = {**os.environ, **requested}
        prepared = await ssh.prepare(shell(workspace, "true", env=env, requested=requested))
        assert not requested.items() & prepared.env.items()
        await ssh.clean_up(prepared.token)


async def test_directories_are_mapped(server, runtime_directory, tmp_path):
    (tmp_path / "there" / "sub").mkdir(parents=True)
    place = server.place(directories={"/here": str(tmp_path / "there"), "/here/no": "/nowhere"})
    async with ssh_provider(place) as ssh:
        _, text = await run(ssh, shell("/here/sub", "pwd"))
        assert text == f"{tmp_path}/there/sub\n"


async def test_umask_withholds_what_either_host_withholds(server, runtime_directory, workspace):
    async with ssh_provider(server.place()) as ssh:
        _, there = await run(ssh, shell(workspace, "umask"))
        _, text = await run(ssh, shell(workspace, "umask", umask=0o007))
        assert int(text, 8) == int(there, 8) | 0o007


# Connections that are refused


async def refusal(place):
    """Return the message with which a place refuses to run a command."""
    async with ssh_provider(place) as ssh:
        with pytest.raises(ProviderError) as caught:
            await ssh.prepare(shell("/", "true"))
    return str(caught.value)


async def test_wrong_key_is_refused_with_what_to_do(server, runtime_directory):
    new_key(server.directory / "user_key")
    text = await refusal(server.place())
    assert "Permission denied (publickey)" in text
    assert "(publickey): ssh must be able to log in without a question" in text


async def test_changed_key_of_the_host_is_refused(server, runtime_directory):
    new_key(server.directory / "other_key")
    server.know("other_key")
    text = await refusal(server.place())
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in text
    assert "find out why" in text
    assert logins(server) == 0


async def test_unknown_key_of_the_host_is_refused(server, runtime_directory):
    (server.directory / "known_hosts").write_text("")
    config = server.config.read_text().replace("StrictHostKeyChecking yes\n", "")
    server.config.write_text(config)
    text = await refusal(server.place())
    assert "Host key verification failed" in text
    assert "connect once with ssh yourself" in text
    assert (server.directory / "known_hosts").read_text() == ""


async def test_host_that_does_not_answer_is_refused_in_time(tmp_path, runtime_directory):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        config = tmp_path / "config"
        config.write_text(f"Host silent\nHostName 127.0.0.1\nPort {silent.getsockname()[1]}\n")
        place = SshPlace(host="silent", config=str(config), connect_timeout=1.0)
        async with ssh_provider(place) as ssh:
            began = time.monotonic()
            failed = []
            answer = "no connection to silent: it did not answer within 1 s"

            async def attempt():
                with pytest.raises(ProviderError, match=answer) as caught:
                    await ssh.prepare(shell("/", "true"))
                failed.append(str(caught.value))

            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(attempt)
            assert len(failed) == 20
            # One after the other, the attempts would take 20 s.
            assert time.monotonic() - began < 15


async def test_host_without_a_server_is_refused(server, runtime_directory):
    server.stop()
    assert "Connection refused" in await refusal(server.place())


async def test_login_shell_that_runs_nothing_is_reported(tmp_path, runtime_directory):
    with running(tmp_path, "ForceCommand echo this account is closed") as server:
        text = await refusal(server.place())
    assert "did not start /bin/sh: this account is closed" in text


# The user's own connection


async def test_connection_that_the_user_keeps_open_is_used(server, runtime_directory, workspace):
    path = server.directory / "mine"
    with server.config.open("a") as config:
        config.write(f"  ControlPath {path}\n")
    assert server.client("-M", "-N", "-f") == 0
    # Only with that connection: a new one would need this key.
    (server.directory / "user_key").unlink()
    async with ssh_provider(server.place()) as ssh:
        assert (await run(ssh, shell(workspace, "exit 2")))[0].code == 2
    assert server.client("-O", "check") == 0
    assert server.client("-O", "exit") == 0
    assert logins(server) == 1


# Connections that are lost


async def test_lost_connection_is_told_apart_from_an_exit(server, runtime_directory, workspace):
    async with ssh_provider(server.place()) as ssh, running_pool() as pool:
        started = await start(ssh, pool, shell(workspace, STUBBORN))
        await ready(started.terminal)
        server.cut()
        with trio.fail_after(DEADLINE_S):
            status = await started.terminal.wait_exited()
        assert (status.code, status.signal) == (255, None)
        assert (status.ended_by, status.host) == (EndedBy.LOST, "box")
        # The other host ends its processes by itself.
        await poll(lambda: not any(map(alive, pids(workspace / "pids"))))
        # And the next terminal gets another connection.
        assert (await run(ssh, shell(workspace, "exit 2")))[0].code == 2
        await release(ssh, pool, started)
    assert logins(server) == 2


async def test_hangup_signal_is_no_lost_connection(server, runtime_directory, workspace):
    async with ssh_provider(server.place()) as ssh:
        await survive_hangup(ssh, workspace)


async def test_killed_program_of_a_slow_host_is_not_lost(server, workspace, monkeypatch):
    asked = []
    ask = SshProgram._ask

    async def ask_slowly(self, verb, words, timeout_s):
        asked.append(verb)
        return None if asked == ["end"] else await ask(self, verb, words, timeout_s)

    monkeypatch.setattr(SshProgram, "_ask", ask_slowly)
    async with ssh_provider(server.place()) as ssh, running_pool(grace=0.2) as pool:
        started = await start(ssh, pool, shell(workspace, STUBBORN))
        await ready(started.terminal)
        started.terminal.kill(EndedBy.USER)
        status = await started.terminal.wait_exited()
        assert (status.signal, status.ended_by) == ("SIGKILL", EndedBy.USER)
        await poll(lambda: not any(map(alive, pids(workspace / "pids"))))
        await release(ssh, pool, started)


@pytest.mark.exhaustive
async def test_host_that_hears_nothing_ends_its_programs(server, runtime_directory, workspace):
    """The connection is not closed: nothing comes through, as if the network was gone."""
    place = server.place(lost_timeout=10.0, connect_timeout=10.0)
    async with ssh_provider(place) as ssh, running_pool(grace=0.2) as pool:
        started = await start(ssh, pool, shell(workspace, STUBBORN))
        await ready(started.terminal)
        (master,) = masters(runtime_directory)
        master.suspend()
        try:
            with trio.fail_after(30):
                while any(map(alive, pids(workspace / "pids"))):
                    await trio.sleep(0.1)
        finally:
            master.kill()
        assert (await started.terminal.wait_exited()).ended_by == EndedBy.LOST
        await release(ssh, pool, started)


@pytest.mark.exhaustive
@pytest.mark.long
async def test_program_runs_after_the_host_has_given_up(
    server, runtime_directory, workspace, monkeypatch
):
    """This machine was suspended, say, and the connection was not closed."""

    async def no_beat(_):
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(Connections, "_beat", no_beat)
    async with ssh_provider(server.place(lost_timeout=10.0)) as ssh:
        assert (await run(ssh, shell(workspace, "exit 2")))[0].code == 2
        with trio.fail_after(40):
            await ssh._connections._control.closed.wait()
        assert (await run(ssh, shell(workspace, "exit 3")))[0].code == 3
    assert logins(server) == 1


@pytest.mark.long
async def test_host_does_not_give_up_a_connection_without_programs(
    server, runtime_directory, workspace
):
    async with ssh_provider(server.place(lost_timeout=10.0)) as ssh:
        assert (await run(ssh, shell(workspace, "exit 2")))[0].code == 2
        with trio.move_on_after(22):
            await ssh._connections._control.closed.wait()
        assert not ssh._connections._control.closed.is_set()
        assert (await run(ssh, shell(workspace, "exit 3")))[0].code == 3


async def test_create_is_refused_if_a_connected_host_does_not_answer_any_more(
    server, runtime_directory, workspace, monkeypatch
):
    monkeypatch.setattr(control, "_ANSWER_AGE_MAX_S", 0.0)
    async with ssh_provider(server.place(connect_timeout=6.0)) as ssh:
        assert (await run(ssh, shell(workspace, "exit 2")))[0].code == 2
        frozen = server.connections()
        for process in frozen:
            process.suspend()
        with trio.fail_after(DEADLINE_S), pytest.raises(ProviderError) as caught:
            await ssh.prepare(shell(workspace, "true"))
        assert str(caught.value) == "no connection to box: it did not answer within 6 s"
        for process in frozen:
            process.resume()
        assert (await run(ssh, shell(workspace, "exit 3")))[0].code == 3
    assert logins(server) == 1


async def test_program_starts_if_its_directory_there_was_removed_before_the_create(
    server, runtime_directory, workspace, monkeypatch
):
    monkeypatch.setattr(control, "_ANSWER_AGE_MAX_S", 0.0)
    async with ssh_provider(server.place()) as ssh:
        await remove_directory_there(ssh, workspace)
        assert (await run(ssh, shell(workspace, "exit 3")))[0].code == 3


async def test_program_is_lost_if_its_directory_there_has_been_removed(
    server, runtime_directory, workspace
):
    async with ssh_provider(server.place()) as ssh:
        await remove_directory_there(ssh, workspace)
        status, text = await run(ssh, shell(workspace, "touch started"))
        assert (status.code, status.ended_by) == (255, EndedBy.LOST)
        assert text == "acpterm: the connection to this host was replaced\n"
        assert not (workspace / "started").exists()
        assert (await run(ssh, shell(workspace, "exit 3")))[0].code == 3


# Many terminals


async def test_more_terminals_than_sessions_take_more_connections(
    server, runtime_directory, workspace
):
    async with ssh_provider(server.place(sessions=4)) as ssh, running_pool(grace=0.2) as pool:
        wanted = shell(workspace, "echo ready; read _; exit 5")
        started = [await start(ssh, pool, wanted) for _ in range(7)]
        for one in started:
            await ready(one.terminal)
        assert logins(server) == 3
        for one in started:
            one.terminal.keyboard.type(b"\r")
            assert (await one.terminal.wait_exited()).code == 5
        # The sessions are free again.
        for _ in range(3):
            assert (await run(ssh, shell(workspace, "exit 2")))[0].code == 2
        assert logins(server) == 3
        for one in started:
            await release(ssh, pool, one)


async def test_server_that_allows_fewer_sessions_is_reported(
    tmp_path, runtime_directory, workspace
):
    with running(tmp_path, "MaxSessions 2") as server:
        async with ssh_provider(server.place()) as ssh, running_pool() as pool:
            first = await start(ssh, pool, shell(workspace, "echo ready; read _"))
            await ready(first.terminal)
            status, text = await run(ssh, shell(workspace, "true"))
            assert (status.code, status.ended_by) == (255, EndedBy.LOST)
            assert "Session open refused by peer" in text
            await release(ssh, pool, first)


@pytest.mark.exhaustive
@pytest.mark.long
@pytest.mark.timeout(300)
async def test_two_hundred_terminals_run_at_once(server, runtime_directory, workspace):
    async with ssh_provider(server.place()) as ssh, running_pool() as pool:
        started = []
        for number in range(200):
            line = f"echo ready; read _; echo {number}; exit 5"
            started.append(await start(ssh, pool, shell(workspace, line)))
        for one in started:
            with trio.fail_after(60):
                await poll(lambda one=one: "ready" in one.terminal.text.text(), 60)
        for number, one in enumerate(started):
            one.terminal.keyboard.type(b"\r")
            assert (await one.terminal.wait_exited()).code == 5
            assert str(number) in one.terminal.text.text().split("\n")
        async with trio.open_nursery() as nursery:
            for one in started:
                nursery.start_soon(release, ssh, pool, one)
