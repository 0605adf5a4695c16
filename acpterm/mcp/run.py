"""The work of `acpterm mcp`: serve one MCP client on stdin and stdout.

Clients start it for each session, and some wait for it only a second. So it runs on asyncio, which
starts in half the time of trio, and imports nothing that the first requests do not need.
"""

import os
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec import Struct

from acpterm.agents.session_sockets.server_entry import CWD_VARIABLE, SOCKET_VARIABLE
from acpterm.api.client import Client
from acpterm.api.connect import connect as connect_to_host
from acpterm.api.questions import Asks
from acpterm.config import Settings
from acpterm.jsonrpc import Id
from acpterm.mcp.server import open_server
from acpterm.mcp.tool_set_names import ToolSetName
from acpterm.mcp.tool_sets import policy_profile
from acpterm.runtime.blocking_io import read_some, take_descriptors, write_fully
from acpterm.runtime.exec_context import current_directory

_CHUNK = 64 * 1024
_ANSWERS_QUEUE_MAX = 64


class Options(Struct, kw_only=True):
    tools: ToolSetName = "session"
    profile: str | None = None


async def serve(settings: Settings, options: Options) -> None:
    """Serve the client until it closes stdin. Then its terminals are ended."""
    if directory := os.environ.get(CWD_VARIABLE):
        # The agent may start its servers elsewhere, but paths are relative to this directory, that
        # of its session.
        with suppress(OSError):
            os.chdir(directory)
    cwd = current_directory()
    reads, writes = take_descriptors()

    def connect(agent: str, asks: Asks | None) -> AbstractAsyncContextManager[Client]:
        return connect_to_host(
            agent=agent,
            asks=asks,
            session="mcp",
            socket=os.environ.get(SOCKET_VARIABLE) or None,
            profile=policy_profile(options.tools, options.profile),
            settings=settings,
        )

    # What is queued when the client closes stdin is still written.
    lines, queued = anyio.create_memory_object_stream[bytes](_ANSWERS_QUEUE_MAX)

    async def send(line: bytes, about: Id) -> None:
        del about
        with suppress(anyio.BrokenResourceError):  # the client has closed its end
            await lines.send(line)

    on_error = partial(_log, settings)
    async with anyio.create_task_group() as group, lines:
        group.start_soon(_write, writes, queued, group.cancel_scope)
        async with (
            open_server(options.tools, settings, connect, cwd, on_error=on_error) as server,
            server.connection(send) as connection,
        ):
            while data := await _read(reads):
                await connection.receive(data)


async def _read(fd: int) -> bytes:
    # This process could not end while a thread reads, if the client has closed only its stdout.
    with suppress(OSError):  # stdin is a file
        await anyio.wait_readable(fd)
    return await anyio.to_thread.run_sync(read_some, fd, _CHUNK, abandon_on_cancel=True)


async def _write(
    fd: int, queued: MemoryObjectReceiveStream[bytes], serving: anyio.CancelScope
) -> None:
    async with queued:
        async for line in queued:
            try:
                await anyio.to_thread.run_sync(write_fully, fd, line)
            except BrokenPipeError:
                serving.cancel()
                return


def _log(settings: Settings, error: Exception) -> None:
    import structlog  # noqa: PLC0415  it takes time and memory, and errors are rare

    from acpterm.runtime import logs  # noqa: PLC0415

    logs.configure(settings.log_level, settings.log_format)
    structlog.get_logger("acpterm.mcp").error("a request failed", exc_info=error)
