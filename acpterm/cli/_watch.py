"""`acpterm ls --watch` on a terminal: the whole screen, redrawn until Ctrl-C or q.

States: the list is *watched*, until a key leaves it or opens the terminal that is selected; that is
*attached* to in this window, on the same connection, until it is left; then the list is watched
again. The screen is the list's only while it is watched.
"""

import os
import signal
from collections.abc import Callable
from typing import Final

import trio

from acpterm.acp.user_api import TerminalInfo
from acpterm.cli._keyboard import quiet_keys
from acpterm.cli._tables import Screen
from acpterm.client.user.attach.attach import attach
from acpterm.client.user.attach.detach_keys import DetachFilter
from acpterm.client.user.attach.tty import Tty
from acpterm.client.user.client import UserClient
from acpterm.client.user.events import until_ended
from acpterm.client.user.list_view import Action, Item, ListView
from acpterm.client.user.watched import refresh
from acpterm.client.user.words import ended, title
from acpterm.jsonrpc import RpcError
from acpterm.pty import linux

# Seconds after which ages are another second's.
_REFRESH_S: Final = 1.0
_CHUNK: Final = 1024


async def watch_screen(
    client: UserClient,
    items: Callable[[list[TerminalInfo]], list[Item]],
    keys: DetachFilter,
    *,
    everything: bool,
) -> int:
    """Show the terminals until Ctrl-C, q, or another signal; return the exit status.

    `keys` leave a terminal that was attached to from here.
    """
    view = ListView()
    note = ""
    while True:
        watched = WatchScreen(client, items, view, note, everything=everything)
        status = await watched.run()
        if not watched.opened or view.selected is None:
            return status
        note = await _attach(client, view.selected, keys)


async def _attach(client: UserClient, terminal: str, keys: DetachFilter) -> str:
    """Attach to a terminal until it is left; return what became of it."""
    # What is typed there may be a password.
    linux.forbid_inspection()
    try:
        info = await client.terminal_request("get", terminal, TerminalInfo)
        if info.state != "running":
            return f"{title(info)} does not run any more: see acpterm logs {title(info)}"
        if not Tty.is_there():
            return "to attach, stdin has to be a terminal"
        over = await attach(client, Tty(), info, keys)
    except RpcError as error:
        return error.message
    if over is None:
        return f"{title(info)} runs on"
    return f"{title(info)} {ended(over.exit_status) if over.exit_status else 'was removed'}"


class WatchScreen:
    """The list, watched once."""

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
        """Whether it was left to attach to the terminal that is selected."""
        self._front = client
        self._items = items
        self._view = view
        self._note = note
        self._everything = everything
        self._changed = trio.Event()

    async def run(self) -> int:
        """Show the list until it is left; return the exit status."""
        with quiet_keys(), Screen() as self._screen:
            return await until_ended(self._watch)

    async def _watch(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_size)
            nursery.start_soon(self._watch_keys, nursery.cancel_scope)
            await refresh(
                self._front,
                self._show,
                everything=self._everything,
                every=_REFRESH_S,
                again=self._again,
            )

    def _again(self) -> trio.Event:
        self._changed = trio.Event()
        return self._changed

    async def _watch_size(self) -> None:
        with trio.open_signal_receiver(signal.SIGWINCH) as signals:
            async for _ in signals:
                self._screen.draw(self._view, self._note)

    async def _watch_keys(self, scope: trio.CancelScope) -> None:
        while os.isatty(0):
            await trio.lowlevel.wait_readable(0)
            typed = os.read(0, _CHUNK)
            if not typed:
                return
            self._note = ""
            if action := self._view.feed(typed):
                self.opened = action is Action.OPEN
                scope.cancel()
                return
            self._screen.draw(self._view, self._note)

    async def _show(self, found: list[TerminalInfo]) -> None:
        self._view.update(self._items(found))
        self._screen.draw(self._view, self._note)
        await trio.lowlevel.checkpoint()
