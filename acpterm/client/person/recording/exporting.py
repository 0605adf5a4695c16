"""A terminal as an asciicast: what the daemon has kept of it, or its recording if that has more."""

import contextlib
import shutil
from collections.abc import Callable
from typing import BinaryIO, Final

import msgspec
import trio
from msgspec import Raw

from acpterm.acp import Empty
from acpterm.acp.person import ExportedNotification, ExportRequest, TerminalInfo
from acpterm.client import replay
from acpterm.client.person.front import Front
from acpterm.client.replay import LeftOut

_told: Final = msgspec.json.Decoder(ExportedNotification)


async def write_cast(front: Front, terminal: str, file: BinaryIO) -> LeftOut:
    """Write the more complete of the two to `file`. Raises `RpcError`, `OSError`.

    `file` is empty, and can be read. The one that shows more is the more complete; of equals, what
    was kept. It is written as it is; which of its lines cannot be read is returned. To be run where
    the daemon runs.
    """
    info = await front.about("get", terminal, TerminalInfo)
    await _export(front, info.terminal_id, file.write)
    if info.recording is None:
        return LeftOut()
    return await trio.to_thread.run_sync(_take_better, file, info.recording)


def _take_better(file: BinaryIO, path: str) -> LeftOut:
    """Have `file` be as the recording, if that shows more: what of it cannot be read."""
    # There may be none: the disk was full, or it has been removed.
    with contextlib.suppress(FileNotFoundError, PermissionError), open(path, "rb") as recording:
        shown, left_out = _shown(recording)
        if shown > _shown(file)[0]:
            recording.seek(0)
            file.seek(0)
            file.truncate()
            shutil.copyfileobj(recording, file)
            return left_out
    return LeftOut()


async def _export(front: Front, terminal: str, write: Callable[[bytes], object]) -> None:
    """Have the daemon tell what it has kept, and write that as it comes."""
    token = front.token()
    failed: list[OSError] = []

    def take(method: str, params: Raw) -> None:
        if method == "_acpterm/terminal/exported" and not failed:
            told = _told.decode(params)
            if told.token == token:
                try:
                    write(told.lines.encode())
                except OSError as error:
                    failed.append(error)

    front.told = take
    await front.ask("terminal/export", ExportRequest(terminal, token), Empty)
    if failed:
        raise failed[0]


def _shown(file: BinaryIO) -> tuple[int, LeftOut]:
    """Count the characters of output in a cast, -1 if it is none; and what cannot be read."""
    file.seek(0)
    try:
        cast = replay.read(replay.lines_of(file))
    except replay.CastError:
        return -1, LeftOut()
    shown = sum(len(event.data) for event in cast.events if event.code == replay.OUTPUT)
    return shown, cast.left_out
