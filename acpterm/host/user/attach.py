"""An attached window: what a user is shown of a terminal, and how it keeps up.

States, of which each begins with all of the window painted again:

    direct ◀──the sizes──▶ painted

- *direct*, if it has the terminal's size: the window gets the program's own output, from the
  position that the picture at its beginning stands for; nothing twice and nothing missing, but for
  what the program asks its terminal (`vt.queries`). One that falls behind by more than `BEHIND`
  bytes, or by more than the ring keeps, gets a new picture and not the backlog.
- *painted*: the window gets pictures of the screen, of which each says what has changed since the
  one before, at most one each `FRAME` seconds.

The main screen of the window stays as it is for as long as nothing is to be seen on the terminal's
own: while a full-screen program is attached to, what is painted is the alternate screen alone, and
a terminal whose main screen is blank gets `_BLANK_MAX_S` seconds for its program to become one. So
the window of such a program is afterwards as it was before.

Where no emulator is installed every window is direct, and begins with the last output instead of a
picture; a full-screen program cannot be shown like that.

Nothing is made before the front end has read what was sent before (`room`): a window that does not
read costs nothing and slows nobody. The task is that of the request; it ends with the program's
end, with the terminal's release, or when it is cancelled.
"""

import base64
import re
from typing import Final, Literal

import trio

from acpterm.acp.user_streams import AttachedNotification, AttachRequest, AttachResponse
from acpterm.host.entry import TerminalEntry
from acpterm.host.screens import current_screen
from acpterm.host.terminal_info import exit_info
from acpterm.host.user.connection import UserConnection
from acpterm.host.windows import Window
from acpterm.jsonrpc import INVALID_PARAMS, RpcError, quote
from acpterm.terminal.vt import unemulated
from acpterm.terminal.vt.frames import Frames
from acpterm.terminal.vt.library import EmulatorMissingError
from acpterm.terminal.vt.paint import alternate_snapshot, snapshot
from acpterm.terminal.vt.queries import QueryFilter
from acpterm.terminal.vt.screen import Screen

BEHIND_BYTES: Final = 512 * 1024
CHUNK_BYTES: Final = 64 * 1024
FRAME_INTERVAL_S: Final = 0.04
_BLANK_MAX_S: Final = 0.5
# Seconds between two looks at a flood: more is not seen, and costs the terminal's own reader.
POLL_INTERVAL_S: Final = 0.01
# What leaves the alternate screen, in output whose sequences are whole.
_LEAVES_ALTERNATE: Final = re.compile(
    rb"(?:\x1b\[|\xc2\x9b)\?(?:[0-9]*;)*(?:47|1047|1049)(?:;[0-9]*)*l|\x1bc"
)


async def attach(
    user: UserConnection, entry: TerminalEntry, params: AttachRequest
) -> AttachResponse:
    """Show a terminal in a window until it ends. Raises `RpcError` when that cannot be done."""
    inside = user.terminals
    if user.host.windows.is_shown_in(inside, entry):
        raise RpcError(INVALID_PARAMS, _loop(entry, inside))
    window = Window(params.cols, params.rows, read_only=params.read_only, inside=inside)
    with user.ongoing_request(params.token, (entry, window)):
        user.host.windows.open(entry, window)
        try:
            await _Attached(user, entry, window, params.token).run()
        finally:
            user.host.windows.close(entry, window)
    status = entry.terminal.exit
    return AttachResponse("released" if status is None else "exited", exit_info(status))


def _loop(entry: TerminalEntry, inside: frozenset[str]) -> str:
    name = quote(entry.name or entry.id)
    if entry.id in inside:
        return f"terminal {name} is the one you are in: a terminal cannot be attached to itself"
    return (
        f"terminal {name} shows the one you are in: attached to it, the two would show each other "
        "without end"
    )


