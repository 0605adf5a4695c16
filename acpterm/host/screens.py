"""The screen of a terminal, for requests; raises `RpcError` if there is none."""

from typing import NamedTuple

from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.terminal.terminal import Terminal
from acpterm.terminal.vt import emulator
from acpterm.terminal.vt.emulator import ScreenTooLargeError
from acpterm.terminal.vt.library import EmulatorMissingError
from acpterm.terminal.vt.screen import Screen


class CurrentScreen(NamedTuple):
    """A screen, and the position in the output that it corresponds to."""

    screen: Screen
    position: int


async def current_screen(terminal: Terminal) -> CurrentScreen:
    """Return the screen as it is now.

    Raises `RpcError` (-32602) when the window is too large for it, or no emulator is installed.
    """
    try:
        await terminal.caught_up()
        return CurrentScreen(terminal.emulator.screen(), terminal.ring.end)
    except (ScreenTooLargeError, EmulatorMissingError) as error:
        raise _no_screen(error) from error


def check_screen(cols: int, rows: int) -> None:
    """Raise `RpcError` (-32602) for a window that is too large to be shown as a screen."""
    try:
        emulator.check_size(cols, rows)
    except ScreenTooLargeError as error:
        raise _no_screen(error) from error


def _no_screen(error: Exception) -> RpcError:
    return RpcError(INVALID_PARAMS, f"format 'screen': {error}")
