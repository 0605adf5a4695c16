"""`Role`: the requests of a client, as the user or as an agent, and their results."""

import base64
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

import anyio.to_thread
import msgspec
from msgspec import Raw, UnsetType
from msgspec.structs import replace

from acpterm.acp.agent_api import (
    AgentEventsRequest,
    AgentGetRequest,
    AgentListRequest,
    CheckRequest,
    CheckResponse,
    Format,
    ReadRequest,
    ReadResponse,
    ResizeRequest,
    SignalRequest,
    StoppedProgram,
    WriteRequest,
)
from acpterm.acp.agent_meta import OWN, BackgroundProcess, CreateMeta, CreateOptions, EnvMeta
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
from acpterm.api.errors import RequestError, create_error, request_error
from acpterm.api.results import CommandCheck, CommandPart, Exit, RetainedOutput, Stopped
from acpterm.config import Settings
from acpterm.jsonrpc import RpcError, is_utf8_encodable
from acpterm.link.endpoint import Endpoint
from acpterm.link.session import decode_answer, ignore
from acpterm.runtime.command_line import shell_line

if TYPE_CHECKING:
    from acpterm.api.judge import LocalJudge

_WAIT_MAX_S: Final = 86_400.0
_WITH_BEGINNING: Final = {OWN: Raw(b'{"beginning":true}')}
_UNSET: Final = Raw(msgspec.json.encode(EnvMeta(unset=True)))
_W = TypeVar("_W", bound=Wire)


class CreateArguments(NamedTuple):
    """The arguments of `Client.create`, which describes them."""

    command: str
    args: Sequence[str] | None
    cwd: str | None
    env: Mapping[str, str | None]
    options: CreateMeta
    output_bytes: int | None


class _Id(Wire):
    terminal_id: str


class Created(NamedTuple):
    """A terminal that was created: in `cwd` if its session's directory, `cwd_gone`, is gone."""

    id: str
    name: str | None
    cwd: str | None = None
    cwd_gone: str | None = None


class Read(NamedTuple):
    """The arguments of a read, which `Terminal.read` describes, and the format of the output."""

    since: int | None = None
    max_bytes: int | None = None
    wait: float = 0
    format: Format = "text"
    until_input: bool = False

    @property
    def wait_ms(self) -> int | None:
        """Milliseconds to wait, at most a day; None to return at once."""
        return milliseconds(min(self.wait, _WAIT_MAX_S)) if self.wait > 0 else None


def milliseconds(seconds: float) -> int:
    """Return a duration in milliseconds, rounded up, at least 1."""
    return max(1, math.ceil(1000 * seconds))


