"""Programs that write numbered lines, and the clients that read them while faults happen.

Agents own the programs: one on the daemon's socket, one on `acpterm stdio`. Each waits for the
exit of its programs and reads their output by position and as text; every byte of it is checked.
`acpterm logs -f` follows one program and `acpterm attach` shows it.
"""

import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from tests.faults import numbered
from tests.faults.daemon import Daemon, alive, daemon, started, state, until
from tests.faults.observers import Attached, Follower
from tests.faults.wire import Agent, socket_agent, stdio_agent

_WRITER = Path(__file__).with_name("writer.py")
_RAW_BYTES = 1 << 20
_READ_BYTES = 64 * 1024
_FULL_SPEED = 0
_SLOW_LINES_PER_S = 500
_POLL_PAUSE_S = 0.15
_TEXT_PAUSE_S = 2.0
_FINISH_TIMEOUT_S = 40


class Program:
    """One program on one terminal, with the state of the checks of its output."""

    def __init__(self, agent: Agent, directory: Path, name: str, pace: int, status: int) -> None:
        self.agent = agent
        self.name = name
        self.pace = pace
        self.status = status
        self.terminal = ""
        self.pid = 0
        self.exit: dict[str, Any] | None = None
        self.checked_bytes = 0
        """Bytes of raw output that were read by position and were correct."""
        self.texts = 0
        """How often the text was read and was correct."""
        self._path = directory / name
        self._directory = directory
        self._position = 0
        self._started = ""
        self._reading = trio.Lock()

    async def start(self) -> None:
        """Create the terminal and wait until the program runs."""
        argv = [sys.executable, "-I", "-S", str(_WRITER), str(self._directory), self.name]
        self.terminal = await self.agent.create(*argv, str(self.pace), str(self.status))
        self.pid = await until(self._read_pid, 20, f"{self.name} does not start")
        self._started = started(self.pid)

    def _read_pid(self) -> int | None:
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
            return int(self._path.with_suffix(".pid").read_text().splitlines()[0])
        return None

    @property
    def total(self) -> int:
        """How many lines the program has written; known once it has exited."""
        return int(self._path.with_suffix(".count").read_text())

    def stop(self) -> None:
        """Make the program exit."""
        self._path.with_suffix(".stop").touch()

    def is_running(self) -> bool:
        """Return whether the process that was started runs."""
        return alive(self.pid) and started(self.pid) == self._started

    async def wait(self) -> None:
        """Wait until the program exits, and set `exit`. The request stays pending all the time."""
        self.exit = await self.agent.wait(self.terminal)

    async def poll(self) -> None:
        """Read output by position, and periodically the text, until cancelled."""
        next_text = trio.current_time()
        while True:
            await self.read()
            if trio.current_time() >= next_text:
                await self.read_text()
                next_text = trio.current_time() + _TEXT_PAUSE_S
            await trio.sleep(_POLL_PAUSE_S)

    async def read(self) -> int:
        """Read from the last position on, and check the output; return its size in bytes."""
        async with self._reading:
            start, data, position = await self.agent.read(
                self.terminal, self._position, maxBytes=_READ_BYTES
            )
            assert start >= self._position
            numbered.check_raw(start, data)
            self.checked_bytes += len(data)
            self._position = position
            return len(data)

    async def read_text(self) -> None:
        """Read the text and check it."""
        output = await self.agent.output(self.terminal)
        numbered.check_text(output["output"], whole=not output["truncated"])
        self.texts += 1

    async def check_end(self) -> None:
        """Check exit status, output and text once the program has exited."""
        with trio.fail_after(_FINISH_TIMEOUT_S):
            while self.exit is None:
                await trio.sleep(0.01)
        assert self.exit["exitCode"] == self.status, f"{self.name} ended with {self.exit}"
        assert self._path.with_suffix(".pid").read_text() == f"{self.pid}\n", (
            "the program was executed twice"
        )
        total = self.total
        await self._check_ring(total * numbered.LINE_BYTES)
        output = await self.agent.output(self.terminal)
        assert output["exitStatus"]["exitCode"] == self.status
        numbered.check_text(output["output"], whole=not output["truncated"], total=total)
        if total * numbered.LINE_BYTES <= _RAW_BYTES - 64 * 1024:
            assert not output["truncated"], "the text lacks output that is in the ring"

    async def _check_ring(self, end: int) -> None:
        """Read all retained raw output, and check that it is complete."""
        start, data, position = await self.agent.read(self.terminal, 0)
        start_max = max(0, end - _RAW_BYTES)
        assert start <= start_max, f"the ring begins at {start} instead of at {start_max}"
        while data:
            numbered.check_raw(start, data)
            self.checked_bytes += len(data)
            start, data, position = await self.agent.read(self.terminal, position)
        assert position == end, f"the output ends at {position} instead of at {end}"


