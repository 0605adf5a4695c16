"""Persistent shells: `Shell` runs commands in one shell, each with an exact beginning and end.

States: *not started* or *ended* (no terminal); *idle* (the shell displays its prompt); *busy* (a
command has begun and has not ended, also if its program waits for input, or if `run` or `wait` has
timed out or was cancelled). `run` starts a shell if there is none, and refuses to type into a busy
one. `wait` continues to wait for the command of a busy shell.

The shell, its terminal and its private directory belong to the `Shell`; `close` releases them. The
unhappy order of events: the shell may end at any time, also between two commands; `run` then starts
another, and says so (`started_new`). What marks and reports mean is described in
`acpterm.shell.tracker`.
"""

import math
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import anyio
from msgspec import Struct

from acpterm.api.errors import RequestError
from acpterm.api.results import Exit
from acpterm.api.shell_process import (
    QUIET_S,
    ShellError,
    ShellOptions,
    ShellProcess,
    in_thread,
    start_shell,
)
from acpterm.api.terminal import Terminal
from acpterm.shell.kind import REPAIR_KEYS, Kind, kind_of
from acpterm.shell.tracker import Outcome

if TYPE_CHECKING:
    from acpterm.api.client import Client

ShellState: TypeAlias = Literal["done", "running", "waiting_for_input", "shell_ended"]

_PROMPT_TIMEOUT_S: Final = 5.0
_READ_WAIT_MAX_S: Final = 10.0
# Until then, a program that waited for input before may not have read it yet.
_INPUT_AFTER_S: Final = 0.2


class ShellBusyError(ShellError):
    """A command runs in the shell; the message says which, and what can be done."""


class Completed(Struct, frozen=True, kw_only=True):
    """What became of a command, from `Shell.run` and `Shell.wait`.

    `state` is ``done``, ``running`` (at the timeout), ``waiting_for_input`` or ``shell_ended``.
    `exit_code` is set if the command has ended, or is that of the shell if the shell has. The other
    values are None if they are not known. `pipe_status` are the exit codes of the last pipeline.

    `boundary` is ``unknown`` if the shell's marks and its report do not agree on the end of the
    command; there is no exit code then, and `output` may contain other output or lack some.

    `output` is the text from the beginning of the command, also in the result of `Shell.wait`;
    `truncated` says whether it begins later: `output_begin` bytes of text (UTF-8) later. `position`
    is the position in the terminal's output up to which it was read. `started_new` is true if a
    shell was started for this command because the one before has ended. `detail` is a sentence for
    the reader.
    """

    state: ShellState
    output: str
    exit_code: int | None = None
    pipe_status: list[int] | None = None
    cwd: str | None = None
    boundary: Literal["exact", "unknown"]
    wall_seconds: float
    position: int
    truncated: bool = False
    output_begin: int = 0
    started_new: bool = False
    detail: str = ""


class _Command(NamedTuple):
    """The command that was typed last."""

    n: int
    text: str
    began: float
    started_new: bool
    is_retry: bool


