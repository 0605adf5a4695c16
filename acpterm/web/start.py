"""Starting of the HTTP server: the imports that it needs, and its listening socket.

`HttpStartError` has the message that the user sees.
"""

import errno
import importlib
import socket
from typing import Final

from acpterm.config import Settings
from acpterm.config.http import HttpAddress, check_exposure, parse_address
from acpterm.runtime.extras import WEB, how_to_install
from acpterm.web.endpoint import bind

_ANY_PORT: Final = HttpAddress("127.0.0.1", 0)


class HttpStartError(Exception):
    """The server cannot listen; the message says why, and what to do."""


def import_packages() -> None:
    """Import what the extra `web` installs. Raises `HttpStartError` if a package is missing."""
    try:
        importlib.import_module("acpterm.web.app")
        importlib.import_module("acpterm.web.server")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "acpterm":
            raise
        raise HttpStartError(
            f"it needs more packages ({error.name} is missing): {how_to_install(WEB)}"
        ) from error


def listening_socket(
    settings: Settings, wanted: HttpAddress | None, last: str | None
) -> socket.socket:
    """Return a socket that listens on `wanted`, or else on the setting `http`.

    Without both, it listens on `last`, or if that is forbidden or refused, on a free port. Raises
    `ValueError` if the settings forbid the address, `HttpStartError` if the system refuses it.
    """
    chosen = wanted
    if chosen is None and settings.http is not None:
        chosen = parse_address(settings.http)
    if chosen is not None:
        check_exposure(settings, chosen)
        return _listen(chosen)
    try:
        address = parse_address(last or str(_ANY_PORT))
        check_exposure(settings, address)
        return _listen(address)
    except (ValueError, HttpStartError):
        return _listen(_ANY_PORT)


def _listen(address: HttpAddress) -> socket.socket:
    try:
        return bind(address)
    except OSError as error:
        advice = ": choose another port" if error.errno == errno.EADDRINUSE else ""
        raise HttpStartError(f"cannot listen on {address}: {error.strerror}{advice}") from error
