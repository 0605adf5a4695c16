"""`connect`: the entry to the Python API. It keeps a connection open for the duration of a block.

`connect` owns the connection and the task that reads from it. At the end of an agent's block the
daemon ends the agent's terminals; terminals of the user live on.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from anyio.abc import ByteStream

from acpterm.acp.agent_meta import OWN
from acpterm.api.client import Client, Opened, Place
from acpterm.api.errors import AcptermError, DaemonError
from acpterm.api.questions import Asks
from acpterm.config import ConfigError, Settings, load
from acpterm.link.daemon_stream import DaemonRecovery, introduce, open_path
from acpterm.link.daemon_stream import connect as connect_daemon
from acpterm.link.handshake import initialize_params
from acpterm.runtime import exec_context
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
    if not is_agent:
        opened = await _open_user(settings)
    else:
        params = initialize_params(
            agent or DEFAULT_AGENT,
            exec_context.current(),
            profile=profile,
            elicits=asks is not None,
        )
        opened = await (
            _open_agent(settings, params)
            if socket is None
            else _open_host(socket, settings, params)
        )
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
    params = initialize_params(agent, profile=profile, elicits=asks is not None)
    connected, _ = await introduce(stream, "the host", params, settings)
    opened = Opened(connected, None, "the host")
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


async def _open_user(settings: Settings) -> Opened:
    """Connect to the user's socket; start the daemon if needed."""

    def params(_: str | None) -> dict[str, Any]:
        return initialize_params("acpterm", exec_context.current())

    recovery = DaemonRecovery(settings, params, user=True)
    stream = await connect_daemon(settings, user=True)
    connected, _ = await introduce(stream, recovery.name, params(None), settings)
    return Opened(connected, recovery, recovery.name)


async def _open_agent(settings: Settings, params: dict[str, Any]) -> Opened:
    """Connect to the agents' socket; start the daemon if needed."""

    def resuming(secret: str | None) -> dict[str, Any]:
        return initialize_params(secret=secret, elicits="elicits" in params["_meta"][OWN])

    recovery = DaemonRecovery(settings, resuming)
    stream = await connect_daemon(settings)
    connected, welcome = await introduce(stream, recovery.name, params, settings)
    recovery.welcomed(welcome)
    return Opened(connected, recovery, recovery.name)


async def _open_host(path: str, settings: Settings, params: dict[str, Any]) -> Opened:
    """Connect to the host that listens on the Unix socket `path`, as an agent."""
    name = f"the host at {path}"
    try:
        stream = await open_path(path)
    except (OSError, DaemonError) as error:
        raise DaemonError(f"{name} cannot be used: {error}") from error
    connected, _ = await introduce(stream, name, params, settings)
    return Opened(connected, None, name)
