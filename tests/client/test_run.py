"""`acpterm run`: a terminal of one's own, in a window and where there is none."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.desk import DETACH, Desk, daemon_in
from tests.support.hosts import ACPTERM
from tests.support.starting import start
from tests.support.tmux import needs_tmux, tmux_server

OURS = " ".join(ACPTERM)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with daemon_in(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def desk(daemon, tmp_path):
    with tmux_server(tmp_path / "tmux") as tmux:
        yield Desk(daemon, tmux)


def started(daemon, *words, **more):
    """Start `acpterm run` with pipes."""
    return start(
        ["run", *words],
        env={**daemon.env, **more.pop("env", {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **more,
    )


def run(daemon, *words, **more):
    """Run it to its end: status, what it printed, and what it said beside."""
    process = started(daemon, *words, **more)
    out, err = process.communicate(timeout=20)
    return process.returncode, out.replace(b"\r\n", b"\n"), err.decode()


@needs_tmux
def test_a_command_is_run_in_the_window(desk):
    """What it prints stays, with nothing of ours in it."""
    shell = desk.shell(size=(60, 12))
    shell.line(f"clear; {OURS} run 'seq 3; exit 3'; echo status $?")
    shell.until("1\n2\n3\nstatus 3\nhere$")
    assert "leaves it" not in shell.history()
    shell.line(f"clear; {OURS} run 'sleep 0.6; stty size; kill -9 $$'; echo status $?")
    shell.until("leaves it")
    shell.until("12 60\nstatus 137\nhere$")
    assert "leaves it" not in shell.text


@needs_tmux
def test_what_is_left_runs_on(desk):
    shell = desk.shell()
    shell.line(f"{OURS} run --name mine-{os.getpid()}; echo status $?")
    shell.until("leaves it")
    shell.line("echo $SHELL-$PAGER")
    shell.keys(DETACH)
    shell.until(f"[left running: acpterm attach mine-{os.getpid()} comes back to it]\nstatus 0")
    assert desk.daemon.about(f"mine-{os.getpid()}")["state"] == "running"


@needs_tmux
def test_a_bad_key_is_said_before_anything_runs(desk, tmp_path):
    env = {"ACPTERM_DETACH_KEY": "C-Enter"}
    pane = desk.acpterm("run", "touch", str(tmp_path / "ran"), env=env)
    assert pane.ended() == 1
    assert "detach_key = 'C-Enter'" in pane.text
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("words", "status", "printed"),
    [
        (["echo", "-n", "a b"], 0, b"a b"),
        (["--", "printf", "%s\n", "-d", "--", "x"], 0, b"-d\n--\nx\n"),
        (["printf", "%s\n", "-d", "--name"], 0, b"-d\n--name\n"),
        (["echo one; exit 3"], 3, b"one\n"),
        (["sh", "-c", "kill -9 $$"], 137, b""),
    ],
)
def test_the_status_and_the_output_are_those_of_the_command(daemon, words, status, printed):
    assert run(daemon, *words) == (status, printed, "")


def test_it_is_run_as_whoever_runs_it_is(daemon, tmp_path):
    line = "pwd; umask; ulimit -n; echo $MINE $PAGER; tty | tr -d 0-9; stty size"
    env = {"MINE": "value", "PAGER": "less -R"}
    wrapped = ["sh", "-c", 'umask 027; ulimit -n 77; exec "$@"', "-", *ACPTERM, "run", line]
    said = subprocess.run(
        wrapped,
        env={**daemon.env, **env},
        cwd=tmp_path,
        capture_output=True,
        timeout=20,
        check=True,
    )
    lines = said.stdout.decode().split()
    assert lines == [str(tmp_path), "0027", "77", "value", "less", "-R", "/dev/pts/", "40", "120"]


def test_it_is_left_alone(daemon, tmp_path):
    status, out, err = run(daemon, "-d", "--name", "alone", "sleep", "1000")
    assert (status, out, err) == (0, b"alone\n", "")
    status, out, err = run(daemon, "-d", "sleep", "1000")
    assert daemon.about(out.decode().strip())["state"] == "running"
    status, out, err = run(daemon, "-d", "--name", "alone", "sleep", "1000")
    assert status == 1
    assert "alone" in err


def test_an_argument_that_is_not_utf8_is_an_error(daemon):
    status, out, err = run(daemon, b"echo", b"\xff")
    assert (status, out) == (1, b"")
    assert "is not UTF-8" in err
    assert "Traceback" not in err


def test_the_command_ends_when_nobody_reads_or_it_is_interrupted(daemon):
    with started(daemon, "echo $$; exec yes") as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(10) == 128 + signal.SIGTERM
    with started(daemon, "echo $$; exec sleep 1000") as process:
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 128 + signal.SIGTERM
    end = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_command_that_prints_much_is_printed_whole(daemon):
    status, out, err = run(daemon, "seq", "100000")
    assert (status, err) == (0, "")
    assert out == b"".join(b"%d\n" % n for n in range(1, 100001))


def test_a_program_in_a_pipe_waits_for_whoever_reads_and_nothing_is_missed(daemon):
    with started(daemon, "seq 1000000; printf last") as process:
        # Nobody reads for a while: far more than is kept would have come.
        time.sleep(1)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")
    assert out.replace(b"\r", b"") == b"".join(b"%d\n" % n for n in range(1, 1000001)) + b"last"


def test_one_that_nobody_reads_any_more_ends_though_much_is_on_its_way(daemon):
    for _ in range(3):
        with started(daemon, "exec yes") as process:
            process.stdout.read(1 << 20)
            process.stdout.close()
            assert process.wait(10) == 128 + signal.SIGTERM
