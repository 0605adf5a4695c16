"""Runs `acpterm proxy`: waits for the editor, connects to the daemon and starts the agent.

States, in order:

- *waiting* for the editor's first message. The editor's capabilities and the options decide whether
  the agent gets the host's terminals. For these, and for acpterm's MCP server, the proxy connects
  to the daemon, or starts one; with `embedded`, this process is the host instead.
- *running*: the agent runs, and messages are relayed in both directions (`relay`).
- *ending*, once the editor or the agent has closed its stream, or on a signal. If the agent has
  closed its stream, the editor's pending requests get an error response. Otherwise the agent's
  stdin is closed, and the agent has one second to exit before its process tree is killed. In this
  second its messages are passed on, but not after a signal. Then the terminals end, too.

Without an agent's command, a conductor runs the agent, and the first message is its
`proxy/initialize`. The states are the same, without the agent's part of *ending* (`successor`).

If the agent or the daemon cannot start, stderr and the responses to the editor have the error.
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal

import structlog
import trio

from acpterm.agents import agent_process as agents
from acpterm.agents.agent_process import AgentProcess, AgentStartError, exit_status
from acpterm.agents.agent_run import AgentOptions, open_hosted_agent
from acpterm.agents.envelope import parse_envelope
from acpterm.agents.host_connection import ConnectUser
from acpterm.agents.proxy import capabilities
from acpterm.agents.proxy.capabilities import Capabilities
from acpterm.agents.proxy.chat import OpenClient
from acpterm.agents.proxy.relay import LineReader, Relay
from acpterm.agents.proxy.successor import INITIALIZE, Successor
from acpterm.agents.wirelog import WireLog, open_log
from acpterm.commands.client import UserClient, open_user_client, user_client_on
from acpterm.config import Settings
from acpterm.jsonrpc import INTERNAL_ERROR, RpcError, encode_error
from acpterm.link.daemon import DaemonError
from acpterm.link.endpoint import HIGH_WATER_BYTES
from acpterm.link.errors import root_error
from acpterm.runtime import exec_context, logs, stdio
from acpterm.runtime.descriptors import raise_open_files
from acpterm.runtime.exec_context import ExecContext
from acpterm.runtime.send_queue import SendQueue
from acpterm.runtime.shutdown_signals import restore_signal_defaults, shutdown_event

_log = structlog.get_logger("acpterm.lines")

# Time for the editor to read what is queued for it, at the end.
_SEND_TIMEOUT_S: Final = 2.0
# How often to check whether the editor has hung up while its messages are not being read.
_HANG_UP_POLL_S: Final = 0.5
# Time for the editor to close its stream after it got the error that there is no agent.
_REFUSE_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True)
class ProxyOptions(AgentOptions):
    why_not: str | None = None
    """Why there is no agent to start, if so; the editor is sent it."""
    terminals: Literal["ours", "editor"] | None = None
    """Whose terminals the agent gets: acpterm's (`ours`) or the editor's. If None, the agent gets
    the editor's terminals if the editor has terminals and no profile is chosen, else acpterm's."""
    chat: bool = True
    """Whether prompts that begin with `/terminal` are answered here."""


async def run_proxy(stream: trio.abc.Stream, settings: Settings, options: ProxyOptions) -> int:
    """Relay between the editor at the other end of `stream` and an agent.

    Return the exit status: the agent's if the agent ended first, 1 if the agent or the daemon could
    not be started, else 0. Raises `LogError`, and `TrackingError` if the settings demand control
    groups, and this process may create none.
    """
    context = exec_context.current()
    raise_open_files()
    restore_signal_defaults()
    status = 0
    has_hung_up = stream.has_hung_up if isinstance(stream, stdio.StdioStream) else lambda: False
    async with shutdown_event(logs.log_shutdown) as shutdown, stream, open_log(options.log) as log:
        lines = LineReader(stream, settings.max_message_bytes, _log_oversized)
        editor = SendQueue(stream, HIGH_WATER_BYTES)
        async with trio.open_nursery() as nursery:
            gone = trio.CancelScope()
            sent = trio.Event()
            nursery.start_soon(_write, editor, gone, sent)
            nursery.start_soon(_cancel_when, shutdown, gone)
            with gone:
                session = _Run(
                    settings, options, lines=lines, editor=editor, log=log, has_hung_up=has_hung_up
                )
                status = await session.run(context)
            editor.close()
            with trio.move_on_after(_SEND_TIMEOUT_S):
                await sent.wait()
            nursery.cancel_scope.cancel()
    return status


class _Run:
    """One run: `lines` reads the editor's messages, `editor` is the queue of messages to it."""

    def __init__(
        self,
        settings: Settings,
        options: ProxyOptions,
        *,
        lines: LineReader,
        editor: SendQueue,
        log: WireLog,
        has_hung_up: Callable[[], bool],
    ) -> None:
        self._has_hung_up = has_hung_up
        self._settings = settings
        self._options = options
        self._log = log
        self._lines = lines
        self._editor = editor

    async def run(self, context: ExecContext) -> int:
        """Wait for the editor's first message; then start the agent, and relay until one ends."""
        # Without an agent, say so at once: a user who tries the command line sends no message.
        command = self._options.command
        why = self._options.why_not
        if command and why is None:
            why = agents.why_not_found(command[0])
        if why:
            _report(why)
        first: list[bytes] | None = []
        while not first:
            first = await self._lines.read()
            if first is None:
                return 1 if why else 0
        if not command and parse_envelope(first[0]).method != INITIALIZE:
            why = f"there is no agent: without -- AGENT, {INITIALIZE} of a conductor is expected"
            _report(why)
        if not why:
            try:
                return await self._start(first, context)
            except* (AgentStartError, DaemonError) as errors:
                why = root_error(errors)
            _report(why)
        await self._refuse(first, why)
        return 1

    async def _start(self, first: list[bytes], context: ExecContext) -> int:
        options, settings = self._options, self._settings
        message = parse_envelope(first[0])
        editor_capabilities = Capabilities()
        if message.method in ("initialize", INITIALIZE):
            editor_capabilities = capabilities.editor_capabilities(message.params)
        # A profile has no effect on the editor's terminals, so a chosen one demands ours.
        ours = options.terminals == "ours" or (
            options.terminals is None
            and (options.profile is not None or not editor_capabilities.has_terminals)
        )
        needs_host = ours or options.mcp is not None
        async with (
            open_hosted_agent(
                options, settings, context, "editor", needs_host=needs_host, stderr_filter=bytes
            ) as hosted,
            trio.open_nursery() as nursery,
        ):
            to_agent: SendQueue | Successor
            if hosted.process is None:
                to_agent = Successor(self._editor)
            else:
                to_agent = SendQueue(hosted.process.stdin, HIGH_WATER_BYTES)
            if hosted.host is not None:
                # The host's responses go to the agent: read no more of them than the agent does.
                hosted.host.throttle = to_agent.drain
            open_user = _client_opener(settings, options.config, hosted.connect_user)
            relay = Relay(
                self._editor,
                to_agent,
                editor_capabilities=editor_capabilities,
                settings=settings,
                log=self._log,
                hosted=hosted,
                nursery=nursery,
                ours=ours,
                open_user=open_user if options.chat else None,
                config=options.config,
            )
            if isinstance(to_agent, Successor):
                nursery.start_soon(relay.render)
                batch: list[bytes] | None = first
                while batch is not None:
                    await relay.handle_conductor_lines(batch, to_agent)
                    batch = await self._lines.read()
                status = 0
            else:
                for line in first:
                    relay.handle_editor_line(line)
                status = await self._relay(relay, hosted.agent, to_agent, nursery)
            nursery.cancel_scope.cancel()
        return status

    async def _relay(
        self, relay: Relay, agent: AgentProcess, to_agent: SendQueue, nursery: trio.Nursery
    ) -> int:
        ended, agent_done, flushed = trio.Event(), trio.Event(), trio.Event()

        async def read_editor() -> None:
            await relay.from_editor(self._lines)
            ended.set()

        async def read_agent() -> None:
            limit = self._settings.max_message_bytes
            await relay.from_agent(LineReader(agent.stdout, limit, relay.on_oversized))
            agent_done.set()
            ended.set()

        async def watch_for_hang_up() -> None:
            # While the agent does not read, the editor is not read from either: poll its stream.
            while not (to_agent.is_full and self._has_hung_up()):  # noqa: ASYNC110  there is no event for it
                await trio.sleep(_HANG_UP_POLL_S)
            ended.set()

        nursery.start_soon(_write, to_agent, trio.CancelScope(), flushed)
        nursery.start_soon(read_editor)
        nursery.start_soon(read_agent)
        nursery.start_soon(watch_for_hang_up)
        nursery.start_soon(relay.render)
        await ended.wait()
        if not agent_done.is_set():
            to_agent.close()
            with trio.move_on_after(agents.EXIT_TIMEOUT_S):
                await flushed.wait()
                await agent.close_stdin()
                await agent_done.wait()
            return 0
        relay.fail(RpcError(INTERNAL_ERROR, await agent.exit_message()))
        return exit_status(agent.returncode)

    async def _refuse(self, first: list[bytes], why: str) -> None:
        """Respond to each of the editor's requests with the error `why`, until it hangs up."""
        batch: list[bytes] | None = first
        with trio.move_on_after(_REFUSE_TIMEOUT_S):
            while batch is not None:
                for message in map(parse_envelope, batch):
                    if message.is_request:
                        error = RpcError(INTERNAL_ERROR, why)
                        self._editor.put(encode_error(message.key, error))
                batch = await self._lines.read()


def _client_opener(
    settings: Settings, config: str | None, connect_user: ConnectUser | None
) -> OpenClient:
    @asynccontextmanager
    async def open_client(start: bool) -> AsyncIterator[UserClient]:
        if connect_user is None:
            async with open_user_client(settings, config, start=start) as client:
                yield client
        else:
            async with user_client_on(await connect_user(), "the host", settings) as client:
                yield client

    return open_client


def _log_oversized(size: int) -> None:
    _log.error("message of the editor too long, dropped", bytes=size)


def _report(why: str) -> None:
    os.write(2, f"acpterm: {why}\n".encode(errors="replace"))


async def _write(queue: SendQueue, gone: trio.CancelScope, done: trio.Event) -> None:
    """Send the messages in `queue` until it is closed; if the receiver closes, cancel `gone`."""
    try:
        await queue.run()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        gone.cancel()
    done.set()


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
