"""What the tests of attacks on the HTTP server share: a daemon for a module, and raw requests."""

import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio

from tests.support.depth import DEADLINE_S
from tests.support.user import User, user_at
from tests.support.web import Browser, Headers, Web, WebDaemon, refused_status, web_daemon

WEBSOCKETS = ("/user", "/ws", "/acp")
POSTS = ("/login", "/logout", "/access", "/pty/spawn", "/mcp", "/mcp/pool")
PAGES = ("/", "/login", "/share")
FOR_PROGRAMS = ("/acp", "/mcp", "/mcp/pool")
"""The paths that need the bearer token."""


@asynccontextmanager
async def owner_of(web: WebDaemon) -> AsyncIterator[User]:
    """Connect to the user's Unix socket during the block; at its end, end all terminals."""
    async with user_at(web.daemon.user_path) as user:
        yield user
        for terminal in await user.list():
            await user.terminal_request("release", terminal["terminalId"])


async def create(owner: User, command: str = "cat", **more: object) -> str:
    """Create a terminal of the user; return its id."""
    created = await owner.request("terminal/create", {"command": command, **more})
    return str(created["terminalId"])


@contextmanager
def daemon_in_a_thread(directory: Path, **settings: object) -> Iterator[WebDaemon]:
    """Run a daemon with an HTTP server for tests that each run their own event loop."""
    found: list[WebDaemon] = []
    failures: list[BaseException] = []
    stops: list[Callable[[], None]] = []
    has_started = threading.Event()

    async def serve() -> None:
        async with web_daemon(directory, settings=settings) as web:
            ended = trio.Event()
            token = trio.lowlevel.current_trio_token()
            stops.append(lambda: token.run_sync_soon(ended.set))
            found.append(web)
            has_started.set()
            await ended.wait()

    def run() -> None:
        try:
            trio.run(serve)
        except BaseException as error:  # noqa: BLE001  the test raises it
            failures.append(error)
            has_started.set()

    thread = threading.Thread(target=run)
    thread.start()
    has_started.wait()
    try:
        if failures:
            raise failures[0]
        yield found[0]
    finally:
        for stop in stops:
            stop()
        thread.join()
    if failures:
        raise failures[0]


def with_key(browser: Browser) -> list[tuple[str, str]]:
    """Return the headers that `browser` sends with an HTTP request, including that of its key."""
    return [*browser.headers, ("X-Acpterm-Key", browser.key)]


def without(headers: Headers, *names: str) -> list[tuple[str, str]]:
    """Return `headers` without those that are named `names`."""
    return [header for header in headers if header[0] not in names]


def replaced(headers: Headers, name: str, value: str | None) -> list[tuple[str, str]]:
    """Return `headers` with the value of `name` replaced, or without `name` if `value` is None."""
    return [*without(headers, name), *([] if value is None else [(name, value)])]


async def statuses(
    browser: Browser, headers: Headers, paths: Iterable[str] = (*WEBSOCKETS, *POSTS)
) -> dict[str, int]:
    """Send a request to each of `paths` with exactly these headers; return the statuses by path."""
    found = {}
    for path in paths:
        if path in WEBSOCKETS:
            protocols = [] if browser.token else ["acpterm", f"acpterm.key.{browser.key}"]
            opening = browser.websocket(path, headers=headers, protocols=protocols)
            found[path] = await refused_status(opening)
        else:
            found[path] = (await browser.request(path, {}, headers=headers)).status
    return found


async def raw_status(browser: Browser, *lines: str, body: bytes = b"") -> int:
    """Send a request with these lines as head; return the status, or 0 if there is no response."""
    head = "".join(f"{line}\r\n" for line in (*lines, "Connection: close", "")).encode()
    with trio.fail_after(DEADLINE_S):
        async with await browser.connect() as stream:
            try:
                await stream.send_all(head + body)
                reply = b""
                while b"\r\n" not in reply and (data := await stream.receive_some()):
                    reply += data
            except trio.BrokenResourceError:
                return 0
    return int(reply.split()[1]) if reply else 0


async def accesses(web: Web) -> Sequence[tuple[Browser, list[tuple[str, str]]]]:
    """Return a browser that is logged in, and a program with the user's token.

    Each is in a pair with the headers that it sends.
    """
    browser, client = await web.browser(), web.api_client()
    return [(browser, with_key(browser)), (client, client.headers)]


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def cpu_seconds(pid: int) -> float:
    """Return the seconds for which the main thread of a process was on a processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
