"""`acpterm prompt` from its start to its end: an agent, a session, a turn.

States, in order:

- *starting*: the daemon, the agent, `initialize`, the session. At most `start_timeout` seconds.
- *prompting*: until the agent answers how the turn ended.
- *cancelling*, after the first Ctrl-C or at the end of `timeout`: the agent was told, and still
  answers. A second Ctrl-C, a SIGTERM or SIGHUP, or `GRACE` seconds after a timeout end it.
- *over*: what is due is printed, the agent is ended with its tree, and the terminals with it.

How it ends is the exit status: 0 the turn ended well; 1 it was refused or something failed; 124 it
timed out; 130 it was cancelled; 128 and the signal for others.
"""

import contextlib
import errno
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, NamedTuple

import trio

from acpterm.client.agent import FAREWELL, Agent, StartError, open_agent
from acpterm.client.daemon import DaemonError
from acpterm.client.endpoint import Answer, Endpoint
from acpterm.client.filestream import FileStream
from acpterm.client.leaves import leaf
from acpterm.client.link import open_link, reach
from acpterm.client.prompt.calls import Call, Calls
from acpterm.client.prompt.conversation import Conversation, ConversationError, Place
from acpterm.client.prompt.files import Files
from acpterm.client.prompt.permissions import Permissions, Rule
from acpterm.client.prompt.plain import plain
from acpterm.client.prompt.print_json import PrintJson
from acpterm.client.prompt.print_text import PrintText
from acpterm.client.prompt.printing import Printer
from acpterm.client.prompt.turn import Turn
from acpterm.client.terminals import Terminals
from acpterm.client.update import SESSION_UPDATE, Key
from acpterm.client.wirelog import LoggedStream, WireLog, open_log
from acpterm.config import Settings
from acpterm.host import asker as askers
from acpterm.host.asker import Asker
from acpterm.host.daemon import raise_open_files
from acpterm.host.ending import hear, minded
from acpterm.host.outbox import Outbox
from acpterm.jsonrpc import Event, Id, NotificationReceived, RpcError
from acpterm.pty.trees import open_trees

FAILED: Final = 1
TIMED_OUT: Final = 124
CANCELLED: Final = 130
# Seconds that an agent has to end a turn that timed out; and that what is printed has to be read.
GRACE: Final = 2.0
_SENDING: Final = 2.0

_STATUS: Final = {"end_turn": 0, "cancelled": CANCELLED}


class Wishes(NamedTuple):
    """What is to be done, and how."""

    command: Sequence[str]
    """The agent, and its arguments."""
    text: str
    """What it is to do."""
    place: Place
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


async def run_prompt(settings: Settings, wishes: Wishes) -> int:
    """Do it; give the exit status. Raises `TrackingError`, `LogError`."""
    asker = askers.own()
    raise_open_files()
    hear()
    out, complaints = Outbox(FileStream(1)), Outbox(FileStream(2))
    printer: Printer
    if wishes.as_json:
        printer = PrintJson(out.put)
    else:
        quiet = not wishes.verbose
        printer = PrintText(out.put, complaints.put, colours=wishes.colours, quiet=quiet)
    run = _Run(settings, wishes, printer, out)
    with trio.open_signal_receiver(*minded()) as signals:
        async with open_log(wishes.log) as log, trio.open_nursery() as nursery:
            written = [trio.Event(), trio.Event()]
            nursery.start_soon(run.write, out, written[0])
            nursery.start_soon(run.write, complaints, written[1])
            nursery.start_soon(run.watch, signals)
            nursery.start_soon(run.expire)
            with run.scope:
                await run.all(asker, log)
            if run.rubbish is not None and run.error is None:
                printer.notice(f"some of what the agent wrote is no message: {run.rubbish}")
            printer.end(run.stop_reason, run.status, run.error)
            out.close()
            complaints.close()
            with trio.move_on_after(_SENDING):
                for event in written:
                    await event.wait()
            nursery.cancel_scope.cancel()
    if run.unwritten is not None:
        with contextlib.suppress(OSError):
            os.write(2, f"acpterm: {run.unwritten}\n".encode())
    return run.status


