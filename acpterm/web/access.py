"""Who may use the HTTP server: one-use links, logins, shares and the bearer tokens.

A *link* logs one browser in, once, within `LINK_LIFETIME_S`. A *share* lets any number of browsers
use one terminal until it expires or is revoked. Both are tokens, which a browser exchanges for a
*login*: a cookie, and a key that the page has made. Browsers send a cookie to every port of a
host, so another server on this machine could see it. The page sends the key only to this server.
A request uses a login only if it has both.

State:

- the records. `AccessFile` stores each change before the response to it is sent, so that the next
  worker knows it. When a record expires, nothing is stored: the next use of the records drops it.
- the cancel scopes of the connections that use each login. They are cancelled when the login ends.

If a write fails, for example because the disk is full, a new link, share or login is not created. A
share or login that was ended stays ended: the records are written over the old file, and if that
fails too, `maintain` repeats the write.

Only SHA-256 hashes of secrets are stored, except of the user's bearer token, which is in a file of
its own for the user's programs. Each agent has a bearer token of its own. Secrets are 256 random
bits, so that a plain hash is enough, and are compared in constant time.
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
    TokenRecord,
)

LINK_LIFETIME_S: Final = 600.0
LOGIN_LIFETIME_S: Final = 30 * 86400.0
KEY_LENGTHS: Final = range(32, 129)
"""How many characters a page's key may have."""
SHARES_MAX: Final = 64
TOKENS_MAX: Final = 256
# Over these limits, the oldest links and logins are dropped. The limit of logins applies to the
# user, and separately to each share, so that visitors cannot end the user's logins. A share's login
# with an open WebSocket is never dropped, so that no visitor can disconnect another visitor. There
# is always a login to drop: a share has at most `SHARE_CONNECTIONS_MAX` WebSockets.
_LINKS_MAX: Final = 32
_LOGINS_MAX: Final = 32
# Deadlines of scopes are not enough: trio's clock may stop while the system is suspended.
_EXPIRY_PERIOD_S: Final = 30.0
SHARE_CONNECTIONS_MAX: Final = 16
"""How many WebSockets may use one share, so that its visitors leave room for the user."""

_log = structlog.get_logger("acpterm.web")

R = TypeVar("R", LinkRecord, LoginRecord, ShareRecord, TokenRecord)


class Grant(NamedTuple):
    """What a request may use: everything, only the terminal of `share`, or only /mcp and /acp."""

    login: str | None
    """The id of the login; None if the request has a bearer token."""
    share: ShareRecord | None = None
    """The share that the login is restricted to; None if it is not restricted."""
    ends_at: float | None = None
    """When the login or its share expires, in seconds since 1970; None for a bearer token."""

    agent: str | None = None
    """The name of the agent whose token the request has: only `/mcp` and `/acp` can be used."""

    @property
    def is_bearer(self) -> bool:
        """Whether the request had a bearer token."""
        return self.login is None


class Login(NamedTuple):
    """A new login: the value of its cookie, its lifetime in seconds, and what it may use."""

    cookie: str
    lifetime_s: float
    access: Grant


class TokenError(Exception):
    """A token cannot be created; the message says why."""


class TooManySharesError(Exception):
    """No share can be created: `SHARES_MAX` shares exist."""


