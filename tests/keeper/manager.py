"""A fake service manager: receives notifications, stores descriptors, and passes them on."""

import os
import secrets
import socket
import sys

_START = """
import os, sys
count, names = int(sys.argv[1]), sys.argv[2]
high = [os.dup2(int(fd), 200 + index) for index, fd in enumerate(sys.argv[3].split(","))]
for index, fd in enumerate(high):
    os.dup2(fd, 3 + index)
    os.close(fd)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(count), LISTEN_FDNAMES=names)
os.execv(sys.argv[4], sys.argv[4:])
"""


class Manager:
    """`stored` has the descriptors by name, `states` the notifications in order."""

    def __init__(self, tmp_path):
        self.path = str(tmp_path / f"notify{secrets.token_hex(4)}")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)
        self.stored = {}
        self.states = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()
        for fd in self.stored.values():
            os.close(fd)

    def environ(self, **more):
        return {"NOTIFY_SOCKET": self.path, "FDSTORE": "64", **more}

    def receive(self):
        """Handle the notifications that have arrived; return all states."""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._socket, 4096, 8)
            except BlockingIOError:
                return self.states
            fields = dict(line.split("=", 1) for line in data.decode().splitlines())
            name = fields.get("FDNAME")
            if "FDSTORE" in fields:
                # Otherwise a PTY that its programs have closed would be dropped.
                assert fields["FDPOLL"] == "0"
                [self.stored[name]] = fds
            elif "FDSTOREREMOVE" in fields:
                os.close(self.stored.pop(name))
            else:
                self.states.append(fields)

    def has_received(self, **fields):
        return fields in self.receive()

    def passing(self, listeners=()):
        """Return the arguments for `daemon` to pass listeners and stored descriptors."""
        self.receive()
        fds = [*listeners, *self.stored.values()]
        names = ["acpterm.socket"] * len(listeners) + list(self.stored)
        arguments = [str(len(fds)), ":".join(names), ",".join(map(str, fds))]
        return {
            "prefix": [sys.executable, "-I", "-S", "-c", _START, *arguments],
            "pass_fds": fds,
            "env": self.environ(),
        }
