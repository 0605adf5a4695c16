"""A keeper that is the child of its worker: it kills all programs when the worker exits."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import os

from acpterm.keeper.process.keeper import Keeper
from acpterm.keeper.process.link import Link
from acpterm.keeper.programs import system
from acpterm.keeper.programs.shutdown import end_programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket

    from acpterm.keeper.process.loop import Loop
    from acpterm.keeper.protocol import Message

_PARENT_CHECK_S = 1.0


class Embedded:
    """An embedded keeper. It ignores signals: its worker tells it when to exit."""

    def __init__(self, loop: Loop, sock: _socket.socket, *, parent: int) -> None:
        self._loop = loop
        self._parent = parent
        self._keeper = Keeper(loop, embedded=True)
        self._link = Link(loop, sock, self._receive, self._on_lost)
        for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT):
            _signal.signal(number, _signal.SIG_IGN)
        self._watch_parent()

    def run(self) -> int:
        """Serve until the worker is gone; return the exit status."""
        self._loop.run(self._keeper.before_wait)
        end_programs(self._keeper.terminals)
        return 0

    def _watch_parent(self) -> None:
        """Stop when the parent exits, even if another process holds its end of the connection."""
        pidfd = system.open_pidfd(self._parent)
        if os.getppid() != self._parent:
            self._loop.stop()
        elif pidfd is not None:
            self._loop.add_reader(pidfd, self._loop.stop)
        else:
            self._loop.call_later(_PARENT_CHECK_S, self._watch_parent)

    def _receive(self, message: Message) -> None:
        if message.kind == "hello":
            self._keeper.send_state(self._link, takeovers=0)
        elif message.kind == "ready":
            self._link.send("go")
        elif message.kind == "restart":
            reason = "this daemon runs inside another process: restart that instead"
            self._link.send("restart_failed", message.fields[0], reason)
        elif message.kind == "end":
            self._loop.stop()
        else:
            self._keeper.receive(message)

    def _on_lost(self, _reason: str) -> None:
        self._loop.stop()
