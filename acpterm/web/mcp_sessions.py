"""The sessions of the MCP clients at `/mcp`: each has an MCP server of its own, as on stdio.

A session begins with `initialize`. Its first tool call opens a connection to the host, as an agent
with the client's name. When the session ends, the connection is closed, and the host ends the
connection's terminals. A session ends

- when the client deletes it;
- when it has had no open request for `IDLE_TIMEOUT_S`; the stream of a GET is an open request;
- when the daemon's worker is replaced: the next worker knows no sessions.

A request that names an ended session is answered with 404, so that the client initializes again.

In MCP's version of 2026, HTTP has no sessions to which terminals could belong. A request in this
version is refused, and the error lists the versions that are served: the client can then begin a
session in one of these.

An error in a session ends that session only, and is logged.
"""

import secrets
import socket
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    suppress,
)
from typing import Any, Final, NamedTuple, TypeGuard

import anyio
import mcp_types as types
import msgspec
import structlog
import trio
from anyio.abc import UNIXSocketStream
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from acpterm.api.client import Client
from acpterm.api.connect import connect_stream
from acpterm.api.errors import DaemonError
from acpterm.api.questions import Asks
from acpterm.config import Settings
from acpterm.host.host import Host
from acpterm.jsonrpc import INVALID_REQUEST, Id
from acpterm.mcp.connection import HANDSHAKE_VERSIONS, UNSUPPORTED_VERSION
from acpterm.mcp.host_link import Connect
from acpterm.mcp.server import open_server
from acpterm.mcp.tool_set_names import TOOL_SET_NAMES, ToolSetName
from acpterm.mcp.tool_sets import policy_profile

SESSIONS_MAX: Final = 64
IDLE_TIMEOUT_S: Final = 30 * 60.0
REQUEST_BYTES_MAX: Final = 1 << 20
_END_TIMEOUT_S: Final = 1.0

_log = structlog.get_logger("acpterm.web")


class _Options(NamedTuple):
    """What a client has chosen for its session: tools, working directory, and perhaps a profile.

    `profile` applies in addition to the profile that the settings select; None for no such profile.
    """

    tools: ToolSetName
    cwd: str
    profile: str | None


class _Envelope(msgspec.Struct):
    """A request, of which only the id is decoded. An error response repeats this id.

    `id` is None if the request has no id.
    """

    id: str | int | None = None


class McpSessions:
    """The sessions of all clients. Their tasks run in `nursery`."""

    def __init__(self, host: Host, nursery: trio.Nursery) -> None:
        self._host: Final = host
        self._nursery: Final = nursery
        self._transports: Final[dict[str, StreamableHTTPServerTransport]] = {}

    async def handle(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        tools: str,
        cwd: str,
        profile: str | None,
    ) -> None:
        """Serve one request; `tools`, `cwd` and `profile` apply if the request begins a session.

        `tools` is the name of a set of tools, and `cwd` the directory that the agent works in.
        `profile` is the name of a policy profile that the client has chosen; None if it has chosen
        none. This profile applies in addition to the one that the settings select for the agent;
        the stricter decision counts.
        """
        if not _is_tool_set(tools):
            known = ", ".join(TOOL_SET_NAMES)
            await _failure(404, f"there are no such tools; there are {known}")(scope, receive, send)
            return
        options = _Options(tools, cwd, profile)

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            await self._serve(options, Request(scope, receive), send)

        await RequestBodyLimitMiddleware(serve, REQUEST_BYTES_MAX)(scope, receive, send)

    async def _serve(self, options: _Options, request: Request, send: Send) -> None:
        version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
        identifier = request.headers.get(MCP_SESSION_ID_HEADER)
        if version is not None and version not in HANDSHAKE_VERSIONS:
            response = await _unsupported(request, version)
        elif identifier is not None:
            transport = self._transports.get(identifier)
            if transport is not None:
                await transport.handle_request(request.scope, request.receive, send)
                return
            response = _failure(404, "there is no such session: initialize again")
        elif request.method != "POST":
            response = _failure(400, f"{MCP_SESSION_ID_HEADER} is missing: initialize first")
        elif self._open_sessions >= SESSIONS_MAX:
            response = _failure(
                503, f"{SESSIONS_MAX} sessions are open: end some of them with DELETE"
            )
        else:
            await self._open(options, request, send)
            return
        await response(request.scope, request.receive, send)

    @property
    def _open_sessions(self) -> int:
        """The number of sessions that have not ended, and that no client has deleted."""
        return sum(not one.is_terminated for one in self._transports.values())

    async def _open(self, options: _Options, request: Request, send: Send) -> None:
        """Begin a session, and end it at once if its first request fails."""
        identifier = secrets.token_hex(16)
        transport = StreamableHTTPServerTransport(identifier, idle_timeout=IDLE_TIMEOUT_S)
        self._transports[identifier] = transport
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
        """Run a session until its transport is terminated, or the session was idle for too long."""
        connect = _Connecting(self._host, self._nursery, options)
        try:
            async with transport.connect() as (received, sent):
                task_status.started()
                with transport.idle_scope or trio.CancelScope():
                    await serve_messages(
                        received,
                        sent,
                        tools=options.tools,
                        settings=self._host.settings,
                        connect=connect,
                        cwd=options.cwd,
                    )
        except Exception as error:  # noqa: BLE001  it must not end the other sessions
            _log.error("an MCP session failed", exc_info=error)
        finally:
            await self._end(identifier, transport)

    async def _end(self, identifier: str, transport: StreamableHTTPServerTransport) -> None:
        self._transports.pop(identifier, None)
        if not transport.is_terminated:
            with trio.move_on_after(_END_TIMEOUT_S, shield=True):
                await transport.terminate()


