"""An ACP client for one turn: the requests to the agent, and the handlers of the agent's requests.

The order of calls is `initialize`; `open`, which creates or resumes a session; `prompt`, which
lasts for a turn. `cancel` ends the turn early: the agent still responds to `prompt`.

While `run` is running, the agent's requests are handled: `Files` reads and writes files in a
thread, `Permissions` decides on permissions, and the host handles `terminal/*`.

`Turn` passes the agent's updates and the output of terminals on to a printer. A terminal is shown
as soon as a tool call embeds it. The output of the host's terminals is polled; the agent reports
the output of its own terminals in its updates (`acp.terminal_updates`).
"""

import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
import trio
from msgspec import Raw, UnsetType
from msgspec.json import encode

from acpterm import __version__
from acpterm.acp.agent import (
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    ReadTextFileRequest,
    RequestPermissionRequest,
    WriteTextFileRequest,
)
from acpterm.acp.initialize import ClientCapabilities, FileSystemCapabilities, Implementation
from acpterm.acp.lenient import decode
from acpterm.acp.raw_json import items, members, text
from acpterm.acp.session import (
    OtherUpdate,
    SessionNotification,
    ToolCall,
    ToolCallUpdate,
    read_update,
)
from acpterm.acp.terminal_updates import (
    V2_KINDS,
    ExitUpdate,
    Info,
    OutputUpdate,
    ProgramExit,
    TerminalUpdate,
    from_meta,
    from_v2,
)
from acpterm.agents.agent_run import AgentOptions, Hosted
from acpterm.agents.prompt.files import Files
from acpterm.agents.prompt.permissions import CommandQuestions, Permissions, Rule
from acpterm.agents.prompt.printer import TurnPrinter
from acpterm.agents.prompt.tool_calls import ShownToolCalls
from acpterm.agents.questions import QuestionTasks
from acpterm.agents.session_update import SESSION_UPDATE, TOOL_CALLS, SessionKey, parse_update
from acpterm.agents.terminals import EXTENSIONS_META, HOST_METHODS, SessionTerminals
from acpterm.agents.wirelog import LoggedStream, WireLog
from acpterm.config import Settings
from acpterm.jsonrpc import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Event,
    Id,
    NotificationReceived,
    RequestReceived,
    RpcError,
    excerpt,
    quote,
)
from acpterm.link.daemon_stream import Connected
from acpterm.link.endpoint import Endpoint
from acpterm.link.trio_stream import TrioStream
from acpterm.runtime.send_queue import SendQueue
from acpterm.runtime.threads import run_blocking

# Identifies the request that opens the session.
_OPENING: Final = 0

_MESSAGE_KIND: Final = "agent_message_chunk"
_COMPACTION_KINDS: Final = ("compaction_update", "compaction_summary_chunk")


