"""Runs tmux: panes that tests type into and read, each with a program.

The server has a unique name and its own configuration, and is terminated by its pid. Each pane is
the only window of its session and has the size that the test chooses. Nothing sleeps for a fixed
time: `until` polls for a condition, or fails with the state of the pane.
"""

import os
import shlex
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acpterm.terminal.vt.emulator import Emulator
from tests.support.depth import DEADLINE_S

COLS, ROWS = 80, 24
_CONF = """
set -g status off
set -g default-terminal tmux-256color
set -g default-shell /bin/sh
set -g remain-on-exit on
set -g remain-on-exit-format ""
set -g set-clipboard off
set -s escape-time 0
set -s exit-empty off
set -g history-limit 50000
"""

# Variables of a tmux or window in which the tests run.
_NOT_PASSED_ON = ("TMUX", "COLUMNS", "LINES")

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux")


class Pane:
    """A pane: a terminal and its program."""

    def __init__(self, server: "Tmux", name: str, log: Path) -> None:
        self._server = server
        self._name = name
        self._log = log

    # Input

    def keys(self, *names: str) -> None:
        """Press keys, named as in tmux (`Enter`, `C-c`, `Up`), or characters."""
        self._server.call("send-keys", "-t", self._name, "--", *names)

    def type(self, text: str) -> None:
        """Type text literally."""
        self._server.call("send-keys", "-t", self._name, "-l", "--", text)

    def line(self, text: str) -> None:
        """Type text and Enter."""
        self.type(text)
        self.keys("Enter")

    def raw(self, data: bytes) -> None:
        """Type bytes."""
        self._server.call("send-keys", "-t", self._name, "-H", *(f"{byte:02x}" for byte in data))

    def paste(self, data: bytes) -> None:
        """Paste bytes unchanged, bracketed if the program has enabled that mode."""
        file = self._server.directory / f"paste-{uuid.uuid4().hex}"
        file.write_bytes(data)
        self._server.call("load-buffer", str(file))
        self._server.call("paste-buffer", "-d", "-p", "-r", "-t", self._name)

    def resize(self, cols: int, rows: int) -> None:
        """Resize the window."""
        self._server.call("resize-window", "-t", self._name, "-x", str(cols), "-y", str(rows))

    def close(self) -> None:
        """Close the window, as with the mouse."""
        self._server.call("kill-session", "-t", self._name)

    # State

    def screen(self, *, colours: bool = False) -> list[str]:
        """Return the rows of the screen; if `colours`, with SGR sequences and trailing blanks."""
        more = ("-e", "-N") if colours else ()
        return self._server.call("capture-pane", "-p", "-t", self._name, *more).split("\n")[:-1]

    def history(self, *, colours: bool = False) -> str:
        """Return the scrollback and the screen."""
        options = ["-p", "-J", "-S", "-", *(["-e"] if colours else [])]
        return self._server.call("capture-pane", *options, "-t", self._name)

    def has_printed(self, text: str) -> bool:
        """Return whether the pane's programs have printed `text`, even if it is no longer shown.

        Only a pane with `log` is recorded.
        """
        return text.encode() in self._log.read_bytes()

    def cells(self) -> list[list[Any]]:
        """Return the rows of the screen as lists of cells, without blanks at the end of a row.

        A cell is a character with its colours and attributes.
        """
        cols, rows = map(int, self.of("pane_width", "pane_height"))
        return cells(self.screen(colours=True), cols, rows)

    @property
    def text(self) -> str:
        """The text of the screen, without blanks at the end of rows."""
        return "\n".join(line.rstrip() for line in self.screen()).rstrip()

    def of(self, *formats: str) -> list[str]:
        """Return variables of tmux for this pane, such as `cursor_x` (tmux(1), FORMATS)."""
        line = self._server.call(
            "display-message", "-p", "-t", self._name, "\t".join(f"#{{{name}}}" for name in formats)
        )
        return line.removesuffix("\n").split("\t")

    @property
    def cursor(self) -> tuple[int, int]:
        """The position of the cursor: column and row, from 0."""
        x, y = self.of("cursor_x", "cursor_y")
        return int(x), int(y)

    @property
    def modes(self) -> dict[str, str]:
        """The modes of the terminal that differ from the defaults, by tmux's names."""
        names = [
            *("alternate_on", "cursor_flag", "insert_flag", "keypad_cursor_flag"),
            *("keypad_flag", "mouse_any_flag", "mouse_sgr_flag", "origin_flag", "wrap_flag"),
            *("scroll_region_upper", "scroll_region_lower", "pane_height"),
        ]
        values = dict(zip(names, self.of(*names), strict=True))
        full_height = {"scroll_region_lower": str(int(values.pop("pane_height")) - 1)}
        defaults = {"cursor_flag": "1", "wrap_flag": "1", **full_height}
        return {name: value for name, value in values.items() if value != defaults.get(name, "0")}

    @property
    def pid(self) -> int:
        """The pid of the pane's program."""
        return int(self.of("pane_pid")[0])

    @property
    def tty(self) -> str:
        """The path of the terminal."""
        return self.of("pane_tty")[0]

    @property
    def status(self) -> int | None:
        """The exit status of the pane's program: 128 + n after signal n; None while it runs."""
        dead, code, number = self.of("pane_dead", "pane_dead_status", "pane_dead_signal")
        if dead != "1":
            return None
        if not (code or number):
            # tmux notices the exit after the end of the terminal, and sometimes misses it (3.3a).
            self._server.process.send_signal(signal.SIGCHLD)
            return None
        return int(code) if code else 128 + int(number)

    def until(self, wanted: str | Callable[[], Any], timeout_s: float = DEADLINE_S) -> Any:
        """Poll until the pane shows the text `wanted`, or the function `wanted` returns true.

        Return the function's value.
        """
        end = time.monotonic() + timeout_s
        while True:
            value = wanted in self.text if isinstance(wanted, str) else wanted()
            if value or time.monotonic() > end:
                break
            # Each poll starts a tmux client.
            time.sleep(0.025)
        if not value:
            state = f"{self.text}\ncursor {self.cursor}, modes {self.modes}, status {self.status}"
            pytest.fail(f"no {wanted!r} in {timeout_s} s, but:\n{state}", pytrace=True)
        return value

    def ended(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait until the pane's program exits; return the exit status."""
        self.until(lambda: self.status is not None, timeout_s)
        assert self.status is not None
        return self.status


class Tmux:
    """A tmux server, started by `tmux_server`."""

    def __init__(self, directory: Path, process: "subprocess.Popen[bytes]", name: str) -> None:
        self.directory = directory
        self.process = process
        self._name = name

    def call(self, *words: str) -> str:
        """Run a command of tmux; return its output."""
        run = self._run(*words)
        assert run.returncode == 0, (words[:4], run.stderr)
        return run.stdout.decode()

    def _run(self, *words: str) -> "subprocess.CompletedProcess[bytes]":
        line = ["tmux", "-u", "-L", self._name, "-f", str(self.directory / "tmux.conf"), *words]
        return subprocess.run(line, check=False, capture_output=True, timeout=DEADLINE_S)

    def wait_ready(self) -> None:
        """Wait until the server listens."""
        end = time.monotonic() + DEADLINE_S
        while (run := self._run("display-message", "-p", "#{pid}")).returncode:
            assert time.monotonic() < end, run.stderr
        assert int(run.stdout) == self.process.pid

    def pane(
        self,
        command: Sequence[str],
        *,
        size: tuple[int, int] = (COLS, ROWS),
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        log: bool = False,
    ) -> Pane:
        """Run a program in a new pane. `env` is added to the environment of this process.

        With `log`, all that the pane's programs print is recorded, for `Pane.has_printed`.
        """
        name = f"s{uuid.uuid4().hex}"
        more = [f"-e{key}={value}" for key, value in (env or {}).items()]
        where = ["-c", str(cwd or self.directory)]
        cols, rows = map(str, size)
        # tmux would pass a single word to a shell.
        line = ["env", *command]
        file = self.directory / f"log-{name}"
        if log:
            file.touch()
            # A part of the same command, so that no output comes before it.
            line += [";", "pipe-pane", "-t", name, f"exec cat >{shlex.quote(str(file))}"]
        self.call("new-session", "-d", "-s", name, "-x", cols, "-y", rows, *where, *more, *line)
        return Pane(self, name, file)


def cells(lines: Sequence[str], cols: int, rows: int) -> list[list[Any]]:
    """Return the cells of rows of text with SGR sequences, without blanks at the end of a row.

    In the output of tmux, attributes continue on the next row.
    """
    emulator = Emulator(cols, rows)
    for y, line in enumerate(lines):
        emulator.feed(f"\x1b[{y + 1}H{line}".encode())
    screen = emulator.screen()
    return [screen.cells(y) for y in range(rows)]


@contextmanager
def tmux_server(directory: Path) -> Iterator[Tmux]:
    """Run a tmux server until the end of the block; its end hangs up the programs in its panes."""
    directory.mkdir(exist_ok=True)
    (directory / "tmux.conf").write_text(_CONF)
    name = f"acpterm-{uuid.uuid4().hex}"
    env = {key: value for key, value in os.environ.items() if not key.startswith(_NOT_PASSED_ON)}
    process = subprocess.Popen(
        ["tmux", "-D", "-u", "-L", name, "-f", str(directory / "tmux.conf")],
        env={**env, "HOME": str(directory), "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        server = Tmux(directory, process, name)
        server.wait_ready()
        yield server
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
