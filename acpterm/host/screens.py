"""What a terminal's screen shows, for whoever asks over the wire: too large a one is an error."""

from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.terminal import views as terminals
from acpterm.terminal.screen import Screen
from acpterm.terminal.terminal import Terminal


async def shown(terminal: Terminal) -> Screen:
    """Give the screen as it is now; to be used before the next checkpoint.

    Raises `RpcError` (-32602) when the window is too large for it.
    """
    try:
        return await terminal.screen.shown()
    except terminals.ScreenTooLargeError as error:
        raise _no_screen(error) from error


def check_screen(cols: int, rows: int) -> None:
    """Raise `RpcError` (-32602) for a window that is too large to be shown as a screen."""
    try:
        terminals.check_screen(cols, rows)
    except terminals.ScreenTooLargeError as error:
        raise _no_screen(error) from error


def _no_screen(error: terminals.ScreenTooLargeError) -> RpcError:
    return RpcError(INVALID_PARAMS, f"format 'screen': {error}")