class Turn:
    def __init__(self, printer: TurnPrinter, calls: ShownToolCalls) -> None:
        self._printer = printer
        self._calls = calls
        # The host's terminals that no tool call has embedded yet.
        self._not_shown: set[SessionKey] = set()
        # Bytes printed of each of the agent's own terminals.
        self._printed: dict[str, int] = {}

    def on_created(self, terminal: SessionKey, command: str, cwd: str | None) -> None:
        """Record a new terminal of the host, to be shown once a tool call embeds it."""
        del command, cwd
        self._not_shown.add(terminal)
        self._calls.acted = True

    def on_output(self, terminal: SessionKey, data: bytes, lost: int) -> None:
        self._printer.output(terminal[1], data, lost)

    def on_exit(self, terminal: SessionKey, end: ProgramExit) -> None:
        self._printer.exited(terminal[1], end)

    def terminals_finished_by(self, params: Raw | UnsetType) -> list[SessionKey]:
        """Return the terminals in the tool call that a `session/update` reports as finished."""
        update = parse_update(params)
        if update is None or update.tool_call is None or not update.ends_call:
            return []
        call = self._calls.get(update.tool_call)
        return [(update.session, terminal) for terminal in call.terminals]

    def on_update(self, notification: SessionNotification) -> list[SessionKey]:
        """Print an update of the agent; return the host's terminals that are new in it."""
        try:
            update = read_update(notification.update)
        except RpcError:
            return []
        self._printer.update(notification.update)
        if isinstance(update, OtherUpdate):
            self._on_other_update(update)
            return []
        return self._on_tool_call(notification, update)

    def _on_tool_call(
        self, notification: SessionNotification, update: ToolCall | ToolCallUpdate
    ) -> list[SessionKey]:
        call = self._calls.update(update)
        meta = members(notification.update).get("_meta")
        # The end of a terminal belongs above the end of the call, also if both are in this update.
        self._printer.begin(call)
        for change in from_meta(meta):
            self._apply(change)
        self._printer.tool_call(call)
        embedded = {(notification.session_id, terminal): None for terminal in call.terminals}
        new = [key for key in embedded if key in self._not_shown]
        self._not_shown.difference_update(new)
        return new

    def _on_other_update(self, update: OtherUpdate) -> None:
        fields = members(update.raw)
        if update.kind == _MESSAGE_KIND:
            block = members(fields.get("content"))
            if (message := text(block.get("text"))) is not None:
                self._printer.message(message)
            elif (kind := text(block.get("type"))) is not None:
                self._printer.message(f"[{kind}]")
        elif update.kind == "plan":
            self._printer.plan([_entry(item) for item in items(fields.get("entries"))])
        elif update.kind == "notice":
            self._printer.agent_notice(
                *(text(fields.get(name)) or "" for name in ("severity", "title", "description"))
            )
        elif update.kind in _COMPACTION_KINDS:
            if (call := self._calls.update_compaction(fields)) is not None:
                self._printer.tool_call(call)
        elif update.kind in V2_KINDS:
            for change in from_v2(update.kind, fields):
                self._apply(change)

    def _apply(self, change: TerminalUpdate) -> None:
        match change:
            case OutputUpdate(terminal, data, whole):
                printed = self._printed.get(terminal, 0)
                if whole:
                    # A snapshot usually starts with the bytes that were printed already.
                    data = data[printed:] if len(data) >= printed else data
                    self._printed[terminal] = len(change.data)
                else:
                    self._printed[terminal] = printed + len(data)
                self._printer.output(terminal, data, 0)
            case ExitUpdate(terminal, ProgramExit() as end):
                self._printer.exited(terminal, end)
            case Info() | ExitUpdate():
                pass


def _entry(item: Raw) -> tuple[str, str]:
    fields = members(item)
    return text(fields.get("content")) or "", text(fields.get("status")) or "pending"


class AcpError(Exception):
    """The agent cannot be used as requested; the message says why, and what to do instead."""


@dataclass(frozen=True, kw_only=True)
class PromptOptions(AgentOptions):
    text: str
    """The prompt."""
    cwd: str
    add_dirs: Sequence[str] = ()
    """Directories in which the agent works besides `cwd`."""
    allow: Rule = "ask"
    """The rule for the agent's requests for permission (`permissions`)."""
    read_only: bool = False
    """Whether to refuse to write files for the agent."""
    resume: str | None = None
    """The id of the session to resume; None for a new session."""
    login: str | None = None
    """The id of the authentication method to use first, if any."""
    timeout: float = math.inf
    """Maximum duration of the whole run, in seconds."""
    start_timeout: float = 60.0
    """Maximum duration of `initialize` and opening the session, in seconds."""
    as_json: bool = False
    colours: bool = False
    verbose: bool = False
    """Whether to print the agent's stderr and the session's id."""


