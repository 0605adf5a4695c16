"""The HTTP server of a daemon as a service: when it starts, and what later workers take over.

States: *off* and *listening*. The server starts to listen when the worker starts, if the setting
`http` is set or the previous worker listened; otherwise on `open` or `new_share`. It stops when the
daemon ends, or if it fails: then `status` returns the error, and `open` starts it again. An error
of the server does not end the worker.

The listening socket is in the keeper's store, like the daemon's other listening sockets: a browser
that connects while no worker runs waits for the next worker. The next worker closes the socket if
the setting `http` has changed.

As certificate and key (`http_certificate`, `http_key`), FIFOs and keys with a pass phrase are
refused: OpenSSL would wait for a FIFO, and ask for a pass phrase at the terminal.
"""

import errno
import importlib
import os
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, NoReturn, TypeVar

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
from acpterm.runtime.extras import WEB, how_to_install
from acpterm.web.access import AccessStore, TokenError, TooManySharesError
from acpterm.web.access_file import AccessFile, AccessFileError, ShareRecord
from acpterm.web.endpoint import HttpEndpoint, bind

T = TypeVar("T")

_log = structlog.get_logger("acpterm.web")

_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_KEY: Final = b"PRIVATE KEY-----"
# OpenSSL's errors if the key does not belong to the certificate, or is of another type.
_OTHER_KEY: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")

_ANY_PORT: Final = HttpAddress("127.0.0.1", 0)


class HttpStartError(Exception):
    """The server cannot listen; the message says why, and what to do."""


def import_packages() -> None:
    """Import what the extra `web` installs. Raises `HttpStartError` if a package is missing."""
    try:
        importlib.import_module("acpterm.web.app")
        importlib.import_module("acpterm.web.server")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "acpterm":
            raise
        raise HttpStartError(
            f"it needs more packages ({error.name} is missing): {how_to_install(WEB)}"
        ) from error


def listening_socket(
    settings: Settings, wanted: HttpAddress | None, last: str | None
) -> socket.socket:
    """Return a socket that listens on `wanted`, or else on the setting `http`.

    Without both, it listens on `last`, or if that is forbidden or refused, on a free port. Raises
    `ValueError` if the settings forbid the address, `HttpStartError` if the system refuses it.
    """
    chosen = wanted
    if chosen is None and settings.http is not None:
        chosen = parse_address(settings.http)
    if chosen is not None:
        check_exposure(settings, chosen)
        return _listen(chosen)
    try:
        address = parse_address(last or str(_ANY_PORT))
        check_exposure(settings, address)
        return _listen(address)
    except (ValueError, HttpStartError):
        return _listen(_ANY_PORT)


def _listen(address: HttpAddress) -> socket.socket:
    try:
        return bind(address)
    except OSError as error:
        advice = ": choose another port" if error.errno == errno.EADDRINUSE else ""
        raise HttpStartError(f"cannot listen on {address}: {error.strerror}{advice}") from error


class TlsError(Exception):
    """A certificate or a key cannot be used; the message names the setting, and says why."""


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the context with the certificate of the settings, if any, or raise `TlsError`."""
    certificate, key = settings.http_certificate, settings.http_key
    if certificate is None or key is None:
        return None
    _check("http_certificate", certificate, _CERTIFICATE, "certificate")
    _check("http_key", key, _KEY, "private key")

    def refuse() -> NoReturn:
        raise TlsError(
            f"http_key {key} has a pass phrase, which the daemon cannot ask for: store the key "
            "without one (openssl pkey -in KEY -out NEW)"
        )

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=refuse)
    except ssl.SSLError as error:
        if error.reason in _OTHER_KEY:
            raise TlsError(
                f"http_key {key} is not the key of http_certificate {certificate}"
            ) from error
        raise TlsError(f"http_certificate {certificate}, http_key {key}: {error}") from error
    except OSError as error:
        raise TlsError(
            f"http_certificate {certificate}, http_key {key}: {error.strerror or error}"
        ) from error
    return context


def _check(setting: str, path: str, marker: bytes, content: str) -> None:
    """Raise `TlsError` unless the file at `path` is a regular file that contains `marker`."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise TlsError(f"{setting} {path}: it is not a file")
        with open(path, "rb") as file:
            found = file.read()
    except OSError as error:
        raise TlsError(f"{setting} {path}: {error.strerror}") from error
    if marker not in found:
        raise TlsError(f"{setting} {path}: there is no {content} in PEM format in it")


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
