"""The wire methods of an agent: its terminals belong to a session of its connection.

Its commands are judged by the user's policy.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, UnsetType

from acpterm.acp.agent_api import (
    AgentEventsRequest,
    AgentListRequest,
    CheckRequest,
    CheckResponse,
    ReadRequest,
    ReadResponse,
    ResizeRequest,
    SignalRequest,
    WriteRequest,
)
from acpterm.acp.agent_meta import OWN, CreateMeta
from acpterm.acp.terminal import (
    CreateTerminalRequest,
    CreateTerminalResponse,
    TerminalExitStatus,
    TerminalOutputResponse,
    TerminalRequest,
)
from acpterm.acp.user_api import (
    ListResponse,
    ScreenResponse,
    TerminalInfo,
)
from acpterm.api.connection import Connection
from acpterm.api.errors import RequestError, create_error
from acpterm.api.results import CommandCheck, CommandPart, Exit, RetainedOutput
from acpterm.api.roles import (
    Caller,
    Created,
    Launch,
    Read,
    decode,
    exit_from,
    exit_of_status,
    milliseconds,
    own_members,
    variables,
)


class AgentRole(Caller):
    """The methods of an agent, in the session `session`."""

    kind: Literal["user", "agent"] = "agent"

    def __init__(self, connection: Connection, session: str) -> None:
        super().__init__(connection)
        self.session: Final = session

    async def create(self, launch: Launch) -> Created:
        """Create a terminal. Raises `CommandRefused` too."""
        meta = CreateMeta(
            cols=launch.cols,
            rows=launch.rows,
            timeout_ms=None if launch.timeout is None else milliseconds(launch.timeout),
            shell=launch.shell,
            provider=launch.provider,
            name=launch.name,
        )
        params = CreateTerminalRequest(
            self.session,
            launch.command,
            args=None if launch.args is None else list(launch.args),
            env=variables(launch.env),
            cwd=launch.cwd,
            output_byte_limit=launch.output_bytes,
            meta={OWN: Raw(msgspec.json.encode(meta))},
        )
        try:
            created = await self._call(
                "terminal/create", params, CreateTerminalResponse, self._release_late
            )
        except RequestError as error:
            raise create_error(error) from error
        return Created(created.terminal_id, own_members(created.meta).get("name"))

    def _release_late(self, answer: Raw) -> None:
        """Release a terminal that was created although the request was cancelled."""
        created = decode(self._connection, "terminal/create", answer, CreateTerminalResponse)
        self._connection.start("terminal/release", self._params(created.terminal_id))

    def _params(self, terminal: str) -> TerminalRequest:
        return TerminalRequest(self.session, terminal)

    async def terminals(self) -> list[TerminalInfo]:
        """Return the session's terminals, and those of the user if the settings allow it."""
        params = AgentListRequest(self.session)
        return (await self._call("_acpterm/terminal/list", params, ListResponse)).terminals

    async def info(self, terminal: str) -> TerminalInfo:
        """Return the state of a terminal."""
        return await self._call("_acpterm/terminal/get", self._params(terminal), TerminalInfo)

    async def read(self, terminal: str, read: Read) -> ReadResponse:
        """Return output from a position on."""
        params = ReadRequest(
            self.session,
            terminal,
            read.since,
            read.max_bytes,
            read.format,
            read.wait_ms,
            read.until_input,
        )
        return await self._call("_acpterm/terminal/read", params, ReadResponse)

    async def output(self, terminal: str) -> RetainedOutput:
        """Return all retained output; if more has come meanwhile, it may be after `position`."""
        # ACP's response has no position. This one is of just before it, so nothing is missed.
        position = (await self.info(terminal)).position
        answer = await self._call("terminal/output", self._params(terminal), TerminalOutputResponse)
        return RetainedOutput(
            answer.output, answer.truncated, position, exit_of_status(answer.exit_status)
        )

    async def write(self, terminal: str, data: str | bytes) -> None:
        """Type `data`. Raises `ValueError` for bytes that are not UTF-8."""
        text = data if isinstance(data, str) else data.decode()
        await self._do("_acpterm/terminal/write", WriteRequest(self.session, terminal, text))

    async def wait(self, terminal: str) -> Exit:
        """Return how the program ended, once it has."""
        status = await self._call(
            "terminal/wait_for_exit", self._params(terminal), TerminalExitStatus
        )
        return exit_from(status)

    async def screen(self, terminal: str) -> ScreenResponse:
        """Return the screen."""
        return await self._call("_acpterm/terminal/screen", self._params(terminal), ScreenResponse)

    async def resize(self, terminal: str, cols: int, rows: int) -> None:
        """Set the size of the terminal."""
        params = ResizeRequest(self.session, terminal, cols, rows)
        await self._do("_acpterm/terminal/resize", params)

    async def signal(self, terminal: str, name: str) -> None:
        """Send a signal to the foreground process group."""
        await self._do("_acpterm/terminal/signal", SignalRequest(self.session, terminal, name))

    async def act(self, action: Literal["kill", "release"], terminal: str) -> None:
        """Kill the program, or release the terminal."""
        await self._do(f"terminal/{action}", self._params(terminal))

    async def promote(self, terminal: str) -> TerminalInfo:
        """Give the terminal to the user."""
        return await self._call("_acpterm/terminal/promote", self._params(terminal), TerminalInfo)

    def events(self, token: str) -> Any:
        """Return the params of ``_acpterm/events``."""
        return AgentEventsRequest(self.session, token)

    async def check(
        self, command: str, args: Sequence[str] | None, cwd: str | None, *, ask: bool
    ) -> CommandCheck:
        """Judge a command as `create` would. With `ask`, raises `CommandRefused` if it may not run.

        With `ask` the user is asked if the user has to decide.
        """
        params = CheckRequest(
            self.session, command, None if args is None else list(args), cwd, ask=ask
        )
        try:
            found = await self._call("_acpterm/command/check", params, CheckResponse)
        except RequestError as error:
            raise create_error(error) from error
        return CommandCheck(
            found.level,
            found.decision,
            None if isinstance(found.reason, UnsetType) else found.reason,
            None if isinstance(found.rule, UnsetType) else found.rule,
            [CommandPart(part.words, part.level, part.reason) for part in found.parts],
            found.profile,
        )
