"""`acpterm ls --watch`: shows the list of terminals after each change, until Ctrl-C or q.

If stdout is a terminal, the list fills the screen, and keys control the list.

States: *watched*, until a key quits the list or opens the selected terminal; *attached* to that
terminal, in this window and over the same connection to the daemon, until the user detaches; then
*watched* again. The list is on the screen only in *watched*.
"""

import contextlib
import signal
from collections.abc import Callable
from functools import partial
from typing import Final, Self

import trio

from acpterm.acp.user_api import ACTIVE, TerminalInfo
from acpterm.cli._async import call_async, echo_async
from acpterm.cli._daemon import ChosenDaemon
from acpterm.cli._output import is_colour_wanted, is_terminal, json_line
from acpterm.cli._tables import Styles, cut_to, items, table, text_of
from acpterm.commands.attach.attach import attach
from acpterm.commands.attach.detach_keys import DetachFilter
from acpterm.commands.attach.tty import Tty
from acpterm.commands.client import UserClient
from acpterm.commands.events import refresh, until_ended
from acpterm.commands.format import Item, ended, reason, title
from acpterm.commands.keyboard import quiet_keys, read_keys, until_quit
from acpterm.commands.list_view import ListAction, ListView, VisibleRows
from acpterm.commands.output.blocking_stdout import window_size
from acpterm.commands.output.trio_stdout import put
from acpterm.jsonrpc import RpcError
from acpterm.link.errors import root_error
from acpterm.pty import linux
from acpterm.runtime.sanitize import one_line

# Seconds after which the list is drawn again, since ages are shown in seconds.
_REFRESH_S: Final = 1.0
# Maximum seconds for restoring the screen, since the terminal may have stopped its output.
_RESTORE_TIMEOUT_S: Final = 1.0


def watch(
    daemon: ChosenDaemon,
    chosen: Callable[[list[TerminalInfo]], list[TerminalInfo]],
    *,
    everything: bool,
    as_json: bool,
) -> int:
    """Show the terminals that `chosen` selects until the user quits; return the exit status."""
    keys = DetachFilter(daemon.settings().detach_key)

    async def show(client: UserClient) -> int:
        if not as_json and is_terminal():
            return await _watch_screen(
                client, lambda found: items(chosen(found)), keys, everything=everything
            )
        return await _watch_lines(client, chosen, everything=everything, as_json=as_json)

    return call_async(daemon, show, start=True)


async def _watch_lines(
    client: UserClient,
    chosen: Callable[[list[TerminalInfo]], list[TerminalInfo]],
    *,
    everything: bool,
    as_json: bool,
) -> int:
    printed = ""

    async def show(found: list[TerminalInfo]) -> None:
        nonlocal printed
        found = chosen(found)
        text = json_line(found) if as_json else f"{text_of([row for _, row in items(found)])}\n"
        if text != printed:
            printed = text
            await echo_async(text)

    refresh_list = partial(refresh, client, show, everything=everything)
    with quiet_keys():
        return await until_ended(partial(until_quit, refresh_list))


async def _watch_screen(
    client: UserClient,
    items: Callable[[list[TerminalInfo]], list[Item]],
    keys: DetachFilter,
    *,
    everything: bool,
) -> int:
    view = ListView()
    note = ""
    while True:
        watched = _WatchScreen(client, items, view, note, everything=everything)
        status = await watched.run()
        if not watched.opened or view.selected is None:
            return status
        note = await _attach(client, view.selected, keys)


async def _attach(client: UserClient, terminal: str, keys: DetachFilter) -> str:
    """Return a note to show below the list: the terminal's state, or why attaching has failed."""
    # The user may type a password.
    linux.forbid_inspection()
    try:
        return await _attach_or_raise(client, terminal, keys)
    except* RpcError as errors:
        refusal = str(root_error(errors))
    return refusal


