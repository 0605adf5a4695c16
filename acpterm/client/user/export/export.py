"""A terminal as an asciicast: what the daemon has kept of it, or its recording if that has more."""

import contextlib
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import BinaryIO, Final, NamedTuple

import msgspec
from msgspec import Raw

from acpterm.acp import Empty
from acpterm.acp.user_api import TerminalInfo
from acpterm.acp.user_streams import ExportedNotification, ExportRequest
from acpterm.client import replay
from acpterm.client.replay import Report
from acpterm.client.user.client import UserClient
from acpterm.runtime.threads import run_blocking

_told: Final = msgspec.json.Decoder(ExportedNotification)


async def write_cast(client: UserClient, terminal: str, file: BinaryIO) -> Report:
    """Write the more complete of the two to `file`. Raises `RpcError`, `OSError`.

    `file` is empty, and can be read. The one that shows more is the more complete; of those that
    show as much, the one that tells more besides: a recording may have what was typed. Of equals,
    what was kept. It is written as it is; which of its lines cannot be read is returned. To be run
    where the daemon runs.
    """
    info = await client.terminal_request("get", terminal, TerminalInfo)
    await _export(client, info.terminal_id, file.write)
    if info.recording is None:
        return Report()
    return await run_blocking(partial(_take_better, file, info.recording))


def _take_better(file: BinaryIO, path: str) -> Report:
    """Have `file` be as the recording, if that has more: what of it cannot be read."""
    # There may be none: the disk was full, or it has been removed.
    with contextlib.suppress(FileNotFoundError, PermissionError), open(path, "rb") as recording:
        more, report = _content(recording)
        if more > _content(file)[0]:
            recording.seek(0)
            file.seek(0)
            file.truncate()
            shutil.copyfileobj(recording, file)
            return report
    return Report()


async def _export(client: UserClient, terminal: str, write: Callable[[bytes], object]) -> None:
    """Have the daemon tell what it has kept, and write that as it comes."""
    token = client.token()
    failed: list[OSError] = []

    def take(method: str, params: Raw) -> None:
        if method == "_acpterm/terminal/exported" and not failed:
            told = _told.decode(params)
            if told.token == token:
                try:
                    write(told.lines.encode())
                except OSError as error:
                    failed.append(error)

    client.on_notification = take
    await client.call("terminal/export", ExportRequest(terminal, token), Empty)
    if failed:
        raise failed[0]


class _Content(NamedTuple):
    """How much there is in a cast, what counts most first."""

    output: int = -1
    """Characters; -1 if it is no cast."""
    input: int = 0
    others: int = 0
    """Events: other sizes, and the end."""
    has_env: bool = False


def _content(file: BinaryIO) -> tuple[_Content, Report]:
    """Tell how much there is in a cast, and what cannot be read of it."""
    file.seek(0)
    try:
        cast = replay.read(replay.read_lines(file))
    except replay.CastError:
        return _Content(), Report()
    characters: Counter[str] = Counter()
    others = 0
    for event in cast.events:
        if event.code in (replay.OUTPUT, replay.INPUT):
            characters[event.code] += len(event.data)
        else:
            others += 1
    found = _Content(
        characters[replay.OUTPUT], characters[replay.INPUT], others, has_env=cast.has_env
    )
    return found, cast.report
