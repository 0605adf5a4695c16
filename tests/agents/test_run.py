"""`acpterm run`: in a window, and with pipes."""

import hashlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.commands import run_here
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll_blocking
from tests.support.processes import alive
from tests.support.starting import ACPTERM, start
from tests.support.tmux import needs_tmux
from tests.support.windows import DETACH

ACPTERM_LINE = " ".join(ACPTERM)


def started(daemon, *words, **more):
    """Start `acpterm run` with pipes."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    env = {**daemon.env, **more.pop("env", {})}
    return start(["run", *words], env=env, **{**pipes, **more})


def run(daemon, *words, stdin_data=None, **more):
    """Run `acpterm run` to its end, with `stdin_data`; return its status, output and stderr.

    It is a process only if it gets a pipe or options of `subprocess.Popen`.
    """
    if stdin_data is None and not more:
        status, out, err = run_here(["run", *map(os.fsdecode, words)], daemon.env)
        return status, out.encode(), err
    if stdin_data is not None:
        more["stdin"] = subprocess.PIPE
    process = started(daemon, *words, **more)
    out, err = process.communicate(stdin_data, timeout=DEADLINE_S)
    return process.returncode, out, err.decode()


@needs_tmux
@pytest.mark.long
def test_run_shows_the_command_in_the_window(windows, tmp_path):
    """Its output stays in the window, without messages of acpterm."""
    shell = windows.shell(size=(60, 12), log=True)
    shell.line(f"clear; {ACPTERM_LINE} run 'seq 3; exit 3'; echo status $?")
    shell.until("1\n2\n3\nstatus 3\nhere$")
    assert "leaves it" not in shell.history()
    # The notice is visible only for a moment.
    go = tmp_path / "go"
    program = f"until [ -e {go} ]; do sleep 0.02; done; stty size; kill -9 $$"
    shell.line(f"clear; {ACPTERM_LINE} run '{program}'; echo status $?")
    shell.until(lambda: shell.has_printed("leaves it"))
    go.touch()
    shell.until("12 60\nstatus 137\nhere$")
    assert "leaves it" not in shell.text


@pytest.mark.long
@needs_tmux
def test_detached_command_runs_on(windows):
    shell = windows.shell(log=True)
    shell.line(f"{ACPTERM_LINE} run --name left-{os.getpid()}; echo status $?")
    shell.until(lambda: shell.has_printed("leaves it"))
    shell.line("echo $SHELL-$PAGER")
    shell.keys(DETACH)
    shell.until(f"[left running: acpterm attach left-{os.getpid()} comes back to it]\nstatus 0")
    assert windows.daemon.info(f"left-{os.getpid()}")["state"] == "running"


@needs_tmux
@pytest.mark.long
def test_run_fails_before_it_starts_a_program_when_the_detach_key_is_invalid(windows, tmp_path):
    env = {"ACPTERM_DETACH_KEY": "C-Enter"}
    pane = windows.acpterm("run", "touch", str(tmp_path / "ran"), env=env)
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
def test_run_has_the_status_and_output_of_the_command(daemon, words, status, printed):
    assert run(daemon, *words) == (status, printed, "")


@pytest.mark.long
def test_command_runs_in_the_execution_context_of_run(daemon, tmp_path):
    line = "pwd; umask; ulimit -n; echo $MINE $PAGER; tty | tr -d 0-9; stty size"
    env = {"MINE": "value", "PAGER": "less -R"}
    wrapped = ["sh", "-c", 'umask 027; ulimit -n 77; exec "$@"', "-", *ACPTERM, "run", "-n", line]
    result = subprocess.run(
        wrapped,
        env={**daemon.env, **env},
        cwd=tmp_path,
        capture_output=True,
        timeout=DEADLINE_S,
        check=True,
    )
    lines = result.stdout.decode().split()
    assert lines == [str(tmp_path), "0027", "77", "value", "less", "-R", "/dev/pts/", "40", "200"]


def test_detached_run_prints_the_name_and_returns_at_once(daemon, tmp_path):
    status, out, err = run(daemon, "-d", "--name", "alone", "sleep", "1000")
    assert (status, out, err) == (0, b"alone\n", "")
    status, out, err = run(daemon, "-d", "sleep", "1000")
    assert daemon.info(out.decode().strip())["state"] == "running"
    status, out, err = run(daemon, "-d", "--name", "alone", "sleep", "1000")
    assert status == 1
    assert "alone" in err


def test_run_fails_when_an_argument_is_not_utf8(daemon):
    status, out, err = run(daemon, b"echo", b"\xff")
    assert (status, out) == (1, b"")
    assert "is not UTF-8" in err
    assert "Traceback" not in err


@pytest.mark.long
def test_command_ends_when_its_output_is_closed_or_run_is_interrupted(daemon):
    with started(daemon, "echo $$; exec yes") as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM
    with started(daemon, "echo $$; exec sleep 1000") as process:
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 128 + signal.SIGINT
    poll_blocking(lambda: not Path(f"/proc/{pid}").exists())


def test_run_prints_long_output_completely(daemon):
    status, out, err = run(daemon, "seq", "100000")
    assert (status, err) == (0, "")
    assert out == b"".join(b"%d\n" % n for n in range(1, 100001))


@pytest.mark.long
def test_program_waits_for_a_slow_reader_of_the_pipe_and_no_output_is_lost(daemon):
    with started(daemon, "seq 1000000; printf last") as process:
        # Without flow control, more output than is retained would arrive before the first read.
        time.sleep(1)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, b"")
    assert out == b"".join(b"%d\n" % n for n in range(1, 1000001)) + b"last"


@pytest.mark.long
def test_run_ends_when_its_output_is_closed_during_a_flood(daemon):
    for _ in range(3):
        with started(daemon, "exec yes") as process:
            process.stdout.read(1 << 20)
            process.stdout.close()
            assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM


def test_stdin_is_passed_on_to_its_end(daemon):
    assert run(daemon, "cat", stdin_data=b"hello\n") == (0, b"hello\n", "")
    assert run(daemon, "cat") == (0, b"", "")
    assert run(daemon, "cat | wc -c", stdin_data=b"no end of line")[1].split() == [b"14"]


def test_stdin_is_passed_on_byte_by_byte(daemon):
    data = bytes(range(256)) * 2000
    expected = hashlib.sha256(data).hexdigest().encode()
    assert run(daemon, "sha256sum", "-", stdin_data=data)[1].split()[0] == expected


@pytest.mark.long
def test_closed_stdin_counts_as_empty(daemon):
    line = f"{ACPTERM_LINE} run cat <&-; echo status $?"
    result = subprocess.run(
        ["sh", "-c", line], env=daemon.env, capture_output=True, timeout=DEADLINE_S, check=True
    )
    assert result.stdout == b"status 0\n"


@pytest.mark.long
def test_run_ends_with_its_program_while_stdin_is_open(daemon):
    reads, writes = os.pipe()
    with open(writes, "wb"), open(reads, "rb") as stdin:
        assert run(daemon, "echo ended", stdin=stdin) == (0, b"ended\n", "")
    # A program that has closed its stdin survives, and is sent no more of it.
    assert run(daemon, "exec <&-; echo closed", stdin_data=b"x" * 1_000_000) == (0, b"closed\n", "")


@pytest.mark.long
def test_stdin_is_not_read_with_n(daemon):
    assert run(daemon, "-n", "test -t 0 && echo terminal", stdin_data=b"x") == (
        0,
        b"terminal\n",
        "",
    )
    assert run(daemon, "test -t 0 || echo pipe", stdin_data=b"x") == (0, b"pipe\n", "")


def test_word_is_a_program_or_shell_text_with_stdin(daemon):
    assert run(daemon, "no-such-program", stdin_data=b"")[0] == 127
    done = run(daemon, "no-such-program", "x", stdin_data=b"")
    assert done == (127, b"acpterm: no-such-program: command not found\n", "")
    assert run(daemon, "echo", "a", stdin_data=b"") == (0, b"a\n", "")
    # A shell builtin is shell text.
    assert run(daemon, "unset", stdin_data=b"")[0] == 0


def test_pipe_gets_no_escape_sequences_unless_raw(daemon):
    line = r"printf '\033[31mred\033[m\tx\ry\n\033]0;title\007z'"
    assert run(daemon, line) == (0, b"red\tx\ry\nz", "")
    raw = b"\033[31mred\033[m\tx\ry\r\n\033]0;title\007z"
    assert run(daemon, "--raw", line) == (0, raw, "")


@needs_tmux
@pytest.mark.long
def test_window_shows_the_terminal_when_stdin_is_a_pipe(windows):
    shell = windows.shell(size=(60, 12))
    shell.line(
        f"clear; printf 'a\\nb\\n' | {ACPTERM_LINE} run 'cat; stty size </dev/tty'; echo status $?"
    )
    shell.until("a\nb\n12 60\nstatus 0\nhere$")
    shell.line(f"clear; stty -a >before; seq 99 | {ACPTERM_LINE} run less")
    shell.until(":")
    shell.keys("G")
    shell.until("98\n99\n(END)")
    shell.keys("q")
    shell.until(lambda: shell.text.strip() == "here$")
    shell.line("clear; stty -a | cmp - before && echo same")
    shell.until("same\nhere$")
    # In the background the window is the shell's.
    shell.line(f"clear; echo data | {ACPTERM_LINE} run 'cat; echo end' &")
    shell.until("data\nend")
    shell.line("wait $!; echo status $?")
    shell.until("status 0\nhere$")


@needs_tmux
@pytest.mark.long
def test_terminal_as_stdin_is_passed_on_with_i(windows):
    shell = windows.shell(size=(60, 12))
    # The typed line does not contain the word that `until` waits for.
    program = 'printf "rea%s\\n> " dy; head -n 1; echo end'
    shell.line(f"clear; {ACPTERM_LINE} run -i '{program}' | cat")
    shell.until("ready\n>")
    shell.line("typed")
    shell.until("ready\n> typed\ntyped\nend\nhere$")


def test_interrupt_reaches_the_program_first(daemon):
    line = "trap 'echo tidy; exit 3' INT; echo ready; read x <&1"
    # The program is killed if it takes longer than the grace.
    with started(daemon, line, env={"ACPTERM_KILL_GRACE": "30"}) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
        assert b"tidy" in process.stdout.read()


def test_options_choose_directory_environment_and_size(daemon, tmp_path):
    (tmp_path / "sub").mkdir()
    words = ["--cwd", "sub", "-e", "A=1=2", "--env", "B=", "--size", "33x7"]
    status, out, err = run(daemon, *words, 'pwd; echo "$A-${B-unset}"; stty size <&1', cwd=tmp_path)
    assert (status, out.decode().splitlines(), err) == (0, [f"{tmp_path}/sub", "1=2-", "7 33"], "")


@pytest.mark.costly
@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        (["--cwd", "/no/such", "true"], 1, "cwd '/no/such' does not exist"),
        (
            ["--size", "80", "true"],
            2,
            "'80' is not a size: give COLSxROWS, such as 80x24, each at most 10000",
        ),
        (["--size", "0x24", "true"], 2, "'0x24' is not a size"),
        (["--env", "A", "true"], 2, "'A' is not a variable: give NAME=VALUE"),
        (["-i", "-n", "true"], 2, "-i passes stdin on, and -n does not"),
    ],
)
def test_run_fails_when_an_option_is_invalid(daemon, words, status, error):
    actual, out, err = run(daemon, *words)
    assert (actual, out) == (status, b"")
    assert error in " ".join(err.split())


@pytest.mark.long
def test_terminal_is_removed_with_rm(daemon):
    name = f"removed-{os.getpid()}"
    assert run(daemon, "--rm", "--name", name, "exit 4")[0] == 4
    assert run(daemon, "-d", "--rm", "--name", name, "true")[0] == 0

    def listed():
        return daemon.request("terminal/list", all=True)["terminals"]

    poll_blocking(lambda: name not in [terminal["name"] for terminal in listed()], 10)


def test_run_tells_what_the_command_has_left_running(daemon):
    name = f"server-{os.getpid()}"
    status, out, err = run(daemon, "--rm", "--name", name, "sleep 600 & echo $!")
    assert (status, err) == (
        0,
        (
            f"[1 process still running: sleep 600 (pid {int(out)}); "
            f"to end that: acpterm kill {name}]\n"
        ),
    )
    daemon.request("terminal/kill", terminalId=name)
    assert not alive(int(out))


@pytest.mark.long
def test_named_pipe_is_removed(daemon):
    run(daemon, "cat", stdin_data=b"x")
    assert not list(daemon.directory.glob("stdin-*"))


@pytest.mark.long
def test_line_may_be_as_long_as_the_kernel_allows_for_an_argument(daemon):
    line = "echo here #".ljust(128 * 1024 - 1, "x")
    assert run(daemon, "--rm", line) == (0, b"here\n", "")