async def _attach_or_raise(client: UserClient, terminal: str, keys: DetachFilter) -> str:
    info = await client.terminal_request("get", terminal, TerminalInfo)
    if info.state not in ACTIVE:
        return f"{title(info)} does not run any more: see acpterm logs {title(info)}"
    if not Tty.is_there():
        return "to attach, stdin has to be a terminal"
    response = await attach(client, Tty(), info, keys)
    if response is None:
        return f"{title(info)} runs on"
    status = response.exit_status
    return f"{title(info)} {ended(status) + reason(status) if status else 'was removed'}"


async def _write(text: str) -> None:
    await put(text.encode(errors="replace"))


class _Screen:
    """The window's alternate screen, to draw the list on."""

    def __init__(self) -> None:
        self._styles = Styles.COLOURS if is_colour_wanted() else Styles.ATTRIBUTES

    async def __aenter__(self) -> Self:
        # Switch to the alternate screen, and hide the cursor.
        await _write("\x1b[?1049h\x1b[?25l")
        return self

    async def __aexit__(self, *error: object) -> None:
        with trio.move_on_after(_RESTORE_TIMEOUT_S, shield=True), contextlib.suppress(OSError):
            await _write("\x1b[?25h\x1b[?1049l")

    async def draw(self, view: ListView, note: str = "") -> None:
        columns, height = window_size()
        # The header and the last line take up one line each.
        part = view.part(height - 2)
        among = [item.row for item in view.items]
        lines = table(part.rows, columns, self._styles, selected=part.selected, among=among)
        lines += [""] * (height - 1 - len(lines))
        lines.append(f"\x1b[2m{cut_to(_last_line(view, part, note), columns)}\x1b[0m")
        # Clear each line before writing it: after a line as wide as the window, the cursor is on
        # its last cell, which clearing would erase.
        await _write("\x1b[H" + "\r\n".join(f"\x1b[K{line}" for line in lines[-height:]))


def _last_line(view: ListView, part: VisibleRows, note: str) -> str:
    if view.is_typing_filter:
        return f"/{one_line(view.filter)}"
    if note:
        return one_line(note)
    position = f"{part.first + 1}-{part.first + len(part.rows)} of {part.total}"
    words = [position if part.total else "none"]
    if view.filter:
        words.append(f"filter: {one_line(view.filter)}")
    return "   ".join([*words, "Enter attaches, / filters, q quits"])


class _WatchScreen:
    """The list on the whole window, until the user quits or opens a terminal."""

    def __init__(
        self,
        client: UserClient,
        items: Callable[[list[TerminalInfo]], list[Item]],
        view: ListView,
        note: str,
        *,
        everything: bool,
    ) -> None:
        self.opened = False
        """Whether the user opened the selected terminal, rather than quit."""
        self._client = client
        self._items = items
        self._view = view
        self._note = note
        self._everything = everything
        self._is_drawn = True  # nothing to draw yet
        self._changed: Final = trio.lowlevel.ParkingLot()

    async def run(self) -> int:
        with quiet_keys():
            return await until_ended(self._watch)

    async def _watch(self) -> None:
        async with _Screen() as screen, trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_size)
            nursery.start_soon(self._watch_keys, nursery.cancel_scope)
            nursery.start_soon(self._draw, screen)
            await refresh(self._client, self._show, everything=self._everything, every=_REFRESH_S)

    def _redraw(self) -> None:
        self._is_drawn = False
        self._changed.unpark_all()

    async def _draw(self, screen: _Screen) -> None:
        # A task of its own, because writing to the terminal may take long.
        while True:
            while self._is_drawn:
                await self._changed.park()
            self._is_drawn = True
            await screen.draw(self._view, self._note)

    async def _watch_size(self) -> None:
        with trio.open_signal_receiver(signal.SIGWINCH) as signals:
            async for _ in signals:
                self._redraw()

    async def _watch_keys(self, scope: trio.CancelScope) -> None:
        while typed := await read_keys():
            self._note = ""
            if action := self._view.feed(typed):
                self.opened = action is ListAction.OPEN
                scope.cancel()
                return
            self._redraw()

    async def _show(self, found: list[TerminalInfo]) -> None:
        self._view.update(self._items(found))
        self._redraw()
        await trio.lowlevel.checkpoint()
