"""The handlers of the user's methods that read the audit log and the recordings.

The files are read in threads, of which there are at most `_THREADS` at a time. A request whose
connection closes is cancelled; its thread ends by itself, since what it reads is bounded.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import trio
from msgspec import Raw

from acpterm.acp.user_api import NoParams
from acpterm.acp.user_review import (
    AuditReadRequest,
    AuditReadResponse,
    RecordingInfo,
    RecordingReadRequest,
    RecordingReadResponse,
    RecordingsResponse,
)
from acpterm.audit.entry import time_text
from acpterm.audit.newest_first import LogPlace, read_page
from acpterm.audit.selection import Selection
from acpterm.config import audit_dir, default_record_dir
from acpterm.host.user.connection import UserConnection
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, quote
from acpterm.recording import library
from acpterm.recording.library import Recording
from acpterm.runtime.threads import run_blocking

T = TypeVar("T")

_THREADS: Final = 2
_threads = trio.CapacityLimiter(_THREADS)


async def read_audit(user: UserConnection, params: AuditReadRequest) -> AuditReadResponse:
    """`_acpterm/audit/read`: return entries of the audit log, the newest first.

    `before` and `after` each identify an entry of the log; they are taken from earlier responses.
    Only entries older than `before` and newer than `after` are returned.
    """
    directory = audit_dir(user.settings)
    selection = Selection(
        since=_time(params.since),
        until=_time(params.until),
        session=params.session,
        agent=params.agent,
        terminal=params.terminal,
        event=params.event,
        decision=params.decision,
    )
    work = partial(
        read_page,
        directory,
        selection,
        limit=params.limit,
        before=_place("before", params.before),
        after=_place("after", params.after),
    )
    page = await _in_thread(user, work, f"audit log in {quote(directory)}")
    return AuditReadResponse(
        entries=[Raw(line) for line in page.entries],
        next=None if page.following is None else str(page.following),
        newest=None if page.newest is None else str(page.newest),
        enabled=user.settings.audit,
    )


def _time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else time_text(milliseconds / 1000)


def _place(name: str, text: str | None) -> LogPlace | None:
    try:
        return None if text is None else LogPlace.parse(text)
    except ValueError as error:
        raise RpcError(
            INVALID_PARAMS,
            f"{name} is {quote(text or '')}, which is no place in the audit log: use one that a "
            "response of this method contained",
        ) from error


async def list_recordings(user: UserConnection, params: NoParams) -> RecordingsResponse:
    """`_acpterm/recording/list`: return the recordings of terminals, the newest first."""
    del params
    directory = _record_dir(user)
    written = _written(user)
    work = partial(library.list_recordings, directory)
    found = await _in_thread(user, work, f"directory {quote(directory)}")
    # A recording that has begun or ended meanwhile was not read whole.
    written |= _written(user)
    return RecordingsResponse(
        recordings=[_recording_info(one, one.name in written) for one in found.recordings],
        omitted=found.omitted,
        enabled=user.settings.record,
    )


def _written(user: UserConnection) -> set[str]:
    """Return the names of the files that are being written."""
    return {
        os.path.basename(entry.record.recording)
        for entry in user.registry
        if entry.record.recording is not None and entry.record.recorded is not None
    }


async def read_recording(
    user: UserConnection, params: RecordingReadRequest
) -> RecordingReadResponse:
    """`_acpterm/recording/read`: return a piece of a recording's file, from `offset` on."""
    work = partial(library.read_piece, _record_dir(user), params.name, params.offset)
    piece = await _in_thread(user, work, f"recording {quote(params.name)}")
    return RecordingReadResponse(data=piece.text, offset=piece.end, bytes=piece.size)


def _record_dir(user: UserConnection) -> str:
    return user.settings.record_dir or default_record_dir()


def _recording_info(found: Recording, is_written: bool) -> RecordingInfo:
    header = found.header
    return RecordingInfo(
        name=found.name,
        terminal_id=found.terminal,
        owner="agent" if found.is_agents else "user",
        started_at=round(1000 * found.started),
        bytes=found.size,
        recording=is_written,
        command=None if header is None else header.title,
        cols=None if header is None else header.width,
        rows=None if header is None else header.height,
        duration_ms=None if found.seconds is None else round(1000 * found.seconds),
    )


async def _in_thread(user: UserConnection, work: Callable[[], T], what: str) -> T:
    try:
        with user.cancel_on_close():
            return await run_blocking(work, abandon_on_cancel=True, limiter=_threads)
    except FileNotFoundError as error:
        raise RpcError(RESOURCE_NOT_FOUND, f"there is no {what}") from error
    except OSError as error:
        raise RpcError(INTERNAL_ERROR, f"the {what} cannot be read: {error.strerror}") from error
