"""The agent: a program that is started, spoken to on its stdin and stdout, and ended for sure.

States: *running*; *exited*, when it is reaped: `returncode` is set. `open_agent` owns the process,
its pipes and its whole tree of processes. At its end the agent's stdin is closed, and it has
`FAREWELL` seconds to go by itself; then the tree gets SIGTERM, a grace, and SIGKILL. Agents
were seen to stay when their stdin closed, and to leave programs behind.

What the agent says on its stderr goes to ours, and its last lines are kept: they say as a rule why
an agent does not do what it should. Its environment and folder are ours.
"""

import math
import os
import secrets
import shutil
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import trio

from acpterm.pty.signals import name_of
from acpterm.pty.tracking import marks
from acpterm.pty.tracking.tree import ProcessTree, end
from acpterm.pty.tracking.trees import Trees
from acpterm.runtime import stdio

# Seconds that the agent has to go by itself when its stdin is closed.
EXIT_TIMEOUT_S: Final = 1.0
_LAST_DEADLINE: Final = 5.0
# Seconds that the agent's last words on stderr may take to come when it has gone.
STDERR_TAIL_TIMEOUT_S: Final = 0.5
LINES: Final = 10
_LINE: Final = 500
# Seconds that the agent's stdout may stay silent, held by another program, when the agent is gone.
DRAIN: Final = 0.5

StderrFilter: TypeAlias = Callable[[bytes], bytes]
"""What becomes of a piece of the agent's stderr on its way to ours."""


class StartError(Exception):
    """The agent cannot be started; the message says why."""


class _Stdout(trio.abc.ReceiveStream):
    """What the agent says. Once it has exited this ends, be it that its children hold it open."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._patience = math.inf
        self._waiting: trio.CancelScope | None = None

    def drain(self) -> None:
        """Wait for no more than `DRAIN` seconds for each piece of what is still to come."""
        self._patience = DRAIN
        if self._waiting is not None:
            self._waiting.deadline = trio.current_time() + DRAIN

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive; nothing is the end."""
        with trio.move_on_after(self._patience) as self._waiting:
            return await self._stream.receive_some(max_bytes)
        return b""

    async def aclose(self) -> None:
        """Close it."""
        await self._stream.aclose()


class AgentProcess:
    """A running agent. Made by `open_agent`."""

    def __init__(self, command: str, process: trio.Process) -> None:
        assert process.stdin is not None  # noqa: S101  both are pipes
        assert process.stdout is not None  # noqa: S101
        self.command: Final = command
        self.stdin: Final = process.stdin
        self.stdout: Final = _Stdout(process.stdout)
        self.exited: Final = trio.Event()
        self.stdin_closed_at: float | None = None
        """When its stdin was closed."""
        self._process = process
        self._stderr_lines: deque[str] = deque(maxlen=LINES)
        self._stderr_closed: Final = trio.Event()

    @property
    def stream(self) -> trio.abc.Stream:
        """Its stdin and stdout as one stream."""
        return trio.StapledStream(self.stdin, self.stdout)

    @property
    def returncode(self) -> int | None:
        """How it exited, as `subprocess` has it: negative for a signal; None while it runs."""
        return self._process.returncode if self.exited.is_set() else None

    def exit_message(self) -> str:
        """Say how it ended, with what it said last: for whoever still waits for an answer."""
        code = self.returncode
        if code is None:
            what = "has closed its stdout"
        elif code < 0:
            what = f"was ended by {name_of(-code)}"
        else:
            what = f"exited with status {code}"
        return f"the agent {self.command!r} {what}{self.stderr_tail()}"

    def stderr_tail(self) -> str:
        """Give its last lines on stderr, to end a message with."""
        words = [line for line in self._stderr_lines if line]
        return "; its last words: " + "\n".join(words) if words else ""

    async def wait_stderr_closed(self) -> None:
        """Wait for what it still had to say on stderr, but not for long."""
        with trio.move_on_after(STDERR_TAIL_TIMEOUT_S):
            await self._stderr_closed.wait()

    async def close_stdin(self) -> None:
        """Close its stdin: from now on it has `FAREWELL` seconds to go. Can be repeated."""
        if self.stdin_closed_at is None:
            self.stdin_closed_at = trio.current_time()
            await self.stdin.aclose()

    async def pump_stderr(self, voice: StderrFilter | None) -> None:
        """Keep the last lines of its stderr, and pass all of it on to ours, as `voice` has it.

        If nobody reads ours, it is read on all the same: the agent is not to wait for that.
        """
        stderr = self._process.stderr
        assert stderr is not None  # noqa: S101  it is a pipe
        rest = b""
        try:
            async for data in stderr:
                *lines, rest = (rest + data).split(b"\n")
                self._stderr_lines.extend(_line(line) for line in lines[-LINES:])
                rest = rest[-_LINE:]
                if voice is not None:
                    try:
                        await stdio.write_all(2, voice(bytes(data)))
                    except OSError:
                        voice = None
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._stderr_lines.append(_line(rest))
            self._stderr_closed.set()
            await stderr.aclose()

    async def reap(self, tree: ProcessTree) -> None:
        """Wait for its end."""
        await self._process.wait()
        tree.reaped()
        self.exited.set()
        self.stdout.drain()