class Shell:
    """A persistent bash, zsh or fish, from `Client.shell`, for one task at a time."""

    def __init__(self, client: "Client", kind: str | None, options: ShellOptions) -> None:
        self._client = client
        self._options = options
        self._env = dict(os.environ) | dict(options.env or {})
        self._kind: Kind = kind_of(kind, self._env)
        self._running: ShellProcess | None = None
        self._busy: _Command | None = None
        self._is_in_use = False
        self._n = 0
        self._cwd = options.cwd

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
        """Run a command, of any number of lines; return when it ends or waits for input.

        After `timeout` seconds the result has the state ``running``, and the command continues.
        For an agent, each command is judged by the user's policy first: `CommandRefused`. Raises
        `ShellBusyError` if another command runs, and `ValueError` if `command` contains a NUL or a
        lone surrogate.
        """
        _check_text(command)
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

    async def wait(self, timeout: float | None = None, *, until_input: bool = True) -> Completed:
        """Wait until the running command ends, or waits for input, or `timeout` seconds.

        Without `until_input`, a program that waits for input does not end the wait. Raises
        `ShellError` if no command runs.
        """
        with self._used():
            if self._busy is None or self._running is None:
                raise ShellError("no command runs in the shell")
            return await self._follow(self._running, self._busy, timeout, until_input=until_input)

    async def interrupt(self) -> None:
        """Send SIGINT to the running program, as Ctrl-C does; then `wait` for its end."""
        if self._running:
            await self._running.terminal.signal("SIGINT")

    async def close(self) -> None:
        """End the shell, if it runs, with all its programs."""
        running, self._running, self._busy = self._running, None, None
        if running:
            await running.close()

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Refuse a second task for the duration of the block."""
        if self._is_in_use:
            raise ShellBusyError("another task uses the shell")
        self._is_in_use = True
        try:
            yield
        finally:
            self._is_in_use = False

    async def _ready(self) -> tuple[ShellProcess, bool]:
        """Return a shell that displays its prompt, and whether it replaces one that has ended."""
        running = self._running
        had_shell = self._n > 0
        if running:
            await self._reach_prompt(running)
            if running.exit is None:
                return running, False
            await self.close()
        self._running = running = await start_shell(
            self._client, self._kind, self._options, self._env
        )
        return running, had_shell

    async def _reach_prompt(self, running: ShellProcess) -> None:
        """Wait until the shell can be typed into, or has ended."""
        deadline = anyio.current_time() + _PROMPT_TIMEOUT_S
        tracker = running.tracker
        # Usually one request; the rest of an ended shell's output must be read to its end.
        while await running.read(0) and (running.has_exited or not tracker.at_prompt):
            pass
        while running.exit is None and not tracker.at_prompt:
            # The end of the prompt may be missing, for example after `exec 2>FILE`. Until the shell
            # reads keys, the terminal may have a command's modes, in which a key may be a signal.
            if tracker.is_prompting and (running.is_waiting or running.quiet_s >= QUIET_S):
                return
            if anyio.current_time() > deadline:
                who = "the user runs a command" if tracker.is_user_running else "no prompt appears"
                raise ShellBusyError(f"{who} in the shell: see its terminal {running.terminal.id}")
            await running.read(QUIET_S, until_input=True)

    async def _hand_over(
        self,
        running: ShellProcess,
        command: str,
        began: float,
        started_new: bool,
        *,
        is_retry: bool = False,
    ) -> _Command:
        """Write the command's file, and type the line that sources it."""
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
        self._busy = _Command(self._n, command, began, started_new, is_retry)
        await self._type(running, self._kind.keys(self._n, file).decode())
        return self._busy

    async def _retry(self, running: ShellProcess, command: _Command) -> _Command:
        """Hand over again a command that was not executed, with sane modes of the terminal."""
        await in_thread(running.directory.forget, command.n)
        with suppress(ShellBusyError):
            await self._reach_prompt(running)
        await self._type(running, REPAIR_KEYS.decode())
        running.is_waiting = False
        deadline = anyio.current_time() + _PROMPT_TIMEOUT_S
        while not running.is_waiting and running.exit is None:
            if running.quiet_s >= QUIET_S or anyio.current_time() > deadline:
                break
            await running.read(QUIET_S, until_input=running.quiet_s >= _INPUT_AFTER_S)
        return await self._hand_over(
            running, command.text, command.began, command.started_new, is_retry=True
        )

    async def _type(self, running: ShellProcess, keys: str) -> None:
        """Type the whole line, or end the shell: half a line would be part of the next command."""
        try:
            with anyio.move_on_after(_PROMPT_TIMEOUT_S, shield=True) as scope:
                await running.terminal.write(keys)
            if scope.cancelled_caught:
                await self.close()
                raise ShellError("the shell's terminal accepts no input: the shell was ended")
        except RequestError:
            # The shell may have ended since its prompt; then the result says so.
            while await running.read(0):
                pass
            if running.exit is None:
                self._busy = None
                raise

    async def _follow(
        self,
        running: ShellProcess,
        command: _Command,
        timeout: float | None,
        *,
        until_input: bool = True,
    ) -> Completed:
        """Wait for the end of the command, or another reason to return."""
        deadline = None if timeout is None else anyio.current_time() + timeout
        tracker = running.tracker
        running.is_waiting = False
        running.quiet_since = anyio.current_time()
        input_at = running.quiet_since + _INPUT_AFTER_S if until_input else math.inf
        # When the report was there first without its mark, which may be on its way.
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
                return self._completed(running, command, "done", outcome)
            if running.exit:
                return await self._ended(running, command, running.exit)
            if running.is_waiting and tracker.has_begun:
                return self._completed(running, command, "waiting_for_input")
            remaining = _READ_WAIT_MAX_S if deadline is None else deadline - now
            if remaining <= 0:
                return self._completed(running, command, "running")
            wait = QUIET_S if report else max(QUIET_S, running.quiet_s)
            wait = min(wait, _READ_WAIT_MAX_S, remaining)
            if now < input_at:
                await running.read(min(wait, input_at - now))
            else:
                await running.read(wait, until_input=True)

    async def _ended(self, running: ShellProcess, command: _Command, end: Exit) -> Completed:
        how = f"exit code {end.code}" if end.code is not None else f"signal {end.signal}"
        has_begun = running.tracker.has_begun
        outcome = Outcome(
            "exact" if has_begun else "unknown",
            end.code,
            None,
            None,
            f"the shell has ended ({how}); the next command starts another one",
        )
        completed = self._completed(running, command, "shell_ended", outcome)
        self._cwd = self._options.cwd
        await self.close()
        return completed

    def _completed(
        self,
        running: ShellProcess,
        command: _Command,
        state: ShellState,
        outcome: Outcome | None = None,
    ) -> Completed:
        tracker = running.tracker
        outcome = outcome or Outcome(
            "exact" if tracker.has_begun else "unknown", None, None, None, _DETAILS[state]
        )
        return Completed(
            state=state,
            output=tracker.output,
            exit_code=outcome.exit_code,
            pipe_status=outcome.pipe_status,
            cwd=outcome.cwd,
            boundary=outcome.boundary,
            wall_seconds=anyio.current_time() - command.began,
            position=tracker.position,
            truncated=tracker.truncated,
            output_begin=tracker.output_begin,
            started_new=command.started_new,
            detail=outcome.detail,
        )


_DETAILS: Final[dict[ShellState, str]] = {
    "running": "the command has not ended yet",
    "waiting_for_input": "the program waits for input: type into the shell's terminal, then wait",
}


@asynccontextmanager
async def open_shell(
    client: "Client", kind: str | None, options: ShellOptions
) -> AsyncIterator[Shell]:
    """Yield a `Shell`; end it with the block."""
    shell = Shell(client, kind, options)
    try:
        yield shell
    finally:
        await shell.close()


def _check_text(command: str) -> None:
    """Raise `TypeError` or `ValueError` if a shell cannot be given this command."""
    if not isinstance(command, str):
        raise TypeError(f"a command must be a str, not {type(command).__name__}")
    if "\0" in command:
        raise ValueError(f"a command must not contain NUL (index {command.index(chr(0))})")
    try:
        command.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"a command must not contain a lone surrogate (index {error.start})"
        ) from error
