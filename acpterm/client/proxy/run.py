"""`acpterm proxy` from its start to its end: the editor, the daemon, the agent, in this order.

States, in order:

- *asked*: the editor's first message has come, which says what it can do: whether the terminals are
  to be ours. If so the daemon is connected to, and started if it is not running.
- *started*: the agent runs, and messages go both ways (`relay`).
- *ending*, for one of these reasons: the editor has said its last or reads no more; the agent has;
  a signal. What the editor still waits for is answered when the agent is gone. The agent has its
  stdin closed, a second to go, and then its whole tree is ended; meanwhile what it says is passed
  on. The terminals end with the connection to the host.

An agent or a daemon that cannot be started is an error in answer to `initialize`, and on stderr.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final, Literal, NamedTuple

import trio

from acpterm.client import agent_process as agents
from acpterm.client.agent_process import AgentProcess, StartError, exit_status, open_agent
from acpterm.client.daemon import DaemonError
from acpterm.client.endpoint import HIGH_WATER_BYTES
from acpterm.client.envelope import parse_envelope
from acpterm.client.errors import root_error
from acpterm.client.host_connection import connect_daemon, open_host_connection
from acpterm.client.proxy import capabilities
from acpterm.client.proxy.capabilities import Capabilities
from acpterm.client.proxy.lines import Lines
from acpterm.client.proxy.relay import Relay
from acpterm.client.wirelog import WireLog, open_log
from acpterm.config import Settings
from acpterm.jsonrpc import INTERNAL_ERROR, RpcError, encode_error
from acpterm.pty.tracking.trees import open_trees
from acpterm.runtime import exec_context, logs, stdio
from acpterm.runtime.command_line import command_line
from acpterm.runtime.descriptors import raise_open_files
from acpterm.runtime.exec_context import ExecContext
from acpterm.runtime.send_queue import SendQueue
from acpterm.runtime.shutdown_signals import restore_signal_defaults, shutdown_event

# Seconds for what is due to the editor to be read, when all is over.
_SEND_TIMEOUT_S: Final = 2.0
# Seconds between two looks whether the editor is there, while it cannot be read from.
_LOOK: Final = 0.5
# Seconds that an editor has to leave after it was told that there is no agent.
_REFUSE_TIMEOUT_S: Final = 2.0

Choice = Literal["ours", "editor"]


class ProxyOptions(NamedTuple):
    """How the proxy is to be."""

    command: Sequence[str]
    """The agent, and its arguments."""
    config: str | None = None
    """The file that settings were read from, if one was named."""
    embedded: bool = False
    """Whether the terminals are in this process, and not the daemon's."""
    terminals: Choice | None = None
    """Whose terminals the agent gets; None is the editor's, if it has any."""
    log: str | None = None
    """The file to write the wire to."""


async def run_proxy(stream: trio.abc.Stream, settings: Settings, options: ProxyOptions) -> int:
    """Stand between the editor at the other end of `stream` and an agent. Gives the exit status.

    That is the agent's when it ended by itself; 1 when there is none; else 0. Raises
    `TrackingError`, `LogError`.
    """
    context = exec_context.current()
    raise_open_files()
    restore_signal_defaults()
    status = 0
    has_gone = stream.has_hung_up if isinstance(stream, stdio.StdioStream) else lambda: False
    async with shutdown_event(logs.log_shutdown) as told, stream, open_log(options.log) as log:
        lines = Lines(stream, "the editor", settings.max_message_bytes)
        editor = SendQueue(stream, HIGH_WATER_BYTES)
        async with trio.open_nursery() as nursery:
            gone = trio.CancelScope()
            sent = trio.Event()
            nursery.start_soon(_write, editor, gone, sent)
            nursery.start_soon(_cancel_when, told, gone)
            with gone:
                session = _Session(
                    settings, options, lines=lines, editor=editor, log=log, has_gone=has_gone
                )
                status = await session.run(context)
            editor.close()
            with trio.move_on_after(_SEND_TIMEOUT_S):
                await sent.wait()
            nursery.cancel_scope.cancel()
    return status