class AccessStore:
    """All links, logins, shares and bearer tokens of one daemon."""

    def __init__(self, file: AccessFile, clock: Callable[[], float] = time.time) -> None:
        self._file: Final = file
        self._clock: Final = clock
        self._records: Final = file.read()
        self._bearer_hash: Final = _hash(file.bearer_token())
        self._scopes: Final[defaultdict[str, set[trio.CancelScope]]] = defaultdict(set)
        self._is_unwritten = False
        self._unwritten_shares: Final[set[str]] = set()
        self._drop_expired()

    @property
    def revoked_shares(self) -> set[str]:
        """The ids of shares that have ended, but are still in the file, since a write failed."""
        return set(self._unwritten_shares)

    @property
    def shares(self) -> list[ShareRecord]:
        self._drop_expired()
        return list(self._records.shares)

    @property
    def last_address(self) -> str | None:
        return self._records.address

    def set_last_address(self, address: str) -> None:
        if self._records.address != address:
            self._records.address = address
            self._write()

    def new_link(self) -> str:
        """Return the token of a new link. Raises `AccessFileError` if it cannot be stored."""
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

    @property
    def tokens(self) -> list[TokenRecord]:
        return list(self._records.tokens)

    def new_token(self, name: str) -> str:
        """Return a new bearer token for an agent. Raises `TokenError`, `AccessFileError`."""
        tokens = self._records.tokens
        if any(one.name == name for one in tokens):
            raise TokenError(f"{name} has a token already: acpterm token remove {name} removes it")
        if len(tokens) >= TOKENS_MAX:
            raise TokenError(f"there are {TOKENS_MAX} tokens: remove some (acpterm token remove)")
        token = secrets.token_urlsafe(32)
        tokens.append(TokenRecord(name=name, hash=_hash(token), created_at=self._clock()))
        try:
            self._write()
        except BaseException:
            tokens.pop()
            raise
        return token

    def remove_token(self, name: str) -> bool:
        """Remove the token of an agent, and close its connections.

        Raises `AccessFileError` if the file cannot be written; the token is invalid all the same.
        """
        tokens = self._records.tokens
        found = [one for one in tokens if one.name == name]
        tokens[:] = [one for one in tokens if one.name != name]
        self._cancel(_scope_key(name))
        if found:
            self._write_end()
        return bool(found)

    def new_share(
        self, terminal_id: str, *, write: bool, lifetime_s: float
    ) -> tuple[ShareRecord, str]:
        """Create a share of a terminal; return the share and its token.

        Raises `TooManySharesError`, and `AccessFileError` if the share cannot be stored.
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
        """End a share and its logins; return False if no share has this id.

        Raises `AccessFileError` if the file cannot be written; the share has ended all the same.
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
        """Log a browser in with the token of a link or a share, and with the page's key.

        Return None if no link or share has this token, or if the key's length is not valid. Raises
        `AccessFileError` if the login cannot be stored: the browser is not logged in then.
        """
        self._drop_expired()
        link = _find(self._records.links, token)
        share = _find(self._records.shares, token)
        if (link is None and share is None) or len(key) not in KEY_LENGTHS:
            return None
        if link is not None:
            # It can be used only once, even if the browser never gets the cookie.
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
        return Login(cookie, login.ends_at - self._clock(), Grant(login.id, share, login.ends_at))

    def _make_room(self, share: ShareRecord, key: str) -> None:
        """Drop logins of a share, before a page with this key logs in."""
        logins = [one for one in self._records.logins if one.share == share.id]
        # A login with an open WebSocket stays. One with the same key goes: it is the same page.
        unused = [one for one in logins if one.id not in self._scopes]
        again = [one for one in unused if hmac.compare_digest(one.key_hash, _hash(key))]
        room = _LOGINS_MAX - 1 + len(again)
        surplus = max(0, len(logins) - room)
        self._drop_logins([*again, *[one for one in unused if one not in again][:surplus]])

    def of_cookie(self, cookie: str, key: str) -> Grant | None:
        self._drop_expired()
        login = _find(self._records.logins, cookie)
        if login is None or not hmac.compare_digest(login.key_hash, _hash(key)):
            return None
        share = next((one for one in self._records.shares if one.id == login.share), None)
        return Grant(login.id, share, login.ends_at)

    def of_bearer(self, token: str) -> Grant | None:
        is_users = hmac.compare_digest(_hash(token), self._bearer_hash)
        found = _find(self._records.tokens, token)
        if found is None:
            return Grant(None) if is_users else None
        return Grant(None, agent=found.name)

    def connections_of(self, share: str) -> int:
        logins = (one.id for one in self._records.logins if one.share == share)
        return sum(len(self._scopes.get(login, ())) for login in logins)

    def log_out(self, access: Grant) -> None:
        """End the login of `access`, even if `AccessFileError` is raised."""
        self._drop_logins([one for one in self._records.logins if one.id == access.login])
        self._write_end()

    def end_shares(self, is_ended: Callable[[ShareRecord], bool]) -> list[ShareRecord]:
        ended = [one for one in self.shares if is_ended(one)]
        for share in ended:
            try:
                self.revoke_share(share.id)
            except AccessFileError as error:
                _log.error("the end of a share cannot be stored", share=share.id, why=str(error))
        return ended

    @contextmanager
    def cancelling(self, access: Grant) -> Iterator[trio.CancelScope]:
        """Cancel the block when `access` ends: on logout, expiry, or with its share."""
        scope = trio.CancelScope()
        key = access.login if access.agent is None else _scope_key(access.agent)
        if key is None:
            with scope:
                yield scope
            return
        if access.ends_at is not None:
            scope.deadline = trio.current_time() + access.ends_at - self._clock()
        scopes = self._scopes[key]
        scopes.add(scope)
        valid = [one.id for one in self._records.logins]
        valid += [_scope_key(one.name) for one in self._records.tokens]
        if key not in valid:
            # The login or token has ended since the request was checked.
            scope.cancel()
        try:
            with scope:
                yield scope
        finally:
            scopes.discard(scope)
            if not scopes:
                self._scopes.pop(key, None)

    async def maintain(self) -> None:
        """End expired shares and logins, and repeat failed writes, until cancelled."""
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
        self._is_unwritten = True
        self._file.write(self._records)
        self._set_written()

    def _write_end(self) -> None:
        """Store the end of a share or login, also on a full disk if possible."""
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
            self._cancel(login.id)

    def _cancel(self, key: str) -> None:
        for scope in self._scopes.pop(key, set()):
            scope.cancel()


def _scope_key(agent: str) -> str:
    return f"token:{agent}"


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _find(records: Iterable[R], secret: str) -> R | None:
    wanted, found = _hash(secret), None
    # All records are compared, so that the duration does not reveal which one has it.
    for record in records:
        if hmac.compare_digest(record.hash, wanted):
            found = record
    return found
