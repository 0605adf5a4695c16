"""The HTTP server of a daemon as a service: when it starts, and what later workers take over.

States: *off* and *listening*. The server starts to listen when the worker starts, if the setting
`http` is set or the previous worker listened; otherwise on `open` or `new_share`. It stops when the
daemon ends, or if it fails: then `status` returns the error, and `open` starts it again. An error
of the server does not end the worker.

The listening socket is in the keeper's store, like the daemon's other listening sockets: a browser
that connects while no worker runs waits for the next worker. The next worker closes the socket if
the setting `http` has changed.
"""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

import structlog
import trio

from acpterm.acp.web_api import WebOpenResponse, WebStatusResponse
from acpterm.config import Settings, agent_socket, web_dir
from acpterm.config.http import HttpAddress, check_exposure, parse_address
from acpterm.host.host import Host
from acpterm.host.state.records import HttpRecord, StateError
from acpterm.host.state.store import HTTP_KEY, StoredEntry
from acpterm.host.web_interface import Share, Token
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError, quote
from acpterm.web.access import AccessStore, TokenError, TooManySharesError
from acpterm.web.access_file import AccessFile, AccessFileError, ShareRecord
from acpterm.web.endpoint import HttpEndpoint
from acpterm.web.start import HttpStartError, import_packages, listening_socket
from acpterm.web.tls import TlsError, tls_context

T = TypeVar("T")

_log = structlog.get_logger("acpterm.web")


class _Running(NamedTuple):
    """The host, and the nursery of the server's task: what exists while `run` runs."""

    host: Host
    nursery: trio.Nursery


