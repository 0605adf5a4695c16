"""The messages of one MCP client: requests and their cancellation, notifications, and questions.

A client of the protocols of 2024 and 2025 begins with `initialize`, which names it. In the
protocol of 2026 each request does so in its `_meta`; then the server sends no requests, and results
have more members. A connection serves both kinds of requests at any time.

Each request is served by a task of its own. A request that its client cancels gets no response.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import UNSET, Raw, UnsetType

from acpterm.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    ErrorReceived,
    Id,
    InvalidReceived,
    NotificationReceived,
    Peer,
    RequestReceived,
    ResponseReceived,
    RpcError,
    quote,
)
from acpterm.mcp.types import ElicitResult

HANDSHAKE_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MODERN_VERSION: Final = "2026-07-28"
_META: Final = "io.modelcontextprotocol/"
_WITHDRAW_TIMEOUT_S: Final = 1.0
# The tools never change, and neither do the templates.
_TTL_MS: Final = {"server/discover": 3_600_000, "tools/list": 3_600_000}
_CACHED: Final = (*_TTL_MS, "resources/list", "resources/templates/list", "resources/read")

Send: TypeAlias = Callable[[bytes, Id], Awaitable[None]]
"""Sends a line; the second argument is the id of the client's request that it belongs to, if any.

