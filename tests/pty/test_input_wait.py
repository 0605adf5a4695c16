"""Detection of programs that wait for input, for several kinds of programs and readers."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from acpterm.pty import linux
from acpterm.pty.input_wait import detect, syscalls, waiter
from acpterm.pty.input_wait.detect import stopped_program
from acpterm.pty.master import Master
from tests.pty.programs import PYTHON, SELECT, needs, waits_for_input
from tests.support.polling import poll_blocking
from tests.support.ptys import open_pair

pytestmark = pytest.mark.skipif(not syscalls.KNOWN, reason="system calls are not known here")


NOBODY = 65534


@pytest.mark.costly
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("bash", "--norc"), id="bash"),
        pytest.param(("sh", "-c", "read x"), id="sh-read"),
        pytest.param(("bash", "-c", "read x"), id="bash-read"),
        pytest.param(("cat",), id="cat"),
        pytest.param((*PYTHON, "input()"), id="input"),
        pytest.param((*PYTHON, "import getpass; getpass.getpass()"), id="getpass"),
        pytest.param((sys.executable, "-q"), id="python"),
        needs("zsh", "-f"),
        needs("less", "/etc/passwd"),
        needs("nano"),
        needs("node"),
        needs("sqlite3"),
        # Polls for input once more after 4 seconds, and then waits.
        needs("vim", "-u", "NONE"),
        needs("gdb", "-q", "-nx"),
        needs("fish", "--no-config"),
    ],
)
def test_program_at_a_prompt_waits(run, command):
    terminal = run(*command, PYTHON_BASIC_REPL="1")
    terminal.until_waits()
    # The program continues to wait after the prompt is complete.
    terminal.until_quiet(0.2)
    terminal.until_waits()
    assert {waits_for_input(terminal.master) for _ in range(10)} == {True}


@pytest.mark.costly
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("sleep", "100"), id="sleep"),
        pytest.param(("sh", "-c", "while :; do :; done"), id="busy"),
        pytest.param(("sh", "-c", "sleep 100 | cat"), id="pipe"),
        pytest.param(("sh", "-c", "sleep 100; read x"), id="later"),
        pytest.param((*PYTHON, "import time; time.sleep(100)"), id="python-sleep"),
        needs("top"),
        needs("htop"),
        needs("watch", "date"),
    ],
)
def test_working_or_redrawing_program_does_not_wait(run, command):
    terminal = run(*command)
    terminal.until(lambda: waits_for_input(terminal.master) is False)
    assert terminal.results() == {False}


@pytest.mark.exhaustive
@pytest.mark.long
@pytest.mark.parametrize("command", [needs("top"), needs("htop"), needs("watch", "date")])
def test_redrawing_program_never_waits(run, command):
    terminal = run(*command)
    terminal.until(lambda: len(terminal.output) > 100)
    assert terminal.results(4, count_silence=True) == {False}


def test_reader_no_longer_waits_when_input_arrives(run):
    terminal = run("sh", "-c", "read x; exec sleep 100")
    terminal.until_waits()
    terminal.type("yes\n")
    terminal.until(lambda: waits_for_input(terminal.master) is False)
    assert terminal.results(0.2) == {False}


def runs_a_job(terminal):
    """Return whether a job of the shell is in the foreground and has executed its program."""
    group = os.tcgetpgrp(terminal.master)
    return group != terminal.program.pid and command_name(group) != "bash"


def command_name(pid):
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_shell_jobs_wait_according_to_the_foreground_job(run):
    terminal = run("bash", "--norc")
    terminal.until_waits()
    for job, waits in [("sleep 100", False), ("cat", True), ("sleep 100 | sleep 100", False)]:
        terminal.output = b""
        terminal.type(job + "\n")
        terminal.until(lambda: runs_a_job(terminal))
        terminal.until(lambda waits=waits: waits_for_input(terminal.master) is waits)
        assert terminal.results(0.2) == {waits}
        terminal.type("\x03")
        terminal.until(lambda: os.tcgetpgrp(terminal.master) == terminal.program.pid)
        terminal.until_waits()


def test_background_job_does_not_wait(run):
    terminal = run("bash", "--norc")
    terminal.until_waits()
    # Background jobs may not read: one that tries is stopped, one that only polls is not.
    reader = f"{sys.executable} -c '{SELECT.format([0], [], None)}'"
    terminal.type(f"{reader} & cat & sleep 100\n")
    terminal.until(lambda: os.tcgetpgrp(terminal.master) != terminal.program.pid)
    terminal.until(lambda: waits_for_input(terminal.master) is False)
    assert terminal.results(1) == {False}


@pytest.mark.parametrize(
    "line",
    [
        "cat /etc/passwd | less",
        "true | cat /dev/tty",
        "sleep 100 | sh -c 'sh -c \"read x < /dev/tty; :\"; :'",
        "x=$(cat)",
    ],
)
def test_reader_waits_when_it_does_not_lead_its_group(run, line):
    terminal = run("bash", "--norc")
    terminal.until_waits()
    terminal.type(f"echo be''gins; {line}\n")
    terminal.until_shown(b"begins")
    terminal.until_waits()
    assert terminal.results(0.2) == {True}


def test_reader_waits_when_the_group_leader_has_ended(run):
    terminal = run("bash", "--norc")
    terminal.until_waits()
    terminal.type("true | cat /dev/tty\n")
    terminal.until(lambda: os.tcgetpgrp(terminal.master) != terminal.program.pid)
    leader = os.tcgetpgrp(terminal.master)

    def has_ended():
        process = detect._find(leader)
        return process is None or process.state == b"Z"

    terminal.until(has_ended)
    terminal.until_waits()


def test_reader_waits_when_it_has_no_controlling_terminal(run):
    # This is how `su -c` runs its command.
    code = "import os; os.fork() or (os.setsid(), os.read(0, 1)); os.wait()"
    terminal = run(*PYTHON, code)
    terminal.until_waits()


def test_reader_is_not_found_when_its_parent_has_ended(run):
    code = (
        "import os\n"
        "if not os.fork():\n"
        "    if os.fork(): os._exit(0)\n"
        "    print(os.getpid(), flush=True); os.read(0, 1)\n"
        "os.wait(); import time; time.sleep(100)"
    )
    terminal = run(*PYTHON, code)
    terminal.until_shown(b"\n")
    pid = int(terminal.output)
    terminal.until(lambda: syscalls.blocked_for(pid, pid) is not None)
    terminal.until(lambda: waits_for_input(terminal.master) is False)
    assert terminal.results(0.2) == {False}


def test_program_waits_when_any_thread_reads(run):
    code = "import threading, time; threading.Thread(target=input).start(); time.sleep(100)"
    terminal = run(*PYTHON, code)
    terminal.until_waits()


def test_stopped_program_does_not_wait(run):
    terminal = run("cat")
    terminal.until_waits()
    terminal.program.send_signal(signal.SIGSTOP)
    terminal.until(lambda: waits_for_input(terminal.master) is False)
    assert terminal.results(0.2) == {False}
    terminal.program.send_signal(signal.SIGCONT)
    terminal.until_waits()


@contextlib.contextmanager
def as_other_user():
    """Run the block as a user that may trace neither root's programs nor non-dumpable ones."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


