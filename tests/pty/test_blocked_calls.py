"""The system calls and timeouts that count as waiting for input."""

import os
import signal

import pytest

from acpterm.pty.input_wait import syscalls
from tests.pty.programs import CALL, PYTHON, SELECT, WATCH, waits_for_input

pytestmark = pytest.mark.skipif(not syscalls.KNOWN, reason="system calls are not known here")


EPOLL_PWAIT2 = (
    "syscall(441, (e := __import__('select').epoll()).register(0, 1) or e.fileno(),"
    " ctypes.create_string_buffer(12), 1, t, None, 8)"
)

STDIN = b"\0\0\0\0\x01\0\0\0"

MINUTE, SECOND = (seconds.to_bytes(8, "little") + bytes(8) for seconds in (60, 1))


@pytest.mark.costly
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
def test_call_counts_when_it_is_on_the_terminal_with_a_long_timeout(run, code, expected):
    loop = f"print('ready', flush=True)\nwhile True: exec({code!r})"
    terminal = run(*PYTHON, loop)
    terminal.until_shown(b"ready")
    terminal.until(lambda: waits_for_input(terminal.master) is expected)
    if not expected:
        assert True not in terminal.results(0.2)
    assert terminal.program.poll() is None


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="has no select but pselect6")
@pytest.mark.parametrize(("timeout", "expected"), [(MINUTE, True), (SECOND, False)])
def test_old_select_call_counts_like_pselect6(run, timeout, expected):
    code = CALL.format(b"\x01" + bytes(7), timeout, "syscall(23, 1, p, None, None, t)")
    terminal = run(*PYTHON, f"print('ready', flush=True)\nwhile True: {code}")
    terminal.until_shown(b"ready")
    terminal.until(lambda: waits_for_input(terminal.master) is expected)


def test_read_with_a_timeout_of_the_terminal_is_not_long(run):
    code = (
        "import os, termios; a = termios.tcgetattr(0); a[3] &= ~termios.ICANON;"
        "a[6][termios.VMIN], a[6][termios.VTIME] = 0, {};"
        "termios.tcsetattr(0, termios.TCSANOW, a); print('ready', flush=True)\n"
        "while True: os.read(0, 1)"
    )
    short, long = run(*PYTHON, code.format(5)), run(*PYTHON, code.format(100))
    short.until_shown(b"ready")
    assert short.results() == {False}
    long.until_waits()


@pytest.mark.long
def test_polling_program_waits_when_it_is_otherwise_silent(run):
    code = "import select\nwhile True: select.select([0], [], [], 0.1){}"
    silent = run(*PYTHON, code.format(""))
    silent.until(lambda: waits_for_input(silent.master, silent.quiet) is True)
    assert silent.quiet >= 1
    showing = run(*PYTHON, code.format("; print('.', end='', flush=True)"))
    showing.until_shown(b".")
    # While the machine stalls, this program is silent too.
    assert any(True not in showing.results(2, count_silence=True) for _ in range(3))


def test_required_silence_depends_on_the_timeout(run):
    terminal = run(*PYTHON, SELECT.format([0], [], 3))
    terminal.until(lambda: waits_for_input(terminal.master, 6.0) is True)
    assert waits_for_input(terminal.master, 5.9) is False


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (WATCH.format("poll", 0, "POLL", "IN", ""), True),
        (WATCH.format("poll", 0, "POLL", "IN", 2000), False),
        (SELECT.format([0], [], None), True),
        ("import time; time.sleep(100)", False),
    ],
)
def test_interrupted_call_is_decoded_like_the_original(run, code, expected):
    terminal = run(*PYTHON, f"print('ready', flush=True); {code}")
    terminal.until_shown(b"ready")
    terminal.until(lambda: waits_for_input(terminal.master) is expected)
    terminal.program.send_signal(signal.SIGSTOP)
    os.waitpid(terminal.program.pid, os.WUNTRACED)
    terminal.program.send_signal(signal.SIGCONT)
    terminal.until(lambda: waits_for_input(terminal.master) is expected)
    assert terminal.results(0.2) == {expected}


def test_result_is_none_on_an_unknown_machine(run, monkeypatch):
    terminal = run("cat")
    terminal.until_waits()
    monkeypatch.setattr(syscalls, "KNOWN", False)
    assert waits_for_input(terminal.master) is None


def test_result_is_none_for_a_32_bit_program(run, monkeypatch):
    terminal = run("cat")
    terminal.until_waits()
    monkeypatch.setattr(syscalls, "_32_BITS", 1 << 64)  # so that all programs count as 32-bit ones
    assert waits_for_input(terminal.master) is None
