"""Notifications to the service manager (systemd), and its store of descriptors.

Implements sd_notify(3): datagrams to the socket that `NOTIFY_SOCKET` names; a leading `@` means the
abstract namespace. If the variable is not set, nothing is sent. No method raises, and only `flush`
waits, so the keeper also works if no manager listens.

With `FDSTORE=N` in the environment the manager stores up to N descriptors and passes them to the
next process of the service. PTY masters, the sockets of leaders and ring files are stored there, so
that programs outlive a keeper that is killed: while a master is stored, its PTY does not hang up.
"""

from __future__ import annotations

import _socket
import collections
import contextlib
import os
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from acpterm.keeper.process.loop import Loop

RING_PREFIX = "ring."
# The directory with the programs' control groups: the descriptor holds the daemon's lock on it.
TREES_NAME = "trees"
MASTER_PREFIX = "master."
LEADER_PREFIX = "leader."
_WATCHDOG_SHARE = 0.5
_RETRY_S = 0.01
_QUEUE_MAX = 4096


class Notifier:
    """Sends notifications to the service manager."""

    def __init__(self, loop: Loop, environ: Mapping[str, str]) -> None:
        self._loop = loop
        path = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._queue: collections.deque[tuple[bytes, int | None]] = collections.deque()
        self._socket = None
        if path:
            self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        self._store_capacity = _number(environ.get("FDSTORE")) if path else 0
        self._stored: set[str] = set()
        self._is_stopping = False
        watched = path and environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._watchdog_us = _number(environ.get("WATCHDOG_USEC")) if watched else 0

    @property
    def stores(self) -> bool:
        return self._store_capacity > 0

    @property
    def watchdog_s(self) -> float | None:
        """The interval in seconds at which to call `alive`."""
        return self._watchdog_us / 1e6 * _WATCHDOG_SHARE if self._watchdog_us else None

    def ready(self) -> None:
        self._send("READY=1")

    def reloading(self) -> None:
        """Report that the worker is being replaced. Call `ready` at the end."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self._send("STOPPING=1")

    def status(self, text: str) -> None:
        line = text.replace("\n", " ")
        self._send(f"STATUS={line}")

    def alive(self) -> None:
        """Reset the manager's watchdog, which kills a service that stays silent."""
        if self._watchdog_us:
            self._send("WATCHDOG=1")

    def has_stored(self, name: str) -> bool:
        return name in self._stored

    def adopt(self, name: str) -> None:
        """Record that a previous keeper has stored a descriptor of this name."""
        self._stored.add(name)

    def store(self, name: str, fd: int) -> None:
        """Store `fd` with the manager under `name`, unless the store is full."""
        if len(self._stored) < self._store_capacity:
            self._stored.add(name)
            # Without FDPOLL=0, systemd drops a PTY as soon as no process has its slave open.
            self._send(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", fd)

    def remove(self, name: str) -> None:
        if name in self._stored:
            self._stored.discard(name)
            self._send(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def remove_all(self) -> None:
        for name in sorted(self._stored):
            self.remove(name)

    def _send(self, state: str, fd: int | None = None) -> None:
        if self._socket is None or len(self._queue) >= _QUEUE_MAX:
            return
        data = state.encode(errors="backslashreplace")
        if not self._queue and self._try(data, fd):
            return
        # The manager's receive queue holds only about ten messages (net.unix.max_dgram_qlen).
        with contextlib.suppress(OSError):
            self._queue.append((data, None if fd is None else os.dup(fd)))
            if len(self._queue) == 1:
                self._loop.call_later(_RETRY_S, self._send_queued)

    def _try(self, data: bytes, fd: int | None) -> bool:
        """Try to send a message; return False if the manager's queue is full."""
        rights = []
        if fd is not None:
            rights.append((_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("=i", fd)))
        try:
            if self._socket is not None:
                self._socket.sendmsg([data], rights, 0, self._address)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _send_queued(self) -> None:
        while self._queue:
            data, fd = self._queue[0]
            if not self._try(data, fd):
                self._loop.call_later(_RETRY_S, self._send_queued)
                return
            self._queue.popleft()
            if fd is not None:
                os.close(fd)

    def flush(self, timeout_s: float) -> None:
        """Try to send the queued messages; block for at most `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        while self._queue and time.monotonic() < deadline:
            self._send_queued()
            time.sleep(_RETRY_S if self._queue else 0)


def _number(value: str | None) -> int:
    return int(value) if value is not None and value.isascii() and value.isdigit() else 0
