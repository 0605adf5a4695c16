"""The MCP servers of the clients at `/mcp`, which are the same as on stdio.

The first tool call of a server opens a connection to the host, as an agent with the client's name.
When the server ends, the connection is closed, and the host ends the connection's terminals. At
most `SERVERS_MAX` servers are open.

With the protocols of 2025, a server belongs to a session, which begins with `initialize`. The
session belongs to the bearer token with which it was begun: a request with another token, or one
that names an ended session, is answered with 404, so that the client initializes again. With the
protocol of 2026, each request is complete, and there are no sessions: a server belongs to a bearer
token, with the tools, the directory and the profile of the request. The first request opens it.
Its clients share its terminals, so to the host they are one agent, with the name of the token.

A server ends

- when the client deletes its session;
- when its token is removed;
- when it has had no open request for `IDLE_TIMEOUT_S`; the stream of a GET, or of
  `subscriptions/listen`, is an open request;
- when the daemon's worker is replaced: the next worker knows no sessions.

An error in a server ends that server only, and is logged.
"""

import math
import secrets
import socket
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, Final, NamedTuple, TypeGuard

import anyio
import mcp_types as types
import msgspec
import structlog
import trio
from anyio.abc import UNIXSocketStream
from mcp.server import Server, ServerRequestContext
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types.methods import CLIENT_REQUESTS
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from acpterm.api.client import Client
from acpterm.api.connect import connect_stream
from acpterm.api.errors import DaemonError
from acpterm.api.questions import Asks
from acpterm.host.host import Host
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, Id
from acpterm.mcp.connection import MODERN_VERSION
from acpterm.mcp.server import DEFAULT_AGENT, TerminalServer, open_server
from acpterm.mcp.sessions import Connect
from acpterm.mcp.tool_set_names import TOOL_SET_NAMES, ToolSetName
from acpterm.mcp.tool_sets import policy_profile
from acpterm.web.access import AccessStore, Grant

SERVERS_MAX: Final = 64
# The other agents need some, too: each directory that an agent names is another server.
AGENT_SERVERS_MAX: Final = 16
IDLE_TIMEOUT_S: Final = 30 * 60.0
REQUEST_BYTES_MAX: Final = 1 << 20
_END_TIMEOUT_S: Final = 1.0
_RETRY_AFTER_S: Final = "60"
_OPTIONS: Final = "acpterm.mcp.options"
"""The key in the scope of a request."""

_log = structlog.get_logger("acpterm.web")


class _Options(NamedTuple):
    """What a client has chosen for its server, and the access of its token."""

    tools: ToolSetName
    cwd: str
    profile: str | None
    access: Grant


class _Session(NamedTuple):
    transport: StreamableHTTPServerTransport
    agent: str | None
    """The name of the agent whose token began the session; None for the user's token."""


class _Server(NamedTuple):
    server: TerminalServer
    scope: trio.CancelScope


