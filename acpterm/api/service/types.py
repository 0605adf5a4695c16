"""The types of the terminal service: options, results, and the interface of providers.

Field names are those of the service's wire format in snake_case; encoded as JSON they are in
camelCase (``exitCode``, ``newPosition``).
"""

from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

TerminalIsolationLevel: TypeAlias = Literal["none", "sandbox", "container"]


class ExecuteCommandOptions(Struct, rename="camel", frozen=True):
    """How a command is executed.

    `input` is the text that the command reads from its stdin, a pipe; if `input` is None, stdin is
    the terminal. `start_interactive_session` types it. `TerminalProvider.execute_command` and
    `run_script` end the command after `timeout_seconds`, which the built-in providers ignore in
    `start_interactive_session`. `env` has variables to add; a variable whose value is None is
    removed. `working_directory` is a path; None means the `cwd` of `connect`, or the host's choice
    if `connect` was given none.
    """

    timeout_seconds: float = 120.0
    input: str | None = None
    env: Mapping[str, str | None] | None = None
    working_directory: str | None = None


class Success(Struct, rename="camel", frozen=True):
    """The command has exited with status 0."""

    output: str
    status: Literal["success"] = "success"


class BadExitCode(Struct, rename="camel", frozen=True):
    """The command has exited with a status other than 0.

    If signal N has ended the command, `exit_code` is 128 + N.
    """

    output: str
    exit_code: int
    status: Literal["badExitCode"] = "badExitCode"


class Timeout(Struct, rename="camel", frozen=True):
    """The command was ended because it took too long."""

    status: Literal["timeout"] = "timeout"


class UnknownError(Struct, rename="camel", frozen=True):
    """The command could not be executed; `error` says why."""

    error: str
    status: Literal["unknownError"] = "unknownError"


ExecuteCommandResult: TypeAlias = Success | BadExitCode | Timeout | UnknownError


class OutputWaitOptions(Struct, rename="camel", frozen=True):
    """How long to wait for output, in seconds.

    Wait until there was no output for `settle_interval`. Wait at least `min_interval` and at most
    `max_interval` in total. The built-in providers stop earlier if the program exits or waits
    for input.
    """

    min_interval: float = 1.0
    settle_interval: float = 2.0
    max_interval: float = 30.0


class InteractiveTerminalOutput(Struct, rename="camel", frozen=True):
    """The result of `TerminalProvider.collect_output`: output of a session from a position on.

    `new_position` is where the next output begins. `is_complete` says whether the program has
    ended; `exit_code` is None until then.
    """

    output: str
    new_position: int
    is_complete: bool
    exit_code: int | None = None


class SessionOutput(Struct, rename="camel", frozen=True):
    """The result of `retrieve_session_output`: the session's output since the previous call.

    `position` is the position of the output's end. `complete` says whether the program has ended.
    """

    output: str
    position: int
    complete: bool


class SessionStatus(Struct, rename="camel", frozen=True):
    """The state of a session.

    `start_time` is in seconds since 1970, `output_length` in bytes. `exit_code` is None while the
    program runs.
    """

    id: str
    running: bool
    start_time: float
    output_length: int
    exit_code: int | None = None


class TerminalProvider(Protocol):
    """Executes the commands of the service, in terminals of the daemon or in a backend of your own.

    Register a provider with `TerminalService.register_terminal_provider`, or by an entry point of
    the group ``acpterm.providers``: a function that takes a `Client`, connected to the service's
    daemon, and returns a provider.
    """

    async def execute_command(
        self, command: str, args: list[str], options: ExecuteCommandOptions
    ) -> ExecuteCommandResult:
        """Execute `command`, which is shell text, with `args` quoted and appended."""

    async def run_script(self, script: str, options: ExecuteCommandOptions) -> ExecuteCommandResult:
        """Execute shell text of any number of lines."""

    async def start_interactive_session(self, command: str, options: ExecuteCommandOptions) -> str:
        """Start `command` in a terminal; return the id of the session."""

    async def send_input(self, session_id: str, input: str) -> None:  # noqa: A002
        """Type `input` into a session."""

    async def collect_output(
        self, session_id: str, from_position: int, wait_options: OutputWaitOptions
    ) -> InteractiveTerminalOutput:
        """Wait for output after `from_position`, as `wait_options` says, and return it."""

    async def terminate_session(self, session_id: str) -> None:
        """End the session's program, and forget the session."""

    async def get_session_status(self, session_id: str) -> SessionStatus | None:
        """Return the state of a session; None if there is none with this id."""

    def get_isolation_level(self) -> TerminalIsolationLevel:
        """Return how the provider isolates programs."""
