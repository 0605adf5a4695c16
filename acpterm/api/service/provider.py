"""`DaemonProvider`: runs commands, scripts and sessions of a `TerminalService` in terminals.

The terminals belong to acpterm's daemon. A session is one terminal, whose program is the session's
command. The name of the terminal is the session's id (``term-1``).

Each call of `execute_command` or `run_script` uses a new terminal. When the call returns, reaches
its time limit or is cancelled, the terminal is released, which ends its processes. If the user has
removed the terminal of a session, `get_session_status` returns None.
"""

import os
from contextlib import suppress
from typing import Final

import anyio

from acpterm.acp.user_api import ACTIVE
from acpterm.api.client import Client
from acpterm.api.errors import AcptermError, RequestError
from acpterm.api.results import Exit
from acpterm.api.service.types import (
    BadExitCode,
    ExecuteCommandOptions,
    ExecuteCommandResult,
    InteractiveTerminalOutput,
    OutputWaitOptions,
    SessionStatus,
    Success,
    TerminalIsolationLevel,
    Timeout,
    UnknownError,
)
from acpterm.api.terminal import Terminal
from acpterm.api.waiting import collect
from acpterm.config.paths import user_socket
from acpterm.config.providers import isolation_of
from acpterm.jsonrpc import RESOURCE_NOT_FOUND
from acpterm.runtime.descriptors import named_pipe

_RELEASE_TIMEOUT_S: Final = 5.0
_OPEN_CHECK_S: Final = 0.01
_NAME: Final = "term-#"


class DaemonProvider:
    """Runs commands in terminals of `client`'s daemon. Implements `TerminalProvider`.

    `name` is a provider of acpterm; if `client` is an agent, ``local`` means the one that the
    settings select for agents. Methods with a `session_id` raise `AcptermError` if there is no
    such session, except `get_session_status`.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        # An agent must not request less isolation than the user has selected.
        self._provider = None if name == "local" and client.role == "agent" else name
        self._sessions: dict[str, Terminal] = {}

    def get_isolation_level(self) -> TerminalIsolationLevel:
        """Return how the provider isolates programs."""
        return isolation_of(self._provider or self._client.settings.provider)

    async def execute_command(
        self, command: str, args: list[str], options: ExecuteCommandOptions
    ) -> ExecuteCommandResult:
        """Execute shell text, with `args` quoted and appended."""
        if options.input is None:
            return await self._execute(command, args or None, options)
        try:
            with named_pipe(os.path.dirname(user_socket(self._client.settings))) as pipe:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_feed, pipe, options.input.encode())
                    result = await self._execute(command, args or None, options, pipe)
                    tasks.cancel_scope.cancel()
        except OSError as error:
            return UnknownError(f"no named pipe can be made for the input: {error}")
        return result

    async def run_script(self, script: str, options: ExecuteCommandOptions) -> ExecuteCommandResult:
        """Execute shell text of any number of lines."""
        return await self.execute_command(script, [], options)

    async def _execute(
        self,
        command: str,
        args: list[str] | None,
        options: ExecuteCommandOptions,
        stdin: str | None = None,
    ) -> ExecuteCommandResult:
        try:
            terminal = await self._create(command, args, options, stdin=stdin)
            try:
                ended = await terminal.wait(options.timeout_seconds)
                if ended is None:
                    return Timeout()
                output = (await terminal.output()).text
            finally:
                with anyio.move_on_after(_RELEASE_TIMEOUT_S, shield=True):
                    await terminal.release()
        except AcptermError as error:
            return UnknownError(str(error))
        code = ended.shell_status
        return BadExitCode(output, code) if code else Success(output)

    async def _create(
        self,
        command: str,
        args: list[str] | None,
        options: ExecuteCommandOptions,
        *,
        name: str | None = None,
        stdin: str | None = None,
    ) -> Terminal:
        return await self._client.create(  # noqa: S604  the service takes shell text
            command,
            args,
            shell=True,
            cwd=options.working_directory,
            env=options.env,
            provider=self._provider,
            name=name,
            stdin=stdin,
        )

    async def start_interactive_session(self, command: str, options: ExecuteCommandOptions) -> str:
        """Start `command` in a terminal; return its name."""
        terminal = await self._create(command, None, options, name=_NAME)
        id_ = terminal.name or terminal.id
        self._sessions[id_] = terminal
        if options.input is not None:
            await terminal.write(options.input)
        return id_

    async def send_input(self, session_id: str, input: str) -> None:  # noqa: A002
        """Type `input` into a session."""
        await self._session(session_id).write(input)

    async def collect_output(
        self, session_id: str, from_position: int, wait_options: OutputWaitOptions
    ) -> InteractiveTerminalOutput:
        """Wait for output after `from_position`, as `wait_options` says, and return it."""
        waited = await collect(
            self._session(session_id),
            from_position,
            wait_options.min_interval,
            wait_options.settle_interval,
            wait_options.max_interval,
        )
        code = None if waited.exit is None else waited.exit.shell_status
        return InteractiveTerminalOutput(
            waited.text, waited.position, waited.reason == "exit", code
        )

    async def complete_output(self, session_id: str) -> str:
        """Return all retained output of a session."""
        return (await self._session(session_id).output()).text

    async def terminate_session(self, session_id: str) -> None:
        """End the session's program, and forget the session."""
        await self._session(session_id).release()
        del self._sessions[session_id]

    async def get_session_status(self, session_id: str) -> SessionStatus | None:
        """Return the state of a session; None if there is none with this id."""
        if (terminal := self._sessions.get(session_id)) is None:
            return None
        try:
            info = await terminal.info()
        except RequestError as error:
            if error.code != RESOURCE_NOT_FOUND:
                raise
            return None
        status = info.exit_status
        code = None
        if status is not None:
            code = Exit(status.exit_code, status.signal).shell_status
        return SessionStatus(
            session_id, info.state in ACTIVE, info.created_at / 1000, info.position, code
        )

    def _session(self, session_id: str) -> Terminal:
        try:
            return self._sessions[session_id]
        except KeyError:
            known = ", ".join(self._sessions) or "none"
            raise AcptermError(f"there is no session {session_id!r}; there are: {known}") from None


async def _feed(path: str, data: bytes) -> None:
    """Write `data` to a named pipe, once a program has opened it for reading."""
    pipe = -1
    while pipe < 0:
        await anyio.sleep(_OPEN_CHECK_S)
        with suppress(OSError):  # without a reader
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with suppress(BrokenPipeError):  # the program reads no more
            rest = memoryview(data)
            while rest:
                await anyio.wait_writable(pipe)
                rest = rest[os.write(pipe, rest) :]
    finally:
        os.close(pipe)
