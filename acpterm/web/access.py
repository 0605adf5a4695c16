"""Who may use the HTTP server: one-use links, logins, shares and the bearer token.

A *link* logs one browser in, once, within `LINK_LIFETIME_S`. A *share* lets any number of browsers
use one terminal until it expires or is revoked. Both are tokens, which a browser exchanges for a
*login*: a cookie, and a key that the page has made. A cookie is sent to every port of a host, so
another server on this machine could see it; the key is not, so it takes both to use a login.

State: the records, which `AccessFile` writes before any secret is handed out or given up, so that a
worker that dies forgets nothing; and the cancel scopes of the connections that use each access,
which are cancelled when the access ends. Expiry needs no write: what has expired is dropped when it
is read. If a write fails, because the disk is full for example, then what was revoked has ended all
the same: it is written over the old records, and if that fails too, `maintain` writes later.

Only SHA-256 hashes of secrets are stored, except of the bearer token, which is in a file of its own
for the user's programs. Secrets are 256 random bits, so that a plain hash is enough, and are
compared in constant time.

The file is long because the records and the connections that end with them change together.
"""

import hashlib
import hmac
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, TypeVar

import structlog
import trio

from acpterm.web.access_file import (
    AccessFile,
    AccessFileError,
    LinkRecord,
    LoginRecord,
    ShareRecord,
)

LINK_LIFETIME_S: Final = 600.0
LOGIN_LIFETIME_S: Final = 30 * 86400.0
KEY_LENGTHS: Final = range(32, 129)
"""How many characters a page's key may have."""
SHARES_MAX: Final = 64
# The oldest are dropped when there are more: of the logins of the user, and of those of each share,
# so that the users of a share cannot end the user's logins. Of a share's, those with an open
# WebSocket stay, so that no visitor can end the others: there are fewer of these than logins.
_LINKS_MAX: Final = 32
_LOGINS_MAX: Final = 32
# The system may have been suspended, in which time trio's clock may have stopped.
_EXPIRY_PERIOD_S: Final = 30.0
SHARE_CONNECTIONS_MAX: Final = 16
"""How many WebSockets may use one share: they must leave room for the user's."""

_log = structlog.get_logger("acpterm.web")

R = TypeVar("R", LinkRecord, LoginRecord, ShareRecord)


class Access(NamedTuple):
    """What a request may use: everything, as the user, or only the terminal of a share."""

    login: str | None
    """The id of the login; None with the bearer token."""
    share: ShareRecord | None = None
    """The share that the login is restricted to; None for the user."""
    ends_at: float | None = None
    """When the login or its share expires, in seconds since 1970; None for the bearer token."""

    is_agent: bool = False
    """Whether it is that of the agents' token, which can do nothing as the user."""

    @property
    def is_bearer(self) -> bool:
        """Whether the request had a bearer token."""
        return self.login is None


class Login(NamedTuple):
    """A new login: the value of its cookie, its lifetime in seconds, and what it may use."""

    cookie: str
    lifetime_s: float
    access: Access


class TooManySharesError(Exception):
    """There are as many shares as there may be."""


