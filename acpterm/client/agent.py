"""The agent: a program that is started, spoken to on its stdin and stdout, and ended for sure.

States: *running*; *exited*, when it is reaped: `returncode` is set. `open_agent` owns the process,
its pipes and its whole tree of processes. At its end the agent's stdin is closed, and it has
`FAREWELL` seconds to go by itself; then the tree gets SIGTERM, a grace, and SIGKILL. Agents
were seen to stay when their stdin closed, and to leave programs behind.

What the agent says on its stderr goes to ours, and its last lines are kept: they say as a rule why
an agent does not do what it should. Its environment and folder are ours.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from acpterm.host import stdio
from acpterm.pty.signals import name_of
from acpterm.pty.tree import Tree, end
from acpterm.pty.trees import Trees

FAREWELL: Final = 1.0
_LAST_DEADLINE: Final = 5.0
# Seconds that the agent's last words on stderr may take to come when it has gone.
_LAST_WORDS: Final = 0.5
LINES: Final = 10
_LINE: Final = 500


class StartError(Exception):
    """The agent cannot be started; the message says why."""


class Agent:
    """A running agent. Made by `open_agent`."""

    def __init__(self, command: str, process: trio.Process) -> None:
        assert process.stdin is not None  # noqa: S101  both are pipes
        assert process.stdout is not None  # noqa: S101
        self.command: Final = command
        self.stdin: Final = process.stdin
        self.stdout: Final = process.stdout
        self.exited: Final = trio.Event()
        self._process = process
        self._said: deque[str] = deque(maxlen=LINES)
        self._heard: Final = trio.Event()

    @property
    def stream(self) -> trio.abc.Stream:
        """Its stdin and stdout as one stream."""
        return trio.StapledStream(self.stdin, self.stdout)

    @property
    def pid(self) -> int:
        """Its pid, which is its own while it has not exited."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it exited, as `subprocess` has it: negative for a signal; None while it runs."""
        return self._process.returncode if self.exited.is_set() else None

    @property
    def last_words(self) -> list[str]:
        """The last lines that it wrote on stderr."""
        return [line for line in self._said if line]

    def fate(self) -> str:
        """Say how it ended, with what it said last: for whoever still waits for an answer."""
        code = self.returncode
        if code is None:
            what = "has closed its stdout"
        elif code < 0:
            what = f"was ended by {name_of(-code)}"
        else:
            what = f"exited with status {code}"
        return f"the agent {self.command!r} {what}{self.said()}"

    def said(self) -> str:
        """Give its last lines on stderr, to end a message with."""
        words = self.last_words
        return "; its last words: " + "\n".join(words) if words else ""

    async def wait_heard(self) -> None:
        """Wait for what it still had to say on stderr, but not for long."""
        with trio.move_on_after(_LAST_WORDS):
            await self._heard.wait()

    async def hear(self, *, aloud: bool) -> None:
        """Keep the last lines of its stderr, and pass all of it on to ours, if `aloud`."""
        assert self._process.stderr is not None  # noqa: S101  it is a pipe
        rest = b""
        async for data in self._process.stderr:
            *lines, rest = (rest + data).split(b"\n")
            self._said.extend(_line(line) for line in lines[-LINES:])
            if len(rest) > _LINE:
                rest = rest[-_LINE:]
            if aloud:
                await stdio.write_all(2, bytes(data))
        self._said.append(_line(rest))
        self._heard.set()

    async def reap(self, tree: Tree) -> None:
        """Wait for its end."""
        await self._process.wait()
        tree.reaped()
        self.exited.set()


def _line(data: bytes) -> str:
    text = data.decode(errors="replace").rstrip()
    return "".join(c if c.isprintable() else "\ufffd" for c in text[-_LINE:])


@asynccontextmanager
async def open_agent(
    argv: Sequence[str], trees: Trees, *, grace: float, aloud: bool
) -> AsyncIterator[Agent]:
    """Run an agent for as long as the block lasts; then end it and all that comes from it.

    `grace`: seconds between SIGTERM and SIGKILL; `aloud`: whether its stderr is passed on to ours.
    Raises `StartError`.
    """
    tree = trees.new(f"agent_{secrets.token_hex(16)}")
    starting = True
    trees.spare(lambda: (), lambda: starting)
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
    agent = Agent(argv[0], process)
    # Until it is ended it is heard and reaped, also when all around is cancelled.
    watching = trio.CancelScope(shield=True)

    async def watch() -> None:
        with watching:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_unless_broken, agent, aloud)
                nursery.start_soon(agent.reap, tree)

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            try:
                yield agent
            finally:
                with trio.move_on_after(FAREWELL + grace + _LAST_DEADLINE, shield=True):
                    await _end(agent, tree, grace)
                watching.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await agent.stdin.aclose()
            await agent.stdout.aclose()
            await tree.close()


async def _unless_broken(agent: Agent, aloud: bool) -> None:
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
        await agent.hear(aloud=aloud)


async def _end(agent: Agent, tree: Tree, grace: float) -> None:
    await agent.stdin.aclose()
    with trio.move_on_after(FAREWELL):
        await agent.exited.wait()
    await end(tree, grace)
    await agent.exited.wait()


async def _start(argv: Sequence[str], tree: Tree) -> trio.Process:
    program = shutil.which(argv[0])
    if program is None:
        raise StartError(_not_found(argv[0]))
    command = list(argv)
    if tree.join is not None:
        # It joins its control group before it becomes the agent: nothing of it can be outside.
        command = ["/bin/sh", "-c", 'echo 0 >"$0" && exec "$@"', tree.join, program, *argv[1:]]
    try:
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