def _line(data: bytes) -> str:
    text = data.decode(errors="replace").rstrip()
    return "".join(c if c.isprintable() else "\ufffd" for c in text[-_LINE:])


@asynccontextmanager
async def open_agent(
    argv: Sequence[str], trees: Trees, *, grace: float, voice: StderrFilter | None
) -> AsyncIterator[AgentProcess]:
    """Run an agent for as long as the block lasts; then end it and all that comes from it.

    `grace`: seconds between SIGTERM and SIGKILL; `voice`: how its stderr is passed on to ours,
    None for not at all. Raises `StartError`.
    """
    tree = trees.new(f"agent_{secrets.token_hex(16)}")
    starting = True
    trees.exclude(lambda: (), lambda: starting)
    tree.begins()
    try:
        process = await _start(argv, tree)
        tree.started(process.pid)
    except BaseException:
        with trio.CancelScope(shield=True):
            await tree.close()
        raise
    finally:
        starting = False
    agent = AgentProcess(argv[0], process)
    # Until it is ended it is heard and reaped, also when all around is cancelled.
    watching = trio.CancelScope(shield=True)

    async def watch() -> None:
        with watching:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(agent.pump_stderr, voice)
                nursery.start_soon(agent.reap, tree)

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            try:
                yield agent
            finally:
                with trio.move_on_after(EXIT_TIMEOUT_S + grace + _LAST_DEADLINE, shield=True):
                    await _end(agent, tree, grace)
                watching.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await agent.stdin.aclose()
            await agent.stdout.aclose()
            await tree.close()


async def _end(agent: AgentProcess, tree: ProcessTree, grace: float) -> None:
    await agent.close_stdin()
    with trio.move_on_at((agent.stdin_closed_at or 0) + EXIT_TIMEOUT_S):
        await agent.exited.wait()
    await end(tree, grace)
    await agent.exited.wait()


async def _start(argv: Sequence[str], tree: ProcessTree) -> trio.Process:
    program = shutil.which(argv[0])
    if program is None:
        raise StartError(_not_found(argv[0]))
    command = list(argv)
    if tree.join is not None:
        # It joins its control group before it becomes the agent: nothing of it can be outside.
        command = ["/bin/sh", "-c", 'echo 0 >"$0" && exec "$@"', tree.join, program, *argv[1:]]
    try:
        with marks.inherited(tree.rlimits):
            process: trio.Process = await trio.lowlevel.open_process(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # A Ctrl-C in our terminal is for us: we tell the agent what it means.
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise StartError(f"the agent {argv[0]!r} cannot be started: {why}") from error
    return process


def _not_found(command: str) -> str:
    what = f"the agent {command!r} cannot be started"
    if os.sep not in command:
        return f"{what}: no such program is on the PATH, which is {os.environ.get('PATH', '')!r}"
    if not os.path.exists(command):
        return f"{what}: there is no such file"
    return f"{what}: it is no program that may be executed"


def exit_status(code: int | None) -> int:
    """Give the status to exit with for an agent that ended so; 1 when that is not known."""
    if code is None:
        return 1
    return code if code >= 0 else 128 - code
