"""Keepers of hosts in the tests' process: forks of one process that has imported the keeper.

A fork takes a tenth of the time in which Python starts and imports it. Its environment, limits,
umask and directory are those at the start of the tests, not those of the test: a test that sets
them must start a keeper.

    python -I -S …/forked_keepers.py SOCKET
"""

import os
import select
import signal
import socket
import subprocess
import sys

_MAX_BYTES = 20
"""The length of the longest pid."""


class ForkedKeeper:
    """As much of a `Popen` as `embedded_keeper` uses."""

    def __init__(self, pid: int) -> None:
        from acpterm.keeper.programs import system

        self.pid = pid
        pidfd = system.open_pidfd(pid)
        assert pidfd is not None
        self._pidfd = pidfd
        self._ended = False

    def poll(self) -> int | None:
        """Return None while the process runs, then 0, whatever its exit status."""
        if not self._ended and select.select([self._pidfd], [], [], 0)[0]:
            os.close(self._pidfd)
            self._ended = True
        return 0 if self._ended else None

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class KeeperForks:
    """The process that is forked; it ends in `close`, or with this process."""

    def __init__(self) -> None:
        self._socket, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its_end:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(its_end.fileno())],
                pass_fds=[its_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start(self) -> tuple[ForkedKeeper, socket.socket]:
        """Do what `acpterm.keeper.startup` does to start an embedded keeper."""
        from acpterm.keeper.startup import worker_pair

        worker_end, keeper_end = worker_pair()
        try:
            with keeper_end:
                socket.send_fds(self._socket, [b"fork"], [keeper_end.fileno(), 2])
            return ForkedKeeper(int(self._socket.recv(_MAX_BYTES))), worker_end
        except BaseException:
            worker_end.close()
            raise

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def _serve(requests: socket.socket) -> None:
    from acpterm.keeper.process.main import main

    signal.signal(signal.SIGCHLD, _reap)
    parent = os.getpid()
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 4, 2)
        if not message:
            return
        sock, stderr = fds
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            os.dup2(stderr, 2)
            os.close(stderr)
            os.setsid()
            try:
                main(["embedded", str(sock), str(parent)])
            except SystemExit:
                # Python's own end would write to, and so copy, all its memory.
                os._exit(0)
        os.close(sock)
        os.close(stderr)
        requests.send(b"%d" % pid)


def _reap(*_: object) -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        pass


if __name__ == "__main__":
    sys.path.append(__file__.rsplit("/", 3)[0])
    _serve(socket.socket(fileno=int(sys.argv[1])))
