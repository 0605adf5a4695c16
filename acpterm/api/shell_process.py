"""One process of a persistent shell: its start, its terminal, and its private directory.

States: *started*; *ready*, once the shell displays its first prompt, and `start_shell` returns;
*ended* (`exit` is set). `start_shell` raises `ShellError` if the shell exits before it is ready, if
it is not ready within `START_TIMEOUT_S`, or if the shell cannot read the directory (for example, in
a sandbox).
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, TypeVarTuple, Unpack

import anyio
import anyio.to_thread

from acpterm.api.errors import AcptermError
from acpterm.api.terminal import Terminal
from acpterm.shell.directory import ShellDirectory
from acpterm.shell.kind import Kind
from acpterm.shell.report import Report
from acpterm.shell.tracker import Tracker

if TYPE_CHECKING:
    from acpterm.api.client import Client
    from acpterm.api.results import Exit

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

OUTPUT_BYTES: Final = 1 << 20
"""How many bytes of text are retained of the output of one command: the last ones."""

START_TIMEOUT_S: Final = 60.0
"""How long a shell may take to start: the user's rc files may be slow."""

QUIET_S: Final = 1.0
"""How long there must be no output before the shell's report alone shows that a command has ended.

Otherwise, the mark in the output shows it.
"""

PROMPT_TIMEOUT_S: Final = 10.0
"""How long a shell that is between two commands may take to display its prompt or read a line."""

_CLOSE_TIMEOUT_S: Final = 5.0
_READ_WAIT_S: Final = 0.1


class ShellError(AcptermError):
    """The shell cannot be started or used; the message says why."""


class ShellBusyError(ShellError):
    """The shell cannot run a command now; the message says why, and what can be done."""


class ShellOptions(NamedTuple):
    """How a shell is started: the arguments of `Client.shell`.

    With `keeps_terminal`, the caller releases the terminal of a shell that has ended.
    """

    cwd: str | None = None
    env: Mapping[str, str] | None = None
    user_rc: bool = True
    name: str | None = None
    cols: int | None = None
    rows: int | None = None
    provider: str | None = None
    keeps_terminal: bool = False


class ShellProcess:
    """One started shell."""

    def __init__(self, terminal: Terminal, directory: ShellDirectory) -> None:
        self.terminal: Final = terminal
        self.directory: Final = directory
        self.tracker: Final = Tracker(directory.nonce, OUTPUT_BYTES)
        self.flags = ""  # the shell's options (`$-`) in its last report
        self.exit: Exit | None = None  # set once all its output was read
        self.has_exited = False  # some output may still be unread
        self.is_waiting = False  # whether the last read has ended because a program waits for input
        self.waiting_program: str | None = None
        # When there was output, or a command was given to the shell, or a wait began.
        self.quiet_since = anyio.current_time()

    async def read(self, wait: float, *, until_input: bool = False) -> bool:
        """Wait up to `wait` seconds for output, and process it; return whether there was any."""
        found = await self.terminal.read_raw(
            self.tracker.position, wait=max(0.0, wait), until_input=until_input
        )
        if found.lost:
            self.tracker.skip(found.lost)
        self.tracker.feed(found.data)
        self.has_exited = found.exit is not None
        is_blocked = bool(found.waiting_for_input or found.stopped)
        self.is_waiting = until_input and is_blocked and not found.data
        self.waiting_program = found.waiting_program
        if found.data:
            self.quiet_since = anyio.current_time()
        elif found.exit is not None and self.exit is None:
            self.exit = found.exit
            self.tracker.finish()
        return bool(found.data)

    async def report(self, n: int) -> Report | None:
        """Return the report of command `n` if the command may have ended."""
        if not self.tracker.has_ended and self.quiet_s < QUIET_S:
            return None
        return await in_thread(self.directory.report, n)

    @property
    def quiet_s(self) -> float:
        """Seconds without output, counted from `quiet_since`."""
        return anyio.current_time() - self.quiet_since

    async def reach_prompt(self) -> None:
        """Wait until the shell displays its prompt, or has ended."""
        deadline = anyio.current_time() + PROMPT_TIMEOUT_S
        tracker = self.tracker
        # Usually this is one request. If the shell has ended, it reads the rest of the output.
        while await self.read(0) and (self.has_exited or not tracker.at_prompt):
            pass
        while self.exit is None and not tracker.at_prompt:
            # The end of the prompt may be missing, for example after `exec 2>FILE`. Until the shell
            # reads keys, the terminal may have a command's modes, in which a key may be a signal.
            if tracker.is_prompting and (self.is_waiting or self.quiet_s >= QUIET_S):
                return
            if anyio.current_time() > deadline:
                who = "the user runs a command" if tracker.is_user_running else "no prompt appears"
                raise ShellBusyError(f"{who} in the shell: see its terminal {self.terminal.id}")
            await self.read(QUIET_S, until_input=True)

    async def close(self, *, keeps_terminal: bool = False) -> None:
        """Release the terminal, unless it is kept, and delete the directory."""
        if not keeps_terminal:
            with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True), suppress(AcptermError):
                await self.terminal.release()
        await _delete(self.directory)


