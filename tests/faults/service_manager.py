"""A fake service manager: receives notifications and stores descriptors."""

import array
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

_STORE_MAX = 4096
_NAME_MAX = 255


class ServiceManager:
    """The receiver of `NOTIFY_SOCKET`, with a descriptor store."""

    def __init__(self, path: Path) -> None:
        self.states: list[str] = []
        """All assignments received, except those about descriptors, in order."""
        self.stored: list[tuple[str, int]] = []
        """Names and descriptors."""
        self._path = str(path)
        self._socket = trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    async def open(self) -> None:
        await self._socket.bind(self._path)

    @property
    def env(self) -> dict[str, str]:
        """The environment of the service."""
        return {"NOTIFY_SOCKET": self._path, "FDSTORE": str(_STORE_MAX)}

    async def run(self) -> None:
        """Receive notifications until cancelled."""
        size = socket.CMSG_SPACE(256 * array.array("i").itemsize)
        while True:
            data, ancillary, flags, _ = await self._socket.recvmsg(1 << 16, size)
            assert not flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC)
            fds = array.array("i")
            for level, kind, payload in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds.frombytes(payload)
            self._handle(data.decode(), list(fds))

    def _handle(self, message: str, fds: list[int]) -> None:
        assignments = message.splitlines()
        pairs = dict(line.partition("=")[::2] for line in assignments if line)
        name = pairs.get("FDNAME", "stored")
        assert len(name) <= _NAME_MAX
        assert ":" not in name
        assert name.isprintable()
        if pairs.get("FDSTORE") == "1":
            self.stored += [(name, fd) for fd in fds]
            assert len(self.stored) <= _STORE_MAX
            return
        for fd in fds:
            os.close(fd)
        if pairs.get("FDSTOREREMOVE") == "1":
            for _, fd in [pair for pair in self.stored if pair[0] == name]:
                os.close(fd)
            self.stored = [pair for pair in self.stored if pair[0] != name]
            return
        self.states += assignments

    def passed(self, helper: list[str]) -> tuple[list[str], list[int]]:
        """Return a wrapper that passes the stored descriptors on, and these descriptors.

        `helper` is the command of `with_descriptors.py`, which the wrapper runs.
        """
        names = ":".join(name for name, _ in self.stored)
        fds = [fd for _, fd in self.stored]
        return [*helper, names, *map(str, fds), "--"], fds

    def close(self) -> None:
        self._socket.close()
        for _, fd in self.stored:
            os.close(fd)


@contextmanager
def closing(manager: ServiceManager) -> Iterator[ServiceManager]:
    """Close a service manager at the end of the block."""
    try:
        yield manager
    finally:
        manager.close()
