"""Runs audit logs in tests."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from acpterm.audit.log import AuditLog


@asynccontextmanager
async def audit_log(
    directory: Path, file_bytes: int = 1024 * 1024, files: int = 5
) -> AsyncIterator[AuditLog]:
    """Run the writer of an audit log; flush it at the end of the block."""
    log = AuditLog(str(directory), file_bytes=file_bytes, files=files)
    async with running(log):
        yield log


@asynccontextmanager
async def running(log: AuditLog) -> AsyncIterator[None]:
    """Run the writer of `log` until the end of the block."""
    async with trio.open_nursery() as nursery:

        async def run(task_status: trio.TaskStatus[None]) -> None:
            await log.run(task_status=task_status)

        await nursery.start(run)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()


def entries(directory: Path, name: str = "audit.jsonl") -> list[dict[str, Any]]:
    """Return the entries of a file, each of which must be JSON.

    A line without a newline is left out: it may be in the course of being written.
    """
    path = directory / name
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]
