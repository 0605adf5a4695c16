"""One started shell: its terminal, its private directory, and what its output says.

States: started; *ready* at its first prompt (`start_shell` returns it then); *ended* (`exit` is
set). The unhappy order of events: the program may exit, or wait for input, before it is ready, and
a sandbox may hide the directory; all of them are a `ShellError`.
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
"""The text of one command that is retained at most: its last MiB."""

START_TIMEOUT_S: Final = 60.0
"""The user's rc files may take their time."""

QUIET_S: Final = 1.0
"""After this time without output, a command may have ended without its mark."""

_CLOSE_TIMEOUT_S: Final = 5.0
_READ_WAIT_S: Final = 0.1


class ShellError(AcptermError):
    """The shell cannot be started or used; the message says why."""


class ShellOptions(NamedTuple):
    """How the shell is started."""

    cwd: str | None = None
    env: Mapping[str, str] | None = None
    user_rc: bool = True
    name: str | None = None
    cols: int | None = None
    rows: int | None = None
    provider: str | None = None


class ShellProcess:
    """One started shell."""

    def __init__(self, terminal: Terminal, directory: ShellDirectory) -> None:
        self.terminal: Final = terminal
        self.directory: Final = directory
        self.tracker: Final = Tracker(directory.nonce, OUTPUT_BYTES)
        self.flags = ""
        self.exit: Exit | None = None
        """How the shell ended, once all its output was read."""
        self.has_exited = False
        self.is_waiting = False
        self.quiet_since = anyio.current_time()

    async def read(self, wait: float, *, until_input: bool = False) -> bool:
        """Process new output, for which to wait up to `wait` seconds; return whether there was any.

        With `until_input`, the wait also ends when the program waits for input (`is_waiting`).
        """
        found = await self.terminal.read_raw(
            self.tracker.position, wait=max(0.0, wait), until_input=until_input
        )
        if found.lost:
            self.tracker.skip(found.lost)
        self.tracker.feed(found.data)
        self.has_exited = found.exit is not None
        self.is_waiting = until_input and bool(found.waiting_for_input) and not found.data
        if found.data:
            self.quiet_since = anyio.current_time()
        elif found.exit is not None and self.exit is None:
            self.exit = found.exit
            self.tracker.finish()
        return bool(found.data)

    async def report(self, n: int) -> Report | None:
        """Return the valid report of command `n`, if it may have ended and there is one."""
        if not self.tracker.has_ended and self.quiet_s < QUIET_S:
            return None
        return await in_thread(self.directory.report, n)

    @property
    def quiet_s(self) -> float:
        """Seconds since the last output."""
        return anyio.current_time() - self.quiet_since

    async def close(self) -> None:
        """Release the terminal, and delete the directory."""
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True), suppress(AcptermError):
            await self.terminal.release()
        await _delete(self.directory)


async def in_thread(work: Callable[[Unpack[Arguments]], T], *arguments: *Arguments) -> T:
    """Call a function that uses files: those of a workspace may be far away, and slow."""
    return await anyio.to_thread.run_sync(work, *arguments)


async def _delete(directory: ShellDirectory) -> None:
    with anyio.CancelScope(shield=True):
        await in_thread(directory.close)


async def start_shell(
    client: "Client", kind: Kind, options: ShellOptions, env: Mapping[str, str]
) -> ShellProcess:
    """Start a shell; return it when it displays its first prompt.

    `env` is the environment that it is started with. Raises `ShellError`.
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
    """Return a new private directory that the shell's programs can read.

    Programs in isolation see only their workspace. That of the user's terminals is their `cwd`;
    that of an agent's terminals is usually the directory in which the agent runs.
    """
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
    """Return whether a program of the shell's terminals can read a file."""
    probe = await client.create("cat", [path], cwd=options.cwd, provider=options.provider)
    try:
        end = await probe.wait(START_TIMEOUT_S)
    finally:
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True), suppress(AcptermError):
            await probe.release()
    return end is not None and end.code == 0
