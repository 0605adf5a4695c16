import contextlib
import fcntl
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from acpterm.pty.input_wait import detect, syscalls
from acpterm.pty.input_wait.detect import waits_for_input
from acpterm.pty.master import Master
from tests.support.ptys import open_pair

pytestmark = pytest.mark.skipif(not syscalls.KNOWN, reason="system calls are not known here")

NOBODY = 65534
PYTHON = [sys.executable, "-c"]
# Python's poll and epoll by one name: what they watch, for what, and for how long.
WATCH = "import select; p = select.{}(); p.register({}, select.{}{}); p.poll({})"


class Terminal:
    """A program on a terminal, whose output is read as it comes."""

    def __init__(self, command, **environment):
        self.master, slave = open_pair(80, 24)
        self.program = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  it is short
            env={**os.environ, "TERM": "xterm", "PS1": "$ ", "INPUTRC": "/dev/null"} | environment,
        )
        os.close(slave)
        self.output = b""
        self.last = time.monotonic()

    def read(self, seconds=0.0):
        while select.select([self.master], [], [], seconds)[0]:
            try:
                self.output += os.read(self.master, 65536)
            except OSError:
                return
            self.last = time.monotonic()
            seconds = 0.0

    def type(self, text):
        os.write(self.master, text.encode())

    @property
    def quiet(self):
        return time.monotonic() - self.last

    def until(self, condition, seconds=30.0):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.output[-2000:]
            self.read(0.01)

    def until_waits(self):
        self.until(lambda: waits_for_input(self.master) is True)

    def until_quiet(self, seconds):
        self.until(lambda: self.quiet >= seconds)

    def until_shown(self, text):
        self.until(lambda: text in self.output)

    def seen(self, seconds=0.5, *, count_silence=False):
        """What all looks in that time found."""
        seen = set()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.read(0.005)
            seen.add(waits_for_input(self.master, self.quiet if count_silence else 0.0))
        return seen

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.program.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            group = os.tcgetpgrp(self.master)
            if group > 0:
                os.killpg(group, signal.SIGKILL)
        os.close(self.master)
        self.program.wait()


@pytest.fixture
def run():
    terminals = []

    def start(*command, **environment):
        terminals.append(Terminal(command, **environment))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()


def needs(*command):
    return pytest.param(
        command,
        marks=pytest.mark.skipif(
            shutil.which(command[0]) is None, reason=f"{command[0]} is not installed"
        ),
        id=command[0],
    )


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
        # Looks for input after 4 seconds once more, and then waits.
        needs("vim", "-u", "NONE"),
        needs("gdb", "-q", "-nx"),
        needs("fish", "--no-config"),
    ],
)
def test_what_has_a_prompt_waits(run, command):
    terminal = run(*command, PYTHON_BASIC_REPL="1")
    terminal.until_waits()
    # Nor was it seen in passing.
    terminal.until_quiet(0.2)
    terminal.until_waits()
    assert {waits_for_input(terminal.master) for _ in range(10)} == {True}


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
def test_what_works_or_shows_does_not_wait(run, command):
    terminal = run(*command)
    terminal.until(lambda: waits_for_input(terminal.master) is False)
    assert terminal.seen() == {False}


@pytest.mark.long
@pytest.mark.parametrize("command", [needs("top"), needs("htop"), needs("watch", "date")])
def test_what_shows_again_and_again_does_not_wait_however_long_one_looks(run, command):
    terminal = run(*command)
    terminal.until(lambda: len(terminal.output) > 100)
    assert terminal.seen(4, count_silence=True) == {False}


