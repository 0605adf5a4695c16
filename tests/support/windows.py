"""Windows of the user, in which `acpterm` runs: tmux panes whose environment selects a daemon.

The tests of a module may share the daemon, since each test uses its own terminals. To check the
state of a terminal, a test sends a request to the daemon: that is faster than to start a command.
"""

from typing import Any

from tests.support.daemon import BlockingDaemon
from tests.support.starting import ACPTERM
from tests.support.tmux import COLS, ROWS, Pane, Tmux

DETACH = "C-\\"
# tmux sets these for its programs.
_UNSET = ("TMUX", "TMUX_PANE", "TERM_PROGRAM", "TERM_PROGRAM_VERSION")


class Windows:
    """Opens windows in which all commands use the same daemon."""

    def __init__(self, daemon: BlockingDaemon, tmux: Tmux) -> None:
        self.daemon = daemon
        self.tmux = tmux

    def open(self, *command: str, size: tuple[int, int] = (COLS, ROWS), **more: Any) -> Pane:
        """Open a window in which a program runs."""
        env = {**self.daemon.env, **more.pop("env", {})}
        unset = [f"--unset={name}" for name in _UNSET]
        return self.tmux.pane([*unset, *command], size=size, env=env, **more)

    def bare(self, *command: str, size: tuple[int, int] = (COLS, ROWS), **more: Any) -> Pane:
        """Open a window whose program has the TERM variable of acpterm's terminals."""
        return self.open("TERM=xterm-256color", *command, size=size, **more)

    def acpterm(self, *words: str, size: tuple[int, int] = (COLS, ROWS), **more: Any) -> Pane:
        """Open a window in which `acpterm` runs."""
        return self.open(*ACPTERM, *words, size=size, **more)

    def attach(
        self, name: str, *words: str, size: tuple[int, int] = (COLS, ROWS), **more: Any
    ) -> Pane:
        """Open a window, and wait until it is attached to a terminal."""
        before = self.daemon.info(name)["attached"]
        pane = self.acpterm("attach", name, *words, size=size, **more)
        pane.until(lambda: self.daemon.info(name)["attached"] > before)
        return pane

    def shell(self, *, size: tuple[int, int] = (COLS, ROWS), **more: Any) -> Pane:
        """Open a window in which a shell runs, whose prompt is `here$`."""
        pane = self.open("PS1=here$ ", "bash", "--norc", "--noprofile", size=size, **more)
        pane.until("here$")
        return pane
