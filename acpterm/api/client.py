"""`Client`: a connection to the daemon as methods of the Python API; `connect` returns it.

The events of a daemon, as an iterator.

The reader of the connection puts events into a queue of limited length, and never waits for the
task that iterates, since that task may await other requests between two events. If the queue is
full, the oldest event is dropped; `lost` of the next event is the number of dropped events.
"""

import os
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import anyio
from msgspec import Raw, ValidationError, structs
from msgspec.json import decode

from acpterm.acp.agent_meta import CreateMeta
from acpterm.acp.user_api import TerminalInfo
from acpterm.acp.user_streams import EventNotification
from acpterm.api.errors import request_error
from acpterm.api.questions import Asks, Questions
from acpterm.api.results import CommandCheck
from acpterm.api.roles import CreateArguments, Role, milliseconds
from acpterm.api.shell import Shell, open_shell
from acpterm.api.shell_process import ShellOptions
from acpterm.api.terminal import Terminal
from acpterm.config import Settings
from acpterm.jsonrpc import NotificationReceived, RpcError
from acpterm.link.daemon_stream import Connected, DaemonRecovery
from acpterm.link.endpoint import Endpoint
from acpterm.link.session import Response, token_of
from acpterm.runtime.command_line import command_line

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

_QUEUED_MAX: Final = 1000
RECONNECTED: Final = "reconnected"
"""The name of an event that follows when the daemon's worker was replaced.

Events may be missing before this event.
"""


class EventStream(AsyncIterator[EventNotification]):
    """Iterates over the events that the daemon sends after `start` was called.

    `token` identifies the stream in the request and its notifications. The iteration raises
    `RequestError` if the daemon refuses the request, and `ClosedError` when the connection has
    ended.
    """

    def __init__(self, endpoint: Endpoint, token: str) -> None:
        self.token: Final = token
        self._endpoint = endpoint
        self._id: int | None = None
        self._answer: Response | None = None
        self._queue: deque[EventNotification] = deque()
        self._lost = 0
        self._changed = anyio.Event()

    def start(self, params: Any) -> None:
        """Queue the request ``_acpterm/events``, without waiting for the response.

        `params` must contain the `token`. Raises `ClosedError` if the connection is closed.
        """
        self._id = self._endpoint.call("_acpterm/events", params, self._end)
        self._check()

    def close(self) -> None:
        """Cancel the request for events."""
        if self._id is not None:
            self._endpoint.cancel(self._id)

    def _end(self, answer: Response) -> None:
        self._answer = answer
        self._changed.set()

    def _check(self) -> None:
        if isinstance(self._answer, RpcError):
            raise request_error(self._endpoint, self._answer)

    def put(self, params: Raw) -> None:
        """Append the event of a notification with these params; ignore an unknown event."""
        try:
            self._append(decode(params, type=EventNotification))
        except ValidationError:
            return  # an event of a newer daemon

    def reconnected(self) -> None:
        """Append an event that says that the daemon's worker was replaced."""
        self._append(EventNotification(self.token, RECONNECTED, round(1000 * time.time())))

    def _append(self, event: EventNotification) -> None:
        self._queue.append(event)
        if len(self._queue) > _QUEUED_MAX:
            self._lost += 1 + self._queue.popleft().lost
        self._changed.set()

    async def __anext__(self) -> EventNotification:
        """Wait for the next event, and return it."""
        while not self._queue:
            if self._answer is not None:
                self._check()
                raise StopAsyncIteration
            self._changed = anyio.Event()
            await self._changed.wait()
        event = self._queue.popleft()
        if self._lost:
            event = structs.replace(event, lost=event.lost + self._lost)
            self._lost = 0
        return event


class Opened(NamedTuple):
    """An open connection to the host `name`; `recovery` is None if it cannot be replaced."""

    connected: Connected
    recovery: DaemonRecovery | None
    name: str


class Place(NamedTuple):
    """Where the terminals of a client are created.

    `session` is the id of the agent's session; None for the user. `cwd` and `provider` are the
    defaults for terminals that name none; None if the host chooses. `directory` is the working
    directory of the client. An agent's programs can usually read and write files in it, even if
    they run in a sandbox. `profile` is used only for the user: `Client.check` judges commands by
    the policy profile of this name. If it is None, the settings select the profile.
    """

    session: str | None
    cwd: str | None
    directory: str
    profile: str | None = None
    provider: str | None = None