# Each of the calls, as a program makes it: with what it waits for, and for how long.
SELECT = "import select; select.select({}, {}, [], {})"
CALL = (
    "import ctypes; c = ctypes.CDLL(None); p = ctypes.create_string_buffer({!r});"
    "t = ctypes.create_string_buffer({!r}); c.{}"
)
EPOLL_PWAIT2 = (
    "syscall(441, (e := __import__('select').epoll()).register(0, 1) or e.fileno(),"
    " ctypes.create_string_buffer(12), 1, t, None, 8)"
)
STDIN = b"\0\0\0\0\x01\0\0\0"
MINUTE, SECOND = (seconds.to_bytes(8, "little") + bytes(8) for seconds in (60, 1))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os; os.read(0, 1)", True),
        ("import os; os.readv(0, [bytearray(1)])", True),
        ("import os; os.read(os.open('/dev/tty', os.O_RDWR), 1)", True),
        ("import os; os.read(os.open(os.ttyname(0), os.O_RDWR), 1)", True),
        ("import os; os.read(os.pipe()[0], 1)", False),
        ("import os; os.read(os.openpty()[0], 1)", False),
        ("import os; os.read(os.openpty()[1], 1)", False),
        (CALL.format(b"", b"", "splice(0, None, __import__('os').pipe()[1], None, 99, 0)"), True),
        (SELECT.format([0], [], None), True),
        (SELECT.format([0], [], 60), True),
        (SELECT.format([0], [], 3), False),
        (SELECT.format([], [], 60), False),
        # A terminal whose output is stopped: nothing can be written.
        ("import termios; termios.tcflow(1, 0);" + SELECT.format([], [0], None), False),
        (WATCH.format("poll", 0, "POLL", "IN", ""), True),
        (WATCH.format("poll", 0, "POLL", "IN", 60_000), True),
        (WATCH.format("poll", 0, "POLL", "IN", 1000), False),
        (WATCH.format("poll", 0, "POLL", "PRI", ""), False),
        (WATCH.format("poll", "__import__('os').pipe()[0]", "POLL", "IN", ""), False),
        ("import select; select.poll().poll()", False),
        (CALL.format(STDIN, MINUTE, "ppoll(p, 1, None, None)"), True),
        (CALL.format(STDIN, MINUTE, "ppoll(p, 1, t, None)"), True),
        (CALL.format(STDIN, SECOND, "ppoll(p, 1, t, None)"), False),
        (WATCH.format("epoll", 0, "EPOLL", "IN", ""), True),
        (WATCH.format("epoll", 0, "EPOLL", "IN", 60), True),
        (WATCH.format("epoll", 0, "EPOLL", "IN", 1), False),
        (CALL.format(b"", MINUTE, EPOLL_PWAIT2), True),
        (CALL.format(b"", SECOND, EPOLL_PWAIT2), False),
        (WATCH.format("epoll", 0, "EPOLL", "PRI", ""), False),
        (WATCH.format("epoll", "__import__('os').pipe()[0]", "EPOLL", "IN", ""), False),
    ],
)
def test_each_call_counts_when_it_is_for_the_terminal_and_long(run, code, expected):
    again = f"print('ready', flush=True)\nwhile True: exec({code!r})"
    terminal = run(*PYTHON, again)
    terminal.until_shown(b"ready")
    terminal.until(lambda: waits_for_input(terminal.master) is expected)
    if not expected:
        assert True not in terminal.seen(0.2)
    assert terminal.program.poll() is None


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="has no select but pselect6")
@pytest.mark.parametrize(("timeout", "expected"), [(MINUTE, True), (SECOND, False)])
def test_the_old_select_counts_like_the_new(run, timeout, expected):
    code = CALL.format(b"\x01" + bytes(7), timeout, "syscall(23, 1, p, None, None, t)")
    terminal = run(*PYTHON, f"print('ready', flush=True)\nwhile True: {code}")
    terminal.until_shown(b"ready")
    terminal.until(lambda: waits_for_input(terminal.master) is expected)


def test_a_read_that_the_terminal_gives_a_timeout_is_no_long_one(run):
    code = (
        "import os, termios; a = termios.tcgetattr(0); a[3] &= ~termios.ICANON;"
        "a[6][termios.VMIN], a[6][termios.VTIME] = 0, {};"
        "termios.tcsetattr(0, termios.TCSANOW, a); print('ready', flush=True)\n"
        "while True: os.read(0, 1)"
    )
    short, long = run(*PYTHON, code.format(5)), run(*PYTHON, code.format(100))
    short.until_shown(b"ready")
    assert short.seen() == {False}
    long.until_waits()