class AccessStore:
    """All links, logins and shares of one daemon, and its bearer token.

    `clock` returns the seconds since 1970.
    """

    def __init__(self, file: AccessFile, clock: Callable[[], float] = time.time) -> None:
        self._file: Final = file
        self._clock: Final = clock
        self._records: Final = file.read()
        self._bearer_hash: Final = _hash(file.bearer_token())
        self._agent_hash: Final = _hash(file.agent_token())
        self._scopes: Final[defaultdict[str, set[trio.CancelScope]]] = defaultdict(set)
        self._is_unwritten = False
        self._unwritten_shares: Final[set[str]] = set()
        self._drop_expired()

    @property
    def revoked_shares(self) -> set[str]:
        """The ids of shares that have ended here, but are still in the file."""
        return set(self._unwritten_shares)

    @property
    def shares(self) -> list[ShareRecord]:
        """The shares that have not expired, oldest first."""
        self._drop_expired()
        return list(self._records.shares)

    @property
    def last_address(self) -> str | None:
        """The address that the server listened on last."""
        return self._records.address

    def set_last_address(self, address: str) -> None:
        """Store the address that the server listens on."""
        if self._records.address != address:
            self._records.address = address
            self._write()

    def new_link(self) -> str:
        """Return the token of a new link."""
        self._drop_expired()
        token = secrets.token_urlsafe(32)
        links = self._records.links
        links.append(LinkRecord(hash=_hash(token), ends_at=self._clock() + LINK_LIFETIME_S))
        del links[:-_LINKS_MAX]
        try:
            self._write()
        except BaseException:
            links.pop()
            raise
        return token

    def new_share(
        self, terminal_id: str, *, write: bool, lifetime_s: float
    ) -> tuple[ShareRecord, str]:
        """Create a share of a terminal; return the share and its token.

        Raises `TooManySharesError`.
        """
        self._drop_expired()
        if len(self._records.shares) >= SHARES_MAX:
            raise TooManySharesError
        token = secrets.token_urlsafe(32)
        now = self._clock()
        share = ShareRecord(
            id=f"share-{secrets.token_hex(4)}",
            hash=_hash(token),
            ends_at=now + lifetime_s,
            terminal_id=terminal_id,
            write=write,
            created_at=now,
        )
        self._records.shares.append(share)
        try:
            self._write()
        except BaseException:
            self._records.shares.remove(share)
            raise
        return share, token

    def revoke_share(self, identifier: str) -> bool:
        """End a share and its logins; close their connections. Return whether there was one.

        A share that has ended, but is still in the file, is removed from it. Raises
        `AccessFileError` if that fails; the share has ended all the same.
        """
        self._drop_expired()
        shares = [one for one in self._records.shares if one.id == identifier]
        self._end(shares)
        self._unwritten_shares.update(one.id for one in shares)
        if identifier not in self._unwritten_shares:
            return False
        self._write_end()
        return True

    def exchange(self, token: str, key: str) -> Login | None:
        """Log a browser in with the token of a link or a share; return None if it is not valid.

        `key` is the page's key. A link is used up, even if the browser never gets the cookie.
        Raises `AccessFileError` if the login cannot be stored: then there is none.
        """
        self._drop_expired()
        link = _find(self._records.links, token)
        share = _find(self._records.shares, token)
        if (link is None and share is None) or len(key) not in KEY_LENGTHS:
            return None
        if link is not None:
            self._records.links.remove(link)
        cookie = secrets.token_urlsafe(32)
        ends_at = self._clock() + LOGIN_LIFETIME_S
        if share is not None:
            self._make_room(share, key)
        login = LoginRecord(
            id=secrets.token_hex(8),
            hash=_hash(cookie),
            key_hash=_hash(key),
            ends_at=ends_at if share is None else min(ends_at, share.ends_at),
            share=None if share is None else share.id,
        )
        self._records.logins.append(login)
        if share is None:
            users = [one for one in self._records.logins if one.share is None]
            self._drop_logins(users[:-_LOGINS_MAX])
        try:
            self._write()
        except BaseException:
            self._records.logins.remove(login)
            if link is not None:
                with suppress(AccessFileError):
                    self._write_end()
            raise
        return Login(cookie, login.ends_at - self._clock(), Access(login.id, share, login.ends_at))

    def _make_room(self, share: ShareRecord, key: str) -> None:
        """Drop the login of a page that logs in again with a share, or one that is not used."""
        logins = [one for one in self._records.logins if one.share == share.id]
        unused = [one for one in logins if one.id not in self._scopes]
        again = [one for one in unused if hmac.compare_digest(one.key_hash, _hash(key))]
        room = _LOGINS_MAX - 1 + len(again)
        surplus = max(0, len(logins) - room)
        self._drop_logins([*again, *[one for one in unused if one not in again][:surplus]])

    def of_cookie(self, cookie: str, key: str) -> Access | None:
        """Return what the login with this cookie and key may use; None if there is none."""
        self._drop_expired()
        login = _find(self._records.logins, cookie)
        if login is None or not hmac.compare_digest(login.key_hash, _hash(key)):
            return None
        share = next((one for one in self._records.shares if one.id == login.share), None)
        return Access(login.id, share, login.ends_at)

    def of_bearer(self, token: str) -> Access | None:
        """Return the access of a bearer token, the user's or the agents'; None if it is neither."""
        found = _hash(token)
        is_users = hmac.compare_digest(found, self._bearer_hash)
        is_agents = hmac.compare_digest(found, self._agent_hash)
        return Access(None, is_agent=not is_users) if is_users or is_agents else None

    def connections_of(self, share: str) -> int:
        """Return how many WebSockets use the share with this id now."""
        logins = (one.id for one in self._records.logins if one.share == share)
        return sum(len(self._scopes.get(login, ())) for login in logins)

    def log_out(self, access: Access) -> None:
        """End a login and close its connections.

        Raises `AccessFileError` if that cannot be stored; the login has ended all the same.
        """
        self._drop_logins([one for one in self._records.logins if one.id == access.login])
        self._write_end()

    def end_shares(self, is_ended: Callable[[ShareRecord], bool]) -> list[ShareRecord]:
        """End the shares of terminals that are removed, and return these shares."""
        ended = [one for one in self.shares if is_ended(one)]
        for share in ended:
            try:
                self.revoke_share(share.id)
            except AccessFileError as error:
                _log.error("the end of a share cannot be stored", share=share.id, why=str(error))
        return ended

    @contextmanager
    def cancelling(self, access: Access) -> Iterator[trio.CancelScope]:
        """Cancel the block when `access` ends: a logout, a revoked share, or expiry."""
        scope = trio.CancelScope()
        if access.login is None or access.ends_at is None:
            with scope:
                yield scope
            return
        scope.deadline = trio.current_time() + access.ends_at - self._clock()
        scopes = self._scopes[access.login]
        scopes.add(scope)
        if all(one.id != access.login for one in self._records.logins):
            # It has ended since the request was checked.
            scope.cancel()
        try:
            with scope:
                yield scope
        finally:
            scopes.discard(scope)
            if not scopes:
                self._scopes.pop(access.login, None)

    async def maintain(self) -> None:
        """End what has expired, and repeat a write that has failed, until cancelled."""
        try:
            while True:
                await trio.sleep(_EXPIRY_PERIOD_S)
                self._drop_expired()
                self._repeat_write()
        finally:
            self._repeat_write()

    def _repeat_write(self) -> None:
        if self._is_unwritten:
            try:
                self._write_end()
            except AccessFileError as error:
                _log.error("what has ended may be valid for the next worker", why=str(error))

    def _write(self) -> None:
        """Store the records. Raises `AccessFileError`."""
        self._is_unwritten = True
        self._file.write(self._records)
        self._set_written()

    def _write_end(self) -> None:
        """Store the records after something has ended, also on a full disk if possible."""
        try:
            self._write()
        except AccessFileError:
            self._file.overwrite(self._records)
            self._set_written()

    def _set_written(self) -> None:
        self._is_unwritten = False
        self._unwritten_shares.clear()

    def _drop_expired(self) -> None:
        now, records = self._clock(), self._records
        self._end([one for one in records.shares if one.ends_at <= now])
        self._drop_logins([one for one in records.logins if one.ends_at <= now])
        records.links[:] = [one for one in records.links if one.ends_at > now]

    def _end(self, shares: Iterable[ShareRecord]) -> None:
        ended = {one.id for one in shares}
        records = self._records
        records.shares[:] = [one for one in records.shares if one.id not in ended]
        self._drop_logins([one for one in records.logins if one.share in ended])

    def _drop_logins(self, logins: Iterable[LoginRecord]) -> None:
        for login in list(logins):
            self._records.logins.remove(login)
            for scope in self._scopes.pop(login.id, set()):
                scope.cancel()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _find(records: Iterable[R], secret: str) -> R | None:
    """Return the record with this secret; compare it with each, so that time reveals nothing."""
    wanted, found = _hash(secret), None
    for record in records:
        if hmac.compare_digest(record.hash, wanted):
            found = record
    return found
