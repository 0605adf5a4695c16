"""Terminal sessions as MCP resources: their output and their screen, with subscriptions.

``acpterm://terminal/term-1`` is all retained output, ``acpterm://terminal/term-1/screen`` the
screen. A client that subscribes is notified when there is new output or when the program has ended,
at most every `UPDATE_INTERVAL_S` seconds.

Each URI that has subscribers is watched by a task of its own. The task ends when the last
subscription ends, when the program has ended, or when the session is removed. Clients of the
protocol of 2025 subscribe to a URI (`subscribe`), and are notified on their connection. They are
notified of added and removed sessions even if they have no subscription. Clients of the protocol of
2026 listen to a stream (`listen`), and are notified through the bus of the SDK.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp.shared.exceptions import MCPError

from acpterm.api.errors import AcptermError
from acpterm.mcp.sessions import Session, Sessions
from acpterm.mcp.tool_error import ToolError, shortened

PREFIX: Final = "acpterm://terminal/"
SCREEN: Final = "/screen"
UPDATE_INTERVAL_S: Final = 0.5
_READ_WAIT_S: Final = 20.0


class Resources:
    """The resources of one client. The tasks that watch the resources run in `group`.

    The client is notified of changes only once `start` was called.
    """

    def __init__(self, group: TaskGroup) -> None:
        self._group: Final = group
        self._bus: Final = InMemorySubscriptionBus()
        self._listen: Final = ListenHandler(self._bus)
        self._watches: Final[dict[str, _Watch]] = {}
        # The URIs to which the client of the protocol of 2025 has subscribed.
        self._subscribed: Final[dict[str, _Watch]] = {}
        self._client: ServerSession | None = None

    def listed(self, sessions: Sessions) -> types.ListResourcesResult:
        """Return the list of resources: the output of each session."""
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=f"{PREFIX}{session.id}",
                    name=session.id,
                    description=f"Output of: {session.command}",
                    mime_type="text/plain",
                )
                for session in sessions.all()
            ]
        )

    def templates(self) -> types.ListResourceTemplatesResult:
        """Return the templates of the URIs of output and screen."""
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=f"{PREFIX}{{id}}{end}", name=name, mime_type="text/plain"
                )
                for end, name in (("", "terminal output"), (SCREEN, "terminal screen"))
            ]
        )

    async def read(self, sessions: Sessions, uri: str) -> types.ReadResourceResult:
        """Return the contents of a resource.

        Raises `MCPError` if there is no such resource, or if it cannot be read.
        """
        session, is_screen = await _find(sessions, uri)
        try:
            if is_screen:
                text = (await session.terminal.screen()).text()
            else:
                text = (await session.terminal.output()).text
        except AcptermError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error
        contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)
        return types.ReadResourceResult(contents=[contents])

    def start(self, sessions: Sessions, client: ServerSession) -> None:
        """Begin to notify the client of added and removed sessions, and of changes of resources.

        The client is notified of changes of a resource only if it has subscribed to the resource. A
        client of the protocol of 2026 is notified only on its streams (`listen`).
        """
        self._client = client
        self._group.start_soon(self._notify_of_sessions, sessions, client)

    async def subscribe(self, sessions: Sessions, uri: str) -> None:
        """Notify the client of changes of a resource from now on (protocol of 2025).

        Raises `MCPError` if there is no such resource.
        """
        watch = await self._watch(sessions, uri)
        self.unsubscribe(uri)  # an earlier subscription
        self._subscribed[uri] = watch

    def unsubscribe(self, uri: str) -> None:
        """Stop notifying the client of changes of a resource (protocol of 2025)."""
        if (watch := self._subscribed.pop(uri, None)) is not None:
            self._unwatch(watch)

    async def listen(
        self,
        sessions: Sessions,
        ctx: ServerRequestContext[Any],
        params: types.SubscriptionsListenRequestParams,
    ) -> types.SubscriptionsListenResult:
        """Serve one stream of notifications until the client ends it (protocol of 2026).

        Raises `MCPError` if the client subscribes to a resource that does not exist.
        """
        async with self._watching(sessions, params.notifications.resource_subscriptions or []):
            return await self._listen(ctx, params)

    async def _notify_of_sessions(self, sessions: Sessions, client: ServerSession) -> None:
        """Notify the client each time that sessions are added or removed, until cancelled."""
        changed = sessions.changed
        while True:
            await changed.wait()
            changed = sessions.changed  # set by changes during the notification
            await self._bus.publish(ResourcesListChanged())
            await client.send_resource_list_changed()  # not sent in the protocol of 2026

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
        """Count one more subscriber of a URI. If no task watches the URI yet, start one.

        Returns what `_unwatch` needs. Raises `MCPError` if there is no such resource.
        """
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

    async def _follow(self, session: Session, watch: "_Watch") -> None:
        """Notify the client of changes of the watched resource.

        `session` is the session of the resource. Return when the session's program has ended or
        the session is removed. `_unwatch` cancels this call when the last subscriber leaves.
        """
        with watch.scope:
            try:
                position = (await session.terminal.info()).position
                while True:
                    found = await session.terminal.read(position, wait=_READ_WAIT_S)
                    if found.position != position or found.exit is not None:
                        position = found.position
                        await self._publish(watch.uri)
                    if found.exit is not None and not found.text:
                        return
                    await anyio.sleep(UPDATE_INTERVAL_S)
            except AcptermError:
                return  # the session was removed
            finally:
                # Another session may get its id, and so its URI, later.
                self._forget(watch)

    async def _publish(self, uri: str) -> None:
        await self._bus.publish(ResourceUpdated(uri))
        if uri in self._subscribed and self._client is not None:
            await self._client.send_resource_updated(uri)


class _Watch:
    def __init__(self, uri: str) -> None:
        self.uri: Final = uri
        self.scope: Final = anyio.CancelScope()
        self.subscribers = 0


async def _find(sessions: Sessions, uri: str) -> tuple[Session, bool]:
    """Return the session of a URI, and whether the URI is that of its screen.

    Raises `MCPError` if there is no such resource, or if the host cannot be reached.
    """
    identifier = uri.removeprefix(PREFIX)
    is_screen = identifier.endswith(SCREEN)
    try:
        session = await sessions.find(identifier.removesuffix(SCREEN))
    except ToolError as error:
        raise MCPError(types.INTERNAL_ERROR, str(error)) from error
    if session is None or not uri.startswith(PREFIX):
        raise MCPError(types.INVALID_PARAMS, f"there is no resource {shortened(uri)!r}")
    return session, is_screen
