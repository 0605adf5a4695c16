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

Input is counted, so that typing does not flood the log: all bytes that one side (agent, user or
share) types into a terminal within `INTERVAL_S` seconds become one entry. The entry is due when the
interval ends, or earlier if another entry of the same terminal is recorded.
"""

import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import msgspec
import structlog
import trio

from acpterm.audit.entry import member_name, time_text
from acpterm.audit.newest_first import last_of
from acpterm.audit.writer import AuditWriter, Batch
from acpterm.runtime.redaction import redact, redact_args
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

INTERVAL_S: Final = 1.0
_COUNTS_MAX: Final = 1000

TEXT_CHARS: Final = 128 * 1024
"""The maximum length of a text in an entry, and of all arguments together, in characters.

Linux limits one argument, such as a shell line, to 128 KiB.
"""
_ARGS_MAX: Final = 4096
# Cutting a text may cut a secret in two, and half a secret is not recognised. So the text is first
# redacted with this many more characters, which are then cut off.
_MARGIN_CHARS: Final = 8 * 1024
# Results are cached for texts of at most this length, such as ids and directories, which recur.
_REMEMBERED_CHARS: Final = 100


def redact_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields redacted and cut; `omitted` counts the characters that are cut."""
    changed = dict(fields)
    omitted = 0
    for name, value in fields.items():
        if isinstance(value, str):
            changed[name], cut = _redact_text(value)
            omitted += cut
        elif isinstance(value, list | tuple):
            program = fields.get("command")
            changed[name], cut = _redact_list(value, program if isinstance(program, str) else "")
            omitted += cut
    return changed | {"omitted": omitted} if omitted else changed


@lru_cache(maxsize=512)
def _redact_short(text: str) -> str:
    return redact(text)


def printable(value: Any) -> Any:
    """Return `value` with each lone surrogate in its texts, at any depth, replaced by an escape."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list | tuple):
        return [printable(item) for item in value]
    if isinstance(value, Mapping):
        return {printable(name): printable(item) for name, item in value.items()}
    return value


def _redact_text(text: str) -> tuple[str, int]:
    """Return the redacted text, of limited length, and the number of characters left out."""
    if len(text) <= _REMEMBERED_CHARS:
        return _redact_short(text), 0
    if len(text) <= TEXT_CHARS:
        return redact(text), 0
    head = redact(text[: TEXT_CHARS + _MARGIN_CHARS])
    return head[: min(TEXT_CHARS, max(0, len(head) - _MARGIN_CHARS))], len(text) - TEXT_CHARS


def _redact_list(args: Sequence[str], program: str) -> tuple[list[str], int]:
    kept: list[str] = []
    room, omitted = TEXT_CHARS, 0
    for index, argument in enumerate(args):
        if index >= _ARGS_MAX or room <= 0:
            omitted += sum(map(len, args[index:]))
            break
        text = argument
        if len(text) > room:
            text, cut = _redact_text(text)
            text, omitted = text[:room], omitted + max(cut, len(argument) - room)
        room -= len(text)
        kept.append(text)
    return redact_args(kept, program), omitted


class Typed(NamedTuple):
    """What one side (agent, user or share) has typed into one terminal in one interval."""

    started: float
    """The time of the first byte on the monotonic clock, in seconds."""
    at: float
    """The time of the first byte in seconds since 1970."""
    fields: dict[str, Any]
    """The fields of the entry; `bytes` is the number of bytes so far."""


class InputCounts:
    """The counts of typed bytes without an entry yet: one for each terminal and side."""

    def __init__(self) -> None:
        self._typed: dict[tuple[object, object], Typed] = {}

    @property
    def due_at(self) -> float | None:
        """The time on the monotonic clock at which the next entry is due; None if there is none."""
        return next((typed.started + INTERVAL_S for typed in self._typed.values()), None)

    def add(self, fields: Mapping[str, Any], now: float, at: float) -> list[Typed]:
        """Count new input; remove and return the counts that are due, or all if too many."""
        due = self.take_due(now)
        if len(self._typed) >= _COUNTS_MAX:
            due += self.take_all()
        key = fields.get("terminal"), fields.get("by")
        if typed := self._typed.get(key):
            typed.fields["bytes"] = typed.fields.get("bytes", 0) + fields.get("bytes", 0)
        else:
            self._typed[key] = Typed(now, at, dict(fields))
        return due

    def take_due(self, now: float) -> list[Typed]:
        """Remove and return the counts whose interval has ended."""
        # The dict is in the order in which the intervals started.
        keys = []
        for key, typed in self._typed.items():
            if typed.started + INTERVAL_S > now:
                break
            keys.append(key)
        return [self._typed.pop(key) for key in keys]

    def take_of(self, terminal: object) -> list[Typed]:
        """Remove and return the counts of the terminal with the id `terminal`."""
        keys = [key for key in self._typed if key[0] == terminal] if self._typed else []
        return [self._typed.pop(key) for key in keys]

    def take_all(self) -> list[Typed]:
        """Remove and return all counts."""
        typed, self._typed = self._typed, {}
        return list(typed.values())


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

    def record(self, event: str, **fields: str | float | bool | list[str] | None) -> None:
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
