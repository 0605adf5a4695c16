"""Attached windows: keeps the display of one window up to date with its terminal.

A window is in one of two states. A change of state repaints the whole window:

    passthrough ──sizes differ──▶ painted
         ▲                           │
         └────────sizes equal────────┘

- *passthrough*, if the window has the terminal's size: the window is sent a snapshot of the screen,
  then the program's own output from the position of the snapshot on. No byte is sent twice, and
  only the program's queries to its terminal (`vt.queries`) are left out. A window that falls behind
  by more than `BEHIND_BYTES`, or by more than the ring retains, is sent a new snapshot instead of
  the output that it missed, and one line that says so. A *complete* window holds the output that it
  was not sent yet in the ring: if the ring is full, the program waits.
- *painted*, if the sizes differ: the window is sent frames of the screen. A frame has the changes
  since the previous frame; there is at most one every `FRAME_INTERVAL_S` seconds.

A window may ask for *scrollback*: the retained output of the main screen is then sent before the
first snapshot of the main screen. A window that was attached to an earlier worker is first sent the
output since then.

While a full-screen program runs, only the window's alternate screen is painted, and its main screen
stays unchanged. If the terminal's main screen is blank, painting waits up to `_BLANK_MAX_S` seconds
for the program to switch to the alternate screen. So when a full-screen program has ended, the
window looks as it did before the program.

Without an emulator every window is in passthrough, and begins with the last output instead of a
snapshot. It is then not possible to attach to a full-screen program.

Updates are encoded only when the send queue has drained, so a client that stops reading takes no
memory and delays no other client. The attachment runs in the request's task. It ends when the
program ends, when the terminal is released, or when the request is cancelled.
"""

import base64
import re
from typing import Final, Literal

import trio
from msgspec import UNSET, UnsetType

from acpterm.acp.user_streams import AttachedNotification, AttachRequest, AttachResponse
from acpterm.host.entry import TerminalEntry
from acpterm.host.terminal_info import exit_info
from acpterm.host.user.connection import UserConnection
from acpterm.host.verbs import current_screen, retained_main_output
from acpterm.host.windows import Window
from acpterm.jsonrpc import INVALID_PARAMS, RpcError, quote
from acpterm.terminal.vt.frames import Frames
from acpterm.terminal.vt.library import EmulatorMissingError
from acpterm.terminal.vt.paint import (
    NEUTRAL,
    TO_MAIN,
    alternate_snapshot,
    scrolled_to,
    scrolling_rows,
    snapshot,
    tail_snapshot,
)
from acpterm.terminal.vt.queries import QueryFilter
from acpterm.terminal.vt.screen import EmulatorScreen

BEHIND_BYTES: Final = 512 * 1024
CHUNK_BYTES: Final = 64 * 1024
FRAME_INTERVAL_S: Final = 0.04
_BLANK_MAX_S: Final = 0.5
# The pause between two reads while output floods: a user could not see more frequent updates, and
# each read takes time from the consumer.
POLL_INTERVAL_S: Final = 0.01
# An escape sequence that leaves the alternate screen, in output without incomplete sequences.
_LEAVE_ALTERNATE: Final = re.compile(
    rb"(?:\x1b\[|\xc2\x9b)\?(?:[0-9]*;)*(?:47|1047|1049)(?:;[0-9]*)*l|\x1bc"
)


async def attach(
    user: UserConnection, entry: TerminalEntry, params: AttachRequest, share: str | None = None
) -> AttachResponse:
    """Show a terminal in a window until its program ends or the terminal is released."""
    # `share`: the share that a visitor uses. Raises `RpcError` (-32602) if the client runs in this
    # terminal, or in one that it shows; if the screen is too large or needs a missing emulator.
    nested_in = user.inside
    if user.windows.would_loop(nested_in, entry):
        raise RpcError(INVALID_PARAMS, _loop_message(entry, nested_in))
    window = Window(
        params.cols, params.rows, read_only=params.read_only, nested_in=nested_in, share=share
    )
    with user.ongoing_request(params.token, (entry, window)):
        user.windows.open(entry, window)
        try:
            await _Attachment(user, entry, window, params).run()
        finally:
            entry.terminal.ring.let_go(window)
            user.windows.close(entry, window)
    status = entry.terminal.exit
    return AttachResponse("released" if status is None else "exited", exit_info(status))


def _loop_message(entry: TerminalEntry, nested_in: frozenset[str]) -> str:
    name = quote(entry.name or entry.id)
    if entry.id in nested_in:
        return f"terminal {name} is the one you are in: a terminal cannot be attached to itself"
    return (
        f"terminal {name} shows the one you are in: attached to it, the two would show each other "
        "without end"
    )


