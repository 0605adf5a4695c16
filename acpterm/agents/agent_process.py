"""Runs an agent as a child process, exchanges messages on its stdin and stdout, and always ends it.

States: *running*; *exited*, once the process is reaped and `returncode` is set. `open_agent` owns
the process, its pipes and its whole process tree. When its block ends, the agent's stdin is closed
and the agent has `EXIT_TIMEOUT_S` to exit; then the tree gets SIGTERM, a grace period, and SIGKILL.
Closing stdin is not enough: some agents keep running, and some leave other processes behind.

The agent's stderr is copied to our stderr. Its last lines are kept for error messages, since they
usually say why an agent does not work. The agent inherits our environment and working directory.
"""

import math
import os
import secrets
import shutil
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias

import trio

from acpterm.pty.signals import name_of
from acpterm.pty.tracking import marks
from acpterm.pty.tracking.tree import ProcessTree, end
from acpterm.pty.tracking.trees import Trees
from acpterm.runtime import stdio
from acpterm.runtime.send_queue import SendQueue

# Time for the agent to exit by itself once its stdin is closed.
EXIT_TIMEOUT_S: Final = 1.0
# Time for the agent's process tree to end, after `EXIT_TIMEOUT_S` and the grace period.
_KILL_TIMEOUT_S: Final = 5.0
# Time for the rest of stderr to arrive after the agent has exited.
STDERR_TAIL_TIMEOUT_S: Final = 0.5
STDERR_LINES_MAX: Final = 10
# Bytes for our stderr that wait for its reader.
_STDERR_QUEUE_BYTES: Final = 64 * 1024
_STDERR_LINE_BYTES: Final = 500
# After the agent has exited, other processes may hold its stdout open: reading stops once nothing
# has arrived for this time.
DRAIN_TIMEOUT_S: Final = 0.5

StderrFilter: TypeAlias = Callable[[bytes], bytes]
"""Transforms a chunk of the agent's stderr before the chunk is written to our stderr."""


class AgentStartError(Exception):
    """The agent cannot be started; the message says why."""


class _Stdout(trio.abc.ReceiveStream):
    """The agent's stdout, which ends after the agent even if other processes hold it open."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._timeout = math.inf
        self._receiving: trio.CancelScope | None = None

    def drain(self) -> None:
        self._timeout = DRAIN_TIMEOUT_S
        if self._receiving is not None:
            self._receiving.deadline = trio.current_time() + DRAIN_TIMEOUT_S

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Wait for bytes and return them; `b""` at the end of the stream."""
        with trio.move_on_after(self._timeout) as self._receiving:
            return await self._stream.receive_some(max_bytes)
        return b""

    async def aclose(self) -> None:
        await self._stream.aclose()


class AgentProcess:
    """A running agent, created by `open_agent`. `exited` is set once it is reaped."""

    def __init__(self, command: str, process: trio.Process) -> None:
        assert process.stdin is not None  # noqa: S101  both are pipes
        assert process.stdout is not None  # noqa: S101
        self.command: Final = command
        self.stdin: Final = process.stdin
        self.stdout: Final = _Stdout(process.stdout)
        self.exited: Final = trio.Event()
        self.stdin_closed_at: float | None = None
        """`trio.current_time()` when the agent's stdin was closed; None while it is open."""
        self._process = process
        self._stderr: Final = SendQueue(stdio.FileStream(2), _STDERR_QUEUE_BYTES)
        self._stderr_lines: deque[str] = deque(maxlen=STDERR_LINES_MAX)
        self._stderr_closed: Final = trio.Event()

    @property
    def stream(self) -> trio.abc.Stream:
        """The agent's stdin and stdout as one stream."""
        return trio.StapledStream(self.stdin, self.stdout)

    @property
    def returncode(self) -> int | None:
        """The exit code as in `subprocess`: -N if signal N ended the agent; None while it runs."""
        return self._process.returncode if self.exited.is_set() else None

    async def exit_message(self) -> str:
        """Wait a little for the exit; return how the agent ended, and its last lines of stderr."""
        with trio.move_on_after(EXIT_TIMEOUT_S):
            await self.exited.wait()
        with trio.move_on_after(STDERR_TAIL_TIMEOUT_S):
            await self._stderr_closed.wait()
        code = self.returncode
        if code is None:
            ending = "has closed its stdout"
        elif code < 0:
            ending = f"was ended by {name_of(-code)}"
        else:
            ending = f"exited with status {code}"
        return f"the agent {self.command!r} {ending}{self.stderr_tail()}"

    def stderr_tail(self) -> str:
        """Return the last lines of stderr to append to a message; "" if there are none."""
        lines = [line for line in self._stderr_lines if line]
        return "; its last words: " + "\n".join(lines) if lines else ""

    async def close_stdin(self) -> None:
        """Close the agent's stdin, which asks the agent to exit. Idempotent."""
        if self.stdin_closed_at is None:
            self.stdin_closed_at = trio.current_time()
            await self.stdin.aclose()

    async def pump_stderr(self, stderr_filter: StderrFilter | None) -> None:
        """Read stderr to its end: keep its last lines, and copy it, filtered, to our stderr."""
        stderr = self._process.stderr
        assert stderr is not None  # noqa: S101  it is a pipe
        rest = b""
        try:
            async for data in stderr:
                *lines, rest = (rest + data).split(b"\n")
                self._stderr_lines.extend(_line(line) for line in lines[-STDERR_LINES_MAX:])
                rest = rest[-_STDERR_LINE_BYTES:]
                if stderr_filter is not None:
                    self._stderr.put(stderr_filter(bytes(data)))
                    await self._stderr.drain()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._stderr_lines.append(_line(rest))
            self._stderr_closed.set()
            await stderr.aclose()

    def add_stray(self, line: bytes) -> None:
        """Treat a line on stdout that is no message like one on stderr."""
        self._stderr_lines.append(_line(line))
        self.report(line)

    def report(self, line: bytes) -> None:
        """Write a line to our stderr, unless that is full: it must not block messages."""
        if not self._stderr.is_full:
            self._stderr.put(line + b"\n")

    async def write_stderr(self) -> None:
        # If our stderr breaks, the queue drops all: the agent must not block on a full pipe.
        with suppress(trio.BrokenResourceError):
            await self._stderr.run()

    async def flush_stderr(self) -> None:
        with trio.move_on_after(STDERR_TAIL_TIMEOUT_S):
            await self._stderr.flush()

    async def reap(self, tree: ProcessTree) -> None:
        """Wait until the agent has exited and is reaped, after which its pid may be reused."""
        await self._process.wait()
        tree.reaped()
        self.exited.set()
        self.stdout.drain()


