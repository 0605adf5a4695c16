"""The wire methods of the two roles: an agent, and the user.

Both classes have the same methods, which `Client` and `Terminal` call. An agent's terminals belong
to a session of its connection, and its commands are judged by the user's policy. The user's
terminals belong to the user and outlive the connection.
"""

import base64
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Raw, UnsetType

from acpterm.acp.agent_api import (
    OWN,
    AgentListRequest,
    CreateMeta,
    Format,
    ReadRequest,
    ReadResponse,
    ResizeRequest,
    SignalRequest,
    WriteRequest,
)
from acpterm.acp.base import Wire
from acpterm.acp.terminal import (
    CreateTerminalRequest,
    CreateTerminalResponse,
    EnvVariable,
    TerminalExitStatus,
    TerminalOutputResponse,
    TerminalRequest,
)
from acpterm.acp.user_api import (
    ExitInfo,
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
from acpterm.api.connection import Connection
from acpterm.api.errors import DaemonError, RequestError, create_error
from acpterm.api.results import Exit, RetainedOutput

_WAIT_MAX_S: Final = 86_400.0
_W = TypeVar("_W", bound=Wire)


class Launch(NamedTuple):
    """What `Client.create` was called with."""

    command: str
    args: Sequence[str] | None
    cwd: str
    env: Mapping[str, str]
    name: str | None
    cols: int | None
    rows: int | None
    timeout: float | None
    shell: bool | None
    provider: str | None
    output_bytes: int | None


class Created(NamedTuple):
    """A terminal that was created."""

    id: str
    name: str | None


class Read(NamedTuple):
    """What to read of a terminal's output."""

    since: int | None = None
    max_bytes: int | None = None
    wait: float = 0
    format: Format = "text"
    until_input: bool = False

    @property
    def wait_ms(self) -> int | None:
        """Milliseconds to wait; None for not at all."""
        return milliseconds(min(self.wait, _WAIT_MAX_S)) if self.wait > 0 else None


def milliseconds(seconds: float) -> int:
    """Return a duration in milliseconds, at least one."""
    return max(1, math.ceil(1000 * seconds))


class Role(Protocol):
    """The wire methods of one role. All of them raise `RequestError` and `ClosedError`."""

    kind: Literal["user", "agent"]

    async def create(self, launch: Launch) -> Created:
        """Create a terminal."""

    async def terminals(self) -> list[TerminalInfo]:
        """Return the terminals that this role may see."""

    async def info(self, terminal: str) -> TerminalInfo:
        """Return the state of a terminal."""

    async def read(self, terminal: str, read: Read) -> ReadResponse:
        """Return output from a position on."""

    async def output(self, terminal: str) -> RetainedOutput:
        """Return all retained output."""

    async def write(self, terminal: str, data: str | bytes) -> None:
        """Type `data`."""

    async def wait(self, terminal: str) -> Exit:
        """Return how the program ended, once it has."""

    async def screen(self, terminal: str) -> ScreenResponse:
        """Return the screen."""

    async def resize(self, terminal: str, cols: int, rows: int) -> None:
        """Set the size of the terminal."""

    async def signal(self, terminal: str, name: str) -> None:
        """Send a signal to the foreground process group."""

    async def act(self, action: Literal["kill", "release"], terminal: str) -> None:
        """Kill the program, or release the terminal."""

    async def promote(self, terminal: str) -> TerminalInfo:
        """Give the terminal to the user."""

    def events(self, token: str) -> Any:
        """Return the params of ``_acpterm/events``."""


class _Caller:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def _call(
        self,
        method: str,
        params: Any,
        into: type[_W],
        on_late: Callable[[Raw], None] | None = None,
    ) -> _W:
        return decode(
            self._connection, method, await self._connection.request(method, params, on_late), into
        )

    async def _do(self, method: str, params: Any) -> None:
        await self._connection.request(method, params)


def decode(connection: Connection, method: str, answer: Raw, into: type[_W]) -> _W:
    """Return the result of `method` as the type `into`.

    Raises `DaemonError` if the daemon is of another version, whose result is another one.
    """
    try:
        return msgspec.json.decode(answer, type=into)
    except msgspec.DecodeError as error:
        raise DaemonError(
            f"{connection.name} is of another version ({method}: {error}): end it with "
            "acpterm shutdown; the next command starts one of this version"
        ) from error


class AgentRole(_Caller):
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
            env=_variables(launch.env),
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
        return Created(created.terminal_id, _own(created.meta).get("name"))

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
        """Return all retained output."""
        answer = await self._call("terminal/output", self._params(terminal), TerminalOutputResponse)
        position = _own(answer.meta).get("position", 0)
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
        return _exit(status)

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
        return {"sessionId": self.session, "token": token}


class UserRole(_Caller):
    """The methods of the user."""

    kind: Literal["user", "agent"] = "user"

    async def create(self, launch: Launch) -> Created:
        """Create a terminal. Raises `ValueError` for options that only agents have."""
        if launch.timeout is not None or launch.output_bytes is not None:
            raise ValueError("timeout and output_bytes are for agents: connect(agent=NAME)")
        command, args = launch.command, launch.args
        if launch.shell and args is not None:
            command, args = " ".join([command, shlex.join(args)]), None
        elif launch.shell is False:
            args = args or ()
        params = UserCreateRequest(
            command,
            None if args is None else list(args),
            env=_variables(launch.env),
            cwd=launch.cwd,
            name=launch.name,
            cols=launch.cols,
            rows=launch.rows,
            provider=launch.provider,
        )
        method = "_acpterm/terminal/create"
        created = await self._call(method, params, TerminalInfo, self._release_late)
        return Created(created.terminal_id, created.name)

    def _release_late(self, answer: Raw) -> None:
        """Release a terminal that was created although the request was cancelled."""
        created = decode(self._connection, "_acpterm/terminal/create", answer, TerminalInfo)
        params = UserTerminalRequest(created.terminal_id)
        self._connection.start("_acpterm/terminal/release", params)

    async def terminals(self) -> list[TerminalInfo]:
        """Return all terminals that are not released, of the user and of all agents."""
        answer = await self._call("_acpterm/terminal/list", ListRequest(), ListResponse)
        return answer.terminals

    async def info(self, terminal: str) -> TerminalInfo:
        """Return the state of a terminal."""
        return await self._call("_acpterm/terminal/get", GetRequest(terminal), TerminalInfo)

    async def read(self, terminal: str, read: Read) -> ReadResponse:
        """Return output from a position on."""
        params = UserReadRequest(
            terminal, read.since, read.max_bytes, read.format, read.wait_ms, read.until_input
        )
        return await self._call("_acpterm/terminal/read", params, ReadResponse)

    async def output(self, terminal: str) -> RetainedOutput:
        """Return all retained output."""
        params = UserTerminalRequest(terminal)
        answer = await self._call("_acpterm/terminal/output", params, OutputResponse)
        return RetainedOutput(
            answer.text, answer.truncated, answer.position, exit_of_info(answer.exit_status)
        )

    async def write(self, terminal: str, data: str | bytes) -> None:
        """Type `data`."""
        if isinstance(data, str):
            params = UserWriteRequest(terminal, data)
        else:
            params = UserWriteRequest(terminal, base64.b64encode(data).decode(), "base64")
        await self._do("_acpterm/terminal/write", params)

    async def wait(self, terminal: str) -> Exit:
        """Return how the program ended, once it has."""
        method = "_acpterm/terminal/wait"
        info = await self._call(method, UserTerminalRequest(terminal), TerminalInfo)
        found = exit_of_info(info.exit_status)
        return Exit(None, None, "lost") if found is None else found

    async def screen(self, terminal: str) -> ScreenResponse:
        """Return the screen."""
        params = UserTerminalRequest(terminal)
        return await self._call("_acpterm/terminal/screen", params, ScreenResponse)

    async def resize(self, terminal: str, cols: int, rows: int) -> None:
        """Set the size that the terminal has while no window is attached."""
        await self._do("_acpterm/terminal/resize", UserResizeRequest(terminal, cols, rows))

    async def signal(self, terminal: str, name: str) -> None:
        """Send a signal to the foreground process group."""
        await self._do("_acpterm/terminal/signal", UserSignalRequest(terminal, name))

    async def act(self, action: Literal["kill", "release"], terminal: str) -> None:
        """Kill the program, or release the terminal."""
        await self._do(f"_acpterm/terminal/{action}", UserTerminalRequest(terminal))

    async def promote(self, terminal: str) -> TerminalInfo:
        """Give an agent's terminal to the user."""
        params = UserTerminalRequest(terminal)
        return await self._call("_acpterm/terminal/promote", params, TerminalInfo)

    def events(self, token: str) -> Any:
        """Return the params of ``_acpterm/events``."""
        return EventsRequest(token)


def exit_of_info(info: ExitInfo | None) -> Exit | None:
    """Return an exit status of the user's API; None if the program has not exited."""
    if info is None:
        return None
    limit = None if isinstance(info.limit, UnsetType) else info.limit
    return Exit(info.exit_code, info.signal, info.ended_by, info.wall_ms / 1000, limit)


def exit_of_status(status: TerminalExitStatus | UnsetType | None) -> Exit | None:
    """Return an exit status of ACP; None if the program has not exited."""
    return None if status is None or isinstance(status, UnsetType) else _exit(status)


def _exit(status: TerminalExitStatus) -> Exit:
    own = _own(status.meta)
    return Exit(
        status.exit_code,
        status.signal,
        own.get("endedBy"),
        own.get("wallMs", 0) / 1000,
        own.get("limit"),
    )


def _own(meta: dict[str, Any] | UnsetType | None) -> dict[str, Any]:
    """Return the member `acpterm` of a ``_meta``; empty if there is none."""
    own = meta.get(OWN) if isinstance(meta, dict) else None
    return own if isinstance(own, dict) else {}


def _variables(env: Mapping[str, str]) -> list[EnvVariable]:
    return [EnvVariable(name, value) for name, value in env.items()]
