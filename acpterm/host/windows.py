"""The windows attached to terminals, and the terminal sizes that follow from them.

While windows are attached, a terminal has the minimum number of columns and the minimum number of
rows of its windows. Read-only windows are ignored. When the last window that is not read-only is
detached, the terminal returns to its detached size: the size that it was created with, or that
`resize` has set.

A window of the terminal's size is sent the program's own output, without the program's queries,
which the emulator answers. Other windows are sent frames of the screen (`user.attach`).
"""

import contextlib
from collections.abc import Collection
from typing import Final

import trio

from acpterm.host.entry import TerminalEntry
from acpterm.host.events import EventBus


class Window:
    """A display of `cols` by `rows`. A read-only one does not count for the terminal's size."""

    def __init__(
        self,
        cols: int,
        rows: int,
        *,
        read_only: bool,
        nested_in: Collection[str] = (),
        share: str | None = None,
    ) -> None:
        self.cols, self.rows = cols, rows
        self.read_only: Final = read_only
        self.nested_in: Final = nested_in
        """The ids of the terminals that the window's client runs in; they may be another host's."""
        self.share: Final = share
        """The id of the share that a visitor attached the window with; None if the user did."""
        self.needs_redraw = True
        self.must_ring = False
        """Whether to ring the window's bell once its output is up to date."""

    @property
    def size(self) -> tuple[int, int]:
        return self.cols, self.rows


class _AttachedTerminal:
    def __init__(self, entry: TerminalEntry, detached_size: tuple[int, int]) -> None:
        self.entry: Final = entry
        self.detached_size = detached_size
        self.windows: Final[list[Window]] = []


class Windows:
    """The windows of all terminals of a host."""

    def __init__(self, bus: EventBus) -> None:
        self._bus: Final = bus
        self._attached: dict[str, _AttachedTerminal] = {}
        self._restored: list[TerminalEntry] = []

    def of(self, entry: TerminalEntry) -> list[Window]:
        attached = self._attached.get(entry.id)
        return list(attached.windows) if attached else []

    def ring(self) -> None:
        for attached in self._attached.values():
            for window in attached.windows:
                window.must_ring = window.share is None
            if attached.windows:
                attached.entry.terminal.notify()

    def would_loop(self, terminals: Collection[str], entry: TerminalEntry) -> bool:
        """Return whether a client that attaches would see its terminal in itself."""
        # If a client in terminal A is attached to B, A shows B and everything that B shows.
        reached, pending = set[str](), [entry.id]
        while pending:
            identifier = pending.pop()
            if identifier in terminals:
                return True
            if identifier not in reached:
                reached.add(identifier)
                pending += [
                    other
                    for other, attached in self._attached.items()
                    if any(identifier in window.nested_in for window in attached.windows)
                ]
        return False

    def restore(self, entry: TerminalEntry, detached_size: tuple[int, int]) -> None:
        """Keep a restored terminal's size until `settle`, for its windows to reattach."""
        if detached_size != (entry.terminal.cols, entry.terminal.rows):
            self._attached[entry.id] = _AttachedTerminal(entry, detached_size)
            self._restored.append(entry)

    def settle(self) -> None:
        """Give restored terminals their detached size, unless a window has reattached."""
        restored, self._restored = self._restored, []
        for entry in restored:
            attached = self._attached.get(entry.id)
            if attached is not None and not attached.windows:
                del self._attached[entry.id]
                self._apply_size(entry, attached)

    def open(self, entry: TerminalEntry, window: Window) -> None:
        terminal = entry.terminal
        attached = self._attached.setdefault(
            entry.id, _AttachedTerminal(entry, (terminal.cols, terminal.rows))
        )
        attached.windows.append(window)
        entry.window_count = len(attached.windows)
        self._publish("attached", entry, window)
        self._apply_size(entry, attached)

    def close(self, entry: TerminalEntry, window: Window) -> None:
        attached = self._attached[entry.id]
        attached.windows.remove(window)
        entry.window_count = len(attached.windows)
        if not attached.windows:
            del self._attached[entry.id]
        self._publish("detached", entry, window)
        self._apply_size(entry, attached)

    def _publish(self, event: str, entry: TerminalEntry, window: Window) -> None:
        by = None if window.share is None else "share"
        self._bus.publish_terminal(event, entry, by, window.share)

    def change(self, entry: TerminalEntry, window: Window, cols: int, rows: int) -> None:
        """Set the size of a window, and repaint it if the size is the same."""
        window.needs_redraw |= window.size == (cols, rows)
        window.cols, window.rows = cols, rows
        self._apply_size(entry, self._attached[entry.id])
        entry.terminal.notify()

    def resize(self, entry: TerminalEntry, cols: int, rows: int) -> None:
        """Set the size without windows; apply it now if no window counts for the size."""
        # Raises `trio.ClosedResourceError` if the terminal has ended, `OSError` if the system
        # refuses the size.
        attached = self._attached.get(entry.id)
        windows = [] if attached is None else attached.windows
        applies_now = all(window.read_only for window in windows)
        # First what may fail: a refused size must not be recorded.
        if applies_now:
            entry.terminal.resize(cols, rows)
        entry.record_size(cols, rows)
        if attached is not None:
            attached.detached_size = cols, rows
        if applies_now:
            self._bus.publish_terminal("resized", entry)

    def _apply_size(self, entry: TerminalEntry, attached: _AttachedTerminal) -> None:
        sizing = [window for window in attached.windows if not window.read_only]
        cols, rows = attached.detached_size
        if sizing:
            cols = min(window.cols for window in sizing)
            rows = min(window.rows for window in sizing)
        terminal = entry.terminal
        if (cols, rows) != (terminal.cols, terminal.rows):
            with contextlib.suppress(trio.ClosedResourceError, OSError):
                terminal.resize(cols, rows)
                self._bus.publish_terminal("resized", entry)
        terminal.notify()
