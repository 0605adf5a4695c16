"""tmux for tests: terminals that are looked at as a person would, each with a program in it.

A server of its own, by a name that nobody else has, with a configuration of its own; it is ended by
its pid. Every pane is a window of a session of its own, of the size that the test says. Nothing
here sleeps for a while and hopes: `until` looks until it sees what is waited for, or fails and says
what there was instead.
"""

import os
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
"""

# Of another tmux, and of another window.
_NOT_PASSED_ON = ("TMUX", "COLUMNS", "LINES")

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux")


class Pane:
    """One terminal, `cols` wide and `rows` high."""

    def __init__(self, server: "Tmux", name: str) -> None:
        self._server = server
        self._name = name

    # What is done to it

    def keys(self, *names: str) -> None:
        """Press keys, by tmux's names of them (`Enter`, `C-c`, `Up`), or characters."""
        self._server.call("send-keys", "-t", self._name, "--", *names)

    def type(self, text: str) -> None:
        """Type text as it is."""
        self._server.call("send-keys", "-t", self._name, "-l", "--", text)

    def line(self, text: str) -> None:
        """Type text, and Enter."""
        self.type(text)
        self.keys("Enter")

    def raw(self, data: bytes) -> None:
        """Have these bytes arrive as if typed."""
        self._server.call("send-keys", "-t", self._name, "-H", *(f"{byte:02x}" for byte in data))

    def paste(self, data: bytes) -> None:
        """Paste; in brackets if the program has asked for that. LF is LF, and not Enter."""
        file = self._server.folder / f"paste-{uuid.uuid4().hex}"
        file.write_bytes(data)
        self._server.call("load-buffer", str(file))
        self._server.call("paste-buffer", "-d", "-p", "-r", "-t", self._name)

    def resize(self, cols: int, rows: int) -> None:
        """Give the window another size."""
        self._server.call("resize-window", "-t", self._name, "-x", str(cols), "-y", str(rows))

    def close(self) -> None:
        """Have the window go away, as when it is closed with the mouse."""
        self._server.call("kill-session", "-t", self._name)

    # What is seen of it

    def screen(self, *, colours: bool = False) -> list[str]:
        """Give its rows; with `colours`, with SGR sequences and the blanks that have them."""
        more = ("-e", "-N") if colours else ()
        return self._server.call("capture-pane", "-p", "-t", self._name, *more).split("\n")[:-1]

    def history(self) -> str:
        """Give all that can be scrolled back to, and what is shown."""
        return self._server.call("capture-pane", "-p", "-J", "-S", "-", "-t", self._name)

    def cells(self) -> list[list[Any]]:
        """Give its cells, row by row, without blanks at the end of a row."""
        cols, rows = map(int, self.of("pane_width", "pane_height"))
        return cells(self.screen(colours=True), cols, rows)

    @property
    def text(self) -> str:
        """What it shows, without blanks at the end."""
        return "\n".join(line.rstrip() for line in self.screen()).rstrip()

    def of(self, *formats: str) -> list[str]:
        """Give tmux's variables of it, as `cursor_x` (tmux(1), FORMATS)."""
        said = self._server.call(
            "display-message", "-p", "-t", self._name, "\t".join(f"#{{{name}}}" for name in formats)
        )
        return said.removesuffix("\n").split("\t")

    @property
    def cursor(self) -> tuple[int, int]:
        """Where the cursor is: column and row, from 0."""
        x, y = self.of("cursor_x", "cursor_y")
        return int(x), int(y)

    @property
    def modes(self) -> dict[str, str]:
        """What the program has set of the terminal, by tmux's names: what is not as usual."""
        names = [
            *("alternate_on", "cursor_flag", "insert_flag", "keypad_cursor_flag"),
            *("keypad_flag", "mouse_any_flag", "mouse_sgr_flag", "origin_flag", "wrap_flag"),
            *("scroll_region_upper", "scroll_region_lower", "pane_height"),
        ]
        found = dict(zip(names, self.of(*names), strict=True))
        whole = {"scroll_region_lower": str(int(found.pop("pane_height")) - 1)}
        usual = {"cursor_flag": "1", "wrap_flag": "1", **whole}
        return {name: said for name, said in found.items() if said != usual.get(name, "0")}

    @property
    def pid(self) -> int:
        """That of the program it was made with."""
        return int(self.of("pane_pid")[0])

    @property
    def tty(self) -> str:
        """The path of the terminal."""
        return self.of("pane_tty")[0]

    @property
    def status(self) -> int | None:
        """The exit status of its program; 128 + n after the signal n; None while it runs."""
        dead, code, number = self.of("pane_dead", "pane_dead_status", "pane_dead_signal")
        if dead != "1":
            return None
        if not (code or number):
            # The program's end is seen after the terminal's, and sometimes missed (tmux 3.3a).
            self._server.process.send_signal(signal.SIGCHLD)
            return None
        return int(code) if code else 128 + int(number)

    def until(self, what: str | Callable[[], Any], seconds: float = DEADLINE_S) -> Any:
        """Look until it shows a text, or something is so: what that is."""
        end = time.monotonic() + seconds
        while True:
            found = what in self.text if isinstance(what, str) else what()
            if found or time.monotonic() > end:
                break
            # Each look is a program, and some for the server to do.
            time.sleep(0.025)
        if not found:
            shown = f"{self.text}\ncursor {self.cursor}, modes {self.modes}, status {self.status}"
            pytest.fail(f"{what!r} did not come in {seconds} s; there is:\n{shown}", pytrace=True)
        return found

    def ended(self, seconds: float = DEADLINE_S) -> int:
        """Wait for the end of its program: its exit status."""
        self.until(lambda: self.status is not None, seconds)
        assert self.status is not None
        return self.status


