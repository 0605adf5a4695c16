"""Being at a terminal of the daemon's: its screen is shown here, and what is typed is typed there.

States: *attached*, until one of four ends it: the program ends, the person leaves by the detach
key, this process is told to end, or the daemon is gone. Then the window is as it was before, but
for what was printed; that holds for every way out.

Tasks: one prints, one reads what is typed, one minds signals (the window's size, being continued
after a stop, the end); the request itself is pending for as long as it lasts. The connection is
read from as fast as this window prints, so a slow window holds up nobody: the daemon shows it
pictures of the screen instead.
"""

import base64
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import msgspec
import trio
from msgspec import Raw

from acpterm.acp import Empty
from acpterm.acp.person import (
    AttachedNotification,
    AttachRequest,
    AttachResponse,
    ExitOf,
    PersonWriteRequest,
    TerminalInfo,
    WindowRequest,
)
from acpterm.client.endpoint import Answer
from acpterm.client.person.detaching import Detaching
from acpterm.client.person.front import Front
from acpterm.client.person.tty import Printer, Tty
from acpterm.client.person.words import title
from acpterm.host.ending import minded
from acpterm.jsonrpc import RpcError
from acpterm.terminal.paint import LEAVE

# Seconds that the notice stays, unless a key is pressed before.
NOTICE: Final = 1.5
# Bytes typed that may wait to be taken; more of it is dropped, with a bell.
_MOST: Final = 1024 * 1024
# Bytes in one request: those of a paste wait for each other.
_STEP: Final = 48 * 1024
_BELL: Final = b"\a"

_attached: Final = msgspec.json.Decoder(AttachedNotification)


async def attach(
    front: Front, terminal: Tty, info: TerminalInfo, *, read_only: bool = False
) -> ExitOf | None:
    """Be at a terminal until one side leaves: how its program ended, or None if it runs on.

    Raises `RpcError`.
    """
    keys = front.settings.detach_key
    attached = _Attached(front, terminal, info.terminal_id, Detaching(keys), read_only=read_only)
    with terminal.raw():
        try:
            return await attached.run(f"[{title(info)}: {keys} leaves it]")
        finally:
            # The daemon may be gone, and so may the window: nothing may keep this from ending.
            with trio.move_on_after(1, shield=True):
                with suppress(OSError):
                    await terminal.write(LEAVE)


class _Attached:
    def __init__(
        self,
        front: Front,
        terminal: Tty,
        identifier: str,
        detaching: Detaching,
        *,
        read_only: bool,
    ) -> None:
        self._front = front
        self._terminal = terminal
        self._id = identifier
        self._detaching = detaching
        self._read_only = read_only
        self._printer = Printer(terminal)
        self._token = front.token()
        self._shown = trio.Event()
        self._noticed = False
        self._untaken = 0

    async def run(self, notice: str) -> ExitOf | None:
        """Be attached until the end."""
        self._front.told = self._told
        self._front.endpoint.pace = self._printer.room
        answers: list[AttachResponse] = []
        cols, rows = self._terminal.size
        # What this window shows goes to where it can be scrolled back to, and not away.
        self._printer.put(b"\r\n" * rows)
        with trio.open_signal_receiver(*minded(), signal.SIGWINCH, signal.SIGCONT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._print, nursery.cancel_scope)
                nursery.start_soon(self._type, nursery.cancel_scope)
                nursery.start_soon(self._mind, signals, nursery.cancel_scope)
                nursery.start_soon(self._notice, notice)
                params = AttachRequest(self._id, self._token, cols, rows, self._read_only)
                answers.append(await self._front.ask("terminal/attach", params, AttachResponse))
                with trio.move_on_after(1):
                    await self._printer.empty()
                nursery.cancel_scope.cancel()
        return answers[0].exit_status if answers else None

    def _told(self, method: str, params: Raw) -> None:
        if method == "_acpterm/terminal/attached":
            told = _attached.decode(params)
            if told.token == self._token:
                self._printer.put(base64.b64decode(told.data))
                self._shown.set()

    async def _print(self, all_: trio.CancelScope) -> None:
        try:
            await self._printer.run()
        except OSError:
            all_.cancel()

    async def _type(self, all_: trio.CancelScope) -> None:
        while typed := await self._terminal.read():
            passed, leaves = self._detaching.feed(typed)
            if self._noticed:
                await self._repaint()
            if not self._read_only:
                for at in range(0, len(passed), _STEP):
                    self._pass_on(passed[at : at + _STEP])
            if leaves:
                # What was typed before is to be typed all the same.
                await self._front.endpoint.room()
                break
        all_.cancel()

    def _pass_on(self, data: bytes) -> None:
        if self._untaken + len(data) > _MOST:
            self._printer.put(_BELL)
            return
        self._untaken += len(data)

        def taken(answer: Answer) -> None:
            self._untaken -= len(data)
            if isinstance(answer, RpcError):
                self._printer.put(_BELL)

        params = PersonWriteRequest(self._id, base64.b64encode(data).decode(), "base64")
        self._front.endpoint.ask("_acpterm/terminal/write", params, taken)

    async def _mind(self, signals: AsyncIterator[int], all_: trio.CancelScope) -> None:
        async for number in signals:
            if number == signal.SIGCONT:
                self._terminal.make_raw()
            elif number != signal.SIGWINCH:
                all_.cancel()
                return
            await self._repaint()

    async def _notice(self, notice: str) -> None:
        """Say something in the window's last line for a while."""
        await self._shown.wait()
        cols, rows = self._terminal.size
        line = notice[:cols]
        self._printer.put(f"\x1b7\x1b[{rows};1H\x1b[0;7m{line}\x1b[m\x1b[K\x1b8".encode())
        self._noticed = True
        await trio.sleep(NOTICE)
        if self._noticed:
            await self._repaint()

    async def _repaint(self) -> None:
        """Have the window painted anew, in the size that it has now."""
        self._noticed = False
        params = WindowRequest(self._token, *self._terminal.size)
        try:
            await self._front.ask("terminal/window", params, Empty)
        except RpcError:
            # It is not attached yet, or no longer.
            return