class WebService:
    """The HTTP server of a daemon. Implements `host.web_interface.WebInterface`."""

    def __init__(self, settings: Settings) -> None:
        self._settings: Final = settings
        self._directory: Final = web_dir(agent_socket(settings))
        self._file: Final = AccessFile(self._directory)
        self._restored: socket.socket | None = None
        self._is_outdated = False
        self._running: _Running | None = None
        self._access: AccessStore | None = None
        self._endpoint: HttpEndpoint | None = None
        self._error: str | None = None
        self._starting: Final = trio.Lock()

    @property
    def private_paths(self) -> list[str]:
        """The paths of the server's files, which programs in a sandbox must not reach."""
        return [self._directory]

    def restore(self, entry: StoredEntry | None) -> None:
        """Take over the previous worker's socket, unless the setting `http` has changed."""
        if entry is None or not entry.fds:
            return
        sock = socket.socket(fileno=entry.fds[0])
        try:
            record = HttpRecord.decode(entry.value)
        except StateError as error:
            _log.error("the HTTP server's socket is lost", why=str(error))
            record = None
        if record is not None and record.setting == self._settings.http:
            self._restored = sock
        else:
            sock.close()
            self._is_outdated = True

    async def run(self, host: Host) -> None:
        """Run the HTTP server of the daemon until cancelled; it may start to listen later."""
        async with trio.open_nursery() as nursery:
            self._running = _Running(host, nursery)
            if self._is_outdated:
                host.keeper.delete(HTTP_KEY)
            if self._restored is not None or self._settings.http is not None:
                try:
                    async with self._starting:
                        await self._start(self._running, None)
                except HttpStartError as error:
                    _log.error("the HTTP server does not listen", why=str(error))
            await trio.sleep_forever()

    async def open(self, address: str | None) -> WebOpenResponse:
        """Start to listen if the server does not listen yet; return a new link, or `RpcError`."""
        try:
            wanted = None if address is None else parse_address(address)
        except ValueError as error:
            raise RpcError(INVALID_PARAMS, f"address {quote(str(address))} {error}") from error
        endpoint, token = await self._listening(wanted, AccessStore.new_link)
        if wanted is not None and not _is_same(wanted, endpoint.address):
            raise RpcError(
                INVALID_PARAMS,
                f"the HTTP server listens on {endpoint.address} already, not on {wanted}: leave "
                "the address out, or change the setting http and run acpterm restart",
            )
        return WebOpenResponse(f"{endpoint.origin}/login#{token}", str(endpoint.address))

    async def new_share(
        self, terminal_id: str, *, write: bool, lifetime_s: float
    ) -> tuple[Share, str]:
        """Start to listen if the server does not listen yet; return a share and its link."""
        try:
            endpoint, (record, token) = await self._listening(
                None,
                lambda access: access.new_share(terminal_id, write=write, lifetime_s=lifetime_s),
            )
        except TooManySharesError as error:
            raise RpcError(
                INVALID_PARAMS, "there are too many shares: revoke some (acpterm unshare)"
            ) from error
        return _share(record, 0), f"{endpoint.origin}/share#{token}"

    def shares(self) -> list[Share]:
        """Return the shares that are valid, oldest first, or raise `RpcError`."""
        with _failing():
            access = self._store()
            return [_share(one, access.connections_of(one.id)) for one in access.shares]

    def revoke_share(self, identifier: str) -> None:
        """End a share, even if `RpcError` is raised: its end may be unstored."""
        try:
            self._store().revoke_share(identifier)
        except AccessFileError as error:
            raise RpcError(
                INTERNAL_ERROR,
                f"{identifier} has ended, but may be valid again after acpterm restart: {error}; "
                "try again",
            ) from error

    def end_shares_of(self, terminal_id: str) -> None:
        """End the shares of a terminal that was removed. Raises no error."""
        self._end_shares(lambda share: share.terminal_id == terminal_id)

    def revoked_shares(self) -> set[str]:
        """Return the ids of shares that have ended, but whose end is not stored yet."""
        with _failing():
            return self._store().revoked_shares

    def new_token(self, name: str) -> str:
        with _failing():
            try:
                return self._store().new_token(name)
            except TokenError as error:
                raise RpcError(INVALID_PARAMS, str(error)) from error

    def tokens(self) -> list[Token]:
        with _failing():
            return [Token(one.name, one.created_at) for one in self._store().tokens]

    def remove_token(self, name: str) -> bool:
        with _failing():
            return self._store().remove_token(name)

    async def _listening(
        self, wanted: HttpAddress | None, make: Callable[[AccessStore], T]
    ) -> tuple[HttpEndpoint, T]:
        """Make sure that the server listens; return its endpoint and `make`'s result."""
        if self._running is None:
            raise RpcError(INTERNAL_ERROR, "the daemon is starting: try again")
        async with self._starting:
            with _failing():
                endpoint = self._endpoint or await self._start(self._running, wanted)
                return endpoint, make(self._store())

    def status(self) -> WebStatusResponse:
        endpoint = self._endpoint
        return WebStatusResponse(
            address=None if endpoint is None else str(endpoint.address),
            origin=None if endpoint is None else endpoint.origin,
            error=self._error,
            token_file=None if self._access is None else self._file.token_path,
        )

    def _store(self) -> AccessStore:
        if self._access is None:
            self._access = AccessStore(self._file)
            if self._running is not None:
                registry = self._running.host.terminals.registry
                self._end_shares(lambda share: registry.get(share.terminal_id) is None)
        return self._access

    def _end_shares(self, is_ended: Callable[[ShareRecord], bool]) -> None:
        if self._access is not None and self._running is not None:
            for share in self._access.end_shares(is_ended):
                self._running.host.guard.trail.record(
                    "unshare", share=share.id, reason="its terminal was removed"
                )

    async def _start(self, running: _Running, wanted: HttpAddress | None) -> HttpEndpoint:
        """Listen at `wanted`, and start to serve. Raises `HttpStartError`; `status` has it, too."""
        sock, self._restored = self._restored, None
        try:
            # Importing takes some 300 ms: too long to block the event loop.
            await trio.to_thread.run_sync(import_packages)
            tls = await trio.to_thread.run_sync(tls_context, self._settings)
            access = self._store()
            sock = sock or listening_socket(self._settings, wanted, access.last_address)
            endpoint = HttpEndpoint(sock, self._settings)
            check_exposure(self._settings, endpoint.address)
            access.set_last_address(str(endpoint.address))
        except (OSError, AccessFileError, ValueError, HttpStartError, TlsError) as error:
            if sock is not None:
                sock.close()
            running.host.keeper.delete(HTTP_KEY)
            self._error = str(error)
            raise HttpStartError(self._error) from error
        record = HttpRecord(setting=self._settings.http)
        running.host.keeper.put(HTTP_KEY, record.encode(), (sock.fileno(),))
        self._error, self._endpoint = None, endpoint
        running.nursery.start_soon(self._serve, running.host, endpoint, access, tls)
        _log.info("the HTTP server listens", address=str(endpoint.address))
        if not endpoint.address.is_loopback:
            _log.warning("other machines can reach the HTTP server", address=str(endpoint.address))
        return endpoint

    async def _serve(
        self, host: Host, endpoint: HttpEndpoint, access: AccessStore, tls: ssl.SSLContext | None
    ) -> None:
        # These modules need the extra `web`.
        from acpterm.web.app import make_app  # noqa: PLC0415
        from acpterm.web.server import HttpServer  # noqa: PLC0415

        try:
            app = make_app(host, endpoint, access)
            server = HttpServer(app, self._settings.max_message_bytes, tls)
            async with app.router.lifespan_context(app), trio.open_nursery() as nursery:
                nursery.start_soon(access.maintain)
                await server.run(
                    trio.SocketListener(trio.socket.from_stdlib_socket(endpoint.socket))
                )
        except Exception as error:  # noqa: BLE001  the worker must not end with it
            _log.error("the HTTP server failed", exc_info=error)
            self._error = f"the HTTP server failed: {type(error).__name__}: {error}"
            host.keeper.delete(HTTP_KEY)
        finally:
            self._endpoint = None
            endpoint.socket.close()


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except HttpStartError as error:
        raise RpcError(INTERNAL_ERROR, f"no HTTP server: {error}") from error
    except AccessFileError as error:
        raise RpcError(INTERNAL_ERROR, str(error)) from error


def _share(record: ShareRecord, connections: int) -> Share:
    return Share(
        id=record.id,
        terminal_id=record.terminal_id,
        write=record.write,
        created_at=record.created_at,
        ends_at=record.ends_at,
        connections=connections,
    )


def _is_same(wanted: HttpAddress, found: HttpAddress) -> bool:
    return wanted.host == found.host and wanted.port in (0, found.port)
