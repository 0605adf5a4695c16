"""The windows in which people look at terminals, and the size that terminals have by them.

The smallest attached window rules: a terminal has the fewest columns and the fewest rows of all
windows that may type. When the last of them leaves, the terminal has again the size that its
creator gave it. A window that only looks rules nothing.

Every window of the terminal's size gets the program's own output, without what a program asks its
terminal: the emulator answers that. The others are shown pictures.
"""

import contextlib
from collections.abc import Callable, Collection
from typing import Final

import trio

from acpterm.host.registry import Entry


class Window:
    """One attached window."""

    def __init__(
        self, cols: int, rows: int, *, read_only: bool, inside: Collection[str] = ()
    ) -> None:
        self.cols, self.rows = cols, rows
        self.read_only: Final = read_only
        self.inside: Final = inside
        """The ids of terminals, of this host or another, whose programs opened the window."""
        self.anew = True
        """Whether all of it is to be painted."""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self.cols, self.rows


class _Shown:
    """A terminal with windows. `own` is the size that it has without."""

    def __init__(self, own: tuple[int, int]) -> None:
        self.own = own
        self.windows: Final[list[Window]] = []


class Windows:
    """The windows of all terminals of a host. `told` is called with what happens to one."""

    def __init__(self, told: Callable[[str, Entry, str | None], None]) -> None:
        self._told = told
        self._shown: dict[str, _Shown] = {}
        self._restored: list[Entry] = []

    def count(self, entry: Entry) -> int:
        """Give the number of windows that a terminal is shown in."""
        shown = self._shown.get(entry.id)
        return len(shown.windows) if shown else 0

    def of(self, entry: Entry) -> list[Window]:
        """Return the windows that a terminal is shown in."""
        shown = self._shown.get(entry.id)
        return list(shown.windows) if shown else []

    def is_shown_in(self, inside: Collection[str], entry: Entry) -> bool:
        """Return whether `entry` is, or shows, one of `inside`, maybe through other terminals."""
        reached, pending = set[str](), [entry.id]
        while pending:
            identifier = pending.pop()
            if identifier in inside:
                return True
            if identifier not in reached:
                reached.add(identifier)
                pending += [
                    other
                    for other, shown in self._shown.items()
                    if any(identifier in window.inside for window in shown.windows)
                ]
        return False

    def restore(self, entry: Entry, own: tuple[int, int]) -> None:
        """Take over a terminal whose windows are to come back: it keeps their size until then.

        `own` is the size that it has without.
        """
        if own != (entry.terminal.cols, entry.terminal.rows):
            self._shown[entry.id] = _Shown(own)
            self._restored.append(entry)

    def settle(self) -> None:
        """Give restored terminals whose windows have not come back their own size."""
        restored, self._restored = self._restored, []
        for entry in restored:
            shown = self._shown.get(entry.id)
            if shown is not None and not shown.windows:
                del self._shown[entry.id]
                self._rule(entry, shown)

    def open(self, entry: Entry, window: Window) -> None:
        """Show a terminal in one more window."""
        terminal = entry.terminal
        shown = self._shown.setdefault(entry.id, _Shown((terminal.cols, terminal.rows)))
        shown.windows.append(window)
        self._told("attached", entry, None)
        self._rule(entry, shown)

    def close(self, entry: Entry, window: Window) -> None:
        """Learn that a window is gone."""
        shown = self._shown[entry.id]
        shown.windows.remove(window)
        if not shown.windows:
            del self._shown[entry.id]
        self._told("detached", entry, None)
        self._rule(entry, shown)

    def change(self, entry: Entry, window: Window, cols: int, rows: int) -> None:
        """Learn that a window has another size now; be it the same, it is painted anew."""
        window.cols, window.rows = cols, rows
        window.anew = True
        self._rule(entry, self._shown[entry.id])
        entry.terminal.notify()

    def resize(self, entry: Entry, cols: int, rows: int) -> None:
        """Give a terminal its own size: now, or when the windows that rule it have gone.

        Raises `trio.ClosedResourceError` when it has ended, `OSError` when it cannot be done.
        """
        shown = self._shown.get(entry.id)
        entry.resized(cols, rows)
        if shown is not None:
            shown.own = cols, rows
            if any(not window.read_only for window in shown.windows):
                return
        entry.terminal.resize(cols, rows)
        self._told("resized", entry, None)

    def _rule(self, entry: Entry, shown: _Shown) -> None:
        ruling = [window for window in shown.windows if not window.read_only]
        cols, rows = shown.own
        if ruling:
            cols = min(window.cols for window in ruling)
            rows = min(window.rows for window in ruling)
        terminal = entry.terminal
        if (cols, rows) != (terminal.cols, terminal.rows):
            with contextlib.suppress(trio.ClosedResourceError, OSError):
                terminal.resize(cols, rows)
                self._told("resized", entry, None)
        terminal.notify()
