"""A daemon's keeper, and its workers: processes of their own whose connections the test has."""

import os
import secrets
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager

import trio

from acpterm.keeper import ring
from acpterm.keeper.client import KeeperClient, KeeperLostError
from tests.keeper import stub
from tests.keeper.terminals import TIMEOUT_S, Watched, is_alive


class Worker:
    """A worker process; `keeper` is its end of the connection."""

    def __init__(self, pid, sock, control, nursery):
        self.pid = pid
        self.keeper = KeeperClient(sock)
        self.control = control
        self.nursery = nursery
        self.told_to_terminate = trio.Event()
        self.lost = trio.Event()
        self.scope = trio.CancelScope()

    async def serve(self):
        """Take over what there is, be ready, and run."""
        await self.keeper.connect()
        await self.keeper.ready()
        self.run()

    def run(self):
        self.nursery.start_soon(self._run)

    async def _run(self):
        with self.scope:
            try:
                await self.keeper.run(on_terminate=self.told_to_terminate.set)
            except KeeperLostError:
                self.lost.set()

    def found(self):
        """Watch the terminals that were found: by name."""
        watched = {}
        for found in self.keeper.terminals:
            terminal = watched[found.name] = Watched(self.keeper, found)
            self.keeper.watch(found.name, terminal)
        return watched

    async def exit(self, status):
        await self.control.send(b"exit %d" % status)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.leave()

    def leave(self):
        """Use the connection no more, as a process that is dead."""
        self.scope.cancel()
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
        with trio.fail_after(TIMEOUT_S):
            control, _ = await self._listener.accept()
            data, fds = b"", []
            while not data:
                await trio.lowlevel.wait_readable(control)
                data, fds, _, _ = socket.recv_fds(control._sock, 100, 1)
        worker = Worker(int(data), socket.socket(fileno=fds[0]), control, self._nursery)
        self.workers.append(worker)
        return worker

    async def serving(self):
        """Wait for the next worker process, and have it serve."""
        worker = await self.worker()
        await worker.serve()
        return worker

    def signal(self, number):
        self.process.send_signal(number)

    def log(self):
        self._log.seek(0)
        return self._log.read().decode()

    async def wait(self):
        """Wait for the keeper's end; return its status."""
        with trio.fail_after(TIMEOUT_S):
            while self.process.poll() is None:
                await trio.sleep(0.005)
        return self.process.returncode


@asynccontextmanager
async def daemon(tmp_path, *, mode="worker", env=None, pass_fds=(), prefix=()):
    """Start a daemon's keeper with its first worker; in the end all of it is killed."""
    path = str(tmp_path / f"control{secrets.token_hex(4)}")
    command = [*prefix, *stub.PYTHON, stub.HERE, "launch", path, mode]
    listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with listener, open(f"{path}.log", "w+b") as log:
        await listener.bind(path)
        listener.listen(10)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=log,
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
                if process.poll() is None:
                    # SIGTERM with no worker that answers: everything is killed.
                    for worker in started.workers:
                        if is_alive(worker.pid):
                            os.kill(worker.pid, signal.SIGKILL)
                    process.terminate()
                    process.wait(TIMEOUT_S)
                print(started.log(), file=sys.stderr)


def head(terminal):
    return terminal.ring.header[ring.HEAD]