class Client:
    """A connection to the daemon, from `connect`. Any number of tasks may use it at once.

    `role` is ``"user"`` or ``"agent"``. `settings` are those of `connect`. `directory` is the
    directory that the client works in.
    """

    def __init__(
        self, opened: Opened, settings: Settings, place: Place, asks: Asks | None = None
    ) -> None:
        self.settings: Final = settings
        self._endpoint = Endpoint(
            opened.connected,
            opened.name,
            recovery=opened.recovery,
            on_notification=self._notified,
            on_recovered=self._recovered,
        )
        self._role: Final = Role(self._endpoint, place.session, settings, place.profile)
        self.role: Final[Literal["user", "agent"]] = self._role.kind
        self._cwd = None if place.cwd is None else os.path.abspath(place.cwd)
        self.directory: Final = place.directory
        self._provider = place.provider
        self._tokens = 0
        self._streams: dict[str, EventStream] = {}
        self._questions = None if asks is None else Questions(self._endpoint, asks)
        self._tasks: TaskGroup | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended, so that every request raises `ClosedError`."""
        return self._endpoint.closed is not None

    async def create(
        self,
        command: str,
        args: Sequence[str] | None = None,
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        name: str | None = None,
        cols: int | None = None,
        rows: int | None = None,
        timeout: float | None = None,
        shell: bool | None = None,
        provider: str | None = None,
        output_bytes: int | None = None,
        stdin: str | None = None,
    ) -> Terminal:
        """Start a program in a new terminal; return the terminal.

        Without `args`, `command` is shell text; with `args`, even an empty list, it is a program.
        `shell` (true or false) overrides this. The program inherits the environment of the process
        that called `connect`; `env` has variables to add for the program, or to remove if their
        value is None. `cwd` is relative to the `cwd` of `connect`. `name` is shown to the user;
        ``-#`` at its end becomes a dash and the first free number. `cols` and `rows` are the size
        in cells, by default that of the host's settings. `provider` is the name of the provider
        that runs the program, by default that of `connect`. `stdin` is the path of a named pipe
        that becomes the program's stdin instead of the terminal.

        For agents only: the program is killed after `timeout` seconds, and the last `output_bytes`
        of text are retained (by default 1 MiB). Raises `ValueError` if a client of the user passes
        one of these, `CommandRefused` if the policy or the user refuses an agent's command, and
        `RequestError` if the program cannot start. If cancelled, the terminal is released.
        """
        launch = CreateArguments(
            command,
            args,
            self._directory(cwd),
            env or {},
            CreateMeta(
                cols=cols,
                rows=rows,
                name=name,
                provider=provider or self._provider,
                stdin=stdin,
                timeout_ms=None if timeout is None else milliseconds(timeout),
                shell=shell,
            ),
            output_bytes,
        )
        created = await self._role.create(launch)
        line = command_line(command, args)
        where = {"cwd": created.cwd, "cwd_gone": created.cwd_gone}
        return Terminal(self, self._role, created.id, created.name, line, **where)

    async def check(
        self,
        command: str,
        args: Sequence[str] | None = None,
        *,
        cwd: str | None = None,
        ask: bool = False,
    ) -> CommandCheck:
        """Judge a command as `create` would for an agent, without running the command.

        `ask` has an effect only for an agent. With `ask`, the user is asked now if the user has to
        decide, and `CommandRefused` is raised if the command may not run. Without `ask`, the result
        says what would happen.
        """
        return await self._role.check(command, args, self._directory(cwd), ask=ask)

    async def terminals(self) -> list[TerminalInfo]:
        """Return the terminals in the order of their creation.

        For the user, these are the terminals of the user and of all agents. For an agent, they are
        the terminals of its session, and those of the user if the setting
        `agents_read_user_terminals` is on.
        """
        return await self._role.terminals()

    def terminal(self, id: str) -> Terminal:  # noqa: A002  what callers expect
        """Return the terminal with this id or name, without checking that it exists."""
        return Terminal(self, self._role, id)

    def shell(
        self,
        kind: str | None = None,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user_rc: bool = True,
        name: str | None = None,
        cols: int | None = None,
        rows: int | None = None,
        provider: str | None = None,
    ) -> AbstractAsyncContextManager[Shell]:
        """Return a persistent shell for the duration of a block (docs/shells.md).

        `kind` is ``bash``, ``zsh`` or ``fish``; by default the user's (``$SHELL``), or bash. The
        user's rc files are read first, unless `user_rc` is false. The other options are those of
        `create`. The shell starts with the first command.
        """
        options = ShellOptions(
            self._directory(cwd), env, user_rc, name, cols, rows, provider or self._provider
        )
        return open_shell(self, kind, options)

    @asynccontextmanager
    async def events(self) -> AsyncIterator[AsyncIterator[EventNotification]]:
        """Yield an iterator over events: `created`, `exited`, `waiting` and others.

        The user gets all events from now on; an agent gets events about its session's terminals.
        If events are read too slowly, the oldest ones are dropped; `lost` of the next event is
        their number. After the daemon's worker was replaced, there is an event ``reconnected``.
        """
        self._tokens += 1
        token = f"events-{self._tokens}"
        stream = self._streams[token] = EventStream(self._endpoint, token)
        try:
            stream.start(self._role.events(token))
            try:
                yield stream
            finally:
                stream.close()
        finally:
            del self._streams[token]

    def _directory(self, cwd: str | None) -> str | None:
        """Return the absolute path of `cwd`; a relative path is relative to the `cwd` of `connect`.

        If `cwd` is None, return the `cwd` of `connect`, which may also be None.
        """
        if cwd is None:
            return self._cwd
        return os.path.normpath(os.path.join(self._cwd or self.directory, cwd))

    def _notified(self, notification: NotificationReceived) -> None:
        if self._questions is not None and self._tasks is not None:
            self._questions.on_notification(self._tasks, notification)
        params = notification.params
        stream = self._streams.get(token_of(params) or "")
        if stream is not None and isinstance(params, Raw):
            stream.put(params)

    def _recovered(self) -> None:
        for stream in self._streams.values():
            stream.reconnected()

    @asynccontextmanager
    async def _running(self) -> AsyncIterator["Client"]:
        """Send and receive on the connection during the block; close the connection at the end.

        Yield this client. An exception of the block is raised unchanged, not in an exception group.
        """
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._endpoint.run)
                try:
                    yield self
                finally:
                    await self._endpoint.goodbye()
                    tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # Raise the exception of the block itself, not in a group: no other task raises.
            if len(group.exceptions) != 1:
                raise
            failure = group.exceptions[0]
        if failure is not None:
            raise failure
