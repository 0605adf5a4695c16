"""An attached window: what a user is shown of a terminal, and how it keeps up.

States, of which each begins with all of the window painted again:

    direct ◀──the sizes──▶ painted

- *direct*, if it has the terminal's size: the window gets the program's own output, from the
  position that the picture at its beginning stands for; nothing twice and nothing missing, but for
  what the program asks its terminal (`vt.queries`). One that falls behind by more than `BEHIND`
  bytes, or by more than the ring keeps, gets a new picture and not the backlog.
- *painted*: the window gets pictures of the screen, of which each says what has changed since the
  one before, at most one each `FRAME` seconds.

Where no emulator is installed every window is direct, and begins with the last output instead of a
picture; a full-screen program cannot be shown like that.

Nothing is made before the front end has read what was sent before (`room`): a window that does not
read costs nothing and slows nobody. The task is that of the request; it ends with the program's
end, with the terminal's release, or when it is cancelled.
"""

import base64
from typing import Final

import trio

from acpterm.acp.person import AttachedNotification, AttachRequest, AttachResponse
from acpterm.host.described import exit_of
from acpterm.host.people.person import Person
from acpterm.host.roster import Entry
from acpterm.host.screens import shown
from acpterm.host.windows import Window
from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.terminal.vt import unemulated
from acpterm.terminal.vt.frames import Frames
from acpterm.terminal.vt.library import EmulatorMissingError
from acpterm.terminal.vt.paint import snapshot
from acpterm.terminal.vt.queries import QueryFilter

BEHIND: Final = 512 * 1024
STEP: Final = 64 * 1024
FRAME: Final = 0.04
# Seconds between two looks at a flood: more is not seen, and costs the terminal's own reader.
PACE: Final = 0.01


async def attach(person: Person, entry: Entry, params: AttachRequest) -> AttachResponse:
    """Show a terminal in a window until it ends. Raises `RpcError` when that cannot be done."""
    window = Window(params.cols, params.rows, read_only=params.read_only)
    with person.going(params.token, (entry, window)):
        person.shared.windows.open(entry, window)
        try:
            await _Attached(person, entry, window, params.token).run()
        finally:
            person.shared.windows.close(entry, window)
    status = entry.terminal.exit
    return AttachResponse("released" if status is None else "exited", exit_of(status))


class _Attached:
    """What one window is shown."""

    def __init__(self, person: Person, entry: Entry, window: Window, token: str) -> None:
        self._person = person
        self._entry = entry
        self._terminal: Final = entry.terminal
        self._window = window
        self._token = token
        # Up to where the window has the output; None while it is painted.
        self._position: int | None = None
        self._size = 0, 0
        self._frames: Frames | None = None
        self._queries = QueryFilter()

    async def run(self) -> None:
        """Show it until the end."""
        terminal = self._terminal
        while True:
            await self._person.sender.room()
            ended = self._ended()
            seen = terminal.ring.end
            try:
                if self._is_direct():
                    more = await self._direct()
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
            if terminal.ring.end == seen and not self._stale() and not self._ended():
                await terminal.wait_changed()
            if self._position is None:
                await trio.sleep(FRAME)

    def _ended(self) -> bool:
        return self._terminal.exit is not None or self._terminal.released

    def _is_direct(self) -> bool:
        """Return whether the window gets the program's own output."""
        terminal = self._terminal
        is_same_size = self._window.size == (terminal.cols, terminal.rows)
        return is_same_size or not terminal.emulator.is_available

    def _stale(self) -> bool:
        """Return whether the window has to be painted again, or its output is of the wrong kind."""
        direct = self._is_direct()
        return (
            self._window.anew
            or direct != (self._position is not None)
            or (direct and self._size != (self._terminal.cols, self._terminal.rows))
        )

    async def _direct(self) -> bool:
        """Send what has come since; whether there is more."""
        terminal, position = self._terminal, self._position
        size = terminal.cols, terminal.rows
        behind = BEHIND + 1 if position is None else terminal.ring.end - position
        if position is None or self._size != size or behind > BEHIND or self._window.anew:
            await self._begin()
            return True
        part = terminal.ring.read(position, STEP)
        if part.lost:
            self._position = None
            return True
        if part.data:
            if passed := self._queries.feed(part.data):
                self._send("output", passed)
            self._position = part.position + len(part.data)
        if behind > STEP:
            await trio.sleep(PACE)
            return True
        return False

    async def _paint(self) -> bool:
        """Send what has changed on the screen; never more at once."""
        screen, _ = await shown(self._terminal)
        window, self._position = self._window, None
        first = self._frames is None or self._size != window.size or window.anew
        if first:
            window.anew = False
            self._frames, self._size = Frames(window.cols, window.rows), window.size
        assert self._frames is not None  # noqa: S101  made above, for the type checker
        if frame := self._frames.frame(screen):
            self._send("screen" if first else "output", frame)
        return False

    async def _begin(self) -> None:
        """Send a picture that the program's own output can follow."""
        terminal = self._terminal
        queries = QueryFilter(clipboard=self._person.settings.clipboard)
        if terminal.emulator.is_available:
            screen, position = await shown(terminal)
            picture = snapshot(screen) + queries.feed(screen.held)
            size = screen.cols, screen.rows
        else:
            await terminal.caught_up()
            position, size = terminal.ring.end, (terminal.cols, terminal.rows)
            try:
                picture = queries.feed(unemulated.picture(terminal.ring, terminal.rows))
            except EmulatorMissingError as error:
                raise RpcError(INVALID_PARAMS, f"attach: {error}") from error
        self._window.anew = False
        self._queries, self._position = queries, position
        self._frames, self._size = None, size
        self._send("screen", picture)

    def _send(self, kind: str, data: bytes) -> None:
        encoded = base64.b64encode(data).decode()
        self._person.sender.notify(
            "_acpterm/terminal/attached",
            AttachedNotification(self._token, "screen" if kind == "screen" else "output", encoded),
        )
