"""`acpterm prompt` from its start to its end: an agent, a session, a turn.

States, in order:

- *starting*: the daemon, the agent, `initialize`, the session. At most `start_timeout` seconds.
- *prompting*: until the agent answers how the turn ended.
- *cancelling*, after the first Ctrl-C or at the end of `timeout`: the agent was told, and still
  answers. A second Ctrl-C, a SIGTERM or SIGHUP, or `GRACE` seconds after a timeout end it.
- *over*: what is due is printed, the agent is ended with its tree, and the terminals with it.

How it ends is the exit status: 0 the turn ended well; 1 it was refused or something failed; 3 the
agent was not allowed what it asked for, and did nothing; 124 it timed out; 130 it was cancelled;
128 and the signal for others.
"""

import contextlib
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, NamedTuple

import trio

from acpterm.client.agent_process import EXIT_TIMEOUT_S, AgentProcess, StartError, open_agent
from acpterm.client.daemon import DaemonError
from acpterm.client.endpoint import Endpoint
from acpterm.client.errors import root_error
from acpterm.client.host_connection import connect_daemon, open_host_connection
from acpterm.client.prompt.acp_client import AcpClient, AcpError, Workspace
from acpterm.client.prompt.files import Files
from acpterm.client.prompt.json_printer import JsonPrinter
from acpterm.client.prompt.outcome import TIMED_OUT, Outcome
from acpterm.client.prompt.permissions import Permissions, Rule
from acpterm.client.prompt.printer import Printer
from acpterm.client.prompt.text_printer import TextPrinter
from acpterm.client.prompt.tool_calls import ToolCalls, ToolCallState
from acpterm.client.prompt.turn import Turn
from acpterm.client.sanitize import strip_controls
from acpterm.client.terminals import Terminals
from acpterm.client.update import SESSION_UPDATE, SessionKey
from acpterm.client.wirelog import LoggedStream, WireLog, open_log
from acpterm.config import Settings
from acpterm.jsonrpc import Event, NotificationReceived, RpcError
from acpterm.pty.tracking.trees import open_trees
from acpterm.runtime import exec_context
from acpterm.runtime.command_line import command_line
from acpterm.runtime.descriptors import raise_open_files
from acpterm.runtime.exec_context import ExecContext
from acpterm.runtime.send_queue import SendQueue
from acpterm.runtime.shutdown_signals import restore_signal_defaults, shutdown_signals
from acpterm.runtime.stdio import FileStream

# Seconds that what is printed has to be read.
_SEND_TIMEOUT_S: Final = 2.0


class PromptOptions(NamedTuple):
    """What is to be done, and how."""

    command: Sequence[str]
    """The agent, and its arguments."""
    text: str
    """What it is to do."""
    place: Workspace
    config: str | None = None
    """The file that settings were read from, if one was named."""
    embedded: bool = False
    allow: Rule = "ask"
    read_only: bool = False
    resume: str | None = None
    login: str | None = None
    timeout: float = float("inf")
    """Seconds for all of it."""
    start_timeout: float = 60.0
    """Seconds until the session has to be there."""
    as_json: bool = False
    colours: bool = False
    verbose: bool = False
    """Whether the person sees the agent's stderr and the session's id."""
    log: str | None = None
    """The file to write the wire to."""


async def run_prompt(settings: Settings, options: PromptOptions) -> int:
    """Do it; give the exit status. Raises `TrackingError`, `LogError`."""
    context = exec_context.current()
    raise_open_files()
    restore_signal_defaults()
    out, complaints = SendQueue(FileStream(1)), SendQueue(FileStream(2))
    printer: Printer
    if options.as_json:
        printer = JsonPrinter(out.put)
    else:
        quiet = not options.verbose
        printer = TextPrinter(out.put, complaints.put, colours=options.colours, quiet=quiet)
    outcome = Outcome(printer.notice)
    run = _Run(settings, options, printer, out, outcome)
    with trio.open_signal_receiver(*shutdown_signals()) as signals:
        async with open_log(options.log) as log, trio.open_nursery() as nursery:
            written = [trio.Event(), trio.Event()]
            nursery.start_soon(outcome.write, out, written[0])
            nursery.start_soon(outcome.write, complaints, written[1])
            nursery.start_soon(outcome.watch, signals)
            nursery.start_soon(outcome.expire, options.timeout)
            with outcome.scope:
                await run.all(context, log)
            if run.rubbish is not None and outcome.error is None:
                printer.notice(f"some of what the agent wrote is no message: {run.rubbish}")
            printer.end(outcome.stop_reason, outcome.status, outcome.error)
            out.close()
            complaints.close()
            with trio.move_on_after(_SEND_TIMEOUT_S):
                for event in written:
                    await event.wait()
            nursery.cancel_scope.cancel()
    if outcome.unwritten is not None:
        with contextlib.suppress(OSError):
            os.write(2, f"acpterm: {outcome.unwritten}\n".encode())
    return outcome.status