class McpSessions:
    def __init__(self, host: Host, access: AccessStore, nursery: trio.Nursery) -> None:
        self._host: Final = host
        self._access: Final = access
        self._nursery: Final = nursery
        self._sessions: Final[dict[str, _Session]] = {}
        self._servers: Final[dict[_Options, _Server]] = {}
        # The number of open requests of the protocol of 2026; each has a server, or may open it.
        self._requests: Final[Counter[_Options]] = Counter()
        self._opening: Final = trio.Lock()
        # The SDK checks a request and its headers; no parameter is repeated in a header.
        app = Server[Any]("acpterm", get_tool_input_schema=lambda _: None)
        for method, version in CLIENT_REQUESTS:
            if version == MODERN_VERSION:
                app.add_request_handler(method, types.RequestParams, self._answer)
        self._manager: Final = StreamableHTTPSessionManager(app, stateless=True)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with self._manager.run():
            task_status.started()
            await trio.sleep_forever()

    async def handle(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        tools: str,
        cwd: str,
        profile: str | None,
        access: Grant,
    ) -> None:
        """Serve one request; `tools`, `cwd` and `profile` apply if it names no session."""
        if not _is_tool_set(tools):
            known = ", ".join(TOOL_SET_NAMES)
            await _failure(404, f"there are no such tools; there are {known}")(scope, receive, send)
            return
        options = _Options(tools, cwd, profile, access)

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            await self._serve(options, Request(scope, receive), send)

        await RequestBodyLimitMiddleware(serve, REQUEST_BYTES_MAX)(scope, receive, send)

    async def _serve(self, options: _Options, request: Request, send: Send) -> None:
        version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
        identifier = request.headers.get(MCP_SESSION_ID_HEADER)
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            if self._has_room(options):
                request.scope[_OPTIONS] = options
                with self._counted(options):
                    await self._manager.handle_request(request.scope, request.receive, send)
                return
            response = _failure(503, "too many servers are open: try later")
        elif identifier is not None:
            session = self._sessions.get(identifier)
            if session is not None and session.agent == options.access.agent:
                await session.transport.handle_request(request.scope, request.receive, send)
                return
            response = _failure(404, "there is no such session: initialize again")
        elif request.method != "POST":
            response = _failure(400, f"{MCP_SESSION_ID_HEADER} is missing: initialize first")
        elif self._is_full:
            response = _failure(
                503, f"{SERVERS_MAX} sessions are open: end some of them with DELETE"
            )
        else:
            await self._open(options, request, send)
            return
        await response(request.scope, request.receive, send)

    @property
    def _is_full(self) -> bool:
        # A session that its client has deleted does not count, though it may not have ended yet.
        sessions = sum(not one.transport.is_terminated for one in self._sessions.values())
        return sessions + len(self._used) >= SERVERS_MAX

    @property
    def _used(self) -> set[_Options]:
        """The options of the servers that are open, or that an open request may open."""
        return {*self._servers, *self._requests}

    def _has_room(self, options: _Options) -> bool:
        """Return whether a request of the protocol of 2026 has a server, or may open one."""
        own = sum(one.access.agent == options.access.agent for one in self._used)
        return options in self._used or not (self._is_full or own >= AGENT_SERVERS_MAX)

    @contextmanager
    def _counted(self, options: _Options) -> Iterator[None]:
        """Keep the server of a request open during the block, or the room for it."""
        self._requests[options] += 1
        self._set_deadline(options, math.inf)
        try:
            yield
        finally:
            self._requests[options] -= 1
            if not self._requests[options]:
                del self._requests[options]
                self._set_deadline(options, trio.current_time() + IDLE_TIMEOUT_S)

    def _set_deadline(self, options: _Options, deadline: float) -> None:
        if (opened := self._servers.get(options)) is not None:
            opened.scope.deadline = deadline

    @asynccontextmanager
    async def _open_server(
        self, options: _Options, agent: str | None = None
    ) -> AsyncIterator[_Server]:
        """Open a server during the block, which is cancelled when the token is removed."""
        connect = self._connecting(options)
        with self._access.cancelling(options.access) as scope:
            async with open_server(
                options.tools,
                self._host.settings,
                connect,
                options.cwd,
                agent=agent,
                on_error=log_error,
            ) as server:
                yield _Server(server, scope)

    def _connecting(self, options: _Options) -> Connect:
        """Return the function that connects a server's agent to the host in this process."""

        @asynccontextmanager
        async def connect(agent: str, asks: Asks | None) -> AsyncIterator[Client]:
            try:
                agents_end, hosts_end = socket.socketpair()
            except OSError as error:
                why = f"no connection can be made now: {error.strerror}"
                raise DaemonError(why) from error
            # This task ends when the host has noticed that the agent has closed its end.
            self._nursery.start_soon(self._serve_host, hosts_end, options.cwd)
            async with connect_stream(
                await UNIXSocketStream.from_socket(agents_end),
                self._host.settings,
                agent=agent,
                session="mcp",
                cwd=options.cwd,
                profile=policy_profile(options.tools, options.profile),
                asks=asks,
            ) as client:
                yield client

        return connect

    async def _serve_host(self, sock: socket.socket, cwd: str) -> None:
        context = self._host.context._replace(cwd=cwd)
        try:
            await self._host.serve(trio.SocketStream(trio.socket.from_stdlib_socket(sock)), context)
        except Exception as error:  # noqa: BLE001  it must not end the other sessions
            _log.error("a connection failed", exc_info=error)

    async def _open(self, options: _Options, request: Request, send: Send) -> None:
        identifier = secrets.token_hex(16)
        transport = StreamableHTTPServerTransport(identifier, idle_timeout=IDLE_TIMEOUT_S)
        self._sessions[identifier] = _Session(transport, options.access.agent)
        has_begun = False

        async def watch(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = message["status"] < 400
            await send(message)

        try:
            await self._nursery.start(self._run, identifier, transport, options)
            await transport.handle_request(request.scope, request.receive, watch)
        finally:
            if not has_begun:
                await self._end(identifier, transport)

    async def _run(
        self,
        identifier: str,
        transport: StreamableHTTPServerTransport,
        options: _Options,
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        try:
            async with transport.connect() as (received, sent):
                task_status.started()
                idle = transport.idle_scope or trio.CancelScope()
                with idle:
                    async with self._open_server(options) as opened:
                        await serve_messages(received, sent, opened.server)
        except Exception as error:  # noqa: BLE001  it must not end the other sessions
            _log.error("an MCP session failed", exc_info=error)
        finally:
            await self._end(identifier, transport)

    async def _end(self, identifier: str, transport: StreamableHTTPServerTransport) -> None:
        self._sessions.pop(identifier, None)
        if not transport.is_terminated:
            with trio.move_on_after(_END_TIMEOUT_S, shield=True):
                await transport.terminate()

    async def _answer(
        self, context: ServerRequestContext, _: types.RequestParams
    ) -> dict[str, Any]:
        request: Any = context.request
        options: _Options = request.scope[_OPTIONS]
        with self._access.cancelling(options.access):
            return await _exchange(await self._server_for(options), context)
        raise MCPError(INTERNAL_ERROR, "the token of this request was removed")

    async def _server_for(self, options: _Options) -> TerminalServer:
        """Return the server with these options; open it first if there is none."""
        async with self._opening:
            opened = self._servers.get(options)
            if opened is None or opened.scope.cancel_called:
                opened = await self._nursery.start(self._run_server, options)
            return opened.server

    async def _run_server(
        self, options: _Options, *, task_status: trio.TaskStatus[_Server]
    ) -> None:
        try:
            agent = options.access.agent or DEFAULT_AGENT
            async with self._open_server(options, agent) as opened:
                self._servers[options] = opened
                task_status.started(opened)
                try:
                    await trio.sleep_forever()
                finally:
                    opened.scope.cancel()
                    # A request may have replaced it already, since its scope was cancelled.
                    if self._servers.get(options) is opened:
                        del self._servers[options]
        except Exception as error:  # noqa: BLE001  it must not end the other servers
            _log.error("an MCP server failed", exc_info=error)


async def _exchange(server: TerminalServer, context: ServerRequestContext) -> dict[str, Any]:
    """Serve one request on a connection of its own; return the result or raise `MCPError`."""
    answers: list[types.JSONRPCResponse | types.JSONRPCError] = []
    answered = trio.Event()

    async def send(line: bytes, about: Id) -> None:
        del about
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            answers.append(message)
            answered.set()
        else:
            notification = types.server_notification_adapter.validate_json(line, by_name=False)
            await context.session.send_notification(notification, context.request_id)

    request = {
        "jsonrpc": "2.0",
        "id": context.request_id,
        "method": context.method,
        "params": context.params,
    }
    async with server.connection(send) as connection:
        await connection.receive(msgspec.json.encode(request) + b"\n")
        await answered.wait()
    answer = answers[0]
    if isinstance(answer, types.JSONRPCError):
        raise MCPError.from_error_data(answer.error)
    return answer.result


async def serve_messages(
    received: AsyncIterable[SessionMessage | Exception], sent: Any, server: TerminalServer
) -> None:
    """Serve the client whose messages a transport of the SDK has received, until its end."""

    async def send(line: bytes, about: Id) -> None:
        metadata = ServerMessageMetadata(related_request_id=about)
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        with _ending():
            await sent.send(SessionMessage(message, metadata))

    async with server.connection(send) as connection, sent:
        with _ending():
            async for item in received:
                if isinstance(item, SessionMessage):
                    line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    unanswered = getattr(item.metadata, "on_request_unanswered", None)
                    await connection.receive(line.encode() + b"\n", unanswered)


def log_error(error: Exception) -> None:
    _log.error("a request of an MCP client failed", exc_info=error)


def _ending() -> AbstractContextManager[None]:
    """Suppress the errors of streams that the transport has closed, which ends the session."""
    return suppress(anyio.BrokenResourceError, anyio.ClosedResourceError)


def _is_tool_set(name: str) -> TypeGuard[ToolSetName]:
    return name in TOOL_SET_NAMES


def _failure(status: int, message: str) -> Response:
    error = {"code": INVALID_REQUEST, "message": message}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})
    headers = {"Retry-After": _RETRY_AFTER_S} if status == 503 else None
    return Response(body, status, headers, media_type="application/json")
