"""Opens the connection of a `Client`: to the daemon, to the host at a path, or on a given stream.

A connection to the daemon survives the death of its worker; the others do not. `DaemonError` is
raised if the daemon ends while the connection is opened, if it refuses `initialize`, or if it
belongs to another user.
"""

from functools import partial
from typing import Any, NamedTuple

from anyio.abc import ByteStream

from acpterm.api.errors import DaemonError
from acpterm.config import Settings
from acpterm.link.daemon_stream import Connected, DaemonRecovery, connect, introduce, open_path
from acpterm.link.handshake import initialize_params
from acpterm.runtime import exec_context


class Opened(NamedTuple):
    """An open connection to the host `name`; `recovery` is None if it cannot be replaced."""

    connected: Connected
    recovery: DaemonRecovery | None
    name: str


class Introduction(NamedTuple):
    """What an agent sends in `initialize`.

    `agent` is its name. `profile` is the name of a policy profile that applies in addition to the
    one that the host selects. `elicits` says whether the agent's client can ask its user
    (`connect(asks=…)`).
    """

    agent: str
    profile: str | None = None
    elicits: bool = False

    def params(self, context: exec_context.ExecContext | None) -> dict[str, Any]:
        """Return the params of `initialize`."""
        return initialize_params(self.agent, context, profile=self.profile, elicits=self.elicits)


async def open_user(settings: Settings) -> Opened:
    """Connect to the user's socket; start the daemon if needed."""

    def params(_: str | None) -> dict[str, Any]:
        return initialize_params("acpterm", exec_context.current())

    recovery = DaemonRecovery(settings, params, user=True)
    stream = await connect(settings, user=True)
    connected, _ = await introduce(stream, recovery.name, params(None), settings)
    return Opened(connected, recovery, recovery.name)


async def open_agent(settings: Settings, agent: Introduction) -> Opened:
    """Connect to the agents' socket; start the daemon if needed."""
    resuming = partial(initialize_params, None, None, elicits=agent.elicits)
    recovery = DaemonRecovery(settings, resuming)
    stream = await connect(settings)
    params = agent.params(exec_context.current())
    connected, welcome = await introduce(stream, recovery.name, params, settings)
    recovery.welcomed(welcome)
    return Opened(connected, recovery, recovery.name)


async def open_host(path: str, settings: Settings, agent: Introduction) -> Opened:
    """Connect to the host that listens on the Unix socket `path`, as an agent."""
    name = f"the host at {path}"
    try:
        stream = await open_path(path)
    except (OSError, DaemonError) as error:
        raise DaemonError(f"{name} cannot be used: {error}") from error
    params = agent.params(exec_context.current())
    connected, _ = await introduce(stream, name, params, settings)
    return Opened(connected, None, name)


async def open_stream(stream: ByteStream, settings: Settings, agent: Introduction) -> Opened:
    """Connect an agent to the host at the other end of `stream`, which has its context already."""
    connected, _ = await introduce(stream, "the host", agent.params(None), settings)
    return Opened(connected, None, "the host")
