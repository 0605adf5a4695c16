"""The requests that the Python API sends to the host as an agent.

The agent's terminals belong to a session of its connection. The user's policy judges the agent's
commands.
"""

import os
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, UnsetType

from acpterm.acp.agent_api import (
    AgentEventsRequest,
    AgentGetRequest,
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
from acpterm.api.errors import RequestError, create_error
from acpterm.api.results import CommandCheck, CommandPart, Exit, RetainedOutput
from acpterm.api.roles import (
    Caller,
    Created,
    Launch,
    Read,
    exit_from,
    exit_of_status,
    milliseconds,
    own_members,
    variables,
)
from acpterm.jsonrpc import is_utf8_encodable
from acpterm.link.endpoint import Endpoint
from acpterm.link.session import ignore


class AgentRole(Caller):
    """The methods of an agent, in the session with the id `session`. Implements `Role`."""

    kind: Literal["user", "agent"] = "agent"

    def __init__(self, endpoint: Endpoint, session: str) -> None:
        super().__init__(endpoint)
        self.session: Final = session

    async def create(self, launch: Launch) -> Created:
        """Create a terminal; return its id and name."""
        meta = CreateMeta(
            cols=launch.cols,
            rows=launch.rows,
            timeout_ms=None if launch.timeout is None else milliseconds(launch.timeout),
            shell=launch.shell,
            provider=launch.provider,
            name=launch.name,
            cwd_bytes=_not_utf8(launch.cwd),
            stdin=launch.stdin,
        )
        params = CreateTerminalRequest(
            self.session,
            launch.command,
            args=None if launch.args is None else list(launch.args),
            env=variables(launch.env),
            cwd=None if meta.cwd_bytes else launch.cwd,
            output_byte_limit=launch.output_bytes,
            meta={OWN: Raw(msgspec.json.encode(meta))},
        )
        try:
            created = await self._call(
                "terminal/create", params, CreateTerminalResponse, self._release_late
            )
        except RequestError as error:
            raise create_error(error) from error
        own = own_members(created.meta)
        found = (own.get(name) for name in ("name", "cwd", "cwdGone"))
        return Created(created.terminal_id, *found)

    def _release_late(self, answer: Raw) -> None:
        """Release a terminal that was created although its create request was cancelled."""
        created = self._decode("terminal/create", answer, CreateTerminalResponse)
        self._endpoint.call("terminal/release", self._params(created.terminal_id), ignore)

    def _params(self, terminal: str) -> TerminalRequest:
        return TerminalRequest(self.session, terminal)

    async def terminals(self) -> list[TerminalInfo]:
        """Return the session's terminals, and those of the user if the settings allow it."""
        params = AgentListRequest(self.session)
        return (await self._call("_acpterm/terminal/list", params, ListResponse)).terminals

    async def info(self, terminal: str, *, background: bool = False) -> TerminalInfo:
        """Return the state of a terminal; `background` is as in `Terminal.info`."""
        params = AgentGetRequest(self.session, terminal, background)
        return await self._call("_acpterm/terminal/get", params, TerminalInfo)

    async def read(self, terminal: str, read: Read) -> ReadResponse:
        """Return output of a terminal, from the position `read.since` on."""
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
        """Return all retained output of a terminal."""
        # ACP's response has no position. Use the position just before the request: a read from
        # there may repeat output, but misses none.
        position = (await self.info(terminal)).position
        answer = await self._call("terminal/output", self._params(terminal), TerminalOutputResponse)
        own = own_members(answer.meta)
        return RetainedOutput(
            answer.output,
            answer.truncated,
            position,
            exit_of_status(answer.exit_status),
            own.get("beginning"),
            own.get("totalLines"),
        )

    async def write(self, terminal: str, data: str | bytes) -> None:
        """Type `data` into a terminal. Raises `ValueError` for bytes that are not UTF-8."""
        text = data if isinstance(data, str) else data.decode()
        await self._do("_acpterm/terminal/write", WriteRequest(self.session, terminal, text))

    async def wait(self, terminal: str) -> Exit:
        """Wait until the program of a terminal has exited; return how it ended."""
        status = await self._call(
            "terminal/wait_for_exit", self._params(terminal), TerminalExitStatus
        )
        return exit_from(status)

    async def screen(self, terminal: str) -> ScreenResponse:
        """Return the screen of a terminal."""
        return await self._call("_acpterm/terminal/screen", self._params(terminal), ScreenResponse)

    async def resize(self, terminal: str, cols: int, rows: int) -> None:
        """Set the size in cells that a terminal has while no window is attached."""
        params = ResizeRequest(self.session, terminal, cols, rows)
        await self._do("_acpterm/terminal/resize", params)

    async def signal(self, terminal: str, name: str) -> None:
        """Send the signal `name`, such as SIGINT, to a terminal's foreground process group."""
        await self._do("_acpterm/terminal/signal", SignalRequest(self.session, terminal, name))

    async def act(self, action: Literal["kill", "release"], terminal: str) -> None:
        """Kill the program of a terminal, or release the terminal, as `action` says."""
        await self._do(f"terminal/{action}", self._params(terminal))

    async def promote(self, terminal: str) -> TerminalInfo:
        """Make the user the owner of a terminal; return the terminal's new state."""
        return await self._call("_acpterm/terminal/promote", self._params(terminal), TerminalInfo)

    def events(self, token: str) -> Any:
        """Return the params of the request ``_acpterm/events``."""
        return AgentEventsRequest(self.session, token)

    async def check(
        self, command: str, args: Sequence[str] | None, cwd: str | None, *, ask: bool
    ) -> CommandCheck:
        """Judge a command as `create` would, without running it.

        If `ask` is true and the policy leaves the decision to the user, the user is asked for it.
        Raises `CommandRefused` if `ask` is true and the command may not run.
        """
        words, as_bytes = None if args is None else list(args), _not_utf8(cwd)
        cwd = None if as_bytes else cwd
        params = CheckRequest(self.session, command, words, cwd, ask=ask, cwd_bytes=as_bytes)
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


def _not_utf8(path: str | None) -> bytes | None:
    """Return `path` as bytes if JSON cannot hold it as text."""
    return None if path is None or is_utf8_encodable(path) else os.fsencode(path)
