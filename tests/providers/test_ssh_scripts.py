"""The scripts of the other host, run by a shell on this machine."""

import os
import secrets
import shutil
import signal
import subprocess
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from acpterm.config.places import SshPlace
from acpterm.providers.ssh import scripts
from acpterm.providers.ssh.control import Control, ControlLostError
from acpterm.providers.ssh.master import ControlMaster
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.ptys import open_pair


@pytest.fixture
def quick_sleep(tmp_path, monkeypatch):
    """Let `sleep` return soon: `watch` looks every five seconds."""
    path = tmp_path / "bin" / "sleep"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\nexec {shutil.which('sleep')} 0.02\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


def has_watch(directory):
    return (directory / "watch.pid").exists() or not directory.exists()


@asynccontextmanager
async def controlled(monkeypatch, limit_s=1000):
    """Yield a control channel to a local shell, and the directory of its scripts.

    After `limit_s` seconds without a beat, the script ends all programs.
    """
    monkeypatch.setattr(ControlMaster, "argv", lambda *_, **__: ["/bin/sh"])
    control = Control(ControlMaster(SshPlace(), "box", "/nowhere"))
    name = f"acpterm-{secrets.token_hex(16)}"
    directory = Path("/tmp", name)
    try:
        with trio.fail_after(DEADLINE_S):
            async with trio.open_nursery() as nursery:
                await nursery.start(control.run, scripts.control(name, limit_s, "1"))
                try:
                    # `watch` would put a file into a directory that is being removed.
                    await poll(lambda: has_watch(directory))
                    yield control, directory
                finally:
                    control.stop()
    finally:
        with suppress(ProcessLookupError):
            # `watch` notices only after some seconds that its directory is gone.
            os.killpg(control._process.pid, signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)


async def test_host_that_has_given_up_closes_the_channel(quick_sleep, monkeypatch):
    async with controlled(monkeypatch, limit_s=1) as (control, directory):
        await control.closed.wait()
        assert not directory.exists()


async def test_channel_closes_at_a_request_without_its_directory(monkeypatch):
    async with controlled(monkeypatch) as (control, directory):
        shutil.rmtree(directory)
        with pytest.raises(ControlLostError):
            await control.request("exit", "id", timeout_s=DEADLINE_S)


async def test_job_that_cannot_be_stored_is_read(monkeypatch):
    async with controlled(monkeypatch) as (control, directory):
        (directory / "id").mkdir()
        await control.send("job 0 id 2", [b"quit 0", b"quit 0"])
        assert await control.request("exit", "id", timeout_s=DEADLINE_S) == "never"
        assert not (directory / "id.job").exists()


async def test_job_is_stored_with_all_its_lines(monkeypatch):
    async with controlled(monkeypatch) as (control, directory):
        await control.send("job 0 id 2", [b"one  two\\0040", b" three"])
        await control.request("exit", "id", timeout_s=DEADLINE_S)
        assert (directory / "id").read_text() == "one  two\\0040\n three\n"
        assert (directory / "id.job").exists()


@pytest.mark.parametrize(
    ("interpreter", "script"),
    [
        pytest.param("perl", scripts.WAIT_PL, marks=[pytest.mark.long, pytest.mark.exhaustive]),
        ("/bin/sh", scripts.WAIT_SH),
    ],
)
def test_command_that_does_not_arrive_is_no_program_that_has_exited(tmp_path, interpreter, script):
    (tmp_path / "wait").write_text(script)
    argv = [interpreter, str(tmp_path / "wait"), str(tmp_path), "id"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 255
    assert "the command did not arrive" in done.stderr
    # With the pid, the reply to a request for the exit status would be that it was killed.
    assert os.listdir(tmp_path) == ["wait"]


async def test_background_is_not_hung_up_with_its_program(tmp_path):
    (tmp_path / "wait").write_text(scripts.WAIT_PL)
    words = ["3", "/bin/sh", "-c", "mkfifo in; (read x <in; echo $x >out) & tty; exit 3"]
    (tmp_path / "id").write_text("\n".join([str(tmp_path), "", "0", *words, ""]))
    (tmp_path / "id.job").touch()
    master, slave = open_pair(80, 24)
    # As sshd does it: the script leads the session of the terminal.
    argv = ["setsid", "--ctty", "perl", str(tmp_path / "wait"), str(tmp_path), "id"]
    with trio.fail_after(DEADLINE_S):
        done = await trio.run_process(argv, check=False, stdin=slave, stdout=slave, stderr=slave)
    assert (done.returncode, os.read(master, 100)) == (3, f"{os.ttyname(slave)}\r\n".encode())
    os.close(slave)
    os.close(master)
    with trio.fail_after(DEADLINE_S):
        await trio.to_thread.run_sync(
            (tmp_path / "in").write_text, "alive\n", abandon_on_cancel=True
        )
        await poll(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text())
    assert (tmp_path / "out").read_text() == "alive\n"


async def test_missing_acpterm_is_reported_without_the_words_of_the_shell(monkeypatch):
    async with controlled(monkeypatch) as (control, _):
        reply = await control.request("keeper", "- no-such-acpterm", timeout_s=DEADLINE_S)
        assert reply == "no-such-acpterm: command not found"


@pytest.fixture
def program():
    """Yield a process of a job, and the job's id."""
    identifier = secrets.token_hex(16)
    env = {**os.environ, scripts.JOB_VARIABLE: identifier}
    with subprocess.Popen(["sleep", "1000"], env=env) as process:
        try:
            yield process, identifier
        finally:
            process.kill()


def left_of(directory):
    return list(directory.parent.glob(f"{directory.name}*"))


async def quit_with(monkeypatch, request, identifier):
    async with controlled(monkeypatch) as (control, directory):
        # The process that has waited for the program has ended; another one has its pid.
        (directory / f"{identifier}.pid").write_text(f"{os.getpid()} 1\n")
        await control.send(request)
        await control.closed.wait()
    assert left_of(directory) == []


async def test_programs_that_are_left_end_with_the_daemon(monkeypatch, program):
    process, identifier = program
    await quit_with(monkeypatch, "quit 0 all", identifier)
    assert process.wait(DEADLINE_S) == -signal.SIGTERM


async def test_programs_that_are_left_run_on_when_connections_are_not_used(monkeypatch, program):
    process, identifier = program
    await quit_with(monkeypatch, "quit 0", identifier)
    assert process.poll() is None
