"""Run programs on a terminal, for the tests of input wait."""

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import termios
import time

import pytest

from acpterm.pty.input_wait.detect import waiting_process
from tests.support.ptys import open_pair

PYTHON = [sys.executable, "-c"]

# A wait with Python's poll or epoll: kind, descriptor, events and timeout.
WATCH = "import select; p = select.{}(); p.register({}, select.{}{}); p.poll({})"

# A call of select with its descriptors and timeout.
SELECT = "import select; select.select({}, {}, [], {})"

CALL = (
    "import ctypes; c = ctypes.CDLL(None); p = ctypes.create_string_buffer({!r});"
    "t = ctypes.create_string_buffer({!r}); c.{}"
)


def waits_for_input(master, quiet=0.0):
    """Return whether a process waits for the input of a terminal; None if that is unknown."""
    pid = waiting_process(master, quiet)
    return None if pid is None else pid > 0


class Terminal:
    """A program on a terminal, whose output is read continuously."""

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

    def results(self, seconds=0.5, *, count_silence=False):
        """Call `waits_for_input` repeatedly for `seconds`; return the set of its results.

        With `count_silence`, it gets the time since the last output, otherwise always 0.
        """
        results = set()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.read(0.005)
            results.add(waits_for_input(self.master, self.quiet if count_silence else 0.0))
        return results

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.program.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            group = os.tcgetpgrp(self.master)
            if group > 0:
                os.killpg(group, signal.SIGKILL)
        os.close(self.master)
        self.program.wait()


def needs(*command):
    return pytest.param(
        command,
        marks=pytest.mark.skipif(
            shutil.which(command[0]) is None, reason=f"{command[0]} is not installed"
        ),
        id=command[0],
    )
