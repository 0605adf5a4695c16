"""Being at a terminal of the daemon's: its screen is shown here, and what is typed is typed there.

States: *attached*, until one of four ends it: the program ends, the user leaves by the detach
key, this process is told to end, or the daemon is gone. Then the window is as it was before, but
for what was printed; that holds for every way out. What a full-screen program shows is on the
window's alternate screen. What the window showed is scrolled away before anything else is printed.

When the connection is lost, the daemon's worker has died, and the window is *waiting* for the next
one, at most `resume_timeout` seconds: it keeps the picture that it shows, and gets a new one then.
Keys are not queued meanwhile, since the user does not see what they would do: each rings the bell,
and so does what was typed just before and may not have been taken. The detach key leaves as ever.

Tasks: one prints, one reads what is typed, one minds signals (the window's size, being continued
after a stop, the end); the request itself is pending for as long as it lasts. The connection is
read from as fast as this window prints, so a slow window holds up nobody: the daemon shows it
pictures of the screen instead. Nor does it hold up what is typed and the signals: what those have
to ask is asked without waiting for the answer.
"""

import base64
import math
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import msgspec
import trio
from msgspec import Raw

from acpterm.acp.user_api import ScreenResponse, TerminalInfo, UserWriteRequest
from acpterm.acp.user_streams import (
    AttachedNotification,
    AttachRequest,
    AttachResponse,
    WindowRequest,
)
from acpterm.client.endpoint import Response
from acpterm.client.errors import LostError
from acpterm.client.user.attach.detach_keys import DetachFilter
from acpterm.client.user.attach.tty import Printer, Tty
from acpterm.client.user.client import UserClient
from acpterm.client.user.words import title
from acpterm.jsonrpc import RpcError
from acpterm.pty.tracking import marks
from acpterm.runtime.shutdown_signals import shutdown_signals
from acpterm.terminal.vt.paint import LEAVE

# Seconds that the notice stays, unless a key is pressed before; and that the program has to have
# printed nothing for, so that it does not stand in the way of what a short command prints.
NOTICE_S: Final = 1.5
_QUIET_S: Final = 0.2
# Bytes typed that may wait to be taken, and seconds that more of it waits for room. After that it
# is dropped, with a bell, as long as the program takes none: the key that leaves has to be seen.
_UNREAD_BYTES_MAX: Final = 1024 * 1024
_UNREAD_TIMEOUT_S: Final = 2.0
# Bytes in one request: those of a paste wait for each other.
_CHUNK_BYTES: Final = 48 * 1024
# Seconds that the window, and the daemon, have to take the last of it.
_FLUSH_TIMEOUT_S: Final = 1.0
_BELL: Final = b"\a"
# The title goes to where terminals keep titles, and comes back from there (XTWINOPS 22 and 23).
_KEEP_TITLE: Final = b"\x1b[22;0t"
_PREVIOUS_TITLE: Final = b"\x1b[23;0t"
# The line that it is left in stays; the rest is a picture of something that is elsewhere.
_LEFT: Final = b"\r\n\x1b[J"
# From the alternate screen to where the cursor was on the main one; nothing in force would keep
# that one from scrolling.
_TO_MAIN: Final = b"\x1b\\\x1b]8;;\x1b\\\x1b[?69l\x1b[r\x1b[?6l\x1b[m\x1b[?1049l"

_attached: Final = msgspec.json.Decoder(AttachedNotification)


async def attach(
    client: UserClient,
    terminal: Tty,
    info: TerminalInfo,
    detaching: DetachFilter,
    *,
    read_only: bool = False,
) -> AttachResponse | None:
    """Be at a terminal until one side leaves: what became of it, or None if it runs on.

    Raises `RpcError`.
    """
    notice = await _notice(client, info, detaching)
    attached = _Attached(client, terminal, info, detaching, notice, read_only=read_only)
    minds = *shutdown_signals(), signal.SIGWINCH, signal.SIGCONT
    with trio.open_signal_receiver(*minds) as signals, terminal.raw():
        answer = None
        try:
            answer = await attached.run(signals)
        finally:
            undo = LEAVE + _tab_stops(terminal.size[0]) + _PREVIOUS_TITLE
            undo += _LEFT if attached.has_main and not answer else b""
            # The daemon may be gone, and so may the window: nothing may keep this from ending.
            with trio.move_on_after(_FLUSH_TIMEOUT_S, shield=True), suppress(OSError):
                await terminal.write(undo)
        return answer