UNTRACEABLE = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); "  # PR_SET_DUMPABLE


def test_result_is_none_when_the_program_may_not_be_inspected(run):
    terminal = run(*PYTHON, UNTRACEABLE + "print('ready', flush=True); input()")
    terminal.until_shown(b"ready")
    with as_other_user():
        assert terminal.results() == {None}


def test_password_prompt_waits_when_the_program_may_not_be_inspected(run):
    terminal = run(*PYTHON, UNTRACEABLE + "import getpass; getpass.getpass()")
    terminal.until_shown(b"Password")
    with as_other_user():
        terminal.until_waits()


def test_terminal_without_a_program_does_not_wait():
    master, slave = open_pair(80, 24)
    assert waits_for_input(master) is False
    os.close(slave)
    assert waits_for_input(master) is False
    os.close(master)
    assert waits_for_input(master) is None


def test_ended_program_does_not_wait(run):
    terminal = run("cat")
    terminal.until_waits()
    terminal.program.kill()
    terminal.until(lambda: not waits_for_input(terminal.master))
    terminal.program.wait()
    assert not waits_for_input(terminal.master)


@pytest.mark.long
def test_check_raises_nothing_when_the_program_ends_during_it(run):
    sources = {module.__file__ for module in (detect, syscalls, linux)}
    results = []
    is_over = False
    while not is_over:
        terminal = run("cat")
        terminal.until_waits()
        # End the program before one of the calls that the check makes: before each of them in turn.
        calls_left = len(results)

        def before_call(frame, event, _argument, terminal=terminal):
            nonlocal calls_left
            if event in ("call", "c_call") and frame.f_code.co_filename in sources:
                calls_left -= 1
                if calls_left == -1:
                    terminal.program.kill()
                    terminal.program.wait()

        sys.setprofile(before_call)
        try:
            results.append(waits_for_input(terminal.master))
        finally:
            sys.setprofile(None)
        is_over = calls_left >= 0
        terminal.program.kill()
    assert len(results) > 20
    assert (results[0], results[-1]) == (False, True)
    assert set(results) <= {True, False, None}