class Background:
    """A process that a command has left running; its agent has released the terminal."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._started = started(pid)

    @classmethod
    async def leave(cls, agent: Agent) -> "Background":
        """Run a command that leaves a process running, and release its terminal."""
        command = "nohup sleep 600 >/dev/null 2>&1 & echo $!"
        terminal = await agent.create("bash", "-c", command)
        status = await agent.wait(terminal)
        assert status["exitCode"] == 0
        found = cls(int((await agent.output(terminal))["output"]))
        await agent.release(terminal)
        return found

    def is_running(self) -> bool:
        """Return whether the process that was left still runs."""
        return alive(self.pid) and started(self.pid) == self._started


class Load:
    """A daemon with programs at full speed, a slow one, agents, a follower and a window.

    `background` is what a command of each agent has left running.
    """

    def __init__(
        self,
        running: Daemon,
        programs: list[Program],
        agents: list[Agent],
        background: list[Background],
        rng: random.Random,
    ) -> None:
        self.daemon = running
        self.programs = programs
        self.agents = agents
        self.background = background
        self.random = rng
        self.takeovers = 0
        """The expected number of takeovers."""

    @property
    def slow(self) -> Program:
        """The slow program, all of whose output is retained."""
        return self.programs[-1]

    async def kill_worker(self, number: int = signal.SIGKILL) -> int:
        """Send a signal to the worker; return the pid."""
        pid = await self.daemon.worker()
        os.kill(pid, number)
        return pid

    async def answering(self) -> float:
        """Wait until every terminal was read once more; return how many seconds that took."""
        before = trio.current_time()
        async with trio.open_nursery() as nursery:
            for program in self.programs:
                nursery.start_soon(program.read)
        return trio.current_time() - before

    def check_running(self) -> None:
        """Raise AssertionError unless every program still runs as the same process."""
        stopped = [program.name for program in self.programs if not program.is_running()]
        assert not stopped, f"these programs no longer run: {stopped}"
        ended = [left.pid for left in self.background if not left.is_running()]
        assert not ended, f"these background processes no longer run: {ended}"

    async def check_pids(self) -> None:
        """Raise AssertionError unless the user's API lists the programs with their pids."""
        for program in self.programs:
            assert (await self.daemon.info(program.terminal))["pid"] == program.pid

    def progress(self) -> list[int]:
        """Return how many bytes every program has written so far."""
        return [_written(program.pid) for program in self.programs]

    def longest_answer(self, since: float) -> float:
        """Return the longest latency of any agent's request sent since then."""
        return max(agent.longest_answer(since) for agent in self.agents)

    @property
    def checked_bytes(self) -> int:
        return sum(program.checked_bytes for program in self.programs)

    def states(self) -> list[str]:
        """Return the state of every program's process."""
        return [state(program.pid) for program in self.programs]


@asynccontextmanager
async def loaded(
    directory: Path, seed: object, *, full_speed: int = 8, **settings: str
) -> AsyncIterator[Load]:
    """Run programs during the block; then end them and check all their output.

    Of the programs at full speed, one half belongs to an agent on the socket and one half to an
    agent on `acpterm stdio`, which also owns the slow program that is followed and attached to.
    """
    written = directory / "written"
    written.mkdir()
    with (directory / "clients.log").open("wb") as log:
        async with (
            daemon(directory, **settings) as running,
            socket_agent(running.socket) as direct,
            stdio_agent(running.socket, running.env, log) as bridged,
        ):
            agents: list[Agent] = [direct, bridged]
            programs = [
                Program(agents[i % 2], written, f"program-{i}", _FULL_SPEED, 10 + i)
                for i in range(full_speed)
            ]
            programs.append(Program(bridged, written, "slow", _SLOW_LINES_PER_S, 3))
            for program in programs:
                await program.start()
            background = [await Background.leave(agent) for agent in agents]
            load = Load(running, programs, agents, background, random.Random(str(seed)))
            follower = Follower(running, load.slow.terminal)
            window = Attached(running, load.slow.terminal)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(window.run)
                    for program in programs:
                        nursery.start_soon(program.wait)
                    async with trio.open_nursery() as polls:
                        for program in programs:
                            polls.start_soon(program.poll)
                        await _attached(load)
                        yield load
                        polls.cancel_scope.cancel()
                    (written / "stop").touch()
                    for program in programs:
                        await program.check_end()
                    await follower.check_end(load.slow.total)
                    await window.check_end(load.slow.total)
                    await _end(load)
                    nursery.cancel_scope.cancel()
            finally:
                (written / "stop").touch()
                follower.close()
                window.close()


async def _attached(load: Load) -> None:
    """Wait until the window is attached and every terminal has been read."""
    with trio.fail_after(20):
        while not (await load.daemon.info(load.slow.terminal))["attached"]:
            await trio.sleep(0.02)
    await load.answering()


async def _end(load: Load) -> None:
    """Release every terminal, shut the daemon down, and check that nothing is left."""
    status = await load.daemon.status()
    assert status.get("takeovers", 0) == load.takeovers, status
    assert all(left.is_running() for left in load.background)
    for program in load.programs:
        await program.agent.release(program.terminal)
    assert await load.daemon.end() == 0
    left = [*load.programs, *load.background]
    await load.daemon.check_nothing_left(*(process.pid for process in left))


def _written(pid: int) -> int:
    """Return how many bytes a process has written so far."""
    counters = Path(f"/proc/{pid}/io").read_text()
    return int(counters.partition("wchar: ")[2].split()[0])