class _Run:
    """One run, and what becomes of it."""

    def __init__(
        self,
        settings: Settings,
        options: PromptOptions,
        printer: Printer,
        out: SendQueue,
        outcome: Outcome,
    ) -> None:
        self.rubbish: str | None = None
        """What was wrong with the first line of the agent's that was no message."""
        self._outcome = outcome
        self._settings = settings
        self._options = options
        self._printer = printer
        self._out = out

    async def all(self, context: ExecContext, log: WireLog) -> None:
        """Go through the states."""
        options, settings = self._options, self._settings
        try:
            # The daemon first: it is to be nobody's child, and the trees adopt orphans.
            daemon = None if options.embedded else await connect_daemon(settings, options.config)
            async with AsyncExitStack() as stack:
                trees = await stack.enter_async_context(open_trees(settings.tracking))
                opening = open_host_connection(
                    daemon, settings, context, command_line(options.command[0], options.command[1:])
                )
                host = await stack.enter_async_context(opening)
                grace = settings.kill_grace
                voice = _plain if options.verbose else None
                opened = open_agent(options.command, trees, grace=grace, voice=voice)
                agent = await stack.enter_async_context(opened)
                nursery = await stack.enter_async_context(trio.open_nursery())
                await self._talk(agent, host, log, nursery)
                nursery.cancel_scope.cancel()
        except* (StartError, DaemonError, AcpError, RpcError) as errors:
            self._outcome.error = root_error(errors)

    async def _talk(
        self, agent: AgentProcess, host: Endpoint, log: WireLog, nursery: trio.Nursery
    ) -> None:
        options = self._options
        stream = LoggedStream(agent.stream, log, ("client->agent", "agent->client"))
        endpoint = Endpoint(stream, "the agent", self._settings.max_message_bytes, lenient=True)
        endpoint.on_invalid = self._note_rubbish
        endpoint.exit_reason = lambda: self._fate(agent)
        roots = [options.place.cwd, *options.place.additional_directories]
        calls = ToolCalls()
        turn = Turn(self._printer, calls)
        conversation = AcpClient(
            endpoint,
            nursery,
            files=Files(roots, read_only=options.read_only),
            read_only=options.read_only,
            permissions=Permissions(options.allow, self._printer.notice),
            calls=calls,
            updated=turn.updated,
            about_to_ask=self._show,
        )
        conversation.terminals = Terminals(
            host,
            nursery,
            answer=endpoint.respond_raw,
            made=turn.made,
            take=turn.take,
            ended=turn.ended,
            room=self._out.drain,
        )
        turn.follow = conversation.terminals.follow
        endpoint.before_event = partial(self._ready, conversation.terminals, turn)
        endpoint.throttle = partial(self._room, conversation.terminals)
        # The host's answers are for the agent to read.
        host.throttle = endpoint.drain
        nursery.start_soon(endpoint.run)
        session = await self._open(conversation, agent)
        self._printer.session(session)
        self._outcome.cancel = conversation.cancel
        reason = await conversation.prompt(options.text)
        await conversation.terminals.end_turn(session)
        self._outcome.turn_ended(reason, refusals=0 if calls.acted else calls.refusals)

    async def _open(self, conversation: AcpClient, agent: AgentProcess) -> str:
        options = self._options
        step = "initialize"
        with trio.move_on_after(options.start_timeout):
            await conversation.initialize()
            step = "the session's beginning"
            return await conversation.open(
                options.place, resume=options.resume, login=options.login
            )
        self._outcome.status = TIMED_OUT
        raise AcpError(
            f"the agent {agent.command!r} did not answer {step} within {options.start_timeout:g} s "
            f"(--start-timeout){self._said(agent)}"
        )

    async def _room(self, terminals: Terminals) -> None:
        await self._out.drain()
        await terminals.drain()

    async def _ready(self, terminals: Terminals, turn: Turn, event: Event) -> None:
        """Wait until what terminals have printed stands above what the agent says of them."""
        over: list[SessionKey] = []
        if isinstance(event, NotificationReceived) and event.method == SESSION_UPDATE:
            over = turn.finished_by(event.params)
        await terminals.settle(over)

    async def _show(self, call: ToolCallState) -> None:
        """Show a call, so that it stands above the question about it."""
        self._printer.asked(call)
        await self._out.flush()

    def _note_rubbish(self, error: RpcError) -> None:
        if self.rubbish is None:
            self.rubbish = error.message

    def _said(self, agent: AgentProcess) -> str:
        """Give what the agent said that may explain why it does not answer."""
        return self._rubbish_told() + agent.stderr_tail()

    async def _fate(self, agent: AgentProcess) -> str:
        """Say how the agent ended, once that is known."""
        with trio.move_on_after(EXIT_TIMEOUT_S):
            await agent.exited.wait()
        await agent.wait_stderr_closed()
        return agent.exit_message() + self._rubbish_told()

    def _rubbish_told(self) -> str:
        return f"; what it wrote on stdout is no message: {self.rubbish}" if self.rubbish else ""


def _plain(data: bytes) -> bytes:
    return strip_controls(data.decode(errors="replace")).encode()


def wants_colours(fd: int) -> bool:
    """Whether what is written to `fd` may be coloured (https://no-color.org)."""
    env = os.environ
    return os.isatty(fd) and not env.get("NO_COLOR") and env.get("TERM", "dumb") != "dumb"
