"""Terminal sessions as MCP resources: their output and their screen, with subscriptions.

``acpterm://terminal/term-1`` is all retained output, ``acpterm://terminal/term-1/screen`` the
screen. A client that subscribes is notified when there is new output or when the program has ended,
at most every `UPDATE_INTERVAL_S` seconds.

Each URI that has subscribers is watched by a task of its own. The task ends when the last
subscription ends, when the program has ended, or when the session is removed. Clients of the
protocol of 2025 subscribe to a URI (`subscribe`), and are notified on their connection. They are
notified of added and removed sessions even if they have no subscription. Clients of the protocol of
2026 listen to a stream (`listen`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from acpterm.api.errors import AcptermError
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from acpterm.mcp.connection import McpRequest
from acpterm.mcp.sessions import Sessions, TerminalSession
from acpterm.mcp.tool_error import ToolError, shortened

PREFIX: Final = "acpterm://terminal/"
SCREEN: Final = "/screen"
UPDATE_INTERVAL_S: Final = 0.5
_READ_WAIT_S: Final = 20.0
_TEXT: Final = "text/plain"
_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"


class Resources:
    """The resources of one client. The tasks that watch the resources run in `group`."""

    def __init__(self, group: TaskGroup) -> None:
        self._group: Final = group
        self._listeners: Final[set[_Listener]] = set()
        self._watches: Final[dict[str, _Watch]] = {}
        # The URIs to which the client of the protocol of 2025 has subscribed.
        self._subscribed: Final[dict[str, _Watch]] = {}

    def listed(self, sessions: Sessions) -> dict[str, Any]:
        return {
            "resources": [
                {
                    "uri": f"{PREFIX}{session.id}",
                    "name": session.id,
                    "description": f"Output of: {session.command}",
                    "mimeType": _TEXT,
                }
                for session in sessions.all()
            ]
        }

    def templates(self) -> dict[str, Any]:
        return {
            "resourceTemplates": [
                {"uriTemplate": f"{PREFIX}{{id}}{end}", "name": name, "mimeType": _TEXT}
                for end, name in (("", "terminal output"), (SCREEN, "terminal screen"))
            ]
        }

    async def read(self, sessions: Sessions, uri: str) -> dict[str, Any]:
        session, is_screen = await _find(sessions, uri)
        try:
            if is_screen:
                text = (await session.terminal.screen()).text()
            else:
                text = session.clean((await session.terminal.output()).text)
        except AcptermError as error:
            raise RpcError(INTERNAL_ERROR, str(error)) from error
        return {"contents": [{"uri": uri, "mimeType": _TEXT, "text": text}]}

    def start(self, sessions: Sessions, request: McpRequest) -> None:
        """Begin to notify the client of sessions and subscribed resources."""
        if not request.client.is_modern:
            listener = _Listener(request.connection.notify, self._subscribed, lists=True)
            self._listeners.add(listener)
            self._group.start_soon(listener.run)
        self._group.start_soon(self._notify_of_sessions, sessions)

    async def subscribe(self, sessions: Sessions, uri: str) -> None:
        """Notify the client of changes from now on (2025). Raises `RpcError` if none."""
        watch = await self._watch(sessions, uri)
        self.unsubscribe(uri)  # an earlier subscription
        self._subscribed[uri] = watch

    def unsubscribe(self, uri: str) -> None:
        """Stop notifying the client of changes of a resource (protocol of 2025)."""
        if (watch := self._subscribed.pop(uri, None)) is not None:
            self._unwatch(watch)

    async def listen(self, sessions: Sessions, request: McpRequest) -> None:
        """Serve one stream of notifications until it is cancelled (2026)."""
        wanted = request.params.get("notifications")
        try:
            kinds = msgspec.convert(wanted, _Kinds)
        except msgspec.ValidationError as error:
            raise RpcError(INVALID_PARAMS, f"notifications: {error}") from error
        meta = {"_meta": {_SUBSCRIPTION_ID: request.id}}

        async def notify(method: str, params: Mapping[str, Any]) -> None:
            await request.notify(method, {**params, **meta})

        listener = _Listener(
            notify, kinds.resource_subscriptions, lists=kinds.resources_list_changed
        )
        async with self._watching(sessions, kinds.resource_subscriptions):
            await notify(
                "notifications/subscriptions/acknowledged",
                {"notifications": msgspec.to_builtins(kinds)},
            )
            self._listeners.add(listener)
            try:
                await listener.run()
            finally:
                self._listeners.discard(listener)

    async def _notify_of_sessions(self, sessions: Sessions) -> None:
        changed = sessions.changed
        while True:
            await changed.wait()
            changed = sessions.changed
            self._publish(None)

    @asynccontextmanager
    async def _watching(self, sessions: Sessions, uris: list[str]) -> AsyncIterator[None]:
        watched: list[_Watch] = []
        try:
            for uri in uris:
                watch = await self._watch(sessions, uri)
                watched.append(watch)
            yield
        finally:
            for each in watched:
                self._unwatch(each)

    async def _watch(self, sessions: Sessions, uri: str) -> "_Watch":
        """Count one more subscriber of a URI; return what `_unwatch` needs."""
        if uri not in self._watches:
            session, _ = await _find(sessions, uri)
            if uri not in self._watches:  # another request may have added it meanwhile
                watch = self._watches[uri] = _Watch(uri)
                self._group.start_soon(self._follow, session, watch)
        watch = self._watches[uri]
        watch.subscribers += 1
        return watch

    def _unwatch(self, watch: "_Watch") -> None:
        watch.subscribers -= 1
        if not watch.subscribers:
            self._forget(watch)
            watch.scope.cancel()

    def _forget(self, watch: "_Watch") -> None:
        if self._watches.get(watch.uri) is watch:
            del self._watches[watch.uri]

    async def _follow(self, session: TerminalSession, watch: "_Watch") -> None:
        """Notify the client of changes until the program has ended or the session is gone."""
        with watch.scope:
            try:
                position = (await session.terminal.info()).position
                while True:
                    found = await session.terminal.read(position, wait=_READ_WAIT_S)
                    if found.position != position or found.exit is not None:
                        position = found.position
                        self._publish(watch.uri)
                    if found.exit is not None and not found.text:
                        return
                    await anyio.sleep(UPDATE_INTERVAL_S)
            except AcptermError:
                return  # the session was removed
            finally:
                # Another session may get its id, and so its URI, later.
                self._forget(watch)

    def _publish(self, uri: str | None) -> None:
        """Notify the listeners of a changed resource; None is the list of resources."""
        for listener in self._listeners:
            if listener.lists if uri is None else uri in listener.uris:
                listener.publish(uri)


class _Kinds(msgspec.Struct, rename="camel", omit_defaults=True):
    resource_subscriptions: list[str] = []
    resources_list_changed: bool = False


class _Listener:
    """Gets notifications by `notify`: about `uris`, and if `lists`, about the list of resources."""

    def __init__(
        self,
        notify: Callable[[str, Mapping[str, Any]], Awaitable[None]],
        uris: Collection[str],
        *,
        lists: bool,
    ) -> None:
        self.uris: Final = uris
        self.lists: Final = lists
        self._notify: Final = notify
        # A slow client must not hold up the others: `run` sends what is queued, each once at most.
        self._queued: Final[dict[str | None, None]] = {}
        self._came = anyio.Event()

    def publish(self, uri: str | None) -> None:
        self._queued[uri] = None
        self._came.set()

    async def run(self) -> None:
        while True:
            await self._came.wait()
            self._came = anyio.Event()
            while self._queued:
                uri = next(iter(self._queued))
                del self._queued[uri]
                if uri is None:
                    await self._notify("notifications/resources/list_changed", {})
                else:
                    await self._notify("notifications/resources/updated", {"uri": uri})


class _Watch:
    def __init__(self, uri: str) -> None:
        self.uri: Final = uri
        self.scope: Final = anyio.CancelScope()
        self.subscribers = 0


async def _find(sessions: Sessions, uri: str) -> tuple[TerminalSession, bool]:
    identifier = uri.removeprefix(PREFIX)
    is_screen = identifier.endswith(SCREEN)
    try:
        session = await sessions.find(identifier.removesuffix(SCREEN))
    except ToolError as error:
        raise RpcError(INTERNAL_ERROR, str(error)) from error
    if session is None or not uri.startswith(PREFIX):
        raise RpcError(INVALID_PARAMS, f"there is no resource {shortened(uri)!r}")
    return session, is_screen
