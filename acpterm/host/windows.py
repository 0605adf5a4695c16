"""The windows in which people look at terminals, and the size that terminals have by them.

The smallest attached window rules: a terminal has the fewest columns and the fewest rows of all
windows that may type. When the last of them leaves, the terminal has again the size that its
creator gave it. A window that only looks rules nothing.

Every window of the terminal's size gets the program's own output, without what a program asks its
terminal: the emulator answers that. The others are shown pictures.
"""

import contextlib
from collections.abc import Collection
from typing import Final

import trio

from acpterm.host.entry import TerminalEntry
from acpterm.host.events import EventBus


class Window:
    """One attached window."""

    def __init__(
        self, cols: int, rows: int, *, read_only: bool, inside: Collection[str] = ()
    ) -> None:
        self.cols, self.rows = cols, rows
        self.read_only: Final = read_only
        self.is_nested: Final = inside
        """The ids of terminals, of this host or another, whose programs opened the window."""
        self.needs_redraw = True
        """Whether all of it is to be painted."""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self.cols, self.rows


class _Terminal:
    """A terminal with windows. `own` is the size that it has without."""

    def __init__(self, own: tuple[int, int]) -> None:
        self.detached_size = own
        self.windows: Final[list[Window]] = []


class Windows:
    """The windows of all terminals of a host. What happens to them is published on `bus`."""

    def __init__(self, bus: EventBus) -> None:
        self._bus: Final = bus
        self._shown: dict[str, _Terminal] = {}
        self._restored: list[TerminalEntry] = []

    def of(self, entry: TerminalEntry) -> list[Window]:
        """Return the windows that a terminal is shown in."""
        shown = self._shown.get(entry.id)
        return list(shown.windows) if shown else []

    def is_shown_in(self, inside: Collection[str], entry: TerminalEntry) -> bool:
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
                    if any(identifier in window.is_nested for window in shown.windows)
                ]
        return False

    def restore(self, entry: TerminalEntry, own: tuple[int, int]) -> None:
        """Take over a terminal whose windows are to come back: it keeps their size until then.

        `own` is the size that it has without.
        """
        if own != (entry.terminal.cols, entry.terminal.rows):
            self._shown[entry.id] = _Terminal(own)
            self._restored.append(entry)

    def settle(self) -> None:
        """Give restored terminals whose windows have not come back their own size."""
        restored, self._restored = self._restored, []
        for entry in restored:
            shown = self._shown.get(entry.id)
            if shown is not None and not shown.windows:
                del self._shown[entry.id]
                self._apply_size(entry, shown)

    def open(self, entry: TerminalEntry, window: Window) -> None:
        """Show a terminal in one more window."""
        terminal = entry.terminal
        shown = self._shown.setdefault(entry.id, _Terminal((terminal.cols, terminal.rows)))
        shown.windows.append(window)
        entry.window_count = len(shown.windows)
        self._bus.publish_terminal("attached", entry)
        self._apply_size(entry, shown)

    def close(self, entry: TerminalEntry, window: Window) -> None:
        """Learn that a window is gone."""
        shown = self._shown[entry.id]
        shown.windows.remove(window)
        entry.window_count = len(shown.windows)
        if not shown.windows:
            del self._shown[entry.id]
        self._bus.publish_terminal("detached", entry)
        self._apply_size(entry, shown)

    def change(self, entry: TerminalEntry, window: Window, cols: int, rows: int) -> None:
        """Learn that a window has another size now; be it the same, it is painted anew."""
        window.cols, window.rows = cols, rows
        window.needs_redraw = True
        self._apply_size(entry, self._shown[entry.id])
        entry.terminal.notify()

    def resize(self, entry: TerminalEntry, cols: int, rows: int) -> None:
        """Give a terminal its own size: now, or when the windows that rule it have gone.

        Raises `trio.ClosedResourceError` when it has ended, `OSError` when it cannot be done.
        """
        shown = self._shown.get(entry.id)
        entry.record_size(cols, rows)
        if shown is not None:
            shown.detached_size = cols, rows
            if any(not window.read_only for window in shown.windows):
                return
        entry.terminal.resize(cols, rows)
        self._bus.publish_terminal("resized", entry)

    def _apply_size(self, entry: TerminalEntry, shown: _Terminal) -> None:
        ruling = [window for window in shown.windows if not window.read_only]
        cols, rows = shown.detached_size
        if ruling:
            cols = min(window.cols for window in ruling)
            rows = min(window.rows for window in ruling)
        terminal = entry.terminal
        if (cols, rows) != (terminal.cols, terminal.rows):
            with contextlib.suppress(trio.ClosedResourceError, OSError):
                terminal.resize(cols, rows)
                self._bus.publish_terminal("resized", entry)
        terminal.notify()