def test_who_looks_for_input_again_and_again_waits_when_that_is_all(run):
    code = "import select\nwhile True: select.select([0], [], [], 0.1){}"
    silent = run(*PYTHON, code.format(""))
    silent.until(lambda: waits_for_input(silent.master, silent.quiet) is True)
    assert silent.quiet >= 1
    showing = run(*PYTHON, code.format("; print('.', end='', flush=True)"))
    showing.until_shown(b".")
    assert True not in showing.seen(2, count_silence=True)


def test_silence_counts_by_the_timeout(run):
    terminal = run(*PYTHON, SELECT.format([0], [], 3))
    terminal.until(lambda: waits_for_input(terminal.master, 6.0) is True)
    assert waits_for_input(terminal.master, 5.9) is False


def test_what_was_typed_wakes_the_reader(run):
    terminal = run("sh", "-c", "read x; exec sleep 100")
    terminal.until_waits()
    terminal.type("yes\n")
    terminal.until(lambda: waits_for_input(terminal.master) is False)
    assert terminal.seen(0.2) == {False}


def runs_a_job(terminal):
    """Return whether a shell's job is in the foreground, and has become its program."""
    group = os.tcgetpgrp(terminal.master)
    return group != terminal.program.pid and command_name(group) != "bash"


def command_name(pid):
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_the_jobs_of_a_shell_wait_for_themselves(run):
    terminal = run("bash", "--norc")
    terminal.until_waits()
    for job, waits in [("sleep 100", False), ("cat", True), ("sleep 100 | sleep 100", False)]:
        terminal.output = b""
        terminal.type(job + "\n")
        terminal.until(lambda: runs_a_job(terminal))
        terminal.until(lambda waits=waits: waits_for_input(terminal.master) is waits)
        assert terminal.seen(0.2) == {waits}
        terminal.type("\x03")
        terminal.until(lambda: os.tcgetpgrp(terminal.master) == terminal.program.pid)
        terminal.until_waits()


def test_a_job_in_the_background_does_not_wait(run):
    terminal = run("bash", "--norc")
    terminal.until_waits()
    # Those in the background may not read: one that tries is stopped, one that looks is not.
    look = f"{sys.executable} -c '{SELECT.format([0], [], None)}'"
    terminal.type(f"{look} & cat & sleep 100\n")
    terminal.until(lambda: os.tcgetpgrp(terminal.master) != terminal.program.pid)
    terminal.until(lambda: waits_for_input(terminal.master) is False)
    assert terminal.seen(1) == {False}


@pytest.mark.parametrize(
    "line",
    [
        "cat /etc/passwd | less",
        "true | cat /dev/tty",
        "sleep 100 | sh -c 'sh -c \"read x < /dev/tty; :\"; :'",
        "x=$(cat)",
    ],
)
def test_the_reader_need_not_lead_its_group(run, line):
    terminal = run("bash", "--norc")
    terminal.until_waits()
    terminal.type(f"echo be''gins; {line}\n")
    terminal.until_shown(b"begins")
    terminal.until_waits()
    assert terminal.seen(0.2) == {True}


def test_the_leader_may_have_ended(run):
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


def test_a_reader_without_a_controlling_terminal_counts(run):
    # As `su -c` runs its command.
    code = "import os; os.fork() or (os.setsid(), os.read(0, 1)); os.wait()"
    terminal = run(*PYTHON, code)
    terminal.until_waits()


def test_a_reader_whose_parent_has_ended_is_overlooked(run):
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
    assert terminal.seen(0.2) == {False}


def test_any_thread_may_be_the_reader(run):
    code = "import threading, time; threading.Thread(target=input).start(); time.sleep(100)"
    terminal = run(*PYTHON, code)
    terminal.until_waits()


def test_who_is_stopped_does_not_wait(run):
    terminal = run("cat")
    terminal.until_waits()
    terminal.program.send_signal(signal.SIGSTOP)
    terminal.until(lambda: waits_for_input(terminal.master) is False)
    assert terminal.seen(0.2) == {False}
    terminal.program.send_signal(signal.SIGCONT)
    terminal.until_waits()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (WATCH.format("poll", 0, "POLL", "IN", ""), True),
        (WATCH.format("poll", 0, "POLL", "IN", 2000), False),
        (SELECT.format([0], [], None), True),
        ("import time; time.sleep(100)", False),
    ],
)
def test_a_call_that_was_interrupted_is_still_the_same(run, code, expected):
    terminal = run(*PYTHON, f"print('ready', flush=True); {code}")
    terminal.until_shown(b"ready")
    terminal.until(lambda: waits_for_input(terminal.master) is expected)
    terminal.program.send_signal(signal.SIGSTOP)
    os.waitpid(terminal.program.pid, os.WUNTRACED)
    terminal.program.send_signal(signal.SIGCONT)
    terminal.until(lambda: waits_for_input(terminal.master) is expected)
    assert terminal.seen(0.2) == {expected}