class AcpClient:
    """A client of a running agent; `printer` prints the turn into the queue `out`."""

    def __init__(
        self,
        hosted: Hosted,
        nursery: trio.Nursery,
        options: PromptOptions,
        settings: Settings,
        *,
        log: WireLog,
        printer: TurnPrinter,
        out: SendQueue,
    ) -> None:
        host = hosted.host
        assert host is not None  # noqa: S101  terminals of an editor are for the proxy
        self._invalid_output: dict[int, str] = {}
        self.calls: Final = ShownToolCalls()
        self.session: str | None = None
        """The id of the session; None until it is open."""
        self._process = hosted.agent
        stream = LoggedStream(hosted.agent.stream, log, ("client->agent", "agent->client"))
        self._agent = Endpoint(
            Connected(TrioStream(stream)),
            "the agent",
            settings.max_message_bytes,
            lenient=True,
            on_request=self._on_request,
            on_notification=self._on_notification,
            on_cancel=self._on_cancel,
            on_invalid=self._on_invalid,
            exit_reason=self._exit_reason,
            before_event=self._before_event,
            throttle=self._throttle,
        )
        # The host's responses go to the agent: read no more of them than the agent does.
        host.throttle = self._agent.drain
        self._turn = Turn(printer, self.calls)
        self.terminals = SessionTerminals(
            host,
            nursery,
            respond=self._agent.respond,
            on_created=self._turn.on_created,
            on_output=self._turn.on_output,
            on_exit=self._turn.on_exit,
            drain=out.drain,
        )
        self._permissions = Permissions(options.allow, printer.notice)
        face = CommandQuestions(self._permissions, self.calls, out.flush, printer.notice)
        self._questions = QuestionTasks(hosted.questions, host, face.ask, face.withdrawn)
        self._tasks = RequestTasks(self._agent, nursery)
        self._files = Files([options.cwd, *options.add_dirs], read_only=options.read_only)
        self._options = options
        self._nursery = nursery
        self._printer = printer
        self._out = out
        self._sockets = hosted.sockets
        self._agent_info = InitializeResponse(0)

    async def run(self) -> None:
        self._nursery.start_soon(self._questions.run)
        await self._agent.run()

    async def initialize(self) -> None:
        files = FileSystemCapabilities(
            read_text_file=True, write_text_file=not self._options.read_only
        )
        capabilities = ClientCapabilities(
            fs=files,
            terminal=True,
            session={"notices": {}, "compaction": {}},
            meta={**EXTENSIONS_META, "terminal_output": True},
        )
        params = {
            "protocolVersion": 1,
            "clientCapabilities": capabilities,
            "clientInfo": Implementation(name="acpterm", title="acpterm", version=__version__),
        }
        try:
            self._agent_info = await self._request("initialize", params, InitializeResponse)
        except RpcError as error:
            if error.code != UNSUPPORTED_VERSION:
                raise
            supported = items(members(error.data).get("supported"))
            raise _other_version(" and ".join(map(excerpt, supported)) or "?") from error
        self.terminals.name_agent(self._agent_info.agent_info or {})
        if self._agent_info.protocol_version != 1:
            raise _other_version(str(self._agent_info.protocol_version))

    async def open(self) -> str:
        options, resume = self._options, self._options.resume
        if options.login is not None:
            await self._agent.request("authenticate", {"methodId": options.login})
        params: dict[str, Any] = {"cwd": options.cwd, "mcpServers": []}
        if options.add_dirs:
            abilities = self._agent_info.agent_capabilities.session_capabilities
            if abilities.additional_directories is None:
                raise AcpError("the agent knows no additional directories (--add-dir)")
            params["additionalDirectories"] = list(options.add_dirs)
        try:
            if self._sockets is not None:
                params = self._sockets.opening(
                    _OPENING, members(Raw(encode(params))), session=resume
                )
            if resume is None:
                created = await self._request("session/new", params, NewSessionResponse)
                session: str = created.session_id
            else:
                session = resume
                # Until it responds, the agent may replay the session. `_on_notification` ignores
                # these updates, since `self.session` is still None.
                await self._agent.request(self._resume_method(), {"sessionId": resume, **params})
            if self._sockets is not None:
                self._sockets.opened(_OPENING, session)
        except RpcError as error:
            if error.code == AUTH_REQUIRED:
                raise AcpError(self._auth_help(error)) from error
            raise
        self.session = session
        self.terminals.open_session(session, options.cwd)
        return session

    async def prompt(self) -> str:
        block = {"type": "text", "text": self._options.text}
        params = {"sessionId": self.session, "prompt": [block]}
        response: PromptResponse = await self._request("session/prompt", params, PromptResponse)
        return response.stop_reason

    def cancel(self) -> None:
        """Cancel the turn, and the agent's pending permission requests (ACP v1, "Cancellation")."""
        self._permissions.cancel()
        if self.session is not None:
            params = {"sessionId": self.session}
            self._agent.notify("session/cancel", params)
            self.terminals.notify("session/cancel", params)

    async def _request(self, method: str, params: Any, into: type[Any]) -> Any:
        return decode(await self._agent.request(method, params), into, f"the result of {method}")

    def _resume_method(self) -> str:
        capabilities = self._agent_info.agent_capabilities
        if capabilities.session_capabilities.resume is not None:
            return "session/resume"
        if capabilities.load_session:
            return "session/load"
        raise AcpError("the agent cannot resume sessions: leave --resume out")

    def _auth_help(self, error: RpcError) -> str:
        methods = [_auth_method_help(method) for method in self._agent_info.auth_methods]
        message = f"the agent wants you to log in first ({error.message})"
        if not methods:
            return f"{message}, and does not say how: see its documentation"
        return "\n".join([f"{message}. It offers:", *methods])

    @property
    def invalid_output(self) -> str:
        """What is wrong on the agent's stdout: the first line of each kind that is no message."""
        return "; ".join(self._invalid_output.values())

    def hint(self) -> str:
        """Return what is wrong on the agent's stdout, to append to a message; "" if nothing."""
        found = self.invalid_output
        return f"; what it wrote on stdout is no message: {found}" if found else ""

    async def _exit_reason(self) -> str:
        return await self._process.exit_message() + self.hint()

    # Messages from the agent

    def _on_invalid(self, error: RpcError) -> None:
        self._invalid_output.setdefault(error.code, error.message)

    async def _before_event(self, event: Event) -> None:
        """Wait until the output that belongs above the agent's message `event` is received."""
        exited: list[SessionKey] = []
        if isinstance(event, NotificationReceived) and event.method == SESSION_UPDATE:
            exited = self._turn.terminals_finished_by(event.params)
        await self.terminals.settle(exited)

    async def _throttle(self) -> None:
        await self._out.drain()
        await self.terminals.drain()

    def _on_request(self, request: RequestReceived) -> None:
        handlers: dict[str, Handler] = {
            "session/request_permission": self._permit,
            "fs/read_text_file": self._read,
            "fs/write_text_file": self._write,
        }
        if request.method in HOST_METHODS:
            self.terminals.request(request.id, request.method, request.params)
        elif (handler := handlers.get(request.method)) is None:
            message = f"there is no method {quote(request.method)} here"
            if request.method == "initialize":
                # A program such as cat returns this error, too: it ends our own `initialize`.
                message = "the agent speaks no ACP: it sends back what it is sent"
            self._agent.respond(request.id, RpcError(METHOD_NOT_FOUND, message))
        else:
            self._tasks.start(request, handler)

    async def _permit(self, request: RequestReceived) -> object:
        params = decode(request.params, RequestPermissionRequest)
        call = self.calls.update(params.tool_call)

        async def show() -> None:
            self._printer.before_question(call)
            await self._out.flush()

        chosen = await self._permissions.decide(call.question, call.kind, params.options, show)
        if not self._permissions.is_cancelled:
            allowed = chosen is not None and chosen.kind.startswith("allow")
            self.calls.record_decision(call, allowed=allowed)
        if chosen is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": chosen.option_id}}

    async def _read(self, request: RequestReceived) -> object:
        params = decode(request.params, ReadTextFileRequest)
        self._check_session(params.session_id)
        # A file may be large: wait until the agent has read most of the earlier responses.
        await self._agent.drain()
        return {"content": await run_blocking(partial(self._files.read, params))}

    async def _write(self, request: RequestReceived) -> object:
        params = decode(request.params, WriteTextFileRequest)
        self._check_session(params.session_id)
        await run_blocking(partial(self._files.write, params))
        self.calls.acted = True
        return {}

    def _check_session(self, session: str) -> None:
        if self.session is not None and session != self.session:
            message = f"there is no session {quote(session)} here, only {quote(self.session)}"
            raise RpcError(RESOURCE_NOT_FOUND, message)

    def _on_notification(self, notification: NotificationReceived) -> None:
        if notification.method != SESSION_UPDATE or self.session is None:
            return
        try:
            update = decode(notification.params, SessionNotification)
        except RpcError:
            return
        if update.session_id == self.session:
            parsed = parse_update(notification.params)
            if parsed is not None and parsed.kind in TOOL_CALLS:
                self.terminals.notify(SESSION_UPDATE, notification.params)
            for terminal in self._turn.on_update(update):
                self.terminals.follow(terminal)

    def _on_cancel(self, id_: Id) -> None:
        if not self._tasks.cancel(id_):
            self.terminals.cancel(id_)


