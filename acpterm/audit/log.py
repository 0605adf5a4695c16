"""The audit log of a host: a queue of entries, and the task that writes them.

States: *writing*; *failing*, from the first error (a full disk, a missing permission) until a write
succeeds again. In both states `record` queues entries and returns at once, so programs and their
terminals never wait for the log. An entry that finds the queue full is lost, and counted.

The first error is logged, and the write is repeated after a pause that grows from `RETRY_S` to
`RETRY_MAX_S`. When a write succeeds again, an entry `gap` is recorded with the start and the end of
the failure, its reason, and the number of lost entries, which may be 0. The `gap` is queued after
all entries that are queued at that time, and gets the next number (`seq`): so the entries in the
file are in the order of their numbers.

When the task is cancelled, it writes the queued entries, for at most `FLUSH_TIMEOUT_S` seconds.

What a worker has not written when it ends or is killed, the next worker reports in a `gap`, its
first entry: it gets the number of the previous worker's last entry (`LogProgress`), and reads in
the log which entry that worker wrote last.
"""

import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import structlog
import trio

from acpterm.audit.entry import member_name, time_text
from acpterm.audit.input_counts import InputCounts
from acpterm.audit.newest_first import last_of
from acpterm.audit.texts import printable, redact_fields
from acpterm.audit.writer import AuditWriter, Batch
from acpterm.runtime.threads import run_blocking

_log = structlog.get_logger("acpterm.audit")

QUEUE_MAX: Final = 10_000
"""A new entry is lost if at least this number of entries is queued."""
QUEUE_BYTES: Final = 4 * 1024 * 1024
"""A new entry is lost if at least this number of bytes is queued."""
BATCH_BYTES: Final = 512 * 1024
FLUSH_TIMEOUT_S: Final = 2.0
RETRY_S: Final = 0.1
RETRY_MAX_S: Final = 5.0
# The pause before a batch is written, in which more entries are queued: the creation of a terminal
# records several, and the start of a thread must not delay it.
_GATHER_S: Final = 0.02

_encode: Final = msgspec.json.Encoder().encode


class LogProgress(NamedTuple):
    """What the next worker needs to know which entries of this worker are missing in the log."""

    worker: int
    """Pid of the worker."""
    seq: int
    """The number of its last entry, written or not."""
    at: float
    """The time of that entry, in seconds since 1970."""
    inherited: int = 0
    """The number of lost entries of earlier workers that this worker's first entry reports."""
    inherited_from: float = 0.0
    """Since when they are missing."""