async def serve_messages(
    received: AsyncIterable[SessionMessage | Exception],
    sent: Any,
    *,
    tools: ToolSetName,
    settings: Settings,
    connect: Connect,
    cwd: str,
) -> None:
    """Serve a client whose messages a transport of the SDK has received, until there are no more.

    `sent` is the stream of the messages to send. The others are parameters of `open_server`.
    """

    async def send(line: bytes, about: Id) -> None:
        metadata = ServerMessageMetadata(related_request_id=about)
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        with _ending():
            await sent.send(SessionMessage(message, metadata))

    def on_error(error: Exception) -> None:
        _log.error("a request of an MCP client failed", exc_info=error)

    async with (
        open_server(tools, settings, connect, cwd, send=send, on_error=on_error) as connection,
        sent,
    ):
        with _ending():
            async for item in received:
                if isinstance(item, SessionMessage):
                    line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    unanswered = getattr(item.metadata, "on_request_unanswered", None)
                    await connection.receive(line.encode() + b"\n", unanswered)


def _ending() -> AbstractContextManager[None]:
    """Suppress the errors of streams that the transport has closed, which ends the session."""
    return suppress(anyio.BrokenResourceError, anyio.ClosedResourceError)


class _Connecting:
    """Connects a session's agent to the host in this process. Implements `mcp.host_link.Connect`.

    A task in `nursery` serves the host's end of the connection. The task ends when the host has
    noticed that the agent has closed its end. `options` has what the client has chosen for the
    session.
    """

    def __init__(self, host: Host, nursery: trio.Nursery, options: _Options) -> None:
        self._host: Final = host
        self._nursery: Final = nursery
        self._options: Final = options

    def __call__(self, agent: str, asks: Asks | None) -> AbstractAsyncContextManager[Client]:
        return self._connect(agent, asks)

    @asynccontextmanager
    async def _connect(self, agent: str, asks: Asks | None) -> AsyncIterator[Client]:
        options = self._options
        try:
            agents_end, hosts_end = socket.socketpair()
        except OSError as error:
            raise DaemonError(f"no connection can be made now: {error.strerror}") from error
        self._nursery.start_soon(self._serve, hosts_end)
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

    async def _serve(self, sock: socket.socket) -> None:
        context = self._host.context._replace(cwd=self._options.cwd)
        try:
            await self._host.serve(trio.SocketStream(trio.socket.from_stdlib_socket(sock)), context)
        except Exception as error:  # noqa: BLE001  it must not end the other sessions
            _log.error("a connection failed", exc_info=error)


def _is_tool_set(name: str) -> TypeGuard[ToolSetName]:
    return name in TOOL_SET_NAMES


async def _unsupported(request: Request, version: str) -> Response:
    """Return the response to a request in a version of MCP that is not served."""
    try:
        identifier = msgspec.json.decode(await request.body(), type=_Envelope).id
    except msgspec.MsgspecError:
        identifier = None
    data = {"supported": HANDSHAKE_VERSIONS, "requested": version}
    why = "over HTTP, this server speaks the protocols with a handshake: begin with initialize"
    return _failure(400, why, UNSUPPORTED_VERSION, data, identifier)


def _failure(
    status: int,
    message: str,
    code: int = INVALID_REQUEST,
    data: object = None,
    identifier: str | int | None = None,
) -> Response:
    """Return a response with this HTTP status and a JSON-RPC error.

    `code`, `message` and `data` are those of the error; without `data`, the error has no such
    member. `identifier` is the id of the request; None if it has none or if it is not known.
    """
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": identifier, "error": error})
    return Response(body, status, media_type="application/json")
