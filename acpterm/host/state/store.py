"""The keeper's key-value store, as the worker uses it: its interface, and its keys.

`keeper.client.KeeperClient` implements it. Keys:

| key | value |
| --- | --- |
| `host` | `HostRecord` |
| `listen/agent`, `listen/user` | `ListenRecord`, with the sockets that a worker has bound |
| `listen/0`, `listen/1`, … | put by the keeper: a socket that the service manager has handed over |
| `lock`, `lock/user` | the lock files of these sockets, held by their descriptors |
| `trees` | what `pty.tracking.trees` hands over to a successor |
| `c/CONNECTION` | `ConnectionRecord` |
| `s/CONNECTION/NUMBER` | `SessionRecord` |
| `k/CONNECTION/NUMBER/CALL` | `ToolCallRecord` |
| `t/TERMINAL` | `TerminalRecord`; stored with the spawn, deleted by `forget` |
| `l/TERMINAL` | `LaunchRecord` of a terminal that the user created; separate, as it may be large |
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol


class StoredEntry(Protocol):
    """A value of the store, and the descriptors stored with it."""

    @property
    def value(self) -> bytes:
        """The value."""

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors of this process, which the entry owns."""


class StateStore(Protocol):
    """A store whose values survive the worker. No method waits."""

    @property
    def entries(self) -> Mapping[str, StoredEntry]:
        """The entries that the store had when this worker connected to it."""

    def put(self, key: str, value: bytes, fds: Sequence[int] = ()) -> None:
        """Store a value, and replace the previous one. Descriptors are duplicated."""

    def delete(self, key: str) -> None:
        """Delete a value, if it exists."""


HOST_KEY: Final = "host"
TREES_KEY: Final = "trees"
LISTEN_PREFIX: Final = "listen/"
LISTEN_KEYS: Final = (f"{LISTEN_PREFIX}agent", f"{LISTEN_PREFIX}user")
_CONNECTION: Final = "c/"
_SESSION: Final = "s/"
_TOOL_CALL: Final = "k/"
_TERMINAL: Final = "t/"
_LAUNCH: Final = "l/"


def connection_key(connection: str) -> str:
    """Return the key of a connection's record."""
    return f"{_CONNECTION}{connection}"


def session_key(connection: str, number: int) -> str:
    """Return the key of a session's record; `number` counts the sessions of its connection."""
    return f"{_SESSION}{connection}/{number}"


def tool_call_key(connection: str, session: int, call: int) -> str:
    """Return the key of a tool call's record."""
    return f"{_TOOL_CALL}{connection}/{session}/{call}"


def terminal_key(terminal: str) -> str:
    """Return the key of a terminal's record."""
    return f"{_TERMINAL}{terminal}"


def launch_key(terminal: str) -> str:
    """Return the key of a terminal's launch record."""
    return f"{_LAUNCH}{terminal}"


def parse_key(key: str) -> tuple[str, list[str]] | None:
    """Return the kind (`c`, `s`, `k`, `t` or `l`) and the parts of a record's key, or None."""
    kind, *parts = key.split("/")
    count = {"c": 1, "s": 2, "k": 3, "t": 1, "l": 1}.get(kind)
    if count != len(parts) or not all(part.isdigit() for part in parts[1:]):
        return None
    return kind, parts
