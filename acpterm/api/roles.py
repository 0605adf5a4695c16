"""What the two roles have in common: `agent_role` and `user_role` implement `Role`.

`Client` and `Terminal` call these methods, whatever the role is.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Raw, UnsetType

from acpterm.acp.agent_api import Format, ReadResponse
from acpterm.acp.agent_meta import OWN
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
from acpterm.api.connection import Connection
from acpterm.api.errors import DaemonError
from acpterm.api.results import CommandCheck, Exit, RetainedOutput

_WAIT_MAX_S: Final = 86_400.0
_W = TypeVar("_W", bound=Wire)


class Launch(NamedTuple):
    """What `Client.create` was called with."""

    command: str
    args: Sequence[str] | None
    cwd: str | None
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

    async def check(
        self, command: str, args: Sequence[str] | None, cwd: str | None, *, ask: bool
    ) -> CommandCheck:
        """Judge a command without running it."""


class Caller:
    """The base of both roles: requests on one connection, with decoded results."""

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


def exit_of_info(info: ExitInfo | None) -> Exit | None:
    """Return an exit status of the user's API; None if the program has not exited."""
    if info is None:
        return None
    limit = None if isinstance(info.limit, UnsetType) else info.limit
    return Exit(info.exit_code, info.signal, info.ended_by, info.wall_ms / 1000, limit)


def exit_of_status(status: TerminalExitStatus | UnsetType | None) -> Exit | None:
    """Return an exit status of ACP; None if the program has not exited."""
    return None if status is None or isinstance(status, UnsetType) else exit_from(status)


def exit_from(status: TerminalExitStatus) -> Exit:
    """Return an exit status of ACP with the members of acpterm's own ``_meta``."""
    own = own_members(status.meta)
    return Exit(
        status.exit_code,
        status.signal,
        own.get("endedBy"),
        own.get("wallMs", 0) / 1000,
        own.get("limit"),
    )


def own_members(meta: dict[str, Any] | UnsetType | None) -> dict[str, Any]:
    """Return the member `acpterm` of a ``_meta``; empty if there is none."""
    own = meta.get(OWN) if isinstance(meta, dict) else None
    return own if isinstance(own, dict) else {}


def variables(env: Mapping[str, str]) -> list[EnvVariable]:
    """Return environment variables as ACP has them."""
    return [EnvVariable(name, value) for name, value in env.items()]
