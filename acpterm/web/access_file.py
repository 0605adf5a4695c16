"""The files of `AccessStore`: the records, and the user's bearer token. Both have mode 0600.

They are in a directory of mode 0700 that belongs to one daemon, so a file has one writer. A file is
replaced as a whole. If the file of the records is damaged, an error is logged, and the file is
treated as empty: browsers must log in again. If the disk is full, the end of a login or share is
stored by writing over the old records (`overwrite`), which takes no more space.
"""

import contextlib
import os
import secrets
from typing import Final

import msgspec
import structlog
from msgspec import Struct, field

from acpterm.runtime.unix_socket import ListenError, make_private_dir

TOKEN_NAME: Final = "http-token"  # noqa: S105  the name of a file
_RECORDS_NAME: Final = "access.json"

_log = structlog.get_logger("acpterm.web")


class AccessFileError(Exception):
    """A file cannot be read or written; the message says which, and why."""


class LinkRecord(Struct, kw_only=True):
    """A link with which a browser can log in once. Times are in seconds since 1970."""

    hash: str
    ends_at: float


class LoginRecord(Struct, kw_only=True):
    """A login of one browser, by cookie and key; with `share`, only for that share."""

    id: str
    hash: str  # of the cookie
    key_hash: str  # of the key that the page has made
    ends_at: float
    share: str | None = None


class ShareRecord(Struct, kw_only=True):
    """A share: a link to one terminal. `write` says whether visitors may type."""

    id: str
    hash: str
    ends_at: float
    terminal_id: str
    write: bool
    created_at: float


class TokenRecord(Struct, kw_only=True):
    """The bearer token of the agent `name`. `hash` is its hash; `created_at` is as above."""

    name: str
    hash: str
    created_at: float


class AccessRecords(Struct, kw_only=True):
    links: list[LinkRecord] = field(default_factory=list)
    logins: list[LoginRecord] = field(default_factory=list)
    shares: list[ShareRecord] = field(default_factory=list)
    tokens: list[TokenRecord] = field(default_factory=list)
    address: str | None = None
    """The address that the server listened on last; None if it never did."""


class AccessFile:
    """The files of `AccessStore`, in `directory`, which is created when it is first needed."""

    def __init__(self, directory: str) -> None:
        self._directory: Final = directory
        self._path: Final = os.path.join(directory, _RECORDS_NAME)
        self.token_path: Final = os.path.join(directory, TOKEN_NAME)

    def read(self) -> AccessRecords:
        """Return the stored records; empty ones if there is no file, or if it cannot be read."""
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=AccessRecords)
        except FileNotFoundError:
            return AccessRecords()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.error(
                "logins, shares and agents' tokens are lost", path=self._path, why=str(error)
            )
            return AccessRecords()

    def write(self, records: AccessRecords) -> None:
        self._replace(self._path, msgspec.json.encode(records))

    def overwrite(self, records: AccessRecords) -> None:
        """Store the records by writing over the existing file, or raise `AccessFileError`."""
        data = msgspec.json.encode(records)
        try:
            with open(os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW), "wb", buffering=0) as file:
                if file.write(data) != len(data):
                    file.truncate(0)
                    raise AccessFileError(self._message("no space left on device"))
                file.truncate()
        except OSError as error:
            raise AccessFileError(self._message(error.strerror or str(error))) from error

    def bearer_token(self) -> str:
        """Return the user's bearer token; create it first, or raise `AccessFileError`."""
        path = self.token_path
        try:
            with open(path, encoding="ascii") as file:
                if token := file.read().strip():
                    # The user may have restored the file from a copy that others can read.
                    os.chmod(path, 0o600)
                    return token
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            raise AccessFileError(f"the token in {path} cannot be read: {error}") from error
        token = secrets.token_urlsafe(32)
        self._replace(path, f"{token}\n".encode())
        return token

    def _replace(self, path: str, data: bytes) -> None:
        new = f"{path}.new"
        try:
            make_private_dir(self._directory)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)
            try:
                with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(data)
                os.replace(new, path)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(new)
                raise
        except (OSError, ListenError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise AccessFileError(self._message(why)) from error

    def _message(self, why: str) -> str:
        return (
            f"logins, shares and tokens cannot be stored in {self._directory}: {why} (acpterm "
            "serve takes another state directory from XDG_STATE_HOME)"
        )
