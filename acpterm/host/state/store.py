"""The keeper's key-value store, as the worker uses it: its interface, and its keys.

`keeper.client.KeeperClient` implements the interface. Keys:

| key | value |
| --- | --- |
| `host` | `HostRecord` |
| `audit` | `AuditRecord` |
| `listen/agent`, `listen/user` | `ListenRecord`, with the sockets that a worker has bound |
| `listen/0`, `listen/1`, … | put by the keeper: a socket that the service manager has handed over |
| `http` | `HttpRecord`, with the listening socket of the HTTP server |
| `lock`, `lock/user` | the descriptors that hold the locks of `listen/agent` and `listen/user` |
| `trees` | the state that `pty.tracking.trees` hands over to the next worker |
| `c/CONNECTION` | `ConnectionRecord` |
| `s/CONNECTION/NUMBER` | `SessionRecord` |
| `k/CONNECTION/NUMBER/CALL` | `ToolCallRecord` |
| `t/TERMINAL` | `TerminalRecord`; stored when the program is started, deleted with the terminal |
| `e/TERMINAL` | the emulator's state (`keeper.client.put_screen`); deleted with the terminal |
| `l/TERMINAL` | `LaunchRecord` of a terminal that the user created; separate, as it may be large |
| `q/QUESTION` | `ApprovalRecord` of a question to the user |
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol


class StoredEntry(Protocol):
    """A value of the store, and the file descriptors that were stored with it."""

    @property
    def value(self) -> bytes:
        """The stored value, such as an encoded record."""

    @property
    def fds(self) -> tuple[int, ...]:
        """The stored descriptors, as numbers in this process. The entry owns them."""


class StateStore(Protocol):
    """A store whose values survive the worker. Its methods return without waiting."""

    @property
    def entries(self) -> Mapping[str, StoredEntry]:
        """The entries that the store had when this worker connected to it."""

    def put(self, key: str, value: bytes, fds: Sequence[int] = ()) -> None:
        """Store a value, with duplicates of `fds`, in place of the previous one."""

    def delete(self, key: str) -> None:
        """Delete the value of `key`, if there is one."""


HOST_KEY: Final = "host"
AUDIT_KEY: Final = "audit"
TREES_KEY: Final = "trees"
HTTP_KEY: Final = "http"
LISTEN_PREFIX: Final = "listen/"
LISTEN_KEYS: Final = (f"{LISTEN_PREFIX}agent", f"{LISTEN_PREFIX}user")
_CONNECTION: Final = "c/"
_SESSION: Final = "s/"
_TOOL_CALL: Final = "k/"
_TERMINAL: Final = "t/"
_LAUNCH: Final = "l/"
_APPROVAL: Final = "q/"


def connection_key(connection: str) -> str:
    return f"{_CONNECTION}{connection}"


def session_key(connection: str, number: int) -> str:
    return f"{_SESSION}{connection}/{number}"


def tool_call_key(connection: str, session: int, call: int) -> str:
    return f"{_TOOL_CALL}{connection}/{session}/{call}"


def terminal_key(terminal: str) -> str:
    return f"{_TERMINAL}{terminal}"


def launch_key(terminal: str) -> str:
    return f"{_LAUNCH}{terminal}"


def approval_key(question: str) -> str:
    return f"{_APPROVAL}{question}"


def parse_key(key: str) -> tuple[str, list[str]] | None:
    """Return the kind and the other parts of a record's key; None for keys of another form."""
    kind, *parts = key.split("/")
    count = {"c": 1, "s": 2, "k": 3, "t": 1, "l": 1, "q": 1}.get(kind)
    if count != len(parts) or not all(part.isdigit() for part in parts[1:]):
        return None
    return kind, parts
