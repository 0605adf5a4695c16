"""Connects to the agents' socket of a daemon from a separate process.

The daemon treats a process that holds an agent's connection, and all its descendants, as an agent,
and refuses them the user's socket. The process that measures needs both sockets, so a separate
process connects as the agent and passes the connection back.
"""

import atexit
import functools
import os
import socket
import subprocess
import sys

_CODE = """
import socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
while path := channel.recv(65536):
    with socket.socket(socket.AF_UNIX) as sock:
        error = sock.connect_ex(path)
        socket.send_fds(channel, [error.to_bytes(4, "little")], [sock.fileno()])
"""


@functools.cache
def _channel() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _CODE, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def connect_as_agent(path: str) -> socket.socket:
    """Return a connection to the agents' socket at `path`. Raises `OSError` if connecting fails."""
    _channel().send(os.fsencode(os.path.abspath(path)))
    answer, (fd,), _, _ = socket.recv_fds(_channel(), 4, 1)
    sock = socket.socket(fileno=fd)
    if error := int.from_bytes(answer, "little"):
        sock.close()
        raise OSError(error, os.strerror(error), path)
    return sock