class AuditLog:
    """The audit log in `directory`. Call all methods in the thread of the event loop."""

    def __init__(
        self,
        directory: str,
        *,
        file_bytes: int,
        files: int,
        previous: LogProgress | None = None,
        on_progress: Callable[[LogProgress], None] = lambda _progress: None,
    ) -> None:
        self._directory: Final = directory
        self._previous = previous
        self._on_progress: Final = on_progress
        self._inherited = 0
        self._inherited_from = 0.0
        self._file: Final = AuditWriter(directory, file_bytes=file_bytes, files=files)
        self._limiter: Final = trio.CapacityLimiter(2)
        self._queue: Final[deque[bytes]] = deque()
        # The batch that is being written; its entries still count as queued.
        self._batch: Batch | None = None
        self._queued = self._queued_bytes = 0
        self._inputs: Final = InputCounts()
        self._wakeup: Final = trio.lowlevel.ParkingLot()
        self._worker: Final = os.getpid()
        self._seq = 0
        # The number of lost entries, and the times of the first and the last one, since the last
        # `gap`.
        self._lost = 0
        self._lost_from = self._lost_to = 0.0
        self._failing_since: float | None = None
        self._reason = ""
        self._retry_s = RETRY_S

    def record(
        self,
        event: str,
        **fields: str | float | bool | list[str] | None,
    ) -> None:
        """Queue an entry with the fields that are not None. Never blocks and never raises."""
        at = time.time()
        try:
            if event == "input":
                due = self._inputs.add(fields, time.monotonic(), at)
            else:
                due = self._inputs.take_of(fields.get("terminal"))
            for typed in due:
                self._add("input", typed.fields, typed.at)
            if event != "input":
                self._add(event, fields, at)
            self._wakeup.unpark_all()
        except Exception as error:  # noqa: BLE001  an entry must not stop what it describes
            self._lose(at, f"an entry cannot be encoded: {type(error).__name__}")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write the entries until cancelled; then write the queued rest, and end."""
        with trio.move_on_after(FLUSH_TIMEOUT_S):
            await self._report_previous()
        task_status.started()
        try:
            while True:
                await self._until_queued()
                await trio.sleep(_GATHER_S)
                if not await self._write_batch():
                    await trio.sleep(self._retry_s)
                    self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
        finally:
            with trio.move_on_after(FLUSH_TIMEOUT_S, shield=True):
                await self._flush()
            if lost := self._queued + self._lost:
                _log.error("audit entries lost", path=self._file.path, lost=lost)

    def _add(self, event: str, fields: Mapping[str, Any], at: float) -> None:
        self._number(at)
        if self._queued >= QUEUE_MAX or self._queued_bytes >= QUEUE_BYTES:
            self._lose(at, "the queue is full")
            return
        self._put(event, redact_fields(fields), at)

    def _number(self, at: float) -> None:
        self._seq += 1
        self._on_progress(
            LogProgress(self._worker, self._seq, at, self._inherited, self._inherited_from)
        )

    async def _report_previous(self) -> None:
        """Record a `gap` if entries of the previous worker are missing in the log."""
        previous, self._previous = self._previous, None
        if previous is None:
            return
        lost, since = previous.seq + previous.inherited, previous.inherited_from
        # A log that cannot be read, or that a program has changed, must not stop the worker.
        with suppress(OSError, ValueError):
            last = await run_blocking(
                partial(last_of, self._directory, previous.worker), abandon_on_cancel=True
            )
            if last is not None:
                since = datetime.fromisoformat(last.time).timestamp()
                lost = previous.seq - last.seq
        if lost <= 0:
            return
        self._inherited, self._inherited_from = lost, since or previous.at
        fields = {
            "from": time_text(self._inherited_from),
            "to": time_text(previous.at),
            "lost": lost,
            "reason": f"the previous worker (pid {previous.worker}) ended before it wrote them",
        }
        now = time.time()
        self._number(now)
        self._put("gap", fields, now)
        _log.warning("audit entries lost", path=self._file.path, lost=lost)

    def _put(self, event: str, fields: Mapping[str, Any], at: float) -> None:
        entry = {"time": time_text(at), "event": event, "worker": self._worker, "seq": self._seq}
        entry |= {member_name(name): value for name, value in fields.items() if value is not None}
        try:
            line = _encode(entry)
        except UnicodeEncodeError:  # a lone surrogate, as in a file name that is not UTF-8
            line = _encode(printable(entry))
        self._queue.append(line + b"\n")
        self._queued += 1
        self._queued_bytes += len(line) + 1

    def _lose(self, at: float, reason: str) -> None:
        if not self._lost:
            self._lost_from = at
            self._reason = self._reason or reason
        self._lost += 1
        self._lost_to = at

    async def _until_queued(self) -> None:
        """Wait until an entry is queued, or a loss has to be recorded."""
        while not (self._queue or self._batch or self._lost):
            due_at = self._inputs.due_at
            timeout = math.inf if due_at is None else max(0.0, due_at - time.monotonic())
            with trio.move_on_after(timeout):
                await self._wakeup.park()
            self._put_typed(is_all=False)

    def _put_typed(self, *, is_all: bool) -> None:
        now = time.monotonic()
        for typed in self._inputs.take_all() if is_all else self._inputs.take_due(now):
            self._add("input", typed.fields, typed.at)

    async def _write_batch(self) -> bool:
        """Write one batch of the queued entries; return whether the batch was written."""
        self._put_typed(is_all=False)
        if self._batch is None:
            self._batch = self._next_batch()
        batch = self._batch
        try:
            # If the task is cancelled, the thread continues to write, and `_flush` waits for it.
            await run_blocking(
                partial(self._file.append, batch), abandon_on_cancel=True, limiter=self._limiter
            )
        except Exception as error:  # noqa: BLE001  whatever it is, the programs must not stop
            self._on_failure(error)
            return False
        self._batch = None
        self._queued -= batch.lines
        self._queued_bytes -= len(batch.data)
        self._on_success()
        return True

    def _next_batch(self) -> Batch:
        lines: list[bytes] = []
        room = min(BATCH_BYTES, self._file.file_bytes)
        while self._queue and (not lines or room >= len(self._queue[0])):
            lines.append(self._queue.popleft())
            room -= len(lines[-1])
        return Batch(lines)

    def _on_failure(self, error: Exception) -> None:
        if self._failing_since is not None:
            return
        self._failing_since = time.time()
        self._reason = str(error)
        if isinstance(error, OSError) and error.strerror:
            self._reason = error.strerror
        _log.warning("audit log not written", path=self._file.path, reason=self._reason)

    def _on_success(self) -> None:
        """Queue an entry `gap` if there was an error or a loss before the write that succeeded."""
        self._retry_s = RETRY_S
        if self._failing_since is None and not self._lost:
            return
        since = self._failing_since
        end = self._lost_to if since is None else time.time()
        fields = {
            "from": time_text(self._lost_from if since is None else since),
            "to": time_text(end),
            "lost": self._lost,
            "reason": self._reason,
        }
        self._number(time.time())
        self._put("gap", fields, time.time())
        happened = "audit entries lost" if since is None else "audit log written again"
        _log.warning(happened, path=self._file.path, lost=self._lost)
        self._failing_since, self._lost, self._reason = None, 0, ""

    async def _flush(self) -> None:
        self._put_typed(is_all=True)
        while self._queue or self._batch or self._lost:
            if not await self._write_batch():
                break