def _other_version(versions: str) -> AcpError:
    return AcpError(
        f"the agent speaks version {versions} of the Agent Client Protocol alone: acpterm speaks "
        "version 1"
    )


def _auth_method_help(method: Any) -> str:
    line = f"  {method.id}: {method.name}"
    if method.description:
        line += f". {method.description}"
    terminal_auth = (method.meta or {}).get("terminal-auth")
    if terminal_auth is not None:
        try:
            run = msgspec.json.decode(terminal_auth, type=dict[str, Any])
            line += f" Run: {' '.join([str(run['command']), *map(str, run.get('args', []))])}"
        except (msgspec.DecodeError, KeyError, TypeError):
            pass
    return f"{line} (--auth {method.id} has the agent do it, where it can)"


PENDING_MAX: Final = 1000

Handler: TypeAlias = Callable[[RequestReceived], Coroutine[Any, Any, Any]]


class RequestTasks:
    """Runs handlers of the agent's requests, as tasks, of which at most `PENDING_MAX` are pending.

    If a handler raises an error, only its own request fails.
    """

    def __init__(self, agent: Endpoint, nursery: trio.Nursery) -> None:
        self._agent = agent
        self._nursery = nursery
        self._pending = 0
        self._scopes: dict[Id, trio.CancelScope] = {}

    def start(self, request: RequestReceived, handler: Handler) -> None:
        if self._pending >= PENDING_MAX:
            message = f"{PENDING_MAX} requests are pending: wait for some of them"
            self._agent.respond(request.id, RpcError(INTERNAL_ERROR, message))
        else:
            self._pending += 1
            # The request can be cancelled from now on, even before its task starts.
            scope = trio.CancelScope()
            if request.id is not None:
                self._scopes[request.id] = scope
            self._nursery.start_soon(self._run, request, handler, scope)

    def cancel(self, id_: Id) -> bool:
        """Cancel the handler of the request `id_`, and respond to the request with an error."""
        scope = self._scopes.get(id_)
        if scope is not None:
            scope.cancel()
        return scope is not None

    async def _run(
        self, request: RequestReceived, handler: Handler, scope: trio.CancelScope
    ) -> None:
        with scope:
            try:
                self._agent.respond(request.id, await handler(request))
            except RpcError as error:
                self._agent.respond(request.id, error)
            except Exception as error:  # noqa: BLE001  only this request must fail
                message = f"{request.method}: internal error: {type(error).__name__}: {error}"
                self._agent.respond(request.id, RpcError(INTERNAL_ERROR, message))
            finally:
                self._pending -= 1
                self._scopes.pop(request.id, None)
        if scope.cancelled_caught:
            self._agent.respond(request.id, RpcError(REQUEST_CANCELLED, "cancelled, as was asked"))