async def _notice(client: UserClient, info: TerminalInfo, detaching: DetachFilter) -> str:
    """Return what is shown at first: the key that leaves, and the terminal around this one."""
    outer = None
    if identifier := os.environ.get(marks.TERMINAL):
        # It may be another daemon's.
        with suppress(RpcError):
            outer = title(await client.terminal_request("get", identifier, TerminalInfo))
    if outer is None:
        return f"[{title(info)}: {detaching.keys} leaves it]"
    return (
        f"[{title(info)}, inside of {outer}: {detaching.keys} leaves it, "
        f"unless that key leaves {outer} first]"
    )


def _tab_stops(cols: int) -> bytes:
    """Set those that a new terminal has; not every one can be told so in a word (DECST8C)."""
    stops = "".join(f"\x1b[{column}G\x1bH" for column in range(9, cols + 1, 8))
    return f"\x1b7\x1b[3g{stops}\x1b8".encode()


class _Attached:
    def __init__(
        self,
        client: UserClient,
        terminal: Tty,
        info: TerminalInfo,
        detaching: DetachFilter,
        notice: str,
        *,
        read_only: bool,
    ) -> None:
        self._client = client
        self._terminal = terminal
        self._id = info.terminal_id
        self._detaching = detaching
        self._notice = notice
        self._read_only = read_only
        self._printer = Printer(terminal)
        self._token = client.token()
        self._shown = trio.Event()
        self.has_main = False
        """Whether the window's main screen shows the terminal's, or did."""
        self._is_alternate = False
        self._said = -math.inf
        # Whether the notice stands on the screen.
        self._noticed = False
        self._untaken = 0
        self._stuck = False
        self._taken = trio.lowlevel.ParkingLot()

    async def run(self, signals: AsyncIterator[int]) -> AttachResponse | None:
        """Be attached until the end."""
        self._client.on_notification = self._told
        self._client.throttle = self._printer.drain
        answers: list[AttachResponse] = []
        self._printer.put(_KEEP_TITLE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._print, nursery.cancel_scope)
            nursery.start_soon(self._type, nursery.cancel_scope)
            nursery.start_soon(self._mind, signals, nursery.cancel_scope)
            nursery.start_soon(self._give_notice)
            answers.append(await self._attach())
            if self._noticed and self.has_main:
                with trio.move_on_after(_FLUSH_TIMEOUT_S):
                    await self._paint_last()
            # However long this window takes for it: the last lines are what one waits for.
            await self._printer.flush()
            nursery.cancel_scope.cancel()
        return answers[0] if answers else None

    async def _attach(self) -> AttachResponse:
        """Be attached until the program ends, also when the daemon's worker is replaced."""
        while True:
            endpoint = self._client.endpoint
            cols, rows = self._terminal.size
            params = AttachRequest(self._id, self._token, cols, rows, self._read_only)
            try:
                return await self._client.call("terminal/attach", params, AttachResponse)
            except LostError:
                await self._client.reconnect(endpoint)

    def _told(self, method: str, params: Raw) -> None:
        if method != "_acpterm/terminal/attached":
            return
        told = _attached.decode(params)
        if told.token != self._token:
            return
        if told.kind == "screen":
            self._choose_screen(alternate=told.alternate)
        self._printer.put(base64.b64decode(told.data))
        self._shown.set()
        self._said = trio.current_time()
        if told.kind == "screen":
            self._noticed = False
        elif self._noticed:
            # It may have moved, with what it stood on.
            self._repaint()

    def _choose_screen(self, *, alternate: bool) -> None:
        """Make room on the main screen before it is painted for the first time."""
        if not alternate and not self.has_main:
            self.has_main = True
            # What this window shows goes to where it can be scrolled back to, and not away.
            lines = b"\r\n" * self._terminal.size[1]
            self._printer.put((_TO_MAIN if self._is_alternate else b"") + lines)
        self._is_alternate = alternate

    async def _print(self, all_: trio.CancelScope) -> None:
        try:
            await self._printer.run()
        except OSError:
            all_.cancel()

    async def _type(self, all_: trio.CancelScope) -> None:
        while typed := await self._terminal.read():
            passed, leaves = self._detaching.feed(typed)
            if self._noticed:
                self._repaint()
            if not self._read_only:
                for at in range(0, len(passed), _CHUNK_BYTES):
                    await self._pass_on(passed[at : at + _CHUNK_BYTES])
            if leaves:
                # What was typed before is to be typed all the same.
                with trio.move_on_after(_FLUSH_TIMEOUT_S):
                    while self._untaken:
                        await self._taken.park()
                break
        all_.cancel()

    async def _pass_on(self, data: bytes) -> None:
        with trio.move_on_after(0 if self._stuck else _UNREAD_TIMEOUT_S):
            while self._untaken + len(data) > _UNREAD_BYTES_MAX:
                await self._taken.park()
        if self._untaken + len(data) > _UNREAD_BYTES_MAX:
            self._stuck = True
            self._printer.put(_BELL)
            return
        self._untaken += len(data)

        def taken(answer: Response) -> None:
            self._untaken -= len(data)
            self._stuck = False
            self._taken.unpark_all()
            if isinstance(answer, RpcError):
                self._printer.put(_BELL)

        params = UserWriteRequest(self._id, base64.b64encode(data).decode(), "base64")
        self._client.endpoint.call("_acpterm/terminal/write", params, taken)

    async def _mind(self, signals: AsyncIterator[int], all_: trio.CancelScope) -> None:
        async for number in signals:
            if number == signal.SIGCONT:
                self._terminal.make_raw()
            elif number != signal.SIGWINCH:
                all_.cancel()
                return
            self._repaint()

    async def _give_notice(self) -> None:
        """Say something in the window's last line for a while, once the program is quiet."""
        await self._shown.wait()
        while trio.current_time() < self._said + _QUIET_S:  # noqa: ASYNC110  it moves on
            await trio.sleep_until(self._said + _QUIET_S)
        cols, rows = self._terminal.size
        line = self._notice[:cols]
        self._printer.put(f"\x1b7\x1b[{rows};1H\x1b[0;7m{line}\x1b[m\x1b[K\x1b8".encode())
        self._noticed = True
        await trio.sleep(NOTICE_S)
        if self._noticed:
            self._repaint()

    async def _paint_last(self) -> None:
        """Paint what there is at the end: nobody else does so any more."""
        cols, rows = self._terminal.size
        try:
            screen = await self._client.terminal_request("screen", self._id, ScreenResponse)
        except RpcError:  # it was removed
            self._printer.put(f"\x1b[{rows}H\x1b[2K".encode())
            return
        if (cols, rows) == (screen.cols, screen.lines):
            lines = (f"\x1b[{y}H{row}\x1b[K" for y, row in enumerate(screen.rows, 1))
            x, y = screen.cursor
            # The last column is one as others while lines do not wrap.
            picture = "".join(("\x1b[r\x1b[?6l\x1b[?7l\x1b[4l\x1b(B\x0f\x1b[m", *lines))
            self._printer.put(f"{picture}\x1b[?7h\x1b[{y + 1};{x + 1}H".encode())

    def _repaint(self) -> None:
        """Have the window painted anew, in the size that it has now."""
        params = WindowRequest(self._token, *self._terminal.size)
        # An error is that it is not attached yet, or no longer.
        self._client.endpoint.call("_acpterm/terminal/window", params, lambda _: None)