class _Attached:
    """What one window is shown."""

    def __init__(
        self, user: UserConnection, entry: TerminalEntry, window: Window, token: str
    ) -> None:
        self._person = user
        self._entry = entry
        self._terminal: Final = entry.terminal
        self._window = window
        self._token = token
        # Up to where the window has the output; None while it is painted.
        self._position: int | None = None
        self._size = 0, 0
        self._frames: Frames | None = None
        self._queries = QueryFilter()
        # Whether the window's main screen shows the terminal's; if not, until when that may be
        # blank without being painted, and whether the alternate one was painted.
        self._has_main = False
        self._blank_until = trio.current_time() + _BLANK_MAX_S
        self._is_alternate = False

    async def run(self) -> None:
        """Show it until the end."""
        terminal = self._terminal
        while True:
            await self._person.sender.drain()
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
                # It was made larger than can be shown: what was shown last stays until it is not.
                more = False
            if more:
                continue
            if ended:
                return
            # All of it as it is now: to paint takes a while.
            if terminal.ring.end == seen and not self._needs_redraw() and not self._ended():
                await terminal.wait_changed()
            if self._position is None:
                await trio.sleep(FRAME_INTERVAL_S)

    def _ended(self) -> bool:
        return self._terminal.exit is not None or self._terminal.released

    def _is_passthrough(self) -> bool:
        """Return whether the window gets the program's own output."""
        terminal = self._terminal
        is_same_size = self._window.size == (terminal.cols, terminal.rows)
        return is_same_size or not terminal.emulator.is_available

    def _needs_redraw(self) -> bool:
        """Return whether the window has to be painted again, or its output is of the wrong kind."""
        direct = self._is_passthrough()
        return (
            self._window.needs_redraw
            or direct != (self._position is not None)
            or (direct and self._size != (self._terminal.cols, self._terminal.rows))
        )

    async def _pass_through(self) -> bool:
        """Send what has come since; whether there is more."""
        terminal, position = self._terminal, self._position
        size = terminal.cols, terminal.rows
        behind = BEHIND_BYTES + 1 if position is None else terminal.ring.end - position
        if (
            position is None
            or self._size != size
            or behind > BEHIND_BYTES
            or self._window.needs_redraw
        ):
            return await self._begin()
        part = terminal.ring.read(position, CHUNK_BYTES)
        if part.lost:
            self._position = None
            return True
        if part.data:
            passed = self._queries.feed(part.data)
            left = _LEAVES_ALTERNATE.search(passed) if self._is_alternate else None
            if passed := passed[: left.start()] if left else passed:
                self._send("output", passed)
            if left:
                self._position = None
                self._blank_until = trio.current_time() + _BLANK_MAX_S
                return True
            self._position = part.position + len(part.data)
        if behind > CHUNK_BYTES:
            await trio.sleep(POLL_INTERVAL_S)
            return True
        return False

    async def _paint(self) -> bool:
        """Send what has changed on the screen; never more at once."""
        screen, _ = await current_screen(self._terminal)
        window, self._position = self._window, None
        first = self._frames is None or self._size != window.size or window.needs_redraw
        if first:
            window.needs_redraw = False
            self._frames, self._size = Frames(window.cols, window.rows), window.size
        assert self._frames is not None  # noqa: S101  made above, for the type checker
        if frame := self._frames.frame(screen):
            self._is_alternate = True
            self._send("screen" if first else "output", frame, alternate=first)
        return False

    async def _begin(self) -> bool:
        """Send a picture that the program's own output can follow; whether there is one yet."""
        terminal = self._terminal
        queries = QueryFilter(clipboard=self._person.settings.clipboard)
        alternate = False
        if terminal.emulator.is_available:
            screen, position = await current_screen(terminal)
            if self._may_wait(screen):
                self._position = None
                return False
            alternate = screen.is_alternate
            picture = alternate_snapshot(screen) if alternate else snapshot(screen)
            picture += queries.feed(screen.held)
            size = screen.cols, screen.rows
        else:
            await terminal.caught_up()
            position, size = terminal.ring.end, (terminal.cols, terminal.rows)
            try:
                picture = queries.feed(unemulated.picture(terminal.ring, terminal.rows))
            except EmulatorMissingError as error:
                raise RpcError(INVALID_PARAMS, f"attach: {error}") from error
        self._window.needs_redraw = False
        self._queries, self._position = queries, position
        self._frames, self._size = None, size
        self._is_alternate, self._has_main = alternate, self._has_main or not alternate
        self._send("screen", picture, alternate=alternate)
        return True

    def _may_wait(self, screen: Screen) -> bool:
        """Return whether nothing needs to be painted on the window's main screen yet."""
        return (
            not self._has_main
            and trio.current_time() < self._blank_until
            and not screen.is_alternate
            and not any(screen.cells(y) for y in range(screen.rows))
        )

    def _send(
        self, kind: Literal["screen", "output"], data: bytes, *, alternate: bool = False
    ) -> None:
        encoded = base64.b64encode(data).decode()
        self._person.sender.notify(
            "_acpterm/terminal/attached",
            AttachedNotification(self._token, kind, encoded, alternate),
        )