class Tmux:
    """A server. Made by `tmux_server`."""

    def __init__(self, folder: Path, process: "subprocess.Popen[bytes]", name: str) -> None:
        self.folder = folder
        self.process = process
        self._name = name

    def call(self, *words: str) -> str:
        """Give tmux a command: what it prints."""
        run = self._run(*words)
        assert run.returncode == 0, (words[:4], run.stderr)
        return run.stdout.decode()

    def _run(self, *words: str) -> "subprocess.CompletedProcess[bytes]":
        line = ["tmux", "-u", "-L", self._name, "-f", str(self.folder / "tmux.conf"), *words]
        return subprocess.run(line, check=False, capture_output=True, timeout=20)

    def wait_ready(self) -> None:
        """Wait until it listens."""
        end = time.monotonic() + 10
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
    ) -> Pane:
        """Run a program in a terminal of its own. `env` is added to this process's."""
        name = f"s{uuid.uuid4().hex}"
        more = [f"-e{key}={value}" for key, value in (env or {}).items()]
        where = ["-c", str(cwd or self.folder)]
        cols, rows = map(str, size)
        # One word would be a line for the shell.
        line = ["env", *command]
        self.call("new-session", "-d", "-s", name, "-x", cols, "-y", rows, *where, *more, *line)
        return Pane(self, name)


def cells(lines: Sequence[str], cols: int, rows: int) -> list[list[Any]]:
    """Give the cells of rows of text with SGR sequences, without blanks at the end of a row.

    In what tmux gives the attributes go on in the next row.
    """
    emulator = Emulator(cols, rows)
    for y, line in enumerate(lines):
        emulator.feed(f"\x1b[{y + 1}H{line}".encode())
    screen = emulator.screen()
    return [screen.cells(y) for y in range(rows)]


@contextmanager
def tmux_server(folder: Path) -> Iterator[Tmux]:
    """Run a server for as long as the block lasts; its programs are hung up then."""
    folder.mkdir(exist_ok=True)
    (folder / "tmux.conf").write_text(_CONF)
    name = f"acpterm-{uuid.uuid4().hex}"
    env = {key: value for key, value in os.environ.items() if not key.startswith(_NOT_PASSED_ON)}
    process = subprocess.Popen(
        ["tmux", "-D", "-u", "-L", name, "-f", str(folder / "tmux.conf")],
        env={**env, "HOME": str(folder), "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        server = Tmux(folder, process, name)
        server.wait_ready()
        yield server
    finally:
        process.terminate()
        process.wait(10)