def _line(data: bytes) -> str:
    text = data.decode(errors="replace").rstrip()
    return "".join(c if c.isprintable() else "\ufffd" for c in text[-_STDERR_LINE_BYTES:])


@asynccontextmanager
async def open_agent(
    argv: Sequence[str],
    trees: Trees,
    *,
    env: Mapping[str, str],
    grace: float,
    stderr_filter: StderrFilter | None,
) -> AsyncIterator[AgentProcess]:
    """Run the agent `argv` for the duration of the block; then end its whole process tree.

    `env` is added to our environment. `grace`: seconds between SIGTERM and SIGKILL. Without
    `stderr_filter`, its stderr is not copied.
    Raises `AgentStartError`.
    """
    tree = trees.new(f"agent_{secrets.token_hex(16)}")
    starting = True
    trees.wait_while(lambda: starting)
    tree.begins()
    try:
        process = await _start(argv, tree, env)
        tree.started(process.pid)
    except BaseException:
        with trio.CancelScope(shield=True):
            await tree.close()
        raise
    finally:
        starting = False
    agent = AgentProcess(argv[0], process)
    # Shielded, so that after a cancellation too, stderr is read and the agent is reaped.
    watching = trio.CancelScope(shield=True)

    async def watch() -> None:
        with watching:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(agent.pump_stderr, stderr_filter)
                nursery.start_soon(agent.write_stderr)
                nursery.start_soon(agent.reap, tree)

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            try:
                yield agent
            finally:
                with trio.move_on_after(EXIT_TIMEOUT_S + grace + _KILL_TIMEOUT_S, shield=True):
                    await _end(agent, tree, grace)
                    await agent.flush_stderr()
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


async def _start(argv: Sequence[str], tree: ProcessTree, env: Mapping[str, str]) -> trio.Process:
    if missing := why_not_found(argv[0]):
        raise AgentStartError(missing)
    command = list(argv)
    if tree.join is not None:
        # Join the cgroup before exec, so that no process of the agent can be outside of it.
        command = ["/bin/sh", "-c", 'echo 0 >"$0" && exec "$@"', tree.join, *argv]
    try:
        with marks.inherited(tree.rlimits):
            process: trio.Process = await trio.lowlevel.open_process(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **env},
                # Ctrl-C in our terminal must signal only us: we send the agent `session/cancel`.
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise AgentStartError(f"the agent {argv[0]!r} cannot be started: {why}") from error
    return process


def why_not_found(command: str) -> str | None:
    if shutil.which(command) is not None:
        return None
    message = f"the agent {command!r} cannot be started"
    if os.sep not in command:
        return f"{message}: no such program is on the PATH, which is {os.environ.get('PATH', '')!r}"
    if not os.path.exists(command):
        return f"{message}: there is no such file"
    return f"{message}: it is no program that may be executed"


def exit_status(code: int | None) -> int:
    """Return the exit status of acpterm for the agent's exit code as in `subprocess`."""
    if code is None:
        return 1
    return code if code >= 0 else 128 - code
