"""What fails on this machine, and what another host may send: no exception ends the daemon."""

import contextlib
import errno
import json
import os
import socket
import tempfile

import pytest
import trio

from acpterm import __version__
from acpterm.config.places import SshPlace
from acpterm.providers.provider import ProviderError
from acpterm.providers.ssh import keeper_link, remote_keeper
from acpterm.providers.ssh.connections import Connections
from acpterm.providers.ssh.control import Control
from acpterm.providers.ssh.master import ControlMaster, users_master
from acpterm.providers.ssh.program import LOST, SshProgram
from acpterm.providers.ssh.provider import SshProvider
from acpterm.terminal.remote import RemoteExit
from tests.support.depth import DEADLINE_S


@pytest.fixture
async def no_descriptors(monkeypatch):
    """Make sockets, processes and directories fail as if no file descriptor was free."""

    def fail(*arguments, **options):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def fail_later(*arguments, **options):
        await trio.lowlevel.checkpoint()
        fail()

    monkeypatch.setattr(socket, "socket", fail)
    monkeypatch.setattr(trio.socket, "socket", fail)
    monkeypatch.setattr(os, "listdir", fail)
    monkeypatch.setattr(trio, "run_process", fail_later)
    monkeypatch.setattr(trio.lowlevel, "open_process", fail_later)


@pytest.fixture
def master(tmp_path):
    return ControlMaster(SshPlace(), "box", str(tmp_path / "0"))


@pytest.fixture
async def connections(tmp_path):
    return Connections(SshPlace(), "box", str(tmp_path))


async def test_connection_is_refused_without_descriptors(no_descriptors, master, connections):
    with pytest.raises(ProviderError, match="Too many open files"):
        await users_master(SshPlace(config="/dev/null"), "box")
    with pytest.raises(ProviderError, match="Too many open files"):
        await master.start([])
    with pytest.raises(ProviderError, match="Too many open files"):
        await master.forward("/here", "/there")
    with pytest.raises(ProviderError, match="Too many open files"):
        await keeper_link.open_link("/nowhere", 1.0)
    with pytest.raises(ProviderError, match="Too many open files"):
        await Control(master).run(b"")
    with pytest.raises(ProviderError, match="Too many open files"):
        connections._find_masters()
    await master.stop()
    assert master.is_alive()


async def test_directory_that_cannot_be_written_is_a_refusal(tmp_path):
    with pytest.raises(ProviderError, match="cannot be written"):
        Connections(SshPlace(), "box", str(tmp_path / "none"))._remote_name()


async def test_program_ends_as_lost_without_descriptors(no_descriptors, connections):
    program = SshProgram(connections, "id", "/nowhere")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connections.run)
        assert not await program.end(0.0)
        assert not await program.signal(15)
        assert await program.exit(255, None) == LOST
        nursery.cancel_scope.cancel()


async def test_keeper_continues_after_its_directory_could_not_be_read(
    monkeypatch, tmp_path, connections, autojump_clock
):
    failures = [OSError(errno.EMFILE, "Too many open files")]
    listdir = os.listdir

    def fail_once(path):
        if failures:
            raise failures.pop()
        return listdir(path)

    monkeypatch.setattr(os, "listdir", fail_once)
    made = remote_keeper.RemoteKeeper(SshPlace(keeper=True), connections, str(tmp_path))
    (tmp_path / "abandoned-1").touch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await trio.sleep(3)
        nursery.cancel_scope.cancel()
    assert connections.kept == {"1"}


# What another host may send


@pytest.mark.parametrize("number", ["²", "9" * 5000, "٣", "-1", ""])
def test_number_that_is_none_is_noise(master, number):
    assert Control(master)._parsed(f"acpterm {number} words".encode()) is None


def test_number_of_a_request_is_parsed(master):
    assert Control(master)._parsed(b"acpterm 12 code 3") == (12, "code 3")


@pytest.mark.parametrize("reply", ["code ²", "code " + "9" * 5000, "signal ²", "signal x KILL"])
async def test_exit_that_is_none_is_a_loss(connections, reply):
    assert await SshProgram(connections, "id", "/nowhere")._read_exit(reply, 255) == LOST


@pytest.mark.parametrize(
    ("code", "found"), [(128, RemoteExit(128, None)), (254, RemoteExit(254, None)), (255, LOST)]
)
async def test_exit_code_is_the_programs_unless_ssh_exits_with_it(connections, code, found):
    assert await SshProgram(connections, "id", "/nowhere").exit(code, None) == found
    # The master is alive, and the control channel does not answer.
    assert await SshProgram(connections, "id", "/nowhere")._read_exit(None, code) == found


def test_master_with_many_connections_to_accept_is_alive(master):
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
        listener.bind(master.path)
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                one = stack.enter_context(socket.socket(socket.AF_UNIX))
                one.setblocking(False)
                one.connect(master.path)
        assert master.is_alive()
    assert not master.is_alive()


@pytest.mark.parametrize("reply", ["[" * 100_000, "9" * 5000, "{}"])
def test_status_that_is_none_means_that_there_is_no_keeper(reply):
    with pytest.raises(keeper_link.UnusableError, match="cannot be used there"):
        keeper_link.read_status(reply)


@pytest.mark.parametrize("path", ["/run/${HOME}", "/run/%h/sock", "/a:/b", "run/sock", "/a\nb"])
def test_socket_with_a_path_that_ssh_expands_is_not_used(path):
    reply = json.dumps({"version": __version__, "userSocket": path})
    with pytest.raises(keeper_link.UnusableError, match="socket"):
        keeper_link.read_status(reply)


def test_usual_path_of_a_socket_is_used():
    path = "/run/user/1000/acpterm/user.sock"
    reply = json.dumps({"version": __version__, "userSocket": path})
    assert keeper_link.read_status(reply) == (__version__, path)


async def test_ssh_that_uses_a_connection_has_no_variables_of_the_daemon(
    monkeypatch, tmp_path, master
):
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f"#!/bin/sh\nenv >>{tmp_path}/env\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("API_TOKEN", "s3cr3t")
    await master.forward("/here", "/there")
    with pytest.raises(ProviderError):
        await Control(master).run(b"")
    text = (tmp_path / "env").read_text()
    assert text.count("HOME=") == 2
    assert "s3cr3t" not in text


@pytest.fixture
def local_shell(monkeypatch):
    """Let control channels lead to a shell on this machine."""
    monkeypatch.setattr(ControlMaster, "argv", lambda *_, **__: ["/bin/sh"])


async def test_words_of_a_command_line_are_printable(local_shell, master):
    with trio.fail_after(DEADLINE_S), pytest.raises(ProviderError):
        await Control(master).run(b"printf 'acpterm 0 ready sh \\0 x\\n'\n")


async def test_failure_of_an_open_channel_is_a_loss(local_shell, monkeypatch, master):
    control = Control(master)
    parse = control._parsed

    def fail_second(line):
        if b"second" in line:
            raise ValueError("unforeseen")
        return parse(line)

    monkeypatch.setattr(control, "_parsed", fail_second)
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(control.run, b"echo acpterm 0 ready sh x; echo second; read _\n")
            await control.closed.wait()
    assert control.is_lost


async def test_check_says_that_it_can_create_no_directory(monkeypatch):
    def fail(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", fail)
    with pytest.raises(ProviderError, match=r"box: .* none can be created: No space left.* TMPDIR"):
        await SshProvider("ssh:box", SshPlace()).check()
