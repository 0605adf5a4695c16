"""A daemon's HTTP server, and a client that sends exactly what the test says.

The client is h11 and wsproto on a trio stream: unlike a browser it sends any `Host` and `Origin`.
"""

import json
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import h11
import trio
import wsproto
from starlette.routing import BaseRoute
from wsproto import events

from acpterm.config.http import HttpAddress
from acpterm.host.host import Host
from acpterm.web.access import AccessStore
from acpterm.web.access_file import AccessFile
from acpterm.web.app import make_app
from acpterm.web.endpoint import HttpEndpoint, bind
from acpterm.web.pages import DIRECTORY as PAGE_DIRECTORY
from acpterm.web.server import HttpServer
from tests.support.daemon import BlockingDaemon, Daemon, daemon
from tests.support.depth import DEADLINE_S
from tests.support.hosts import host_here
from tests.support.polling import poll_blocking
from tests.support.processes import Process
from tests.support.rpc import running
from tests.support.user import User, user_at

if TYPE_CHECKING:
    import ssl

Headers = Sequence[tuple[str, str]]


class Reply(NamedTuple):
    """A response: status, headers by their lower-case names, and body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class RefusedError(Exception):
    """The server refused the upgrade to a WebSocket."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


async def refused_status(opening: AbstractAsyncContextManager[Any]) -> int:
    """Return the status with which the server refuses a WebSocket; 101 if it accepts it."""
    try:
        async with opening:
            return 101
    except RefusedError as error:
        return error.status


