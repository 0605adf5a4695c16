"""A shell on a plain PTY, driven by `acpterm.shell` without a terminal of acpterm."""

import os
import select
import signal
import time
from dataclasses import dataclass

from ptyprocess import PtyProcess

from acpterm.shell.directory import ShellDirectory
from acpterm.shell.kind import KINDS
from acpterm.shell.tracker import Outcome, Tracker
from tests.support.depth import DEADLINE_S
from tests.support.fish import data_home

QUIET_S = 1.0


@dataclass
class Result:
    """What became of a command. `outcome` is None if it runs, or if the shell has ended."""

    outcome: Outcome | None
    output: str
    raw: bytes
    has_ended: bool = False

    @property
    def code(self) -> int | None:
        return self.outcome.exit_code if self.outcome else None


class PlainShell:
    """A shell on a PTY of its own. `home` is the user's home directory, with rc files."""

    def __init__(self, kind: str, home: str, **env: str) -> None:
        self.kind = KINDS[kind]
        self.directory = ShellDirectory(home)
        environ = {
            "HOME": home, "PATH": os.environ["PATH"], "TERM": "xterm-256color",
            "LANG": "C.UTF-8", "XDG_CONFIG_HOME": f"{home}/.config",
            "XDG_DATA_HOME": data_home(home),
        } | env  # fmt: skip
        setup = self.kind.setup(self.directory.path, self.directory.nonce, environ)
        for name, text in setup.files.items():
            self.directory.write(name, text)
        self.process = PtyProcess.spawn(
            [setup.command, *setup.args], cwd=home, env=environ | setup.env, dimensions=(40, 120)
        )
        self.tracker = Tracker(self.directory.nonce, 1 << 20)
        self.all = bytearray()
        self.n = 0
        self.flags = ""
        self.has_ended = False
        deadline = time.monotonic() + DEADLINE_S
        while not (self.tracker.is_ready and self.tracker.at_prompt):
            self._read(0.05)
            report = self.directory.report(0, "ready")
            if report:
                self.tracker.set_ready(report)
            if self.has_ended or time.monotonic() > deadline:
                raise TimeoutError(f"the shell did not get ready: {bytes(self.all)!r}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.close(force=True)
        self.directory.close()

    def _read(self, wait_s: float) -> bool:
        """Wait at most `wait_s` for output, and read it; return whether there was any."""
        if not select.select([self.process.fd], [], [], wait_s)[0]:
            return False
        try:
            data = os.read(self.process.fd, 65536)
        except OSError:
            data = b""
        if not data:
            self.has_ended = True
            self.tracker.finish()
            return False
        self.all += data
        self.tracker.feed(data)
        return True

    def start(self, command: str) -> None:
        """Wait for the shell's prompt, and make the shell start `command`.

        Raises `TimeoutError` if no prompt comes.
        """
        deadline = time.monotonic() + DEADLINE_S
        while not self.tracker.at_prompt and not self.has_ended:
            if not self._read(QUIET_S) and self.tracker.is_prompting:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"the shell displays no prompt: {bytes(self.all[-500:])!r}")
        self.directory.forget(self.n)
        self.n += 1
        text = self.kind.command_file(self.n, command, self.flags)
        path = self.directory.write(self.directory.command_name(self.n), text)
        self.tracker.expect(self.n)
        self.type(self.kind.keys(self.n, path))

    def type(self, keys: bytes) -> None:
        while keys:
            keys = keys[os.write(self.process.fd, keys) :]

    def wait(self, timeout_s: float = DEADLINE_S) -> Result:
        """Wait until the command ends, or `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        quiet_since, reported_at = time.monotonic(), float("inf")
        outcome = None
        while time.monotonic() < deadline and not self.has_ended:
            report = self.directory.report(self.n)
            now = time.monotonic()
            is_quiet = now - max(reported_at, quiet_since) > QUIET_S
            outcome = self.tracker.outcome(report, is_quiet=is_quiet)
            if report:
                reported_at = min(reported_at, now)
            if outcome:
                if report:
                    self.flags = report.flags
                break
            if self._read(0.05):
                quiet_since = time.monotonic()
        begin, end = self.tracker.span
        return Result(outcome, self.tracker.output, bytes(self.all[begin:end]), self.has_ended)

    def run(self, command: str, timeout_s: float = DEADLINE_S) -> Result:
        """Run a command."""
        self.start(command)
        return self.wait(timeout_s)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self.process.fd, b"\x03")

    def kill(self) -> None:
        """Kill the shell."""
        os.kill(self.process.pid, signal.SIGKILL)
