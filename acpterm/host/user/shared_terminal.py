"""The methods that a visitor, who has the link of a share, may call, and their handlers.

The methods are for one terminal, that of the share: a request that names another terminal fails.
Each connection has a dispatch table of its own (`share_methods_table`). If the share is read-only,
the table lacks `_acpterm/terminal/write`, so typing is answered with -32601. A visitor's window
changes the size of the terminal only if the share allows typing. A visitor's input is recorded in
the audit log with `by` = `share`.
"""

import base64
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from acpterm import __version__
from acpterm.acp.agent_api import ReadResponse, WriteResponse
from acpterm.acp.initialize import InitializeAnswer, InitializeRequest, host_answer
from acpterm.acp.shares import SharedTerminalInfo
from acpterm.acp.user_api import GetRequest, UserReadRequest, UserWriteRequest
from acpterm.acp.user_streams import AttachRequest, AttachResponse, WindowRequest
from acpterm.host import verbs
from acpterm.host.entry import TerminalEntry
from acpterm.host.server.dispatch import Method, MethodTable
from acpterm.host.user.attach import attach
from acpterm.host.user.connection import UserConnection
from acpterm.host.user.terminal_methods import window
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError
from acpterm.terminal.vt.queries import QueryFilter

WINDOWS_MAX: Final = 4


def share_methods_table(share: str, terminal_id: str, *, write: bool) -> MethodTable:
    """Return the dispatch table of one connection of a visitor."""
    shared = _SharedTerminal(share, terminal_id, write=write)
    return MethodTable(
        {
            "initialize": Method(InitializeRequest, _initialize),
            "_acpterm/terminal/get": Method(GetRequest, shared.get),
            "_acpterm/terminal/read": Method(UserReadRequest, shared.read),
            "_acpterm/terminal/attach": Method(AttachRequest, shared.attach),
            "_acpterm/terminal/window": Method(WindowRequest, window),
            **(
                {"_acpterm/terminal/write": Method(UserWriteRequest, shared.write, acts_first=True)}
                if write
                else {}
            ),
        },
        {},
    )


def _initialize(user: UserConnection, params: InitializeRequest) -> InitializeAnswer:
    """`initialize`: return the capabilities; what the client sends has no effect."""
    del user, params
    return host_answer(__version__, {"share": True})


class _SharedTerminal:
    def __init__(self, share: str, terminal_id: str, *, write: bool) -> None:
        self._share: Final = share
        self._id: Final = terminal_id
        self._write: Final = write
        self._windows = 0

    def get(self, user: UserConnection, params: GetRequest) -> SharedTerminalInfo:
        """`_acpterm/terminal/get`: return what a visitor may know about the terminal."""
        entry = self._entry(user, params.terminal_id)
        info = user.info(entry)
        names = (name for name in SharedTerminalInfo.__struct_fields__ if name != "write")
        fields = {name: getattr(info, name) for name in names}
        return SharedTerminalInfo(**fields, write=self._write and entry.is_users)

    async def read(self, user: UserConnection, params: UserReadRequest) -> ReadResponse:
        """`_acpterm/terminal/read`: return raw output after a position, as a window is sent it."""
        entry = self._entry(user, params.terminal_id)
        params = msgspec.structs.replace(params, format="raw", wait_ms=None, until_input=False)
        read = await verbs.read_from(user, entry, params)
        queries = QueryFilter(clipboard=user.settings.clipboard)
        data = base64.b64encode(queries.feed(base64.b64decode(read.data))).decode()
        # A sequence that is cut at the end belongs to the next part.
        return ReadResponse(data, read.position - queries.held, read.lost, encoding="base64")

    async def attach(self, user: UserConnection, params: AttachRequest) -> AttachResponse:
        """`_acpterm/terminal/attach`: show the terminal in a window."""
        entry = self._entry(user, params.terminal_id)
        read_only = params.read_only or not self._write or not entry.is_users
        with self._window():
            params = msgspec.structs.replace(params, read_only=read_only)
            return await attach(user, entry, params, self._share)

    def write(
        self, user: UserConnection, params: UserWriteRequest
    ) -> Coroutine[Any, Any, WriteResponse]:
        """`_acpterm/terminal/write`: write keyboard input."""
        entry = self._entry(user, params.terminal_id)
        if not entry.is_users:
            raise RpcError(
                INVALID_PARAMS, f"terminal {self._id!r} is an agent's: it takes no input"
            )
        return verbs.write_to(user, entry, params, self._share)

    def _entry(self, user: UserConnection, terminal_id: str) -> TerminalEntry:
        entry = user.registry.get(self._id)
        if terminal_id != self._id:
            raise RpcError(INVALID_PARAMS, f"this share is of terminal {self._id!r} only")
        if entry is None:
            raise RpcError(RESOURCE_NOT_FOUND, f"terminal {self._id!r} was removed")
        return entry

    @contextmanager
    def _window(self) -> Iterator[None]:
        if self._windows >= WINDOWS_MAX:
            raise RpcError(INVALID_PARAMS, f"{WINDOWS_MAX} windows are attached: detach one")
        self._windows += 1
        try:
            yield
        finally:
            self._windows -= 1
