"""Spawn programs in a keeper, consume their output, and wait for them."""

import os
import secrets
from contextlib import contextmanager

import trio

from acpterm.keeper import ring_file
from acpterm.pty.program import Program
from tests.support.depth import DEADLINE_S

RING_BYTES = 64 * 1024


def read_ring(ring, since, max_bytes):
    """Return a position and the output from there on: `since`, or that of the oldest byte."""
    end = ring.header[ring_file.HEAD]
    start = min(max(since, end - ring.capacity, 0), end)
    at, size = start % ring.capacity, min(max_bytes, end - start)
    first = bytes(ring.data[at : at + size])
    return start, first + bytes(ring.data[: size - len(first)])


class Watched:
    """Consumes the ring of one terminal into `output`, unless `consume` is False."""

    def __init__(self, keeper, found, *, consume=True):
        self.keeper = keeper
        self.name, self.pid, self.master = found.name, found.pid, found.master
        self.found = found
        self.ring = ring_file.map_ring(found.ring)
        self.output = b""
        self.report = getattr(found, "exit", None)
        self.end = getattr(found, "closed_end", None)
        self.events = []
        self.changed = trio.Event()
        self.consumes = consume
        if consume:
            self.consume_all()

    def exited(self, report):
        assert self.report is None
        self.report = report
        self.events.append("exited")
        self.wake()

    def closed(self, end):
        assert self.end is None
        self.end = end
        self.events.append("closed")
        self.wake()

    def wake(self):
        if self.consumes:
            self.consume_all()
        self.changed.set()
        self.changed = trio.Event()

    def consume_all(self):
        """Consume all output, and request a wake-up for more."""
        header = self.ring.header
        self.keeper.arm(self.name, header)
        while (position := header[ring_file.CONSUMED]) != header[ring_file.HEAD]:
            start, data = read_ring(self.ring, position, 1 << 20)
            assert start == position
            self.output += data
            header[ring_file.CONSUMED] = position + len(data)
        if header[ring_file.STALLED]:
            self.keeper.kick()

    async def wait_for(self, condition):
        """Wait until `condition(self)` is true, checked after each report and periodically."""
        with trio.fail_after(DEADLINE_S):
            while not condition(self):
                with trio.move_on_after(0.02):
                    await self.changed.wait()

    async def wait_exited(self):
        await self.wait_for(lambda self: self.report is not None)
        return self.report

    async def wait_closed(self):
        await self.wait_for(lambda self: self.end is not None)
        if self.consumes:
            self.consume_all()
        return self.output

    def close(self):
        self.keeper.unwatch(self.name)
        self.ring.close()
        os.close(self.found.ring)
        if self.master is not None:
            os.close(self.master)
            self.master = None


def program(*argv, env=None, cwd="/", umask=0o022, rlimits=(), fallback_argv=None):
    env = dict(os.environ) if env is None else env
    return Program(list(argv), env, cwd, umask, rlimits, fallback_argv)


async def spawn(
    keeper, *argv, size=(80, 24), consume=True, ring_size=RING_BYTES, record=b"", cgroup=None,
    name=None, encoding="utf-8", **options,
):  # fmt: skip
    """Start `argv` (or a shell line, if it is one string) in `keeper`."""
    if len(argv) == 1 and " " in argv[0]:
        argv = ("/bin/sh", "-c", argv[0])
    return await keeper.spawn(
        name or f"term_{secrets.token_hex(8)}",
        program(*argv, **options),
        cols=size[0],
        rows=size[1],
        ring_size=ring_size,
        record=record,
        cgroup=cgroup,
        encoding=encoding,
        make=lambda spawned: Watched(keeper, spawned, consume=consume),
    )


async def run(keeper, *argv, **options):
    """Run a program until it has exited; return its output and the exit report."""
    terminal = await spawn(keeper, *argv, **options)
    output = await terminal.wait_closed()
    keeper.forget(terminal.name)
    report = terminal.report
    way = terminal.found.way
    terminal.close()
    return Ended(output.replace(b"\r\n", b"\n").decode(errors="replace"), report, way)


class Ended:
    def __init__(self, output, report, way):
        self.output, self.report, self.way = output, report, way
        self.code = os.waitstatus_to_exitcode(report.status)


async def poll(condition):
    """Poll until `condition` returns a true value; return that value."""
    with trio.fail_after(DEADLINE_S):
        while not (found := condition()):
            await trio.sleep(0.005)
    return found


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in b"ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def not_left(*pids):
    """Kill processes at the end of the block if they still run."""
    try:
        yield
    finally:
        for pid in pids:
            if is_alive(pid):
                os.kill(pid, 9)
