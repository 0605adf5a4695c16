"""A client's half of a conversation with an agent: what it asks, and what it answers.

The order of things: `initialize`; `open`, a new session or one resumed; `prompt`, which lasts for a
turn. `cancel` ends the turn early: the agent answers `prompt` all the same, sooner or later.

What the agent asks meanwhile is answered here: files by `Files` in a thread, permissions by
`Permissions`, `terminal/*` by the host, each in a task of its own where it has to wait.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import trio

from acpterm import __version__
from acpterm.acp import (
    ClientCapabilities,
    FileSystemCapabilities,
    Implementation,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    ReadTextFileRequest,
    RequestPermissionRequest,
    SessionNotification,
    WriteTextFileRequest,
    decode,
)
from acpterm.client.endpoint import Endpoint
from acpterm.client.prompt.files import Files
from acpterm.client.prompt.permissions import Permissions
from acpterm.client.prompt.tool_calls import ToolCalls, ToolCallState
from acpterm.client.terminals import EXTENDED, METHODS, Terminals
from acpterm.client.update import SESSION_UPDATE, TOOL_CALLS
from acpterm.client.update import read as read_update
from acpterm.jsonrpc import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    Id,
    NotificationReceived,
    RequestReceived,
    RpcError,
    quote,
)
from acpterm.runtime.threads import run_blocking

# Requests that wait in tasks at a time.
PENDING_MAX: Final = 1000


class AcpError(Exception):
    """The agent cannot or will not; the message says what, and what to do."""


class Workspace(NamedTuple):
    """Where a session is."""

    cwd: str
    additional_directories: Sequence[str] = ()
    """Additional directories."""


class AcpClient:
    """A conversation over `agent`.

    `updated` is called with each `session/update` of the session, once it is open; `about_to_ask`
    is awaited before a person is asked.
    """

    def __init__(
        self,
        agent: Endpoint,
        nursery: trio.Nursery,
        *,
        files: Files,
        read_only: bool,
        permissions: Permissions,
        calls: ToolCalls,
        updated: Callable[[SessionNotification], None],
        about_to_ask: Callable[[ToolCallState], Awaitable[None]],
    ) -> None:
        self._agent = agent
        self._nursery = nursery
        self._files = files
        self._read_only = read_only
        self._permissions = permissions
        self._updated = updated
        self._about_to_ask = about_to_ask
        self._tasks = 0
        self._scopes: dict[Id, trio.CancelScope] = {}
        self._told = InitializeResponse(0)
        self._calls = calls
        self.session: str | None = None
        self.terminals: Terminals | None = None
        """The host's, which are there before the agent can ask for any."""
        agent.on_request = self._asked
        agent.on_notification = self._notified
        agent.on_cancel = self._no_longer_wanted

    async def initialize(self) -> None:
        """Agree on a version. Raises `ConversationError`, `RpcError`."""
        files = FileSystemCapabilities(read_text_file=True, write_text_file=not self._read_only)
        able = ClientCapabilities(
            fs=files, terminal=True, meta={**EXTENDED, "terminal_output": True}
        )
        asks = {
            "protocolVersion": 1,
            "clientCapabilities": able,
            "clientInfo": Implementation(name="acpterm", title="acpterm", version=__version__),
        }
        self._told = await self._ask("initialize", asks, InitializeResponse)
        if self.terminals is not None:
            self.terminals.name_agent(self._told.agent_info or {})
        if self._told.protocol_version != 1:
            raise AcpError(
                f"the agent speaks version {self._told.protocol_version} of the Agent Client "
                "Protocol alone: acpterm speaks version 1"
            )

    async def open(self, place: Workspace, *, resume: str | None, login: str | None) -> str:
        """Begin a session, or go on with the one called `resume`; give its id.

        `login` is the id of a way to log in that is to be tried first. Raises `ConversationError`,
        `RpcError`.
        """
        if login is not None:
            await self._agent.request("authenticate", {"methodId": login})
        where: dict[str, Any] = {"cwd": place.cwd, "mcpServers": []}
        if place.additional_directories:
            if self._told.agent_capabilities.session_capabilities.additional_directories is None:
                raise AcpError("the agent knows no additional directories (--add-dir)")
            where["additionalDirectories"] = list(place.additional_directories)
        try:
            if resume is None:
                found = await self._ask("session/new", where, NewSessionResponse)
                session: str = found.session_id
            else:
                session = resume
                # Before it is open the agent may tell of what was: nobody wants to read it again.
                await self._agent.request(self._how_to_resume(), {"sessionId": resume, **where})
        except RpcError as error:
            if error.code == AUTH_REQUIRED:
                raise AcpError(self._how_to_log_in(error)) from error
            raise
        self.session = session
        if self.terminals is not None:
            self.terminals.open_session(session, place.cwd)
        return session

    async def prompt(self, text: str) -> str:
        """Have the agent do what `text` says; give the reason why the turn ended."""
        said = [{"type": "text", "text": text}]
        asks = {"sessionId": self.session, "prompt": said}
        ended: PromptResponse = await self._ask("session/prompt", asks, PromptResponse)
        return ended.stop_reason

    def cancel(self) -> None:
        """End the turn early (ACP v1, "Cancellation"): open permissions are answered so."""
        self._permissions.cancel()
        if self.session is not None:
            params = {"sessionId": self.session}
            self._agent.notify("session/cancel", params)
            if self.terminals is not None:
                self.terminals.notify("session/cancel", params)

    async def _ask(self, method: str, params: Any, into: type[Any]) -> Any:
        return decode(await self._agent.request(method, params), into, f"the result of {method}")

    def _how_to_resume(self) -> str:
        can = self._told.agent_capabilities
        if can.session_capabilities.resume is not None:
            return "session/resume"
        if can.load_session:
            return "session/load"
        raise AcpError("the agent cannot resume sessions: leave --resume out")

    def _how_to_log_in(self, error: RpcError) -> str:
        ways = [_way(method) for method in self._told.auth_methods]
        what = f"the agent wants you to log in first ({error.message})"
        if not ways:
            return f"{what}, and does not say how: see its documentation"
        return "\n".join([f"{what}. It offers:", *ways])

    # What the agent asks

    def _asked(self, request: RequestReceived) -> None:
        handlers: dict[str, Callable[[RequestReceived], Coroutine[Any, Any, Any]]] = {
            "session/request_permission": self._permit,
            "fs/read_text_file": self._read,
            "fs/write_text_file": self._write,
        }
        if request.method in METHODS and self.terminals is not None:
            self.terminals.request(request.id, request.method, request.params)
        elif (handler := handlers.get(request.method)) is None:
            what = f"there is no method {quote(request.method)} here"
            self._agent.fail(request.id, RpcError(METHOD_NOT_FOUND, what))
        elif self._tasks >= PENDING_MAX:
            what = f"{PENDING_MAX} requests are pending: wait for some of them"
            self._agent.fail(request.id, RpcError(INTERNAL_ERROR, what))
        else:
            self._tasks += 1
            self._nursery.start_soon(self._finish, request, handler)

    async def _finish(
        self,
        request: RequestReceived,
        handler: Callable[[RequestReceived], Coroutine[Any, Any, Any]],
    ) -> None:
        with trio.CancelScope() as scope:
            if request.id is not None:
                self._scopes[request.id] = scope
            try:
                self._agent.respond(request.id, await handler(request))
            except RpcError as error:
                self._agent.fail(request.id, error)
            except Exception as error:  # noqa: BLE001  it costs its own request and nothing else
                what = f"{request.method}: internal error: {type(error).__name__}: {error}"
                self._agent.fail(request.id, RpcError(INTERNAL_ERROR, what))
            finally:
                self._tasks -= 1
                self._scopes.pop(request.id, None)
        if scope.cancelled_caught:
            self._agent.fail(request.id, RpcError(REQUEST_CANCELLED, "cancelled, as was asked"))

    async def _permit(self, request: RequestReceived) -> object:
        params = decode(request.params, RequestPermissionRequest)
        call = self._calls.take(params.tool_call)
        show = partial(self._about_to_ask, call)
        answer = await self._permissions.decide(call.question, call.kind, params.options, show)
        if not self._permissions.is_cancelled:
            chosen = answer["outcome"].get("optionId")
            kinds = (option.kind for option in params.options if option.option_id == chosen)
            self._calls.decided(call, allowed=next(kinds, "").startswith("allow"))
        return answer

    async def _read(self, request: RequestReceived) -> object:
        params = decode(request.params, ReadTextFileRequest)
        self._check_session(params.session_id)
        # A file may be large, and the agent has to read the one before.
        await self._agent.drain()
        return {"content": await run_blocking(partial(self._files.read, params))}

    async def _write(self, request: RequestReceived) -> object:
        params = decode(request.params, WriteTextFileRequest)
        self._check_session(params.session_id)
        await run_blocking(partial(self._files.write, params))
        self._calls.acted = True
        return {}

    def _check_session(self, session: str) -> None:
        if self.session is not None and session != self.session:
            what = f"sessionId {quote(session)} is not the session here, {quote(self.session)}"
            raise RpcError(INVALID_PARAMS, what)

    def _notified(self, notification: NotificationReceived) -> None:
        if notification.method != SESSION_UPDATE or self.session is None:
            return
        try:
            update = decode(notification.params, SessionNotification)
        except RpcError:
            return
        if update.session_id == self.session:
            seen = read_update(notification.params)
            if self.terminals is not None and seen is not None and seen.kind in TOOL_CALLS:
                self.terminals.notify(SESSION_UPDATE, notification.params)
            self._updated(update)

    def _no_longer_wanted(self, id_: Id) -> None:
        if scope := self._scopes.get(id_):
            scope.cancel()
        elif self.terminals is not None:
            self.terminals.cancel(id_)


def _way(method: Any) -> str:
    """Say how to log in in one way: what to run, where the agent says it."""
    said = f"  {method.id}: {method.name}"
    if method.description:
        said += f". {method.description}"
    found = (method.meta or {}).get("terminal-auth")
    if found is not None:
        try:
            run = msgspec.json.decode(found, type=dict[str, Any])
            said += f" Run: {' '.join([str(run['command']), *map(str, run.get('args', []))])}"
        except (msgspec.DecodeError, KeyError, TypeError):
            pass
    return f"{said} (--auth {method.id} has the agent do it, where it can)"