class _Session:
    """One editor, one agent."""

    def __init__(
        self,
        settings: Settings,
        options: ProxyOptions,
        *,
        lines: Lines,
        editor: SendQueue,
        log: WireLog,
        has_gone: Callable[[], bool],
    ) -> None:
        self._has_gone = has_gone
        self._settings = settings
        self._options = options
        self._log = log
        self._lines = lines
        self._editor = editor

    async def run(self, context: ExecContext) -> int:
        """Go through the states; give the exit status."""
        first: list[bytes] | None = []
        while not first:
            first = await self._lines.read()
            if first is None:
                return 0
        try:
            return await self._start(first, context)
        except* (StartError, DaemonError) as errors:
            why = root_error(errors)
        os.write(2, f"acpterm: {why}\n".encode(errors="replace"))
        await self._refuse(first, why)
        return 1

    async def _start(self, first: list[bytes], context: ExecContext) -> int:
        options, settings = self._options, self._settings
        seen = parse_envelope(first[0])
        capable = Capabilities()
        if seen.method == "initialize":
            capable = capabilities.of_editor(seen.params)
        ours = options.terminals == "ours" or (options.terminals is None and not capable.terminals)
        # The daemon first: it is to be nobody's child, and the trees adopt orphans.
        daemon = (
            await connect_daemon(settings, options.config)
            if ours and not options.embedded
            else None
        )
        async with AsyncExitStack() as stack:
            trees = await stack.enter_async_context(open_trees(settings.tracking))
            link = None
            if ours:
                opening = open_host_connection(
                    daemon, settings, context, command_line(options.command[0], options.command[1:])
                )
                link = await stack.enter_async_context(opening)
            grace = settings.kill_grace
            opened = open_agent(options.command, trees, grace=grace, voice=bytes)
            agent = await stack.enter_async_context(opened)
            nursery = await stack.enter_async_context(trio.open_nursery())
            to_agent = SendQueue(agent.stdin, HIGH_WATER_BYTES)
            if link is not None:
                # The host's answers are for the agent to read.
                link.throttle = to_agent.drain
            relay = Relay(
                self._editor,
                to_agent,
                capable=capable,
                settings=settings,
                log=self._log,
                host=link,
                nursery=nursery,
            )
            for line in first:
                relay.editor_said(line)
            status = await self._relay(relay, agent, to_agent, nursery)
            nursery.cancel_scope.cancel()
            return status

    async def _relay(
        self, relay: Relay, agent: AgentProcess, to_agent: SendQueue, nursery: trio.Nursery
    ) -> int:
        """Have messages go both ways until one side has said its last."""
        over, agent_done, flushed = trio.Event(), trio.Event(), trio.Event()

        async def read_editor() -> None:
            await relay.from_editor(self._lines)
            over.set()

        async def read_agent() -> None:
            limit = self._settings.max_message_bytes
            await relay.from_agent(Lines(agent.stdout, "the agent", limit))
            agent_done.set()
            over.set()

        async def see_editor_go() -> None:
            # One that is not read from, since the agent does not read, is not heard to go.
            while not (to_agent.is_full and self._has_gone()):  # noqa: ASYNC110  nobody tells of it
                await trio.sleep(_LOOK)
            over.set()

        nursery.start_soon(_write, to_agent, trio.CancelScope(), flushed)
        nursery.start_soon(read_editor)
        nursery.start_soon(read_agent)
        nursery.start_soon(see_editor_go)
        nursery.start_soon(relay.render)
        await over.wait()
        if not agent_done.is_set():
            to_agent.close()
            with trio.move_on_after(agents.EXIT_TIMEOUT_S):
                await flushed.wait()
                await agent.close_stdin()
                await agent_done.wait()
            return 0
        with trio.move_on_after(agents.EXIT_TIMEOUT_S):
            await agent.exited.wait()
        await agent.wait_stderr_closed()
        relay.fail(RpcError(INTERNAL_ERROR, agent.exit_message()))
        return exit_status(agent.returncode)

    async def _refuse(self, first: list[bytes], why: str) -> None:
        """Answer what the editor asks with the reason why there is no agent, until it leaves."""
        batch: list[bytes] | None = first
        with trio.move_on_after(_REFUSE_TIMEOUT_S):
            while batch is not None:
                for seen in map(parse_envelope, batch):
                    if seen.is_request:
                        error = RpcError(INTERNAL_ERROR, why)
                        self._editor.put(encode_error(seen.key, error))
                batch = await self._lines.read()


async def _write(outbox: SendQueue, gone: trio.CancelScope, done: trio.Event) -> None:
    """Send what is put into an outbox; when nobody reads it, cancel `gone`."""
    try:
        await outbox.run()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        gone.cancel()
    done.set()


async def _cancel_when(told: trio.Event, scope: trio.CancelScope) -> None:
    await told.wait()
    scope.cancel()
