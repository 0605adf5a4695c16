"""`connect`: the entry to the Python API. It keeps a connection open for the duration of a block.

`connect` owns the connection and the task that reads from it. At the end of an agent's block the
daemon ends the agent's terminals; terminals of the user live on.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import ByteStream

from acpterm.api.client import Client, Place
from acpterm.api.errors import AcptermError
from acpterm.api.questions import Asks
from acpterm.api.transport import (
    Introduction,
    Opened,
    open_agent,
    open_host,
    open_stream,
    open_user,
)
from acpterm.config import ConfigError, Settings, load
from acpterm.runtime.exec_context import current_directory

DEFAULT_AGENT: Final = "acpterm"


@asynccontextmanager
async def connect(
    *,
    agent: str | None = None,
    session: str = "api",
    cwd: str | None = None,
    socket: str | None = None,
    profile: str | None = None,
    provider: str | None = None,
    settings: Settings | None = None,
    asks: Asks | None = None,
) -> AsyncIterator[Client]:
    """Connect to the daemon for the duration of the block; start it if none is running.

    Without `agent`, the client is the user: terminals live on after the block, and no policy
    applies. With `agent`, a name that the user sees, the client is an agent: its terminals end with
    the block, and its commands are judged by the user's policy, and also by `profile` if given. For
    the user, only `Client.check` uses `profile`.

    `cwd` and `provider` are the defaults for terminals. `session` is the id of the agent's session.
    `socket` is the path of another socket that speaks the agents' protocol; the client is an agent
    then. `settings` are by default those of the settings file and the environment.

    `asks` asks the user about this agent's commands; it is called only if the setting
    `mcp_elicitation_approves` is on.

    Raises `DaemonError` if the daemon cannot be used, and `AcptermError` if the settings are
    invalid. An exception of the block is raised unchanged, not in an exception group. One process
    cannot be both the user and an agent at the same daemon: the user's socket refuses processes
    that have a connection as an agent.
    """
    if settings is None:
        try:
            settings = load()
        except ConfigError as error:
            raise AcptermError(str(error)) from error
    is_agent = agent is not None or socket is not None
    introduced = Introduction(agent or DEFAULT_AGENT, profile, elicits=asks is not None)
    if socket is not None:
        opened = await open_host(socket, settings, introduced)
    elif is_agent:
        opened = await open_agent(settings, introduced)
    else:
        opened = await open_user(settings)
    place = Place(session if is_agent else None, cwd, current_directory(), profile, provider)
    async with _serving(opened, settings, place, asks) as client:
        yield client


@asynccontextmanager
async def connect_stream(
    stream: ByteStream,
    settings: Settings,
    *,
    agent: str,
    session: str,
    cwd: str,
    profile: str | None = None,
    asks: Asks | None = None,
) -> AsyncIterator[Client]:
    """Connect an agent to the host at the other end of `stream`, like `connect`.

    The execution context of terminals is not sent: the host has one for this connection.
    """
    introduced = Introduction(agent, profile, elicits=asks is not None)
    opened = await open_stream(stream, settings, introduced)
    place = Place(session, None, cwd, profile)
    async with _serving(opened, settings, place, asks) as client:
        yield client


@asynccontextmanager
async def _serving(
    opened: Opened, settings: Settings, place: Place, asks: Asks | None
) -> AsyncIterator[Client]:
    try:
        client = Client(opened, settings, place, asks)
    except BaseException:
        await anyio.aclose_forcefully(opened.connected.stream)
        raise
    async with client._running():  # noqa: SLF001  `connect` is the only one that runs it
        yield client
