"""Connects the agents of tests to a daemon from a separate process.

The daemon refuses the user's socket to descendants of a process that holds an agent's connection.
The process that runs the tests must not be such a process, since it starts the user's commands.
"""

import atexit
import os
import socket
import subprocess
import sys
import threading

import trio

_CODE = """
import os, socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
while path := channel.recv(65536):
    with socket.socket(socket.AF_UNIX) as sock:
        error = sock.connect_ex(path)
        socket.send_fds(channel, [error.to_bytes(4, "little")], [sock.fileno()])
"""


class _Connector:
    """A process that connects to the socket paths it receives, and sends the connections back."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-S", "-E", "-c", _CODE, str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        self.pid = self._process.pid
        self._lock = threading.Lock()
        atexit.register(self._close)

    def _close(self) -> None:
        self._channel.close()
        self._process.wait()

    def connect(self, path: str) -> socket.socket:
        with self._lock:
            self._channel.send(os.fsencode(os.path.abspath(path)))
            answer, (fd,), _, _ = socket.recv_fds(self._channel, 4, 1)
        sock = socket.socket(fileno=fd)
        if error := int.from_bytes(answer, "little"):
            sock.close()
            raise OSError(error, os.strerror(error), path)
        return sock


_connectors: list[_Connector] = []
_lock = threading.Lock()


def connect_as_agent_blocking(path: str) -> socket.socket:
    """Connect to the agents' socket at `path`; return a blocking socket."""
    with _lock:
        if not _connectors:
            _connectors.append(_Connector())
    return _connectors[0].connect(path)


async def connect_as_agent(path: str) -> trio.SocketStream:
    """Connect to the agents' socket at `path`."""
    sock = await trio.to_thread.run_sync(connect_as_agent_blocking, path)
    return trio.SocketStream(trio.socket.from_stdlib_socket(sock))