async def in_thread(work: Callable[[Unpack[Arguments]], T], *arguments: *Arguments) -> T:
    """Call a function in a thread, since files may be on a slow network; return its result."""
    return await anyio.to_thread.run_sync(work, *arguments)


async def _delete(directory: ShellDirectory) -> None:
    with anyio.CancelScope(shield=True):
        await in_thread(directory.close)


async def start_shell(
    client: "Client", kind: Kind, options: ShellOptions, env: Mapping[str, str]
) -> ShellProcess:
    """Start a shell, and return its process once the shell displays its first prompt.

    Raises `ShellError` if that takes too long, or if the shell cannot read its private directory.
    """
    directory = await _visible_directory(client, options)
    try:
        setup = kind.setup(directory.path, directory.nonce, env, user_rc=options.user_rc)
        if directory.is_in_workspace:
            setup = setup.with_env_as_arguments()
        try:
            for name, text in setup.files.items():
                await in_thread(directory.write, name, text)
        except OSError as error:
            raise ShellError(f"the shell's rc files cannot be written: {error}") from error
        terminal = await client.create(
            setup.command,
            setup.args,
            cwd=options.cwd,
            env=dict(options.env or {}) | setup.env,
            name=options.name,
            cols=options.cols,
            rows=options.rows,
            provider=options.provider,
        )
    except BaseException:
        await _delete(directory)
        raise
    running = ShellProcess(terminal, directory)
    try:
        await _await_ready(running, kind)
    except BaseException:
        await running.close()
        raise
    # From now on, only the memory of the shell contains the nonce.
    for name in (*setup.files, "0.ready"):
        await in_thread(directory.remove, name)
    return running


async def _await_ready(running: ShellProcess, kind: Kind) -> None:
    deadline = anyio.current_time() + START_TIMEOUT_S
    while not (running.tracker.is_ready and running.tracker.at_prompt):
        await running.read(_READ_WAIT_S)
        if not running.tracker.is_ready:
            report = await in_thread(running.directory.report, 0, "ready")
            if report:
                running.tracker.set_ready(report)
                running.flags = report.flags
        if running.exit is None and anyio.current_time() < deadline:
            continue
        text = (await running.terminal.output()).text.strip()[-500:]
        why = "ended" if running.exit else f"was not ready after {START_TIMEOUT_S:g} s"
        raise ShellError(
            f"{kind.name} {why}, before its prompt. An rc file of the user may start another "
            f"program or wait for input (user_rc=False leaves it out). Its output: {text!r}"
        )


async def _visible_directory(client: "Client", options: ShellOptions) -> ShellDirectory:
    """Return a new private directory that the shell's programs can read."""
    # Programs in isolation see only their workspace: for terminals of the user, their `cwd`; for
    # those of an agent, usually the directory in which the agent runs.
    is_user = client.role == "user"
    if is_user and options.provider in (None, "local"):
        return await in_thread(ShellDirectory)
    workspaces = dict.fromkeys([client.directory, *filter(None, [options.cwd])])
    for parent in (None, *([options.cwd or client.directory] if is_user else workspaces)):
        directory = await in_thread(ShellDirectory, parent)
        try:
            probe = await in_thread(directory.write, "probe", "")
            if await _can_read(client, options, probe):
                await in_thread(directory.remove, "probe")
                return directory
        except BaseException:
            await _delete(directory)
            raise
        await _delete(directory)
    raise ShellError(
        "the shell cannot exchange files with this program: where it runs, none of these "
        f"directories is visible: {', '.join(workspaces)}"
    )


async def _can_read(client: "Client", options: ShellOptions, path: str) -> bool:
    probe = await client.create("cat", [path], cwd=options.cwd, provider=options.provider)
    try:
        end = await probe.wait(START_TIMEOUT_S)
    finally:
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True), suppress(AcptermError):
            await probe.release()
    return end is not None and end.code == 0


def check_command(command: str) -> None:
    """Raise `TypeError` or `ValueError` if a shell cannot be given `command`."""
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
