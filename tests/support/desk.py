"""A person's desk for tests: a daemon, and windows in which `acpterm` is run.

The daemon may be shared by the tests of a module: each uses terminals of its own. What a test looks
up or does behind the person's back it asks the daemon itself, since a command takes long to start.
"""

import json
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.hosts import ACPTERM, environment, listens
from tests.support.tmux import COLS, ROWS, Pane, Tmux

DETACH = "C-\\"
_UNSET = ("TMUX", "TMUX_PANE", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "COLUMNS", "LINES")


class Daemon:
    """A daemon on sockets in a folder of its own."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.socket = str(folder / "agent.sock")
        self.env = environment(
            ACPTERM_SOCKET=self.socket,
            HOME=str(folder),
            XDG_CONFIG_HOME=str(folder / "none"),
            LC_ALL="C.UTF-8",
            PS1="$ ",
            # A shell that waits for a line takes no notice of SIGTERM.
            ACPTERM_KILL_GRACE="0.3",
            **settings,
        )
        for name in "PROMPT_COMMAND", "COLUMNS", "LINES":
            self.env.pop(name, None)
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*ACPTERM, "serve", "--socket", self.socket],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        end = time.monotonic() + 10
        while not (listens(self.socket) and listens(str(folder / "user.sock"))):
            assert time.monotonic() < end
            assert self.process.poll() is None
            time.sleep(0.005)

    def close(self) -> None:
        """End it, and all terminals."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        finally:
            self.process.kill()
            self.process.wait()

    def ask(self, method: str, **params: Any) -> Any:
        """Ask `_acpterm/METHOD` on a connection for only that: the result."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(15)
            asking.connect(str(self.folder / "user.sock"))
            stream = asking.makefile("rw", encoding="utf-8", newline="\n")
            hello = {"protocolVersion": 1, "_meta": {"acpterm": {"context": self._asker()}}}
            answer: dict[str, Any] = {}
            for number, (name, what) in enumerate(
                [("initialize", hello), (f"_acpterm/{method}", params)]
            ):
                body = {"jsonrpc": "2.0", "id": number, "method": name, "params": what}
                stream.write(json.dumps(body) + "\n")
                stream.flush()
                answer = json.loads(stream.readline())
                assert "error" not in answer, answer
        return answer["result"]

    def _asker(self) -> dict[str, Any]:
        return {"env": self.env, "cwd": str(self.folder)}

    def make(self, *command: str, size: tuple[int, int] = (COLS, ROWS), **params: Any) -> str:
        """Make a terminal that nobody is at: its name."""
        name = f"t{uuid.uuid4().hex[:8]}"
        cols, rows = size
        params = {"command": command[0], "args": list(command[1:]), **params}
        self.ask("terminal/create", name=name, cols=cols, rows=rows, **params)
        return name

    def about(self, name: str) -> Any:
        """Give what there is to know of a terminal."""
        return self.ask("terminal/get", terminalId=name)

    def size(self, name: str) -> tuple[int, int]:
        """Give columns and rows of a terminal."""
        info = self.about(name)
        return info["cols"], info["rows"]

    def memory(self) -> int:
        """Give what it has in memory, in bytes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def cpu(self) -> float:
        """Give the seconds that it has computed for."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Desk:
    """Where the person sits: windows of `tmux`, and the daemon that commands in them ask."""

    def __init__(self, daemon: Daemon, tmux: Tmux) -> None:
        self.daemon = daemon
        self.tmux = tmux

    def window(self, *command: str, size: tuple[int, int] = (COLS, ROWS), **more: Any) -> Pane:
        """Open a window with a program."""
        env = {**self.daemon.env, **more.pop("env", {})}
        # What tmux tells its programs, and the size of another window, is not for ours.
        unset = [
            "-u",
            "TMUX",
            "-u",
            "TMUX_PANE",
            "-u",
            "TERM_PROGRAM",
            "-u",
            "TERM_PROGRAM_VERSION",
        ]
        return self.tmux.pane([*unset, *command], size=size, env=env, **more)

    def bare(self, *command: str, size: tuple[int, int] = (COLS, ROWS), **more: Any) -> Pane:
        """Open a window with a program that is to find what it finds in a terminal of ours."""
        return self.window("TERM=xterm-256color", *command, size=size, **more)

    def acpterm(self, *words: str, size: tuple[int, int] = (COLS, ROWS), **more: Any) -> Pane:
        """Open a window in which `acpterm` runs."""
        return self.window(*ACPTERM, *words, size=size, **more)

    def attach(
        self, name: str, *words: str, size: tuple[int, int] = (COLS, ROWS), **more: Any
    ) -> Pane:
        """Open a window that is attached to a terminal, and wait until it is."""
        before = self.daemon.about(name)["attached"]
        pane = self.acpterm("attach", name, *words, size=size, **more)
        pane.until(lambda: self.daemon.about(name)["attached"] > before)
        return pane

    def shell(self, *, size: tuple[int, int] = (COLS, ROWS), **more: Any) -> Pane:
        """Open a window with a shell, to run `acpterm` from; its prompt is `here$`."""
        pane = self.window("PS1=here$ ", "bash", "--norc", "--noprofile", size=size, **more)
        pane.until("here$")
        return pane


@contextmanager
def daemon_in(folder: Path, **settings: str) -> Iterator[Daemon]:
    """Run a daemon for as long as the block lasts."""
    daemon = Daemon(folder, **settings)
    try:
        yield daemon
    finally:
        daemon.close()