@contextlib.contextmanager
def as_stranger():
    """Be somebody who may not trace what root runs, nor what is marked as not to be traced."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


UNTRACEABLE = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); "  # PR_SET_DUMPABLE


def test_who_may_not_look_does_not_know(run):
    terminal = run(*PYTHON, UNTRACEABLE + "print('ready', flush=True); input()")
    terminal.until_shown(b"ready")
    with as_stranger():
        assert terminal.seen() == {None}


def test_a_password_is_asked_for_even_where_nobody_may_look(run):
    terminal = run(*PYTHON, UNTRACEABLE + "import getpass; getpass.getpass()")
    terminal.until_shown(b"Password")
    with as_stranger():
        terminal.until_waits()


def test_on_an_unknown_machine_nothing_is_known(run, monkeypatch):
    terminal = run("cat")
    terminal.until_waits()
    monkeypatch.setattr(syscalls, "KNOWN", False)
    assert waits_for_input(terminal.master) is None


def test_a_program_of_32_bits_is_not_misread(run, monkeypatch):
    terminal = run("cat")
    terminal.until_waits()
    monkeypatch.setattr(syscalls, "_32_BITS", 1 << 64)  # so that all are
    assert waits_for_input(terminal.master) is None


def test_where_nothing_runs_nothing_waits():
    master, slave = open_pair(80, 24)
    assert waits_for_input(master) is False
    os.close(slave)
    assert waits_for_input(master) is False
    os.close(master)
    assert waits_for_input(master) is None


def test_a_program_that_has_ended_does_not_wait(run):
    terminal = run("cat")
    terminal.until_waits()
    terminal.program.kill()
    terminal.until(lambda: not waits_for_input(terminal.master))
    terminal.program.wait()
    assert not waits_for_input(terminal.master)


def test_one_that_ends_while_it_is_looked_at_raises_nothing(run):
    terminal = run("sh", "-c", "while :; do /bin/true; /bin/true | /bin/true; done")
    assert True not in terminal.seen(1)


def test_without_descriptors_nothing_is_known(run):
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


def test_more_processes_than_one_look_takes_in_are_not_known(run):
    terminal = run("sh", "-c", "for i in $(seq 80); do sleep 100 & done; echo ready; wait")
    terminal.until_shown(b"ready")
    assert waits_for_input(terminal.master) is None


@pytest.mark.parametrize("count", [100, 200])
def test_more_threads_than_one_look_takes_in_are_not_known(run, count):
    code = (
        "import threading, time\n"
        f"for _ in range({count}): threading.Thread(target=time.sleep, args=(100,)).start()\n"
        "print('ready', flush=True); time.sleep(100)"
    )
    terminal = run(*PYTHON, code)
    terminal.until_shown(b"ready")
    expected = False if count < 128 else None
    terminal.until(lambda: waits_for_input(terminal.master) is expected)
    assert terminal.seen(0.2) == {expected}


def test_what_is_read_elsewhere_is_told_by_name_before_it_is_looked_at(run, tmp_path, monkeypatch):
    """For a look at a file whose server is gone would block."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = os.open(fifo, os.O_RDWR)
    terminal = run("sh", "-c", f"echo ready; read x < {fifo}")
    terminal.until_shown(b"ready")
    looked = []
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **more: looked.append(path) or stat(path, **more))
    assert terminal.seen(0.2) == {False}
    assert looked
    assert all(path.startswith("/dev/pts/") for path in looked)
    os.close(writer)


async def test_a_master_says_it(run):
    terminal = run("cat")
    terminal.until_waits()
    master = Master(terminal.program.pid, os.dup(terminal.master))
    assert master.waits_for_input() is True
    master.close()
    assert master.waits_for_input() is None
