"""Exports a terminal as an asciicast: its retained output, or its recording if that has more."""

import contextlib
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import BinaryIO, Final, NamedTuple

import msgspec

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import TerminalInfo
from acpterm.acp.user_streams import ExportedNotification, ExportRequest
from acpterm.commands.client import UserClient
from acpterm.link.errors import LostError
from acpterm.link.unanswered import unknown_outcome
from acpterm.recording import asciicast
from acpterm.recording.asciicast import CastReport
from acpterm.runtime.threads import run_blocking

_decoder: Final = msgspec.json.Decoder(ExportedNotification)


async def write_cast(client: UserClient, terminal: str, file: BinaryIO) -> CastReport:
    """Write an asciicast, or the recording if that has more; return a report of its bad lines."""
    info = await client.terminal_request("get", terminal, TerminalInfo)
    await _export(client, info.terminal_id, file.write)
    if info.recording is None:
        return CastReport()
    return await run_blocking(partial(_replace_if_better, file, info.recording))


def _replace_if_better(file: BinaryIO, path: str) -> CastReport:
    # The recording may not exist, because the disk was full or the user has removed the file.
    with contextlib.suppress(FileNotFoundError, PermissionError), open(path, "rb") as recording:
        recorded, report = _content(recording)
        if recorded >= _content(file)[0]:
            recording.seek(0)
            file.seek(0)
            file.truncate()
            shutil.copyfileobj(recording, file)
            return report
    return CastReport()


async def _export(client: UserClient, terminal: str, write: Callable[[bytes], object]) -> None:
    request = ExportRequest(terminal, client.token())
    with client.stream("terminal/export", request, Empty) as stream:
        try:
            async for params in stream:
                write(_decoder.decode(params).lines.encode())
        except LostError as error:
            raise unknown_outcome(client.name, "terminal/export") from error


class _Content(NamedTuple):
    """The amount of content in an asciicast, compared by output, then input, then other events."""

    output: int = -1
    """Characters of output; -1 if the file is not an asciicast."""
    input: int = 0
    others: int = 0


def _content(file: BinaryIO) -> tuple[_Content, CastReport]:
    file.seek(0)
    try:
        cast = asciicast.read(asciicast.read_lines(file))
    except asciicast.CastError:
        return _Content(), CastReport()
    characters: Counter[str] = Counter()
    others = 0
    for event in cast.events:
        if event.code in (asciicast.OUTPUT, asciicast.INPUT):
            characters[event.code] += len(event.data)
        else:
            others += 1
    return _Content(characters[asciicast.OUTPUT], characters[asciicast.INPUT], others), cast.report
