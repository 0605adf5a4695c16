"""Shows a terminal of the daemon in this window, and sends the typed keys to its program.

States: *attached*, until the program exits, the user presses the detach keys, a signal ends this
process, or the daemon ends. In each case the window's modes are restored. Full-screen programs are
shown on the window's alternate screen and leave nothing behind; other output remains in the window.
The window's previous content is scrolled into its scrollback before the terminal's main screen is
first shown.

The connection is lost when the daemon's worker dies. The window is then *waiting* for the next
worker, for at most `resume_timeout` seconds (a setting): it keeps its content, and continues from
there. Keys are not queued in this state, since the user does not see their effect: each key
rings the bell. The bell also rings for input that was sent before the loss and is not confirmed,
since that input may be lost. The detach keys still work.

Tasks: one prints, one reads input, one handles signals (window size, continue after a stop,
shutdown); the `terminal/attach` request stays pending for the whole time. If this window prints
slowly, the daemon sends snapshots of the screen instead of all output, so that no other client is
delayed; for `acpterm run`, the program waits instead. Input and signals are not delayed either:
their tasks do not wait for responses.
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
from msgspec import UNSET, UnsetType

from acpterm.acp.user_api import ScreenResponse, TerminalInfo, UserWriteRequest
from acpterm.acp.user_streams import (
    AttachedNotification,
    AttachRequest,
    AttachResponse,
    WindowRequest,
)
from acpterm.commands.attach.detach_keys import DetachFilter
from acpterm.commands.attach.tty import Printer, Tty, tab_stops
from acpterm.commands.client import UserClient
from acpterm.commands.format import queue_notice, title
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon import DaemonError
from acpterm.link.errors import LostError
from acpterm.link.session import Response
from acpterm.pty.tracking import marks
from acpterm.runtime.shutdown_signals import shutdown_signals
from acpterm.terminal.vt.paint import LEAVE, TO_MAIN

# Maximum bytes of input that were sent and that the daemon has not confirmed.
_UNCONFIRMED_BYTES_MAX: Final = 1024 * 1024
# Seconds that further input waits for a confirmation before it is dropped.
_CONFIRM_TIMEOUT_S: Final = 2.0
# Maximum bytes of input in one request.
_CHUNK_BYTES: Final = 48 * 1024
_BELL: Final = b"\a"


class InputSender:
    """Sends input to the terminal; the daemon confirms what it has written to the terminal."""

    def __init__(self, client: UserClient, terminal_id: str, printer: Printer) -> None:
        self._client = client
        self._terminal_id = terminal_id
        self._printer = printer
        self._unconfirmed_bytes = 0
        # Whether input was dropped, and the daemon has confirmed none since.
        self._is_stuck = False
        self._confirmed = trio.lowlevel.ParkingLot()

    async def send(self, data: bytes) -> None:
        for at in range(0, len(data), _CHUNK_BYTES):
            await self._send_chunk(data[at : at + _CHUNK_BYTES])

    async def _send_chunk(self, data: bytes) -> None:
        with trio.move_on_after(0 if self._is_stuck else _CONFIRM_TIMEOUT_S):
            while self._unconfirmed_bytes + len(data) > _UNCONFIRMED_BYTES_MAX:
                await self._confirmed.park()
        if self._unconfirmed_bytes + len(data) > _UNCONFIRMED_BYTES_MAX:
            # The program does not read: drop input, so that the detach keys are still found.
            self._is_stuck = True
            self._printer.put(_BELL)
            return
        self._unconfirmed_bytes += len(data)

        def on_response(response: Response) -> None:
            self._unconfirmed_bytes -= len(data)
            self._is_stuck = False
            self._confirmed.unpark_all()
            if isinstance(response, RpcError):
                self._printer.put(_BELL)

        params = UserWriteRequest(self._terminal_id, base64.b64encode(data).decode(), "base64")
        self._client.send("terminal/write", params, on_response)

    async def flush(self) -> None:
        while self._unconfirmed_bytes:
            await self._confirmed.park()


# Seconds for which the notice (see `_notice`) stays visible, unless a key is pressed before.
NOTICE_S: Final = 1.5
# The notice appears once the program has printed nothing for this many seconds, so that it does not
# hide the output of a short command.
_QUIET_S: Final = 0.2
# Maximum seconds, before this command exits, for the window to print the last output, and for the
# daemon to confirm the last input.
_FLUSH_TIMEOUT_S: Final = 1.0
# Seconds after a resize within which a snapshot for the size before may arrive.
_RESIZE_S: Final = 1.0
# Push the window's title on its title stack, and pop it (XTWINOPS 22 and 23).
_PUSH_TITLE: Final = b"\x1b[22;0t"
_POP_TITLE: Final = b"\x1b[23;0t"
# On detach, keep the cursor's line and erase everything below.
_ERASE_BELOW: Final = b"\r\n\x1b[J"

_attached_decoder: Final = msgspec.json.Decoder(AttachedNotification)


async def attach(
    client: UserClient,
    terminal: Tty,
    info: TerminalInfo,
    detach_filter: DetachFilter,
    *,
    read_only: bool = False,
    complete: bool = False,
) -> AttachResponse | None:
    """Attach the window; return None after detaching, or if this process or its window ends."""
    notice = await _notice(client, info, detach_filter)
    attachment = _Attachment(
        client, terminal, info, detach_filter, notice, read_only=read_only, complete=complete
    )
    handled = *shutdown_signals(), signal.SIGWINCH, signal.SIGCONT
    with trio.open_signal_receiver(*handled) as signals, terminal.raw():
        response = None
        try:
            response = await attachment.run(signals)
        finally:
            restore = LEAVE + tab_stops(terminal.size[0]) + _POP_TITLE
            restore += _ERASE_BELOW if attachment.has_main and not response else b""
            # Exit even if the daemon has ended, or if the window is closed or prints nothing.
            with trio.move_on_after(_FLUSH_TIMEOUT_S, shield=True), suppress(OSError):
                await terminal.write(restore)
        return response


async def _notice(client: UserClient, info: TerminalInfo, detach_filter: DetachFilter) -> str:
    outer = None
    if identifier := os.environ.get(marks.TERMINAL):
        # The outer terminal may belong to another daemon.
        with suppress(RpcError):
            outer = title(await client.terminal_request("get", identifier, TerminalInfo))
    if outer is None:
        return f"[{title(info)}: {detach_filter.keys} leaves it]"
    return (
        f"[{title(info)}, inside of {outer}: {detach_filter.keys} leaves it, "
        f"unless that key leaves {outer} first]"
    )


class _Attachment:
    def __init__(
        self,
        client: UserClient,
        terminal: Tty,
        info: TerminalInfo,
        detach_filter: DetachFilter,
        notice: str,
        *,
        read_only: bool,
        complete: bool,
    ) -> None:
        self._client = client
        self._terminal = terminal
        self._id = info.terminal_id
        self._info = info
        self._detach_filter = detach_filter
        self._notice = notice
        self._read_only = read_only
        self._complete = complete
        self._printer = Printer(terminal)
        self._input = InputSender(client, info.terminal_id, self._printer)
        self._token = client.token()
        self._has_output = trio.Event()
        self.has_main = False
        """Whether the terminal's main screen was shown."""
        self._is_alternate = False
        # The position in the program's output up to which the window shows it.
        self._position: int | UnsetType = UNSET
        # The same of its main screen, also while the alternate screen is shown.
        self._main_position: int | None = None
        self._last_output_at = -math.inf
        self._resized_at = -math.inf
        self._is_notice_visible = False

    async def run(self, signals: AsyncIterator[int]) -> AttachResponse | None:
        response: AttachResponse | None = None
        self._printer.put(_PUSH_TITLE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._print, nursery.cancel_scope)
            nursery.start_soon(self._send_input, nursery.cancel_scope)
            nursery.start_soon(self._handle_signals, signals, nursery.cancel_scope)
            async with trio.open_nursery() as attached:
                attached.start_soon(self._show_notice)
                response = await self._attach()
                attached.cancel_scope.cancel()  # nothing would erase a later notice
            if self._is_notice_visible and self.has_main:
                with trio.move_on_after(_FLUSH_TIMEOUT_S):
                    await self._paint_final_screen()
            # Wait without a timeout, even for a slow window: the last lines matter most.
            await self._printer.flush()
            nursery.cancel_scope.cancel()
        return response

    async def _attach(self) -> AttachResponse:
        while True:
            cols, rows = self._terminal.size
            request = AttachRequest(
                self._id,
                self._token,
                cols,
                rows,
                self._read_only,
                scrollback=self._position is UNSET or self._is_alternate,
                since=self._main_position,
                complete=self._complete,
            )
            with self._client.stream("terminal/attach", request, AttachResponse) as stream:
                try:
                    async for params in stream:
                        self._show(_attached_decoder.decode(params))
                        await self._printer.drain()
                except LostError:
                    await self._client.reconnect(stream.endpoint)
                else:
                    return stream.response

    def _show(self, update: AttachedNotification) -> None:
        if update.kind == "screen" or update.position is not UNSET:
            self._position = update.position
        if update.kind == "screen":
            self._choose_screen(alternate=update.alternate)
        elif self._is_notice_visible:
            # The output may scroll the notice. Only an alternate screen had text in its place.
            self._printer.put(f"\x1b7\x1b[{self._terminal.size[1]};1H\x1b[0m\x1b[2K\x1b8".encode())
            if self._is_alternate:
                self._repaint()
        if update.position is not UNSET and not self._is_alternate:
            self._main_position = update.position
        # From now on that line is the program's.
        self._is_notice_visible = False
        self._printer.put(base64.b64decode(update.data))
        self._has_output.set()
        self._last_output_at = trio.current_time()
        if update.kind == "screen" and self._last_output_at - self._resized_at < _RESIZE_S:
            # It may have been painted for the size before.
            self._resized_at = -math.inf
            self._repaint()

    def _choose_screen(self, *, alternate: bool) -> None:
        if not alternate and not self.has_main:
            self.has_main = True
            # The window's own content goes to its scrollback, so that it is not overwritten. The
            # spaces end the cursor's line, unless it is empty: that would leave an empty line.
            cols, rows = self._terminal.size
            lines = " " * (cols - 1) + "\r\x1b[K" + "\r\n" * (rows - 1)
            self._printer.put((TO_MAIN if self._is_alternate else b"") + lines.encode())
        self._is_alternate = alternate

    async def _print(self, attached: trio.CancelScope) -> None:
        try:
            await self._printer.run()
        except OSError:
            attached.cancel()

    async def _send_input(self, attached: trio.CancelScope) -> None:
        while typed := await self._terminal.read():
            data, detached = self._detach_filter.feed(typed)
            if self._is_notice_visible:
                self._repaint()
            if not self._read_only:
                await self._input.send(data)
            if detached:
                # Let the daemon confirm the input that was typed before the detach keys.
                with trio.move_on_after(_FLUSH_TIMEOUT_S):
                    await self._input.flush()
                break
        attached.cancel()

    async def _handle_signals(
        self, signals: AsyncIterator[int], attached: trio.CancelScope
    ) -> None:
        async for number in signals:
            if number == signal.SIGWINCH:
                self._resized_at = trio.current_time()
            elif number == signal.SIGCONT:
                self._terminal.make_raw()
            else:
                attached.cancel()
                return
            self._repaint()

    async def _show_notice(self) -> None:
        """Show the notice in the window's last line for `NOTICE_S` seconds, or while queued."""
        await self._has_output.wait()
        last = -math.inf
        while last != self._last_output_at:  # also if output has come while the line was looked up
            last = self._last_output_at
            await trio.sleep_until(last + _QUIET_S)
            if last != self._last_output_at:
                continue
            # The main screen would scroll this line off without its text.
            if not self._is_alternate and not await self._is_last_line_blank():
                return
        cols, rows = self._terminal.size
        is_queued = await self._is_queued()
        line = (f"[{queue_notice(self._info)}] " * is_queued + self._notice)[:cols]
        self._printer.put(f"\x1b7\x1b[{rows};1H\x1b[0;7m{line}\x1b[m\x1b[K\x1b8".encode())
        self._is_notice_visible = True
        await trio.sleep(NOTICE_S)
        while is_queued and self._is_notice_visible:
            await trio.sleep(NOTICE_S)
            is_queued = await self._is_queued()
        if self._is_notice_visible:
            self._repaint()

    async def _is_last_line_blank(self) -> bool:
        try:
            screen = await self._client.terminal_request("screen", self._id, ScreenResponse)
        except (RpcError, DaemonError):  # the terminal was removed, or the daemon ends
            return False
        return screen.cursor[1] < screen.lines - 1 and not screen.rows[screen.lines - 1].strip()

    async def _is_queued(self) -> bool:
        if self._info.state != "queued":
            return False
        with suppress(RpcError):  # the terminal was removed, or the connection is lost
            self._info = await self._client.terminal_request("get", self._id, TerminalInfo)
        return self._info.state == "queued"

    async def _paint_final_screen(self) -> None:
        cols, rows = self._terminal.size
        try:
            screen = await self._client.terminal_request("screen", self._id, ScreenResponse)
        except (RpcError, DaemonError):  # the terminal was removed, or the daemon ends
            self._printer.put(f"\x1b[{rows}H\x1b[2K".encode())
            return
        if (cols, rows) == (screen.cols, screen.lines):
            lines = (f"\x1b[{y}H{row}\x1b[K" for y, row in enumerate(screen.rows, 1))
            x, y = screen.cursor
            # Turn autowrap off, or writing the last column would wrap the line.
            picture = "".join(("\x1b[r\x1b[?6l\x1b[?7l\x1b[4l\x1b(B\x0f\x1b[m", *lines))
            self._printer.put(f"{picture}\x1b[?7h\x1b[{y + 1};{x + 1}H".encode())

    def _repaint(self) -> None:
        params = WindowRequest(self._token, *self._terminal.size)
        # Ignore the response: an error only means that the window is not attached at the moment.
        self._client.send("terminal/window", params, lambda _: None)
