"""Start a daemon's keeper and workers as processes; the test gets the workers' connections."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from acpterm.keeper.client import KeeperClient
from acpterm.keeper.reports import KeeperLostError
from tests.keeper import stub
from tests.keeper.terminals import Watched
from tests.support.depth import DEADLINE_S


class Worker:
    """A worker process; `keeper` is its end of the connection."""

    def __init__(self, pid, sock, control, nursery):
        self.pid = pid
        self.keeper = KeeperClient(sock)
        self.control = control
        self.nursery = nursery
        self.terminate_requested = trio.Event()
        self.lost = trio.Event()
        self.scope = trio.CancelScope()
        self.running = False
        self.left = False

    async def serve(self):
        """Restore the state, report ready, and run the client in the background."""
        await self.keeper.connect()
        await self.keeper.ready()
        self.run()

    def run(self):
        self.running = True
        self.nursery.start_soon(self._run)

    async def _run(self):
        try:
            with self.scope:
                await self.keeper.run(on_terminate=self.terminate_requested.set)
        except KeeperLostError:
            self.lost.set()
        finally:
            self.running = False
            if self.left:
                self.keeper.close()

    def watch_all(self):
        """Watch the terminals that the keeper has passed on; return them by name."""
        watched = {}
        for found in self.keeper.terminals:
            terminal = watched[found.name] = Watched(self.keeper, found)
            self.keeper.watch(found.name, terminal)
        return watched

    async def exit(self, status):
        await self.control.send(b"exit %d" % status)

    def kill(self, number=signal.SIGKILL):
        os.kill(self.pid, number)
        self.leave()

    def leave(self):
        """Stop using the connection, like a process that is dead."""
        self.left = True
        # Otherwise a wake-up that was already received would consume output.
        for terminal in self.keeper._watched.values():
            if isinstance(terminal, Watched):
                terminal.consumes = False
        self.scope.cancel()
        if not self.running:
            self.keeper.close()
        self.control.close()


class Daemon:
    def __init__(self, process, listener, nursery, log):
        self.process = process
        self.pid = process.pid
        self._listener = listener
        self._nursery = nursery
        self._log = log
        self.workers = []

    async def worker(self):
        """Wait for the next worker process."""
        with trio.fail_after(DEADLINE_S):
            control, _ = await self._listener.accept()
            data, fds = b"", []
            while not data:
                await trio.lowlevel.wait_readable(control)
                data, fds, _, _ = socket.recv_fds(control._sock, 100, 1)
        worker = Worker(int(data), socket.socket(fileno=fds[0]), control, self._nursery)
        self.workers.append(worker)
        return worker

    async def serving(self):
        """Wait for the next worker process, and make it serve."""
        worker = await self.worker()
        await worker.serve()
        return worker

    def signal(self, number):
        self.process.send_signal(number)

    def log(self):
        # By its path: the keeper shares the offset of the file that was opened for it.
        return self._log.read_text()

    async def wait(self):
        """Wait until the keeper exits; return its status."""
        with trio.fail_after(DEADLINE_S):
            while self.process.poll() is None:
                await trio.sleep(0.005)
        return self.process.returncode


@asynccontextmanager
async def daemon(tmp_path, *, mode="worker", env=None, pass_fds=(), prefix=()):
    """Start a daemon's keeper with its first worker; kill everything at the end of the block.

    With the mode `fail`, later workers exit at once; with `no pidfds`, the keeper cannot open
    pidfds. `prefix` are words to put before the command.
    """
    path = str(tmp_path / f"control{secrets.token_hex(4)}")
    command = [*prefix, *stub.PYTHON, stub.HERE, "launch", path, mode]
    listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    log = Path(f"{path}.log")
    with listener, log.open("wb") as stderr:  # noqa: ASYNC230  a new file, at once
        await listener.bind(path)
        listener.listen(10)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
            env={**os.environ, **(env or {})},
            pass_fds=pass_fds,
        )
        async with trio.open_nursery() as nursery:
            started = Daemon(process, listener, nursery, log)
            try:
                yield started
            finally:
                nursery.cancel_scope.cancel()
                for worker in started.workers:
                    worker.leave()
                process.terminate()
                while process.poll() is None:
                    # The keeper exits once no worker is left. Its other children are programs.
                    for pid in children_of(process.pid):
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    time.sleep(0.005)  # noqa: ASYNC251  also when the test was cancelled
                print(started.log(), file=sys.stderr)


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
