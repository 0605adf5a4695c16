"""The user's commands that show a terminal while faults happen: `logs -f` and `attach`."""

import fcntl
import os
import pty
import struct
import subprocess
import termios

import trio

from tests.faults import numbered
from tests.faults.daemon import ACPTERM, Daemon, until

_END_TIMEOUT_S = 15
_RETAINED_BYTES = 64 * 1024


class Follower:
    """`acpterm logs -f` of a terminal, with its output in a file."""

    def __init__(self, daemon: Daemon, terminal: str) -> None:
        self._file = daemon.directory / f"followed-{terminal}"
        self._errors = daemon.directory / f"followed-{terminal}.errors"
        with self._file.open("wb") as out, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*ACPTERM, "logs", "-f", terminal, "--socket", daemon.socket],
                env=daemon.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
            )

    async def check_end(self, total: int) -> None:
        """Raise AssertionError unless the command exits and has printed every line once."""
        status = await until(self.process.poll, _END_TIMEOUT_S, "logs -f does not end")
        assert status == 0, f"logs -f ended with {status}: {self._errors.read_text()}"
        numbered.check_text(self._file.read_text(), whole=True, total=total)

    def close(self) -> None:
        """Kill the command if it still runs."""
        self.process.kill()
        self.process.wait()


class Attached:
    """`acpterm attach` of a terminal in a window: a PTY that is read continuously."""

    def __init__(self, daemon: Daemon, terminal: str) -> None:
        self.shown = b""
        self._master, slave = pty.openpty()
        try:
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            self.process = subprocess.Popen(
                ["setsid", "--ctty", *ACPTERM, "attach", terminal, "--socket", daemon.socket],
                env=daemon.env | {"TERM": "xterm-256color"},
                stdin=slave,
                stdout=slave,
                stderr=slave,
            )
        finally:
            os.close(slave)
        os.set_blocking(self._master, False)

    async def run(self) -> None:
        """Read the window's output until the command exits or this is cancelled."""
        while True:
            try:
                data = os.read(self._master, 1 << 16)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._master)
                continue
            except OSError:  # EIO: the command has ended
                return
            self.shown = (self.shown + data)[-_RETAINED_BYTES:]

    async def check_end(self, total: int) -> None:
        """Raise AssertionError unless the command exits and has shown the last line."""
        status = await until(self.process.poll, _END_TIMEOUT_S, "attach does not end")
        assert status == 0, f"attach ended with {status}: {self.shown[-500:]!r}"
        last = numbered.line(total - 1).strip().encode()
        await until(lambda: last in self.shown, 5, lambda: f"no {last!r} in {self.shown[-500:]!r}")

    def close(self) -> None:
        """Kill the command if it still runs, and close the window."""
        self.process.kill()
        self.process.wait()
        os.close(self._master)
