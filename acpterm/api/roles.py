"""`Role`: the wire methods that both the user and agents have.

Also has the types and functions that the implementations of `Role` share. `agent_role` and
`user_role` implement `Role`. `Client` and `Terminal` call the methods of `Role`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Raw, UnsetType

from acpterm.acp.agent_api import Format, ReadResponse, StoppedProgram
from acpterm.acp.agent_meta import OWN, BackgroundProcess, EnvMeta
from acpterm.acp.base import Wire
from acpterm.acp.terminal import (
    EnvVariable,
    TerminalExitStatus,
)
from acpterm.acp.user_api import (
    ExitInfo,
    ScreenResponse,
    TerminalInfo,
)
from acpterm.api.errors import request_error
from acpterm.api.results import CommandCheck, Exit, RetainedOutput, Stopped
from acpterm.jsonrpc import RpcError
from acpterm.link.endpoint import Endpoint
from acpterm.link.session import decode_answer

_WAIT_MAX_S: Final = 86_400.0
_UNSET: Final = Raw(msgspec.json.encode(EnvMeta(unset=True)))
_W = TypeVar("_W", bound=Wire)


class Launch(NamedTuple):
    """The arguments of `Client.create`, which describes them."""

    command: str
    args: Sequence[str] | None
    cwd: str | None
    env: Mapping[str, str | None]
    name: str | None
    cols: int | None
    rows: int | None
    timeout: float | None
    shell: bool | None
    provider: str | None
    output_bytes: int | None
    stdin: str | None = None


class Created(NamedTuple):
    """The id of a terminal that was created, and its name, if it has one.

    If the directory of the agent's session is gone, `cwd_gone` is its path, and the program runs in
    its parent `cwd`.
    """

    id: str
    name: str | None
    cwd: str | None = None
    cwd_gone: str | None = None


class Read(NamedTuple):
    """The arguments of a read, and the format in which the output is returned.

    `Terminal.read` describes the arguments.
    """

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


class Role(Protocol):
    """The wire methods of one role. `terminal` is the id or name of a terminal.

    Every request raises `RequestError` if the daemon refuses it, `ClosedError` if the connection
    has ended, and `DaemonError` if the daemon is of another version. If the policy or the user
    refuses an agent's command, `create` raises `CommandRefused`, and so does `check` with `ask`.
    """

    kind: Literal["user", "agent"]

    async def create(self, launch: Launch) -> Created:
        """Create a terminal; return its id and name."""

    async def terminals(self) -> list[TerminalInfo]:
        """Return the terminals that this role may see."""

    async def info(self, terminal: str, *, background: bool = False) -> TerminalInfo:
        """Return the state of a terminal; `background` is as in `Terminal.info`."""

    async def read(self, terminal: str, read: Read) -> ReadResponse:
        """Return output of a terminal, from the position `read.since` on."""

    async def output(self, terminal: str) -> RetainedOutput:
        """Return all retained output of a terminal."""

    async def write(self, terminal: str, data: str | bytes) -> None:
        """Type `data` into a terminal."""

    async def wait(self, terminal: str) -> Exit:
        """Wait until the program of a terminal has exited; return how it ended."""

    async def screen(self, terminal: str) -> ScreenResponse:
        """Return the screen of a terminal."""

    async def resize(self, terminal: str, cols: int, rows: int) -> None:
        """Set the size in cells that a terminal has while no window is attached."""

    async def signal(self, terminal: str, name: str) -> None:
        """Send the signal `name`, such as SIGINT, to a terminal's foreground process group."""

    async def act(self, action: Literal["kill", "release"], terminal: str) -> None:
        """Kill the program of a terminal, or release the terminal, as `action` says."""

    async def promote(self, terminal: str) -> TerminalInfo:
        """Make the user the owner of an agent's terminal; return the terminal's new state."""

    def events(self, token: str) -> Any:
        """Return the params of the request ``_acpterm/events``."""

    async def check(
        self, command: str, args: Sequence[str] | None, cwd: str | None, *, ask: bool
    ) -> CommandCheck:
        """Return how an agent's command is judged, without running it.

        `command`, `args` and `cwd` are as for `create`. `ask` has an effect only for an agent.
        With `ask`, the user is asked now if the user has to decide, and `CommandRefused` is raised
        if the command may not run. Without `ask`, the result says what would happen.
        """


class Caller:
    """The base class of both roles: sends requests on one connection, and decodes the results."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def _call(
        self,
        method: str,
        params: Any,
        into: type[_W],
        on_late: Callable[[Raw], None] | None = None,
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
        await self._endpoint.drain()
        try:
            return await self._endpoint.request(method, params, on_late)
        except RpcError as error:
            raise request_error(self._endpoint, error) from error


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