def test_result_is_none_without_descriptors(run):
    terminal = run("sh", "-c", "stty -echo; sleep 100")
    terminal.until(lambda: not termios.tcgetattr(terminal.master)[3] & termios.ECHO)
    terminal.until(lambda: waits_for_input(terminal.master) is False)
    stat = detect._find(terminal.program.pid)
    spare = os.open("/dev/null", os.O_RDONLY)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, limits[1]))
    try:
        assert waits_for_input(terminal.master) is None
        assert detect._waits(stat, stat.pid, detect._Terminal(terminal.master, 0.0)) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_result_is_none_with_too_many_processes(run):
    terminal = run("sh", "-c", "for i in $(seq 80); do sleep 100 & done; echo ready; wait")
    terminal.until_shown(b"ready")
    assert waits_for_input(terminal.master) is None


@pytest.mark.costly
@pytest.mark.parametrize("count", [100, 200])
def test_result_is_none_with_too_many_threads(run, count):
    code = (
        "import threading, time\n"
        f"for _ in range({count}): threading.Thread(target=time.sleep, args=(100,)).start()\n"
        "print('ready', flush=True); time.sleep(100)"
    )
    terminal = run(*PYTHON, code)
    terminal.until_shown(b"ready")
    expected = False if count < 128 else None
    terminal.until(lambda: waits_for_input(terminal.master) is expected)
    assert terminal.results(0.2) == {expected}


