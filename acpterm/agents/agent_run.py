"""Starts an agent whose terminals a host runs, for `acpterm proxy` and `acpterm prompt`."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from acpterm.acp.approvals import ApproverKind, ApproverRequest
from acpterm.agents.agent_process import AgentProcess, StderrFilter, open_agent
from acpterm.agents.host_connection import ConnectUser, connect_daemon, open_host_connection
from acpterm.agents.questions import PendingQuestions
from acpterm.agents.session_sockets.routes import EventRoutes
from acpterm.agents.session_sockets.server_entry import McpOptions
from acpterm.agents.session_sockets.sockets import SessionSockets, open_session_sockets
from acpterm.config import Settings
from acpterm.link.endpoint import Endpoint
from acpterm.pty.tracking.trees import open_trees
from acpterm.runtime.command_line import command_line
from acpterm.runtime.exec_context import ExecContext


@dataclass(frozen=True)
class AgentOptions:
    """The options that `acpterm proxy` and `acpterm prompt` share."""

    command: Sequence[str]
    """The agent's program and its arguments; none if a conductor runs the agent."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that are added for the agent."""
    config: str | None = None
    """The path of the settings file given on the command line, if any."""
    embedded: bool = False
    """Whether to run terminals in this process instead of the daemon."""
    log: str | None = None
    """The file for the wire log."""
    profile: str | None = None
    """The profile of the agent's terminals; None for the profile in the settings."""
    mcp: McpOptions | None = None
    """How to add acpterm's MCP server to sessions; None to add none."""


class Hosted(NamedTuple):
    """A running agent, and the host of its terminals, if there is one."""

    process: AgentProcess | None
    """The agent's process; None if a conductor runs it."""
    questions: PendingQuestions
    host: Endpoint | None = None
    connect_user: ConnectUser | None = None
    """Connects to the user's API of a host in this process; None if the daemon is the host."""
    sockets: SessionSockets | None = None
    """The sockets of acpterm's MCP server, with `--mcp`."""

    @property
    def agent(self) -> AgentProcess:
        assert self.process is not None  # noqa: S101  `prompt` needs a command
        return self.process


@asynccontextmanager
async def open_hosted_agent(
    options: AgentOptions,
    settings: Settings,
    context: ExecContext,
    kind: ApproverKind,
    *,
    needs_host: bool = True,
    stderr_filter: StderrFilter | None,
) -> AsyncIterator[Hosted]:
    """Connect to the daemon, or become the host, and run the agent for the duration of the block.

    Terminals start with `context`.
    """
    request = ApproverRequest(kind, agent=list(options.command), profile=options.profile)
    questions, routes = PendingQuestions(request), EventRoutes()
    # Before the trees, which make us a subreaper: the daemon must not become our child.
    daemon = None
    if needs_host and not options.embedded:
        daemon = await connect_daemon(settings, options.config, questions)
    async with AsyncExitStack() as stack:
        trees = await stack.enter_async_context(open_trees(settings.tracking))
        host = connect_user = sockets = None
        if needs_host:
            command = options.command or ["agent"]
            name = command_line(command[0], command[1:])
            opening = open_host_connection(
                daemon, settings, context, name, questions, on_notification=routes.on_notification
            )
            host, connect_user = await stack.enter_async_context(opening)
            if options.mcp is not None:
                with_sockets = open_session_sockets(host, routes, options.mcp)
                sockets = await stack.enter_async_context(with_sockets)
        agent = None
        if options.command:
            grace, env = settings.kill_grace, options.env
            opened = open_agent(
                options.command, trees, env=env, grace=grace, stderr_filter=stderr_filter
            )
            agent = await stack.enter_async_context(opened)
        yield Hosted(agent, questions, host, connect_user, sockets)
