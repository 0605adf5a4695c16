"""Persistent shells: `Shell` runs commands in one shell, each with an exact beginning and end.

States:

- *not started* or *ended*: there is no terminal. `run` starts a shell.
- *idle*: the shell displays its prompt. `run` runs a command.
- *busy*: a command has begun and has not ended, even if its program waits for input, or if `run` or
  `wait` has timed out or was cancelled. `run` raises an error; `wait` waits for the command.

The shell's terminal and private directory belong to the `Shell`; `close` releases them. The shell
may end at any time, even between two commands: then the next `run` starts another shell, and its
result says so (`started_new`). `acpterm.shell.tracker` describes marks and reports.
"""

import math
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio
from msgspec.structs import replace

from acpterm.api.errors import RequestError
from acpterm.api.results import Completed, Exit, ShellState
from acpterm.api.shell_process import (
    PROMPT_TIMEOUT_S,
    QUIET_S,
    ShellBusyError,
    ShellError,
    ShellOptions,
    ShellProcess,
    check_command,
    in_thread,
    start_shell,
)
from acpterm.api.terminal import Terminal
from acpterm.api.waiting import INPUT_AFTER_S
from acpterm.shell.kind import REPAIR_KEYS, Kind, kind_of
from acpterm.shell.tracker import Outcome, Tracker

if TYPE_CHECKING:
    from acpterm.api.client import Client


_DETAILS: Final[dict[ShellState, str]] = {
    "running": "the command has not ended yet",
    "waiting_for_input": "the program waits for input: type into the shell's terminal, then wait",
}


class TypedCommand(NamedTuple):
    """The command that was typed last; `started_new` if the shell was started for it."""

    n: int
    text: str
    began: float
    started_new: bool
    is_retry: bool


def completed_of(
    tracker: Tracker, command: TypedCommand, state: ShellState, outcome: Outcome | None = None
) -> Completed:
    """Return the result of `command`; `outcome` says how it or the shell has ended, if so."""
    outcome = outcome or Outcome(
        "exact" if tracker.has_begun else "unknown", None, None, None, _DETAILS[state]
    )
    begin = tracker.beginning
    return Completed(
        state=state,
        output=tracker.output,
        exit_code=outcome.exit_code,
        pipe_status=outcome.pipe_status,
        cwd=outcome.cwd,
        boundary=outcome.boundary,
        wall_seconds=anyio.current_time() - command.began,
        position=tracker.position,
        begin=tracker.span[0],
        truncated=tracker.truncated,
        output_begin=tracker.output_begin,
        beginning=None if begin is None else begin.text,
        total_lines=None if begin is None else begin.total_lines,
        started_new=command.started_new,
        detail=outcome.detail,
    )


_READ_WAIT_MAX_S: Final = 10.0