Over HTTP, each request has a stream of its own.
"""


class FormQuestion(NamedTuple):
    """A question: what the user reads, and the JSON schema of the answer."""

    message: str
    schema: dict[str, Any]

    def params(self) -> dict[str, Any]:
        return {"mode": "form", "message": self.message, "requestedSchema": self.schema}


class ClientInfo(NamedTuple):
    """What a client reports about itself: its name, and whether it can ask its user."""

    name: str
    can_ask: bool
    is_modern: bool = False
    """Whether it uses the protocol of 2026, in which a server sends no requests."""


class Identity(NamedTuple):
    name: str
    version: str
    title: str
    instructions: str

    def info(self) -> dict[str, str]:
        return {"name": self.name, "version": self.version, "title": self.title}


class McpRequest:
    """A request of the client. `params` are decoded, but not checked."""

    def __init__(
        self, connection: "McpConnection", id_: Id, params: dict[str, Any], client: ClientInfo
    ) -> None:
        self.connection: Final = connection
        self.id: Final = id_
        self.params: Final = params
        self.client: Final = client
        meta = params.get("_meta")
        self.progress_token: Final[Any] = (
            meta.get("progressToken") if isinstance(meta, dict) else None
        )

    def text(self, name: str) -> str:
        value = self.params.get(name)
        if not isinstance(value, str):
            raise RpcError(INVALID_PARAMS, f"{name} must be a string")
        return value

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self.connection.notify(method, params, about=self.id)

    async def report_progress(self, progress: float, message: str) -> None:
        params = {"progressToken": self.progress_token, "progress": progress, "message": message}
        await self.notify("notifications/progress", params)

    async def ask(self, question: FormQuestion) -> ElicitResult | None:
        """Ask the user by a request to the client; return None if there is no answer."""
        try:
            answer = await self.connection.request(
                "elicitation/create", question.params(), about=self.id
            )
            return msgspec.json.decode(answer, type=ElicitResult)
        except (RpcError, msgspec.DecodeError):
            return None


Handler: TypeAlias = Callable[[McpRequest], Awaitable[Any]]
"""Returns the result of a request. Raises `RpcError` if it fails."""


class _Answer:
    def __init__(self) -> None:
        self.came: Final = anyio.Event()
        self.value: Raw | RpcError = RpcError(INTERNAL_ERROR, "there is no answer")


class McpConnection:
    """The connection to one client. Requests are served by `handlers`, in tasks of `group`."""

    def __init__(
        self,
        identity: Identity,
        handlers: Mapping[str, Handler],
        send: Send,
        on_error: Callable[[Exception], None],
        group: TaskGroup,
    ) -> None:
        self._identity: Final = identity
        self._handlers: Final = {**handlers, "ping": _pong, "server/discover": self._discover}
        self._send: Final = send
        self._on_error: Final = on_error
        self._group: Final = group
        self._peer: Final = Peer()
        self._client: ClientInfo | None = None
        self._scopes: Final[dict[Id, anyio.CancelScope]] = {}
        self._answers: Final[dict[int, _Answer]] = {}

    async def receive(
        self, data: bytes, unanswered: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Process bytes; `unanswered` is called if they are a request without a response."""
        for event in self._peer.receive_data(data):
            match event:
                case RequestReceived():
                    await self._receive_request(event, unanswered)
                case NotificationReceived("notifications/cancelled", params):
                    self._cancel(params)
                case ResponseReceived(id_, result):
                    self._answered(id_, result)
                case ErrorReceived(id_, error):
                    self._answered(id_, RpcError(error.code, error.message))
                case InvalidReceived(bytes() as reply):
                    await self._send(reply, None)
                case _:
                    pass

    def _cancel(self, params: Raw | UnsetType) -> None:
        with suppress(RpcError):  # a notification is never answered
            id_ = _members(params).get("requestId")
            if isinstance(id_, int | str) and (scope := self._scopes.get(id_)) is not None:
                scope.cancel()

    async def notify(self, method: str, params: Mapping[str, Any], about: Id = None) -> None:
        await self._send(self._peer.notify(method, params), about)

    async def request(self, method: str, params: Mapping[str, Any], about: Id) -> Raw:
        """Send a request; return the result or raise `RpcError`. Can be cancelled."""
        id_, line = self._peer.request(method, params)
        answer = self._answers[id_] = _Answer()
        try:
            await self._send(line, about)
            await answer.came.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_WITHDRAW_TIMEOUT_S, shield=True):
                await self.notify("notifications/cancelled", {"requestId": id_}, about)
            self._peer.give_up(id_)  # a client does not answer what is cancelled
            raise
        finally:
            del self._answers[id_]
        if isinstance(answer.value, RpcError):
            raise answer.value
        return answer.value

    def _answered(self, id_: int, value: Raw | RpcError) -> None:
        if (answer := self._answers.get(id_)) is not None:
            answer.value = value
            answer.came.set()

    async def _receive_request(
        self, event: RequestReceived, unanswered: Callable[[], Awaitable[None]] | None
    ) -> None:
        try:
            params = _members(event.params)
            if event.method == "initialize":
                # At once: the next message may be a request already.
                await self._send(self._peer.respond(event.id, self._initialize(params)), event.id)
                return
            handler = self._handler(event.method)
            client = self._identify(event.method, params)
        except RpcError as error:
            await self._send(self._peer.respond_error(event.id, error), event.id)
            return
        request = McpRequest(self, event.id, params, client)
        scope = self._scopes[event.id] = anyio.CancelScope()
        self._group.start_soon(self._serve, request, event.method, handler, scope, unanswered)

    def _handler(self, method: str) -> Handler:
        handler = self._handlers.get(method)
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"there is no method {quote(method)}")
        return handler

    async def _serve(
        self,
        request: McpRequest,
        method: str,
        handler: Handler,
        scope: anyio.CancelScope,
        unanswered: Callable[[], Awaitable[None]] | None,
    ) -> None:
        line: bytes | None = None
        with scope:
            try:
                result = self._result(method, request.client, await handler(request))
                line = self._peer.respond(request.id, result)
            except RpcError as error:
                line = self._peer.respond_error(request.id, error)
            except Exception as error:  # noqa: BLE001  it must not end the other requests
                self._on_error(error)
                failure = RpcError(INTERNAL_ERROR, "Internal server error")
                line = self._peer.respond_error(request.id, failure)
        if self._scopes.get(request.id) is scope:
            del self._scopes[request.id]
        if line is not None:
            await self._send(line, request.id)
            return
        self._peer.respond(request.id, {})  # the id is free again
        if unanswered is not None:
            await unanswered()

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        self._client = client_of(params.get("clientInfo"), params.get("capabilities"))
        version = params.get("protocolVersion")
        return {
            "protocolVersion": version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[0],
            "capabilities": _capabilities(tools_change=False),
            "serverInfo": self._identity.info(),
            "instructions": self._identity.instructions,
        }

    async def _discover(self, request: McpRequest) -> dict[str, Any]:
        if not request.client.is_modern:
            raise RpcError(METHOD_NOT_FOUND, "server/discover needs the version in _meta")
        return {
            "supportedVersions": [MODERN_VERSION],
            "capabilities": _capabilities(tools_change=True),
            "instructions": self._identity.instructions,
        }

    def _identify(self, method: str, params: dict[str, Any]) -> ClientInfo:
        meta = params.get("_meta")
        if isinstance(meta, dict) and (version := meta.get(f"{_META}protocolVersion")) is not None:
            if version != MODERN_VERSION:
                data = {"supported": [MODERN_VERSION], "requested": version}
                why = f"the version in _meta must be {MODERN_VERSION}"
                raise RpcError(UNSUPPORTED_VERSION, why, data)
            capabilities = meta.get(f"{_META}clientCapabilities")
            if capabilities is None:
                raise RpcError(INVALID_PARAMS, f"_meta has no {_META}clientCapabilities")
            client = client_of(meta.get(f"{_META}clientInfo"), capabilities)
            return client._replace(is_modern=True)
        if self._client is None:
            if method != "ping":
                raise RpcError(INVALID_PARAMS, "begin with initialize")
            return ClientInfo("", can_ask=False)
        return self._client

    def _result(self, method: str, client: ClientInfo, result: Any) -> Any:
        if not client.is_modern:
            return result
        members: dict[str, Any] = msgspec.to_builtins(result)
        cached = {"ttlMs": _TTL_MS.get(method, 0), "cacheScope": "private"}
        meta = {f"{_META}serverInfo": self._identity.info(), **members.get("_meta", {})}
        defaults = {"resultType": "complete", **(cached if method in _CACHED else {})}
        return {**defaults, **members, "_meta": meta}


async def _pong(request: McpRequest) -> dict[str, Any]:
    del request
    return {}


def _capabilities(*, tools_change: bool) -> dict[str, Any]:
    # In the protocol of 2026, one method is for all changes (`subscriptions/listen`).
    return {
        "tools": {"listChanged": tools_change},
        "resources": {"subscribe": True, "listChanged": True},
    }


def client_of(info: Any, capabilities: Any) -> ClientInfo:
    """Return what `clientInfo` and `capabilities` say; malformed members say nothing."""
    name = info.get("name") if isinstance(info, dict) else None
    modes = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    # No mode at all stands for forms; the other mode, `url`, is no question.
    can_ask = isinstance(modes, dict) and (not modes or "form" in modes)
    return ClientInfo(name if isinstance(name, str) else "", can_ask=can_ask)


def _members(params: Raw | UnsetType) -> dict[str, Any]:
    if params is UNSET:
        return {}
    try:
        return msgspec.json.decode(params, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise RpcError(INVALID_PARAMS, "params must be an object") from None
