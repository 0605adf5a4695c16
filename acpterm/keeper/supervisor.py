"""The daemon's main process: starts the worker, and starts it again when it dies."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Sequence

    from acpterm.keeper.loop import Loop


class Supervisor:
    """The life of a daemon's keeper."""

    def __init__(
        self, loop: Loop, sock: _socket.socket, *, first_worker: int, command: Sequence[str]
    ) -> None:
        raise NotImplementedError

    def run(self) -> int:
        """Serve until the daemon ends; return the exit status."""
        raise NotImplementedError