def test_other_files_are_excluded_by_name_without_a_stat(run, tmp_path, monkeypatch):
    """The stat of a file on an unreachable file server would block."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = os.open(fifo, os.O_RDWR)
    terminal = run("sh", "-c", f"echo ready; read x < {fifo}")
    terminal.until_shown(b"ready")
    paths = []
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **more: paths.append(path) or stat(path, **more))
    assert terminal.results(0.2) == {False}
    assert paths
    assert all(path.startswith("/dev/pts/") for path in paths)
    os.close(writer)


async def test_master_reports_a_prompt(run):
    terminal = run("cat")
    terminal.until_waits()
    master = Master(os.dup(terminal.master))
    assert master.waiting_process() == terminal.program.pid
    master.close()
    assert master.waiting_process() is None


READ = "sh -c 'printf \"name? \"; read x; echo got $x'"
SET_MODES = "stty -echo"
GROUP = "import os, subprocess, sys; subprocess.run(sys.argv[1:], preexec_fn=os.setpgrp)"


@pytest.mark.parametrize(
    ("command", "name", "number", "leader"),
    [
        (f"timeout 100 {READ}; :", "sh", signal.SIGTTIN, "timeout"),
        (f"timeout 100 {SET_MODES}; :", "stty", signal.SIGTTOU, "timeout"),
        ("x=$(timeout 100 head -n 1); :", "head", signal.SIGTTIN, "timeout"),
        (f"{sys.executable} -c '{GROUP}' cat; :", "cat", signal.SIGTTIN, "cat"),
    ],
)
def test_program_that_uses_the_terminal_in_the_background_is_stopped(
    run, command, name, number, leader
):
    terminal = run("sh", "-c", command)
    terminal.until(lambda: stopped_program(terminal.master) is not None)
    found = stopped_program(terminal.master)
    assert (found.name, found.signal, found.leader) == (name, number, leader)
    assert command_name(found.pid) == name
    assert terminal.results(0.2) == {False}
    os.kill(found.pid, signal.SIGKILL)
    terminal.program.wait()


def test_stopped_program_is_found_when_another_one_ends_during_the_search(run, monkeypatch):
    terminal = run("sh", "-c", "timeout 100 cat </dev/tty & timeout 100 cat; wait")
    session = terminal.program.pid

    def stopped():
        return [one.pid for one in detect._descendants((session,), session) if one.state == b"T"]

    terminal.until(lambda: len(stopped()) == 2)
    first, second = stopped()
    stat_fields, reads = detect.stat_fields, []

    def end_first(path):
        reads.append(path)
        if path == f"/proc/{first}/stat" and reads.count(path) == 2:
            os.kill(first, signal.SIGKILL)
            poll_blocking(lambda: not os.path.exists(path))
        return stat_fields(path)

    monkeypatch.setattr(detect, "stat_fields", end_first)
    assert stopped_program(terminal.master).pid == second
    assert not os.path.exists(f"/proc/{first}")
    os.kill(second, signal.SIGKILL)
    terminal.program.wait()


def test_program_in_the_foreground_that_has_stopped_itself_is_stopped(run):
    terminal = run("sh", "-c", "sh -c 'kill -STOP $$; cat'; :")
    terminal.until(lambda: stopped_program(terminal.master) is not None)
    found = stopped_program(terminal.master)
    assert (found.name, found.signal) == ("sh", signal.SIGSTOP)
    os.kill(found.pid, signal.SIGCONT)
    terminal.until_waits()
    assert stopped_program(terminal.master) is None


def test_program_in_the_background_that_another_signal_has_stopped_is_no_stopped_program(run):
    terminal = run("sh", "-c", "timeout 100 sh -c 'echo $$; kill -STOP $$'; :")
    terminal.until_shown(b"\n")
    pid = int(terminal.output)
    terminal.until(lambda: detect._find(pid).state == b"T")
    assert stopped_program(terminal.master) is None
    os.kill(pid, signal.SIGKILL)


def test_program_under_timeout_in_the_foreground_waits(run):
    terminal = run("sh", "-c", f"timeout --foreground 100 {READ}; :")
    terminal.until_waits()
    assert stopped_program(terminal.master) is None
    terminal.type("Ada\n")
    terminal.until_shown(b"got Ada")


def test_suspended_and_background_jobs_of_a_shell_are_not_stopped_programs(run):
    terminal = run("bash", "--norc")
    terminal.until_waits()

    def stopped_jobs():
        jobs = map(detect._find, detect._children(detect._find(terminal.program.pid)))
        return sum(job is not None and job.state == b"T" for job in jobs)

    terminal.type("cat &\n")
    terminal.until(lambda: stopped_jobs() == 1)
    terminal.type("sleep 100\n")
    terminal.until(lambda: runs_a_job(terminal))
    assert stopped_program(terminal.master) is None
    terminal.type("\x1a")
    terminal.until(lambda: stopped_jobs() == 2)
    terminal.until_waits()
    terminal.type("sleep 100\n")
    terminal.until(lambda: runs_a_job(terminal))
    assert stopped_program(terminal.master) is None


def test_program_of_a_script_is_stopped_when_the_script_is_a_job_of_a_shell(run):
    terminal = run("bash", "--norc")
    terminal.until_waits()
    terminal.type("sh -c 'timeout 100 cat; :'\n")
    terminal.until(lambda: stopped_program(terminal.master) is not None)
    assert stopped_program(terminal.master).name == "cat"
    terminal.type("\x03")


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("vim", ["-u", "NONE", "/x/.git/COMMIT_EDITMSG"], "vim waits on COMMIT_EDITMSG"),
        ("vim.basic", [b"caf\xe9"], "vim.basic waits on caf\N{REPLACEMENT CHARACTER}"),
        ("/usr/bin/less", ["+F", "a\n.log"], "less waits on a?.log"),
        ("less", ["-R", "x"], "less waits on x"),
        ("less", [], "less waits"),
        ("vim", ["-u", "NONE"], "vim waits"),
        ("vim", ["-u", "NONE", "-"], "vim waits"),
        ("/usr/bin/python3", ["file"], "python3 waits for input"),
        ("-bash", [], "bash is at its prompt"),
        ("npm exec create-vite", [], "npm waits for input"),
        ("\x1b[2J", [], "?[2J waits for input"),
    ],
)
def test_program_that_waits_is_named_with_the_file_of_an_editor_or_pager(name, args, expected):
    # The shell takes these arguments, and reads its pipe.
    argv = [name, "-s", "--", *args]
    with subprocess.Popen(argv, executable="/bin/sh", stdin=subprocess.PIPE) as process:
        # Just after exec, the kernel may not show the arguments yet.
        poll_blocking(lambda: sentence(process.pid) == expected)
    assert sentence(process.pid) is None


@pytest.mark.parametrize(
    ("argv", "asks"),
    [
        (["bash"], False),
        (["-zsh"], False),
        (["bash", "--rcfile", "/x", "-i"], False),
        (["sh", "-x"], False),
        (["bash", "-c", "read x"], True),
        (["bash", "-lc", "read x"], True),
        (["sh", "script"], True),
        (["python3"], True),
        (["nano", "x"], False),
    ],
)
def test_shell_at_its_prompt_and_an_editor_ask_nothing(monkeypatch, argv, asks):
    cmdline = "\0".join([*argv, ""]).encode()
    monkeypatch.setattr(waiter, "read_once", lambda *_: cmdline)
    assert waiter.waiter_of(1).asks is asks


def test_shell_that_edits_lines_asks_in_line_mode(monkeypatch):
    for name, asks in (("bash", True), ("zsh", True), ("dash", False), ("sh", False)):
        monkeypatch.setattr(waiter, "read_once", lambda *_, name=name: f"{name}\0-i\0".encode())
        assert waiter.waiter_of(1, reads_lines=True).asks is asks


def sentence(pid):
    return waiter.waiter_of(pid).sentence