class _Run:
    """One run, and what becomes of it."""

    def __init__(self, settings: Settings, wishes: Wishes, printer: Printer, out: Outbox) -> None:
        self.scope: Final = trio.CancelScope()
        self.status = FAILED
        self.stop_reason: str | None = None
        self.error: str | None = None
        self.unwritten: str | None = None
        """Why what was printed has not been written, if it has not."""
        self._settings = settings
        self._wishes = wishes
        self._printer = printer
        self._out = out
        self._conversation: Conversation | None = None
        self.rubbish: str | None = None
        self._over = False

    async def all(self, asker: Asker, log: WireLog) -> None:
        """Go through the states."""
        wishes, settings = self._wishes, self._settings
        try:
            # The daemon first: it is to be nobody's child, and the trees adopt orphans.
            daemon = None if wishes.embedded else await reach(settings, wishes.config)
            async with AsyncExitStack() as stack:
                trees = await stack.enter_async_context(open_trees(settings.tracking))
                opening = open_link(daemon, settings, asker, trees)
                host = await stack.enter_async_context(opening)
                grace = settings.kill_grace
                voice = _plain if wishes.verbose else None
                opened = open_agent(wishes.command, trees, grace=grace, voice=voice)
                agent = await stack.enter_async_context(opened)
                nursery = await stack.enter_async_context(trio.open_nursery())
                await self._talk(agent, host, log, nursery)
                nursery.cancel_scope.cancel()
        except* (StartError, DaemonError, ConversationError, RpcError) as errors:
            self._fail(leaf(errors))

    async def _talk(
        self, agent: Agent, host: Endpoint, log: WireLog, nursery: trio.Nursery
    ) -> None:
        wishes = self._wishes
        stream = LoggedStream(agent.stream, log, ("client->agent", "agent->client"))
        endpoint = Endpoint(stream, "the agent", self._settings.max_message_bytes, lenient=True)
        endpoint.rubbish = self._note_rubbish
        endpoint.fate = lambda: self._fate(agent)
        roots = [wishes.place.cwd, *wishes.place.more]
        calls = Calls()
        turn = Turn(self._printer, calls)
        conversation = Conversation(
            endpoint,
            nursery,
            files=Files(roots, read_only=wishes.read_only),
            read_only=wishes.read_only,
            permissions=Permissions(wishes.allow, self._printer.notice),
            calls=calls,
            updated=turn.updated,
            about_to_ask=self._show,
        )

        def answer(id_: Id, answer: Answer) -> None:
            if isinstance(answer, RpcError):
                endpoint.fail(id_, answer)
            else:
                endpoint.respond(id_, answer)

        conversation.terminals = Terminals(
            host,
            nursery,
            answer=answer,
            made=turn.made,
            take=turn.take,
            ended=turn.ended,
            room=self._out.room,
        )
        turn.follow = conversation.terminals.follow
        endpoint.ready = partial(self._ready, conversation.terminals, turn)
        endpoint.pace = self._out.room
        # The host's answers are for the agent to read.
        host.pace = endpoint.room
        nursery.start_soon(endpoint.run)
        session = await self._open(conversation, agent)
        self._printer.session(session)
        self._conversation = conversation
        self.stop_reason = await conversation.prompt(wishes.text)
        await conversation.terminals.turn_over(session)
        if self.status == FAILED:
            self.status = _STATUS.get(self.stop_reason, FAILED)
            if self.stop_reason == "cancelled":
                self.error = "the agent says that the turn was cancelled"
        self._over = True

    async def _open(self, conversation: Conversation, agent: Agent) -> str:
        wishes = self._wishes
        step = "initialize"
        with trio.move_on_after(wishes.start_timeout):
            await conversation.initialize()
            step = "the session's beginning"
            return await conversation.open(wishes.place, resume=wishes.resume, login=wishes.login)
        self.status = TIMED_OUT
        raise ConversationError(
            f"the agent {agent.command!r} did not answer {step} within {wishes.start_timeout:g} s "
            f"(--start-timeout){self._said(agent)}"
        )

    async def _ready(self, terminals: Terminals, turn: Turn, event: Event) -> None:
        """Wait until what terminals have printed stands above what the agent says of them."""
        over: list[Key] = []
        if isinstance(event, NotificationReceived) and event.method == SESSION_UPDATE:
            over = turn.finished_by(event.params)
        await terminals.settle(over)

    async def _show(self, call: Call) -> None:
        """Show a call, so that it stands above the question about it."""
        self._printer.asked(call)
        await self._out.empty()

    def _fail(self, why: str) -> None:
        self.error = why

    def _note_rubbish(self, error: RpcError) -> None:
        if self.rubbish is None:
            self.rubbish = error.message

    def _said(self, agent: Agent) -> str:
        """Give what the agent said that may explain why it does not answer."""
        rubbish = f"; what it wrote on stdout is no message: {self.rubbish}"
        return (rubbish if self.rubbish else "") + agent.said()

    async def _fate(self, agent: Agent) -> str:
        """Say how the agent ended, once that is known."""
        with trio.move_on_after(FAREWELL):
            await agent.exited.wait()
        await agent.wait_heard()
        rubbish = f"; what it wrote on stdout is no message: {self.rubbish}"
        return agent.fate() + (rubbish if self.rubbish else "")

    # What ends it early

    async def watch(self, signals: AsyncIterator[int]) -> None:
        """Take the signals that end it: a first SIGINT politely."""
        async for number in signals:
            if self._over:
                # How it ended is known; the end can be hurried.
                self.scope.cancel()
                continue
            polite = number == signal.SIGINT and self.status != CANCELLED
            self.status = 128 + number
            if not polite or self._conversation is None or not self._cancel():
                self.error = self.error or f"ended by {signal.Signals(number).name}"
                self.scope.cancel()
            else:
                self._printer.notice("cancelled; Ctrl-C once more ends the agent")

    async def expire(self) -> None:
        """Cancel when the time is over, and end the agent if that does not help."""
        if self._wishes.timeout == float("inf"):
            return
        await trio.sleep(self._wishes.timeout)
        if self._over:
            return
        self.status = TIMED_OUT
        self.error = f"timed out after {self._wishes.timeout:g} s (--timeout)"
        if self._cancel():
            await trio.sleep(GRACE)
        self.scope.cancel()

    async def write(self, outbox: Outbox, written: trio.Event) -> None:
        """Print; when that cannot be done any more, all is over."""
        try:
            await outbox.run()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.status = FAILED
            cause = error.__cause__
            # Whoever closed it, as `head` does, knows.
            if not (isinstance(cause, OSError) and cause.errno == errno.EPIPE):
                self.unwritten = f"what is to be said cannot be written: {error}"
            self.scope.cancel()
        written.set()

    def _cancel(self) -> bool:
        """Have the agent end the turn, if there is one."""
        if self._conversation is None:
            return False
        self._conversation.cancel()
        return True


def _plain(data: bytes) -> bytes:
    return plain(data.decode(errors="replace")).encode()


def wants_colours(fd: int) -> bool:
    """Whether what is written to `fd` may be coloured (https://no-color.org)."""
    env = os.environ
    return os.isatty(fd) and not env.get("NO_COLOR") and env.get("TERM", "dumb") != "dumb"