class Shell:
    """A persistent bash, zsh or fish, from `Client.shell`.

    Only one trio or asyncio task may use it at a time.
    """

    def __init__(self, client: "Client", kind: str | None, options: ShellOptions) -> None:
        self._client = client
        self._options = options
        self._env = dict(os.environ) | dict(options.env or {})
        self._kind: Kind = kind_of(kind, self._env)
        self._running: ShellProcess | None = None
        self._busy: TypedCommand | None = None
        self._is_in_use = False
        self._n = 0
        self._cwd = options.cwd
        self.last_terminal: Terminal | None = None
        """The terminal of the last shell process, also after it has ended."""
        self.last_exit: Exit | None = None
        """How the last shell process has ended; None while it runs."""

    @property
    def kind(self) -> str:
        """The name of the shell: `bash`, `zsh` or `fish`."""
        return self._kind.name

    @property
    def terminal(self) -> Terminal | None:
        """The shell's terminal; None before the first command, and after the shell has ended."""
        return self._running.terminal if self._running else None

    @property
    def busy(self) -> bool:
        """Whether the last command has not ended, as far as `run` and `wait` have seen."""
        return self._busy is not None

    async def run(self, command: str, *, timeout: float | None = None) -> Completed:
        """Run a command, of any number of lines, until it ends or waits for input.

        Return the result of the command. After `timeout` seconds, the state in the result is
        ``running``, and the command continues. It also continues if the call of `run` is cancelled.

        Raises `ShellBusyError` if another command runs, if another task uses the shell, or if no
        prompt appears; `ShellError` if the shell cannot be started or used; and `ValueError` if
        `command` contains a NUL or a lone surrogate. The user's policy judges each command of an
        agent first; raises `CommandRefused` if the command is refused.
        """
        check_command(command)
        with self._used():
            if self._busy:
                raise ShellBusyError(
                    f"{self._busy.text.strip()[:80]!r} has not ended: wait for it, type into the "
                    "shell's terminal what it waits for, or interrupt it"
                )
            if self._client.role == "agent":
                await self._client.check(command, cwd=self._cwd, ask=True)
            running, started_new = await self._ready()
            began = anyio.current_time()
            handed_over = await self._hand_over(running, command, began, started_new)
            return await self._follow(running, handed_over, timeout)

    async def wait(
        self, timeout: float | None = None, *, until_input: bool = True, input_since: int = -1
    ) -> Completed:
        """Wait until the running command ends or waits for input, at most `timeout` seconds.

        Return the result of the command; its `state` says why the wait has ended. If
        `until_input` is false, a program that waits for input does not end the wait, nor does one
        that waited already when the output ended at the position `input_since`. Raises
        `ShellError` if no command runs, and `ShellBusyError` if another task uses the shell.
        """
        with self._used():
            if self._busy is None or self._running is None:
                raise ShellError("no command runs in the shell")
            return await self._follow(
                self._running, self._busy, timeout, until_input=until_input, input_since=input_since
            )

    async def interrupt(self) -> None:
        """Send SIGINT to the running program, as Ctrl-C does. Call `wait` to wait for its end."""
        if self._running:
            await self._running.terminal.signal("SIGINT")

    async def close(self) -> None:
        """End the shell, if it runs, with all its programs."""
        running, self._running, self._busy = self._running, None, None
        if running:
            await running.close()

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Reserve the shell for this task during the block, or raise `ShellBusyError`."""
        if self._is_in_use:
            raise ShellBusyError("another task uses the shell")
        self._is_in_use = True
        try:
            yield
        finally:
            self._is_in_use = False

    async def _ready(self) -> tuple[ShellProcess, bool]:
        """Return a shell at its prompt, and whether it replaces one that had ended."""
        running = self._running
        had_shell = self._n > 0
        if running:
            await running.reach_prompt()
            if running.exit is None:
                return running, False
            await self.close()
        self._running = running = await start_shell(
            self._client, self._kind, self._options, self._env
        )
        self.last_terminal, self.last_exit = running.terminal, None
        return running, had_shell

    async def _hand_over(
        self,
        running: ShellProcess,
        command: str,
        began: float,
        started_new: bool,
        *,
        is_retry: bool = False,
    ) -> TypedCommand:
        """Write the command to a file, and type the line that makes the shell read the file."""
        self._n += 1
        text = self._kind.command_file(self._n, command, running.flags)
        try:
            file = await in_thread(running.directory.write, str(self._n), text)
        except OSError as error:
            await self.close()
            raise ShellError(
                f"the command cannot be given to the shell, which was ended: {error}"
            ) from error
        running.tracker.expect(self._n)
        running.quiet_since = anyio.current_time()
        self._busy = TypedCommand(self._n, command, began, started_new, is_retry)
        await self._type(running, self._kind.keys(self._n, file).decode())
        return self._busy

    async def _retry(self, running: ShellProcess, command: TypedCommand) -> TypedCommand:
        """Repair the terminal's modes, and hand over a command that the shell has not executed."""
        await in_thread(running.directory.forget, command.n)
        with suppress(ShellBusyError):
            await running.reach_prompt()
        await self._type(running, REPAIR_KEYS.decode())
        running.is_waiting = False
        deadline = anyio.current_time() + PROMPT_TIMEOUT_S
        while not running.is_waiting and running.exit is None:
            if running.quiet_s >= QUIET_S or anyio.current_time() > deadline:
                break
            await running.read(QUIET_S, until_input=running.quiet_s >= INPUT_AFTER_S)
        return await self._hand_over(
            running, command.text, command.began, command.started_new, is_retry=True
        )

    async def _type(self, running: ShellProcess, keys: str) -> None:
        """Type the whole line `keys`, even if cancelled, or end the shell."""
        try:
            # If only a part was typed, the next command would begin with that part.
            with anyio.move_on_after(PROMPT_TIMEOUT_S, shield=True) as scope:
                await running.terminal.write(keys)
            if scope.cancelled_caught:
                await self.close()
                raise ShellError("the shell's terminal accepts no input: the shell was ended")
        except RequestError:
            # The shell may have ended since its prompt; then `_follow` returns a result about this.
            while await running.read(0):
                pass
            if running.exit is None:
                self._busy = None
                raise

    async def _follow(
        self,
        running: ShellProcess,
        command: TypedCommand,
        timeout: float | None,
        *,
        until_input: bool = True,
        input_since: int = -1,
    ) -> Completed:
        """Wait for the end of the command, as `wait`; type it again once if it was not executed."""
        deadline = None if timeout is None else anyio.current_time() + timeout
        tracker = running.tracker
        running.is_waiting = False
        running.quiet_since = anyio.current_time()
        input_at = running.quiet_since + INPUT_AFTER_S if until_input else math.inf
        # When the command's report was first found. Its mark in the output may come later.
        reported_at = math.inf
        while True:
            report = await running.report(command.n)
            now = anyio.current_time()
            is_quiet = now - max(reported_at, running.quiet_since) >= QUIET_S
            outcome = tracker.outcome(report, is_quiet=is_quiet)
            if report:
                reported_at = min(reported_at, now)
            if outcome and not outcome.was_executed and not command.is_retry:
                command = await self._retry(running, command)
                continue
            if outcome:
                if report:
                    running.flags = report.flags
                self._busy = None
                self._cwd = outcome.cwd or self._cwd
                with anyio.CancelScope(shield=True):
                    await in_thread(running.directory.forget, command.n)
                return completed_of(running.tracker, command, "done", outcome)
            if running.exit:
                return await self._ended(running, command, running.exit)
            if running.is_waiting and tracker.has_begun:
                completed = completed_of(running.tracker, command, "waiting_for_input")
                return replace(completed, waiting_program=running.waiting_program)
            remaining = _READ_WAIT_MAX_S if deadline is None else deadline - now
            if remaining <= 0:
                is_old = until_input and tracker.position <= input_since
                state: ShellState = "waiting_for_input" if is_old else "running"
                return completed_of(running.tracker, command, state)
            wait = QUIET_S if report else max(QUIET_S, running.quiet_s)
            wait = min(wait, _READ_WAIT_MAX_S, remaining)
            if now < input_at:
                await running.read(min(wait, input_at - now))
            else:
                await running.read(wait, until_input=tracker.position > input_since)

    async def _ended(self, running: ShellProcess, command: TypedCommand, end: Exit) -> Completed:
        how = f"exit code {end.code}" if end.code is not None else f"signal {end.signal}"
        has_begun = running.tracker.has_begun
        outcome = Outcome(
            "exact" if has_begun else "unknown",
            end.code,
            None,
            None,
            f"the shell has ended ({how}); the next command starts another one",
        )
        completed = completed_of(running.tracker, command, "shell_ended", outcome)
        self._cwd = self._options.cwd
        self.last_exit = end
        self._running = self._busy = None
        await running.close(keeps_terminal=self._options.keeps_terminal)
        return completed


@asynccontextmanager
async def open_shell(
    client: "Client", kind: str | None, options: ShellOptions
) -> AsyncIterator[Shell]:
    """Yield a `Shell`, and close it at the end of the block."""
    shell = Shell(client, kind, options)
    try:
        yield shell
    finally:
        await shell.close()