class Role:
    """The requests of a client: of the user, or of an agent in the session with the id `session`.

    `terminal` is the id or name of a terminal. A request raises `RequestError` if the daemon
    refuses it, `ClosedError` if the connection has ended, and `DaemonError` if the daemon is of
    another version. `check` judges commands of the user by the profile with the name `profile`, by
    default that of the command's directory; raises `AcptermError` if there is none of this name.
    """

    def __init__(
        self, endpoint: Endpoint, session: str | None, settings: Settings, profile: str | None
    ) -> None:
        self._endpoint = endpoint
        self.session: Final = session
        self.kind: Final[Literal["user", "agent"]] = "user" if session is None else "agent"
        self._settings = settings
        self._profile = profile
        is_judge = session is None and profile is not None
        self._judge = self._local_judge() if is_judge else None

    def _local_judge(self) -> "LocalJudge":
        # Its parser of shell text is slow to import, and most clients judge nothing.
        from acpterm.api.judge import LocalJudge  # noqa: PLC0415

        return LocalJudge(self._settings, self._profile)

    async def _call(
        self, method: str, params: Any, into: type[_W], on_late: Callable[[Raw], None] | None = None
    ) -> _W:
        answer = await self._request(method, params, on_late)
        return self._decode(method, answer, into)

    def _decode(self, method: str, answer: Raw, into: type[_W]) -> _W:
        return decode_answer(self._endpoint.name, method, answer, into)

    async def _do(self, method: str, params: Any) -> None:
        await self._request(method, params)

    async def _request(
        self, method: str, params: Any, on_late: Callable[[Raw], None] | None = None
    ) -> Raw:
        # While the daemon does not read, nothing more is queued.
        if self._endpoint.is_full:
            await self._endpoint.drain()
        try:
            return await self._endpoint.request(method, params, on_late)
        except RpcError as error:
            raise request_error(self._endpoint, error) from error

    def _params(
        self, agents: Callable[..., Wire], users: Callable[..., Wire], *args: Any, **more: Any
    ) -> Wire:
        return users(*args, **more) if self.session is None else agents(self.session, *args, **more)

    def _of(self, terminal: str) -> Wire:
        return self._params(TerminalRequest, UserTerminalRequest, terminal)

    async def create(self, launch: CreateArguments) -> Created:
        """Create a terminal; `CommandRefused` if the policy or the user refuses the command."""
        method = "_acpterm/terminal/create" if self.session is None else "terminal/create"

        def release_late(answer: Raw) -> None:
            # The terminal was created although its create request was cancelled.
            created = self._decode(method, answer, _Id)
            self._endpoint.call(self._method("release"), self._of(created.terminal_id), ignore)

        if self.session is None:
            info = await self._call(method, _users_create(launch), TerminalInfo, release_late)
            return Created(info.terminal_id, info.name)
        params = _agents_create(self.session, launch)
        try:
            created = await self._call(method, params, CreateTerminalResponse, release_late)
        except RequestError as error:
            raise create_error(error) from error
        own = own_members(created.meta)
        return Created(created.terminal_id, *map(own.get, ("name", "cwd", "cwdGone")))

    def _method(self, verb: str) -> str:
        return f"_acpterm/terminal/{verb}" if self.session is None else f"terminal/{verb}"

    async def terminals(self) -> list[TerminalInfo]:
        """Return the terminals that this role may see."""
        params = self._params(AgentListRequest, ListRequest)
        return (await self._call("_acpterm/terminal/list", params, ListResponse)).terminals

    async def info(self, terminal: str, *, background: bool = False) -> TerminalInfo:
        """Return the state of a terminal; `background` is as in `Terminal.info`."""
        params = self._params(AgentGetRequest, GetRequest, terminal, background=background)
        return await self._call("_acpterm/terminal/get", params, TerminalInfo)

    async def read(self, terminal: str, read: Read) -> ReadResponse:
        """Return output of a terminal, from the position `read.since` on."""
        params = self._params(
            ReadRequest,
            UserReadRequest,
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
        if self.session is None:
            method = "_acpterm/terminal/output"
            found = await self._call(method, self._of(terminal), OutputResponse)
            status = exit_of_info(found.exit_status)
            return RetainedOutput(found.text, found.truncated, found.position, status)
        # ACP's response has no position. Use the position just before the request: a read from
        # there may repeat output, but misses none.
        info = await self.info(terminal)
        params = TerminalRequest(self.session, terminal, _WITH_BEGINNING)
        answer = await self._call("terminal/output", params, TerminalOutputResponse)
        own = own_members(answer.meta)
        return RetainedOutput(
            answer.output,
            answer.truncated,
            info.position,
            exit_of_status(answer.exit_status),
            own.get("beginning"),
            own.get("totalLines"),
        )

    async def write(self, terminal: str, data: str | bytes) -> None:
        """Type `data` into a terminal; an agent's must be UTF-8, or `ValueError` is raised."""
        params: Wire
        if self.session is not None:
            text = data if isinstance(data, str) else data.decode()
            params = WriteRequest(self.session, terminal, text)
        elif isinstance(data, str):
            params = UserWriteRequest(terminal, data)
        else:
            params = UserWriteRequest(terminal, base64.b64encode(data).decode(), "base64")
        await self._do("_acpterm/terminal/write", params)

    async def wait(self, terminal: str) -> Exit:
        """Wait until the program of a terminal has exited; return how it ended."""
        params = self._of(terminal)
        if self.session is not None:
            return exit_from(await self._call("terminal/wait_for_exit", params, TerminalExitStatus))
        info = await self._call("_acpterm/terminal/wait", params, TerminalInfo)
        return exit_of_info(info.exit_status) or Exit(None, None, "lost")

    async def screen(self, terminal: str) -> ScreenResponse:
        """Return the screen of a terminal."""
        return await self._call("_acpterm/terminal/screen", self._of(terminal), ScreenResponse)

    async def resize(self, terminal: str, cols: int, rows: int) -> None:
        """Set the size in cells that a terminal has while no window is attached."""
        params = self._params(ResizeRequest, UserResizeRequest, terminal, cols, rows)
        await self._do("_acpterm/terminal/resize", params)

    async def signal(self, terminal: str, name: str) -> None:
        """Send the signal `name`, such as SIGINT, to a terminal's foreground process group."""
        params = self._params(SignalRequest, UserSignalRequest, terminal, name)
        await self._do("_acpterm/terminal/signal", params)

    async def act(self, action: Literal["kill", "release"], terminal: str) -> None:
        """Kill the program of a terminal, or release the terminal, as `action` says."""
        await self._do(self._method(action), self._of(terminal))

    async def promote(self, terminal: str) -> TerminalInfo:
        """Make the user the owner of an agent's terminal; return the terminal's new state."""
        return await self._call("_acpterm/terminal/promote", self._of(terminal), TerminalInfo)

    def events(self, token: str) -> Any:
        """Return the params of the request ``_acpterm/events``."""
        return self._params(AgentEventsRequest, EventsRequest, token)

    async def check(
        self, command: str, args: Sequence[str] | None, cwd: str | None, *, ask: bool
    ) -> CommandCheck:
        """Judge an agent's command without running it: see `Client.check`."""
        if self.session is None:
            self._judge = self._judge or self._local_judge()
            check = partial(self._judge.check, command, args, cwd or os.getcwd())
            return await anyio.to_thread.run_sync(check)
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


def _agents_create(session: str, launch: CreateArguments) -> CreateTerminalRequest:
    meta = replace(launch.options, cwd_bytes=_not_utf8(launch.cwd))
    return CreateTerminalRequest(
        session,
        launch.command,
        args=None if launch.args is None else list(launch.args),
        env=variables(launch.env),
        cwd=None if meta.cwd_bytes else launch.cwd,
        output_byte_limit=launch.output_bytes,
        meta={OWN: Raw(msgspec.json.encode(meta))},
    )


def _users_create(launch: CreateArguments) -> UserCreateRequest:
    options = launch.options
    if options.timeout_ms is not None or launch.output_bytes is not None:
        raise ValueError("timeout and output_bytes are for agents: connect(agent=NAME)")
    command, args = launch.command, launch.args
    if options.shell and args is not None:
        command, args = shell_line(command, args), None
    elif options.shell is False:
        args = args or ()
    return UserCreateRequest(
        command,
        None if args is None else list(args),
        env=variables(launch.env),
        cwd=launch.cwd,
        **{name: getattr(options, name) for name in CreateOptions.__struct_fields__},
    )


def _not_utf8(path: str | None) -> bytes | None:
    """Return `path` as bytes if JSON cannot hold it as text."""
    return None if path is None or is_utf8_encodable(path) else os.fsencode(path)


def exit_of_info(info: ExitInfo | None) -> Exit | None:
    """Convert `info`, an exit status from one of the user's wire methods, to an `Exit`."""
    if info is None:
        return None
    limit = None if isinstance(info.limit, UnsetType) else info.limit
    return Exit(info.exit_code, info.signal, info.ended_by, info.wall_ms / 1000, limit)


def exit_of_status(status: TerminalExitStatus | UnsetType | None) -> Exit | None:
    """Convert an exit status of ACP; return None if the program has not exited."""
    return None if status is None or isinstance(status, UnsetType) else exit_from(status)


def stopped_of(found: StoppedProgram | UnsetType) -> Stopped | None:
    """Convert a program that is stopped; return None if there is none."""
    if isinstance(found, UnsetType):
        return None
    return Stopped(found.pid, found.command, found.why, found.hint)


def exit_from(status: TerminalExitStatus) -> Exit:
    """Return an exit status of ACP, and what acpterm adds to it in ``_meta``, as an `Exit`."""
    own = own_members(status.meta)
    return Exit(
        status.exit_code,
        status.signal,
        own.get("endedBy"),
        own.get("wallMs", 0) / 1000,
        own.get("limit"),
        tuple(msgspec.convert(own.get("background", ()), list[BackgroundProcess])),
    )


def own_members(meta: dict[str, Any] | UnsetType | None) -> dict[str, Any]:
    """Return the member `acpterm` of a ``_meta``; an empty dict if there is none."""
    own = meta.get(OWN) if isinstance(meta, dict) else None
    return own if isinstance(own, dict) else {}


def variables(env: Mapping[str, str | None]) -> list[EnvVariable]:
    """Return environment variables in the form of ACP."""
    return [
        EnvVariable(name, "", {OWN: _UNSET}) if value is None else EnvVariable(name, value)
        for name, value in env.items()
    ]
