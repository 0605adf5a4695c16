"""The wire methods of the user: terminals belong to the user, and outlive the connection."""

import base64
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import anyio.lowlevel
from msgspec import Raw

from acpterm.acp.agent_api import (
    ReadResponse,
)
from acpterm.acp.user_api import (
    GetRequest,
    ListRequest,
    ListResponse,
    OutputResponse,
    ScreenResponse,
    TerminalInfo,
    UserCreateRequest,
    UserReadRequest,
    UserResizeRequest,
    UserSignalRequest,
    UserTerminalRequest,
    UserWriteRequest,
)
from acpterm.acp.user_streams import EventsRequest
from acpterm.api.results import CommandCheck, Exit, RetainedOutput
from acpterm.api.roles import Caller, Created, Launch, Read, exit_of_info, variables
from acpterm.config import Settings
from acpterm.link.endpoint import Endpoint
from acpterm.link.session import ignore
from acpterm.runtime.command_line import shell_line

if TYPE_CHECKING:
    from acpterm.api.judge import LocalJudge


class UserRole(Caller):
    """The methods of the user. Implements `Role`.

    `check` judges commands by the profile with the name `profile`. If `profile` is None, the
    settings select a profile for each command, by the command's directory. The constructor raises
    `AcptermError` if there is no profile with the name `profile`.
    """

    kind: Literal["user", "agent"] = "user"

    def __init__(self, endpoint: Endpoint, settings: Settings, profile: str | None) -> None:
        super().__init__(endpoint)
        self._settings = settings
        self._profile = profile
        self._judge = None if profile is None else self._local_judge()

    def _local_judge(self) -> "LocalJudge":
        # Its parser of shell text is slow to import, and most clients judge nothing.
        from acpterm.api.judge import LocalJudge  # noqa: PLC0415

        return LocalJudge(self._settings, self._profile)

    async def create(self, launch: Launch) -> Created:
        """Create a terminal; return its id and name."""
        if launch.timeout is not None or launch.output_bytes is not None:
            raise ValueError("timeout and output_bytes are for agents: connect(agent=NAME)")
        command, args = launch.command, launch.args
        if launch.shell and args is not None:
            command, args = shell_line(command, args), None
        elif launch.shell is False:
            args = args or ()
        params = UserCreateRequest(
            command,
            None if args is None else list(args),
            env=variables(launch.env),
            cwd=launch.cwd,
            name=launch.name,
            cols=launch.cols,
            rows=launch.rows,
            provider=launch.provider,
            stdin=launch.stdin,
        )
        method = "_acpterm/terminal/create"
        created = await self._call(method, params, TerminalInfo, self._release_late)
        return Created(created.terminal_id, created.name)

    def _release_late(self, answer: Raw) -> None:
        """Release a terminal that was created although its create request was cancelled."""
        created = self._decode("_acpterm/terminal/create", answer, TerminalInfo)
        params = UserTerminalRequest(created.terminal_id)
        self._endpoint.call("_acpterm/terminal/release", params, ignore)

    async def terminals(self) -> list[TerminalInfo]:
        """Return all terminals that are not released, of the user and of all agents."""
        answer = await self._call("_acpterm/terminal/list", ListRequest(), ListResponse)
        return answer.terminals

    async def info(self, terminal: str, *, background: bool = False) -> TerminalInfo:
        """Return the state of a terminal; `background` is as in `Terminal.info`."""
        params = GetRequest(terminal, background=background)
        return await self._call("_acpterm/terminal/get", params, TerminalInfo)

    async def read(self, terminal: str, read: Read) -> ReadResponse:
        """Return output of a terminal, from the position `read.since` on."""
        params = UserReadRequest(
            terminal, read.since, read.max_bytes, read.format, read.wait_ms, read.until_input
        )
        return await self._call("_acpterm/terminal/read", params, ReadResponse)

    async def output(self, terminal: str) -> RetainedOutput:
        """Return all retained output of a terminal."""
        params = UserTerminalRequest(terminal)
        answer = await self._call("_acpterm/terminal/output", params, OutputResponse)
        return RetainedOutput(
            answer.text, answer.truncated, answer.position, exit_of_info(answer.exit_status)
        )

    async def write(self, terminal: str, data: str | bytes) -> None:
        """Type `data` into a terminal."""
        if isinstance(data, str):
            params = UserWriteRequest(terminal, data)
        else:
            params = UserWriteRequest(terminal, base64.b64encode(data).decode(), "base64")
        await self._do("_acpterm/terminal/write", params)

    async def wait(self, terminal: str) -> Exit:
        """Wait until the program of a terminal has exited; return how it ended."""
        method = "_acpterm/terminal/wait"
        info = await self._call(method, UserTerminalRequest(terminal), TerminalInfo)
        found = exit_of_info(info.exit_status)
        return Exit(None, None, "lost") if found is None else found

    async def screen(self, terminal: str) -> ScreenResponse:
        """Return the screen of a terminal."""
        params = UserTerminalRequest(terminal)
        return await self._call("_acpterm/terminal/screen", params, ScreenResponse)

    async def resize(self, terminal: str, cols: int, rows: int) -> None:
        """Set the size in cells that a terminal has while no window is attached."""
        await self._do("_acpterm/terminal/resize", UserResizeRequest(terminal, cols, rows))

    async def signal(self, terminal: str, name: str) -> None:
        """Send the signal `name`, such as SIGINT, to a terminal's foreground process group."""
        await self._do("_acpterm/terminal/signal", UserSignalRequest(terminal, name))

    async def act(self, action: Literal["kill", "release"], terminal: str) -> None:
        """Kill the program of a terminal, or release the terminal, as `action` says."""
        await self._do(f"_acpterm/terminal/{action}", UserTerminalRequest(terminal))

    async def promote(self, terminal: str) -> TerminalInfo:
        """Make the user the owner of an agent's terminal; return the terminal's new state."""
        params = UserTerminalRequest(terminal)
        return await self._call("_acpterm/terminal/promote", params, TerminalInfo)

    def events(self, token: str) -> Any:
        """Return the params of the request ``_acpterm/events``."""
        return EventsRequest(token)

    async def check(
        self, command: str, args: Sequence[str] | None, cwd: str | None, *, ask: bool
    ) -> CommandCheck:
        """Judge a command as if it were an agent's. `ask` has no effect: the user is not asked.

        Raises `AcptermError` if the user's rules are invalid.
        """
        del ask
        await anyio.lowlevel.checkpoint()
        if self._judge is None:
            self._judge = self._local_judge()
        return self._judge.check(command, args, cwd or os.getcwd())