class _Attachment:
    def __init__(
        self, user: UserConnection, entry: TerminalEntry, window: Window, params: AttachRequest
    ) -> None:
        self._user = user
        self._entry = entry
        self._terminal: Final = entry.terminal
        self._window = window
        self._token = params.token
        self._is_complete = params.complete
        self._has_scrollback = params.scrollback or params.since is not None
        self._lacks_scrollback = params.scrollback and params.since is None
        # Just past the output that the window was sent; None while the window is painted.
        self._position: int | None = None
        # Just past the output that the window's main screen and scrollback have.
        self._main_position: int | None = None
        # Whether the window may have arranged the lines of its main screen otherwise than the
        # emulator: after a resize, a window has lines of its scrollback on its screen.
        self._is_rearranged = False
        self._size = 0, 0
        self._frames: Frames | None = None
        self._queries = QueryFilter()
        # Whether the terminal's main screen has been painted on the window's main screen.
        self._has_main = False
        # When a blank main screen is painted, on trio's clock.
        self._blank_until = trio.current_time() + _BLANK_MAX_S
        # Whether the window shows the alternate screen.
        self._is_alternate = False
        # Whether the last frame showed the alternate screen.
        self._is_frame_alternate = False
        if params.since is not None:
            since = min(params.since, entry.terminal.ring.end)
            if params.scrollback:
                self._main_position, self._is_alternate = since, True
            else:
                self._position, self._size = since, window.size

    async def run(self) -> None:
        terminal = self._terminal
        self._hold(terminal.ring.start)
        while True:
            await self._user.sender.drain()
            ended = self._ended()
            seen = terminal.ring.end
            try:
                if self._is_passthrough():
                    more = await self._pass_through()
                else:
                    more = await self._paint()
            except RpcError:
                if not self._size[0]:
                    raise
                # The terminal has become too large for a screen: keep the window unchanged until
                # the terminal is smaller.
                self._position, more = None, False
            if more:
                continue
            if ended:
                await self._leave_frames()
                return
            if self._window.must_ring:
                self._window.must_ring = False
                self._send("output", b"\a", UNSET)
            # Check again, since the terminal may have changed during the painting.
            if terminal.ring.end == seen and not self._needs_redraw() and not self._ended():
                await terminal.wait_changed()
            if self._position is None:
                await trio.sleep(FRAME_INTERVAL_S)

    def _ended(self) -> bool:
        return self._terminal.exit is not None or self._terminal.released

    def _is_passthrough(self) -> bool:
        terminal = self._terminal
        is_same_size = self._window.size == (terminal.cols, terminal.rows)
        return is_same_size or not terminal.emulator.is_available

    def _needs_redraw(self) -> bool:
        passthrough = self._is_passthrough()
        return (
            self._window.needs_redraw
            or passthrough != (self._position is not None)
            or (passthrough and self._size != (self._terminal.cols, self._terminal.rows))
        )

    async def _pass_through(self) -> bool:
        """Send the next chunk, or a snapshot; return whether to continue at once."""
        terminal, position = self._terminal, self._position
        size = terminal.cols, terminal.rows
        behind = 0 if position is None else terminal.ring.end - position
        skips = behind > BEHIND_BYTES and not self._is_complete
        if position is None or self._size != size or skips or self._window.needs_redraw:
            return await self._begin(skipped_from=position if skips else None)
        part = terminal.ring.read(position, CHUNK_BYTES)
        if part.lost:
            return await self._begin(skipped_from=position)
        if part.data:
            passed = self._queries.feed(part.data)
            left = _LEAVE_ALTERNATE.search(passed) if self._is_alternate else None
            if passed := passed[: left.start()] if left else passed:
                self._send("output", passed, part.position + len(part.data))
            if left:
                self._position = None
                self._blank_until = trio.current_time() + _BLANK_MAX_S
                return True
            self._position = part.position + len(part.data)
            self._hold(self._position)
        if behind > CHUNK_BYTES:
            await trio.sleep(POLL_INTERVAL_S)
            return True
        return False

    async def _paint(self) -> bool:
        """Send a frame with all changes. Return False: wait for changes."""
        screen, _ = await current_screen(self._user.sender, self._terminal)
        self._note_main_position()
        self._is_rearranged = self._main_position is not None
        window, self._position = self._window, None
        self._hold(self._terminal.ring.end)
        first = self._frames is None or self._size != window.size or window.needs_redraw
        if first:
            window.needs_redraw = False
            self._frames, self._size = Frames(window.cols, window.rows), window.size
        assert self._frames is not None  # noqa: S101  set above; for the type checker
        self._is_frame_alternate = screen.is_alternate
        if frame := self._frames.frame(screen):
            self._is_alternate = True
            self._send("screen" if first else "output", frame, UNSET, alternate=first)
        return False

    async def _begin(self, skipped_from: int | None = None) -> bool:
        """Send the snapshot with which passthrough begins; return whether to continue at once."""
        terminal = self._terminal
        queries = QueryFilter(clipboard=self._user.settings.clipboard)
        alternate = False
        if terminal.emulator.is_available:
            screen, position = await current_screen(self._user.sender, terminal)
            if not self._is_passthrough():  # the size has changed meanwhile
                return True
            if self._may_stay_blank(screen):
                self._position = None
                return False
            alternate = screen.is_alternate
            size = screen.cols, screen.rows
            self._note_main_position()
            self._is_rearranged |= self._main_position is not None and size != self._size
            shows_main = self._position is not None and not self._is_alternate
            if shows_main and not alternate and self._keeps_lines(size, skipped_from):
                self._size = size
                return True
            if not alternate:
                await self._send_above(screen, position, skipped_from)
            painted = alternate_snapshot(screen) if alternate else snapshot(screen)
            painted += queries.feed(screen.held)
        else:
            await terminal.caught_up()
            position, size = terminal.ring.end, (terminal.cols, terminal.rows)
            try:
                painted = queries.feed(tail_snapshot(terminal.ring, terminal.rows))
            except EmulatorMissingError as error:
                raise RpcError(INVALID_PARAMS, f"attach: {error}") from error
        self._window.needs_redraw = False
        self._queries, self._position = queries, position
        self._frames, self._size = None, size
        self._is_alternate, self._has_main = alternate, self._has_main or not alternate
        self._send("screen", painted, position, alternate=alternate)
        self._hold(position)
        return True

    def _keeps_lines(self, size: tuple[int, int], skipped_from: int | None) -> bool:
        """Return whether a window has only been resized, and arranges its lines again by itself."""
        # A snapshot would replace the lines that it has taken from its scrollback.
        is_resized = size != self._size and not self._window.needs_redraw
        return self._has_scrollback and is_resized and skipped_from is None

    def _note_main_position(self) -> None:
        if self._has_scrollback and self._position is not None and not self._is_alternate:
            self._main_position = self._position

    async def _send_above(self, screen: EmulatorScreen, end: int, skipped_from: int | None) -> None:
        """Send what a snapshot of the main screen must not replace, so that it scrolls off."""
        if self._lacks_scrollback:
            self._lacks_scrollback = False
            self._send("screen", NEUTRAL.encode() + b"\x1b[H", UNSET)
            await self._send_main_output(0, end)
        elif skipped_from is not None:
            self._send_skipped(end - skipped_from, scrolling_rows(screen))
        elif self._position is not None and not self._is_alternate:
            await self._send_missing(self._position, end)
        elif self._main_position is not None:
            self._send("screen", TO_MAIN, UNSET)
            await self._send_main_output(self._main_position, end)
        if self._is_rearranged:
            self._is_rearranged = False
            self._send("output", scrolled_to(screen), UNSET)

    async def _leave_frames(self) -> None:
        """Leave the main screen's last output in a window that was sent frames of it."""
        if self._frames is None or self._entry.terminal.exit is None or not self._has_scrollback:
            return
        end = self._terminal.ring.end
        start = 0 if self._lacks_scrollback else self._main_position or 0
        self._send("screen", TO_MAIN, UNSET)
        await self._send_main_output(start, end, alternate=self._is_frame_alternate)

    async def _send_main_output(self, start: int, end: int, *, alternate: bool = False) -> None:
        data, lost = retained_main_output(self._terminal, start, end, alternate=alternate)
        if lost and start:
            self._send_skipped(lost)
        data = QueryFilter().feed(data)
        for at in range(0, len(data), CHUNK_BYTES):
            await self._user.sender.drain()
            self._send("output", data[at : at + CHUNK_BYTES], UNSET)

    async def _send_missing(self, start: int, end: int) -> None:
        while start < end:
            part = self._terminal.ring.read(start, min(CHUNK_BYTES, end - start))
            if part.lost:
                self._send_skipped(part.lost)
            start = part.position + len(part.data)
            self._send("output", self._queries.feed(part.data), start)
            await self._user.sender.drain()

    def _send_skipped(self, size: int, below: str = "") -> None:
        """Scroll the window's screen off, and a line that says how much output is skipped."""
        rows = self._terminal.rows
        name = self._entry.name or self._entry.id
        line = f"[{size} bytes of output are not shown here: acpterm logs {name}]"
        begin = f"{NEUTRAL}\x1b[{rows}H\r\n{line[: self._terminal.cols]}\r\n"
        self._send("output", (begin + (below or "\r\n" * (rows - 1))).encode(), UNSET)

    def _hold(self, position: int) -> None:
        if self._is_complete:
            self._terminal.ring.hold(self._window, position)

    def _may_stay_blank(self, screen: EmulatorScreen) -> bool:
        """Return whether to wait: a full-screen program may be starting."""
        return (
            not self._has_main
            and trio.current_time() < self._blank_until
            and not screen.is_alternate
            and not any(screen.cells(y) for y in range(screen.rows))
        )

    def _send(
        self,
        kind: Literal["screen", "output"],
        data: bytes,
        position: int | UnsetType,
        *,
        alternate: bool = False,
    ) -> None:
        encoded = base64.b64encode(data).decode()
        self._user.sender.notify(
            "_acpterm/terminal/attached",
            AttachedNotification(self._token, kind, encoded, position, alternate),
        )
