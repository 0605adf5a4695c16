"""The handlers of the user's methods of `acpterm undo`. Each works in a process of its own."""

import json
import os
import subprocess
import sys
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import trio

from acpterm.acp.base import Wire
from acpterm.acp.user_undo import (
    UndoListResponse,
    UndoPlanRequest,
    UndoPlanResponse,
    UndoRequest,
    UndoRestoreRequest,
    UndoRestoreResponse,
)
from acpterm.config import undo_dir
from acpterm.host.access import Need
from acpterm.host.launch.validation import check_absolute
from acpterm.host.user.connection import UserConnection
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, RpcError
from acpterm.providers.provider import is_place
from acpterm.runtime.threads import run_blocking
from acpterm.undo.operation import below

W = TypeVar("W", bound=Wire)

_PROCESSES: Final = 2
_processes = trio.CapacityLimiter(_PROCESSES)
# A file system may not answer.
_LIMITS_S: Final = {"list": 300.0, "plan": 300.0, "restore": 600.0}
_RESOLVE_S: Final = 5.0
_resolving = trio.CapacityLimiter(1)


async def list_snapshots(user: UserConnection, params: UndoRequest) -> UndoListResponse:
    """`_acpterm/undo/list`: return the snapshots of a directory, the oldest first."""
    directory, _ = _where(user, params)
    return await _work(UndoListResponse, "list", directory)


async def plan(user: UserConnection, params: UndoPlanRequest) -> UndoPlanResponse:
    """`_acpterm/undo/plan`: return what a restore would change; keep the directory as it is now."""
    directory, before = _where(user, params)
    if params.before is not None:
        before = params.before / 1000
    words = () if before is None else (repr(before),)
    found = await _work(UndoPlanResponse, "plan", directory, *words)
    found.running = await _writers(user, found.directory)
    return found


class _Restored(Wire):
    directory: str
    changes: int
    failures: list[str]


async def _writers(user: UserConnection, root: str) -> list[str]:
    """Return the terminals in which something runs that may write below `root`."""
    places = {
        entry.id: entry.cwd
        for entry in user.registry
        if entry.terminal.exit is None or entry.may_have_background
    }

    with trio.move_on_after(_RESOLVE_S):
        work = partial(below, root, places, os.path.realpath)
        return await run_blocking(work, abandon_on_cancel=True, limiter=_resolving)
    # What cannot be resolved is taken as it is.
    return below(root, places, str)


async def restore(user: UserConnection, params: UndoRestoreRequest) -> UndoRestoreResponse:
    """`_acpterm/undo/restore`: restore what `_acpterm/undo/plan` has returned.

    It continues if the client disconnects, for ten minutes at most. Raises `RpcError` (-32600)
    if the directory has changed since.
    """
    check_absolute(params.directory)
    words = params.directory, params.to, params.digest
    # The user has not asked for half of it, although the next restore would complete it.
    record = partial(user.trail.record, "undo", by="user", snapshot=params.to)
    try:
        done = await _work(_Restored, "restore", *words, shield=True)
    except RpcError as error:
        # It may have restored a part.
        if error.code == INTERNAL_ERROR:
            record(directory=params.directory, reason=error.message)
        raise
    record(directory=done.directory, changes=done.changes, failures=len(done.failures))
    return UndoRestoreResponse(done.failures)


def _where(user: UserConnection, params: UndoRequest) -> tuple[str, float | None]:
    """Return a directory, and the time of the terminal's command if one is named."""
    if (params.terminal_id is None) == (params.cwd is None):
        raise RpcError(INVALID_PARAMS, "one of terminalId and cwd is needed")
    if params.cwd is not None:
        check_absolute(params.cwd)
        return params.cwd, None
    entry = user.resolve(params, Need.READ)
    if is_place(entry.record.provider):
        raise RpcError(INVALID_REQUEST, "only directories of this host are kept")
    if not entry.record.is_kept:
        why = entry.record.unkept or "nothing was kept for it"
        raise RpcError(INVALID_REQUEST, f"there is no way back to before this command: {why}")
    return entry.cwd, entry.record.created_time


async def _work(into: type[W], work: str, directory: str, *words: str, shield: bool = False) -> W:
    argv = [sys.executable, "-P", "-m", "acpterm.undo", work, undo_dir(), directory, *words]
    limit = _LIMITS_S[work]
    scope = trio.CancelScope(shield=shield, deadline=trio.current_time() + limit)
    with scope:
        async with _processes:
            done = await trio.run_process(
                argv,
                stdin=subprocess.DEVNULL,
                capture_stdout=True,
                stderr=subprocess.DEVNULL,
                check=False,
            )
    if scope.cancelled_caught:
        raise RpcError(INTERNAL_ERROR, f"it took more than {limit / 60:.0f} minutes, and was ended")
    answer: dict[str, Any] = json.loads(done.stdout or b'{"error": "the process was killed"}')
    if (why := answer.get("error")) is not None:
        raise RpcError(INVALID_REQUEST, why)
    return msgspec.convert(answer, into)