class Browser:
    """What a browser and the page in it would send: a cookie, a key, `Host` and `Origin`.

    `token` is the bearer token of an API client, which sends neither cookie nor `Origin`.
    """

    def __init__(self, origin: str, *, token: str | None = None) -> None:
        self.origin = origin
        self.host = urlsplit(origin).netloc
        self.key = secrets.token_urlsafe(32)
        self.cookie: str | None = None
        self.token = token
        self.tls: ssl.SSLContext | None = None

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers of each request: `Host`, and cookie and `Origin`, or the token."""
        found = [("Host", self.host)]
        if self.token is not None:
            return [*found, ("Authorization", f"Bearer {self.token}")]
        found.append(("Origin", self.origin))
        return found if self.cookie is None else [*found, ("Cookie", self.cookie)]

    async def connect(self) -> trio.abc.Stream:
        """Open a connection to the server."""
        parts = urlsplit(self.origin)
        assert parts.hostname is not None
        assert parts.port is not None
        stream = await trio.open_tcp_stream(parts.hostname, parts.port)
        if self.tls is None:
            return stream
        return trio.SSLStream(stream, self.tls, server_hostname=parts.hostname)

    async def request(
        self,
        path: str,
        body: Any = None,
        *,
        method: str | None = None,
        headers: Headers | None = None,
    ) -> Reply:
        """Send a request, by default POST if there is a `body`, which is JSON; return the reply.

        `headers` replace those of the browser. Keeps the cookie that the server sets.
        """
        data = b"" if body is None else json.dumps(body).encode()
        method = method or ("GET" if body is None else "POST")
        if headers is None:
            headers = [*self.headers, ("X-Acpterm-Key", self.key)]
        headers = [*headers, ("Connection", "close"), ("Content-Length", str(len(data)))]
        async with await self.connect() as stream:
            reply = await send_request(stream, method, path, headers, data)
        if cookie := reply.headers.get("set-cookie"):
            self.cookie = cookie.partition(";")[0]
        return reply

    async def log_in(self, url: str) -> Reply:
        """Log in by the URL of a link or a share, as the page does; return the reply."""
        return await self.request("/login", {"token": urlsplit(url).fragment, "key": self.key})

    @asynccontextmanager
    async def websocket(
        self, path: str, *, headers: Headers | None = None, protocols: Sequence[str] | None = None
    ) -> AsyncIterator["WebSocketClient"]:
        """Open a WebSocket; raise `RefusedError` if the server refuses it.

        `headers` and `protocols` replace those of the browser.
        """
        if protocols is None:
            protocols = [] if self.token else ["acpterm", f"acpterm.key.{self.key}"]
        headers = self.headers if headers is None else headers
        async with await self.connect() as stream:
            yield await WebSocketClient.open(stream, path, headers, protocols)

    @asynccontextmanager
    async def user(self, path: str = "/user") -> AsyncIterator[User]:
        """Connect a user over a WebSocket."""
        async with self.websocket(path) as websocket, running(User(websocket)) as user:
            yield user


async def send_request(
    stream: trio.abc.Stream, method: str, path: str, headers: Headers, body: bytes = b""
) -> Reply:
    """Send a request on `stream`; return the reply."""
    connection = h11.Connection(h11.CLIENT)
    request = h11.Request(method=method, target=path, headers=list(headers))
    data = connection.send(request) + connection.send(h11.Data(data=body))
    with trio.fail_after(DEADLINE_S):
        # If the request was refused before it was read, the reply says why.
        with suppress(trio.BrokenResourceError):
            await stream.send_all(data + connection.send(h11.EndOfMessage()))
        return await _receive_reply(stream, connection)


async def _receive_reply(stream: trio.abc.Stream, connection: h11.Connection) -> Reply:
    status, found, content = 0, {}, b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(1 << 16)))
        elif isinstance(event, h11.Response):
            status = event.status_code
            found = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            content += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            return Reply(status, found, content)


class WebSocketClient(trio.abc.Stream):
    """A WebSocket; as a stream, it has a line for each text frame."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.connection = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self.headers: dict[str, str] = {}
        """The headers of the response to the upgrade."""
        self.subprotocol: str | None = None
        self.close_code: int | None = None
        self._frames: deque[str] = deque()
        self._text = ""
        self._line = b""
        self._sending = trio.Lock()

    @classmethod
    async def open(
        cls, stream: trio.abc.Stream, path: str, headers: Headers, protocols: Sequence[str]
    ) -> "WebSocketClient":
        """Open a WebSocket on `stream`; raise `RefusedError` if the server refuses it."""
        self = cls(stream)
        host = next(value for name, value in headers if name == "Host")
        extra = [(name.encode(), value.encode()) for name, value in headers if name != "Host"]
        request = events.Request(
            host=host, target=path, extra_headers=extra, subprotocols=list(protocols)
        )
        with trio.fail_after(DEADLINE_S):
            await stream.send_all(self.connection.send(request))
            while not self.headers:
                await self._receive()
        return self

    async def receive_frame(self) -> str:
        """Receive the next text frame; raise EOFError once the WebSocket is closed."""
        with trio.fail_after(DEADLINE_S):
            while not self._frames:
                if self.close_code is not None:
                    raise EOFError(f"closed with the code {self.close_code}")
                await self._receive()
        return self._frames.popleft()

    async def receive_json(self) -> Any:
        """Receive the next text frame as JSON."""
        return json.loads(await self.receive_frame())

    async def wait_closed(self) -> int:
        """Receive until the WebSocket is closed; return the code, or 1006 if no code was sent."""
        with trio.fail_after(DEADLINE_S):
            while self.close_code is None:
                await self._receive()
        return self.close_code

    async def send_frame(self, text: str) -> None:
        """Send a text frame."""
        await self.send_event(events.TextMessage(data=text))

    async def send_json(self, value: Any) -> None:
        """Send JSON as a text frame."""
        await self.send_frame(json.dumps(value))

    async def send_event(self, event: events.Event) -> None:
        """Send any event of wsproto."""
        async with self._sending:
            await self.stream.send_all(self.connection.send(event))

    async def _receive(self) -> None:
        try:
            data = bytes(await self.stream.receive_some(1 << 16))
        except trio.BrokenResourceError:
            data = b""
        self.connection.receive_data(data or None)
        for event in self.connection.events():
            if isinstance(event, events.AcceptConnection):
                self.headers = {
                    name.decode().lower(): value.decode() for name, value in event.extra_headers
                } or {"": ""}
                self.subprotocol = event.subprotocol
            elif isinstance(event, events.RejectConnection):
                raise RefusedError(event.status_code)
            elif isinstance(event, events.TextMessage):
                self._text += event.data
                if event.message_finished:
                    self._frames.append(self._text)
                    self._text = ""
            elif isinstance(event, events.Ping):
                await self.send_event(event.response())
            elif isinstance(event, events.CloseConnection):
                self.close_code = event.code
        if not data and self.close_code is None:
            self.close_code = 1006

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if not self._line:
            try:
                self._line = (await self._next_frame()).encode() + b"\n"
            except EOFError:
                return b""
        part, self._line = self._line[:max_bytes], self._line[max_bytes or len(self._line) :]
        return part

    async def _next_frame(self) -> str:
        while not self._frames:
            if self.close_code is not None:
                raise EOFError
            await self._receive()
        return self._frames.popleft()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        for line in bytes(data).splitlines():
            await self.send_frame(line.decode())

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self.stream.aclose()


class Web:
    """An HTTP server, with methods that return clients with different rights."""

    def __init__(self, origin: str, token_file: Path, agent_token: str) -> None:
        self.origin = origin
        self.token_file = token_file
        self.agent_token = agent_token

    async def link(self) -> str:
        """Return the URL of a new link, by which a browser logs in as the user."""
        raise NotImplementedError

    async def browser(self) -> Browser:
        """Return a browser that is logged in as the user."""
        browser = self.stranger()
        reply = await browser.log_in(await self.link())
        assert reply.status == 200, reply
        return browser

    def stranger(self) -> Browser:
        """Return a browser that is not logged in."""
        return Browser(self.origin)

    def api_client(self) -> Browser:
        """Return a client with the user's bearer token."""
        return Browser(self.origin, token=self.token_file.read_text().strip())

    def agent(self) -> Browser:
        """Return an agent, with its bearer token."""
        return Browser(self.origin, token=self.agent_token)


class WebDaemon(Web):
    """The HTTP server of a daemon."""

    def __init__(self, running: Daemon, status: Any, agent_token: str) -> None:
        super().__init__(status["origin"], Path(status["tokenFile"]), agent_token)
        self.daemon = running

    async def link(self) -> str:
        async with user_at(self.daemon.user_path) as user:
            return str((await user.request("web/open"))["url"])


@asynccontextmanager
async def web_daemon(directory: Path, *arguments: str, **options: Any) -> AsyncIterator[WebDaemon]:
    """Run a daemon with an HTTP server on a free port; the options are those of `daemon`."""
    async with daemon(directory, "--http", "127.0.0.1:0", *arguments, **options) as running:
        status = await web_listens(running)
        async with user_at(running.user_path) as user:
            made = await user.request("token/create", {"name": "agent"})
        yield WebDaemon(running, status, made["token"])


def shared_web(shared: BlockingDaemon) -> WebDaemon:
    """Return the HTTP server of a daemon that was started with `ACPTERM_HTTP`."""
    poll_blocking(lambda: shared.request("web/status")["address"])
    token = shared.request("token/create", name=f"agent-{secrets.token_hex(4)}")["token"]
    running = Daemon(Process(shared.process, shared.directory / "log"), shared.socket)
    return WebDaemon(running, shared.request("web/status"), token)


async def web_listens(running: Daemon) -> Any:
    """Wait until the HTTP server listens; return the result of `_acpterm/web/status`."""
    with trio.fail_after(DEADLINE_S):
        while (found := await web_status(running))["address"] is None:
            assert found["error"] is None, found
            await trio.sleep(0.01)
    return found


async def web_status(running: Daemon) -> Any:
    """Return the result of `_acpterm/web/status`."""
    async with user_at(running.user_path) as user:
        return await user.request("web/status")


class WebHere(Web):
    """An HTTP server in this process."""

    def __init__(
        self,
        host: Host,
        endpoint: HttpEndpoint,
        access: AccessStore,
        file: AccessFile,
        server: HttpServer,
    ) -> None:
        super().__init__(endpoint.origin, Path(file.token_path), access.new_token("agent"))
        self.host = host
        self.endpoint = endpoint
        self.access = access
        self.server = server

    async def link(self) -> str:
        return f"{self.origin}/login#{self.access.new_link()}"

    async def guest(self, terminal_id: str, *, write: bool = False) -> Browser:
        """Return a browser that is logged in to a share."""
        _, token = self.access.new_share(terminal_id, write=write, lifetime_s=3600)
        browser = self.stranger()
        assert (await browser.log_in(f"{self.origin}/share#{token}")).status == 200
        return browser


@asynccontextmanager
async def web_here(
    directory: Path,
    *,
    clock: Callable[[], float] = time.time,
    routes: Sequence[BaseRoute] = (),
    page: str = PAGE_DIRECTORY,
    **settings: Any,
) -> AsyncIterator[WebHere]:
    """Run a host and its HTTP server in this process; the server's files are in `directory`.

    `routes` are added to those of the application, behind the same checks. `page` is the directory
    of the page's files.
    """
    async with host_here(**settings) as host, trio.open_nursery() as nursery:
        endpoint = HttpEndpoint(bind(HttpAddress("127.0.0.1", 0)), host.settings)
        file = AccessFile(str(directory / "web"))
        access = AccessStore(file, clock)
        app = make_app(host, endpoint, access, page)
        app.router.routes.extend(routes)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(endpoint.socket))
        server = HttpServer(app, host.settings.max_message_bytes, None)
        nursery.start_soon(server.run, listener)
        async with listener:
            yield WebHere(host, endpoint, access, file, server)
            nursery.cancel_scope.cancel()
