"""Runs `acpterm prompt`: starts an agent, opens a session and runs one turn.

States, in order:

- *starting*: the daemon and the agent are started. `initialize` and opening the session may take
  `start_timeout` seconds.
- *prompting*, until the agent's response to `session/prompt` ends the turn.
- *cancelling*, after the first Ctrl-C or once `timeout` has passed: a `session/cancel` was sent,
  and the agent should end the turn. If it does not, the run ends on a second Ctrl-C, on SIGTERM,
  on SIGHUP, or `CANCEL_TIMEOUT_S` seconds after a timeout.
- *ending*: queued output is printed, and the agent's process tree and its terminals are ended.

Exit status: 0 if the turn ended normally; 1 after a refusal, a limit or an error; 3 if the agent
did nothing because the permissions that it requested were refused; 124 after a timeout; 130 if the
turn was cancelled; 128 + N after any other signal N. The first cause decides (`outcome`).
"""

import contextlib
import errno
import itertools
import math
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
import trio

from acpterm.acp.agent_api import AgentListRequest
from acpterm.acp.user_api import ListResponse
from acpterm.agents.agent_process import AgentProcess, AgentStartError
from acpterm.agents.agent_run import Hosted, open_hosted_agent
from acpterm.agents.prompt.acp_client import AcpClient, AcpError, PromptOptions
from acpterm.agents.prompt.printer import JsonPrinter, TextPrinter, TurnPrinter
from acpterm.agents.terminals import SessionTerminals
from acpterm.agents.wirelog import WireLog, open_log
from acpterm.commands.format import background, background_line
from acpterm.config import Settings
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon import DaemonError
from acpterm.link.errors import root_error
from acpterm.runtime import exec_context
from acpterm.runtime.descriptors import raise_open_files
from acpterm.runtime.exec_context import ExecContext
from acpterm.runtime.sanitize import strip_controls
from acpterm.runtime.send_queue import SendQueue
from acpterm.runtime.shutdown_signals import restore_signal_defaults, shutdown_signals
from acpterm.runtime.stdio import FileStream

FAILED: Final = 1
NOT_ALLOWED: Final = 3
TIMED_OUT: Final = 124
CANCELLED: Final = 130
# Time for the agent to end a turn that timed out.
CANCEL_TIMEOUT_S: Final = 2.0

_STATUS: Final = {"end_turn": 0, "cancelled": CANCELLED}


class RunOutcome:
    """Records why a run ends, and its exit status; ends the run by cancelling `scope`.

    The first cause decides the exit status; later causes can only end the run sooner. But a success
    becomes a failure if the rest of the output cannot be written.
    """

    def __init__(self, notice: Callable[[str], None]) -> None:
        self.scope: Final = trio.CancelScope()
        """The scope of the run: cancelling it ends the agent."""
        self.cancel: Callable[[], None] | None = None
        """Cancels the agent's turn; None until the turn can be cancelled."""
        self.status = FAILED
        """The exit status of `acpterm prompt`."""
        self.stop_reason: str | None = None
        """The stop reason of the turn; None until it has ended."""
        self.error: str | None = None
        self.write_error: str | None = None
        """Why stdout or stderr could not be written to; None if they could."""
        self._notice = notice
        self._is_decided = False

    def decide(self, status: int) -> bool:
        """Set the exit status to `status`, unless an earlier cause has set it."""
        if self._is_decided:
            return False
        self.status, self._is_decided = status, True
        return True

    def turn_ended(self, reason: str, *, refusals: int = 0) -> None:
        self.stop_reason = reason
        status = _STATUS.get(reason, FAILED)
        if status == 0 and refusals:
            status = NOT_ALLOWED
        if not self.decide(status):
            return
        if reason == "cancelled":
            self.error = "the agent says that the turn was cancelled"
        elif status == NOT_ALLOWED:
            count = "1 request was" if refusals == 1 else f"{refusals} requests were"
            self.error = (
                f"{count} refused and nothing was done: --allow all allows what the agent asks "
                "for, --allow reads what it calls reading or searching"
            )

    async def watch(self, signals: AsyncIterator[int]) -> None:
        """End the run on a signal; but the first SIGINT during the turn cancels the turn."""
        async for number in signals:
            if self.stop_reason is not None:
                self.scope.cancel()
                continue
            is_first = self.decide(128 + number)
            if is_first and number == signal.SIGINT and self.cancel is not None:
                self.cancel()
                self._notice("cancelled; Ctrl-C once more ends the agent")
            else:
                self.error = self.error or f"ended by {signal.Signals(number).name}"
                self.scope.cancel()

    async def expire(self, seconds: float) -> None:
        """Wait for `seconds`; then cancel the turn, and end the run `CANCEL_TIMEOUT_S` later."""
        if seconds == math.inf:
            return
        await trio.sleep(seconds)
        if self.stop_reason is not None:
            return
        if self.decide(TIMED_OUT):
            self.error = f"timed out after {seconds:g} s (--timeout)"
        if self.cancel is not None:
            self.cancel()
            await trio.sleep(CANCEL_TIMEOUT_S)
        self.scope.cancel()

    async def write(self, queue: SendQueue, written: trio.Event) -> None:
        """Write the data in `queue` (to stdout or stderr) until the queue is closed."""
        try:
            await queue.run()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            if not self.decide(FAILED) and self.status == 0:
                # A status of 0 promises that the output is complete.
                self.status = FAILED
            cause = error.__cause__
            # For EPIPE there is no message: the reader has closed the pipe on purpose, as `head`
            # does.
            if not (isinstance(cause, OSError) and cause.errno == errno.EPIPE):
                self.write_error = f"the output cannot be written: {error}"
            self.scope.cancel()
        written.set()


# Time for the readers of stdout and stderr to read the rest of the output, at the end.
_SEND_TIMEOUT_S: Final = 2.0


async def run_prompt(settings: Settings, options: PromptOptions) -> int:
    context = exec_context.current()
    raise_open_files()
    restore_signal_defaults()
    out, err = SendQueue(FileStream(1)), SendQueue(FileStream(2))
    printer: TurnPrinter
    if options.as_json:
        printer = JsonPrinter(out.put)
    else:
        quiet = not options.verbose
        printer = TextPrinter(out.put, err.put, colours=options.colours, quiet=quiet)
    outcome = RunOutcome(printer.notice)
    run = _Run(settings, options, printer, out, outcome)
    with trio.open_signal_receiver(*shutdown_signals()) as signals:
        async with open_log(options.log) as log, trio.open_nursery() as nursery:
            written = [trio.Event(), trio.Event()]
            nursery.start_soon(outcome.write, out, written[0])
            nursery.start_soon(outcome.write, err, written[1])
            nursery.start_soon(outcome.watch, signals)
            nursery.start_soon(outcome.expire, options.timeout)
            with outcome.scope:
                await run.run(context, log)
            if run.client and run.client.invalid_output and outcome.error is None:
                what = run.client.invalid_output
                printer.notice(f"some of what the agent wrote is no message: {what}")
            printer.end(outcome.stop_reason, outcome.status, outcome.error)
            out.close()
            err.close()
            with trio.move_on_after(_SEND_TIMEOUT_S):
                for event in written:
                    await event.wait()
            nursery.cancel_scope.cancel()
    if outcome.write_error is not None:
        with contextlib.suppress(OSError):
            os.write(2, f"acpterm: {outcome.write_error}\n".encode())
    return outcome.status


class _Run:
    """One run. `outcome` records its result. `printer` writes to `out`, the queue for stdout."""

    def __init__(
        self,
        settings: Settings,
        options: PromptOptions,
        printer: TurnPrinter,
        out: SendQueue,
        outcome: RunOutcome,
    ) -> None:
        self.client: AcpClient | None = None
        """None until the agent has started."""
        self._outcome = outcome
        self._settings = settings
        self._options = options
        self._printer = printer
        self._out = out

    async def run(self, context: ExecContext, log: WireLog) -> None:
        """Run the turn; record errors in the outcome. Terminals start with `context`."""
        stderr_filter = _strip_stderr if self._options.verbose else None
        try:
            async with (
                open_hosted_agent(
                    self._options, self._settings, context, "prompt", stderr_filter=stderr_filter
                ) as hosted,
                trio.open_nursery() as nursery,
            ):
                await self._prompt(hosted, log, nursery)
                nursery.cancel_scope.cancel()
        except* (AgentStartError, DaemonError, AcpError, RpcError) as errors:
            self._outcome.error = root_error(errors)

    async def _prompt(self, hosted: Hosted, log: WireLog, nursery: trio.Nursery) -> None:
        client = self.client = AcpClient(
            hosted,
            nursery,
            self._options,
            self._settings,
            log=log,
            printer=self._printer,
            out=self._out,
        )
        nursery.start_soon(client.run)
        session = await self._open(client, hosted.agent)
        self._printer.session(session)
        self._outcome.cancel = client.cancel
        reason = await client.prompt()
        await self._report_background(client.terminals, session)
        await client.terminals.settle(client.terminals.close_session(session))
        self._outcome.turn_ended(
            reason, refusals=0 if client.calls.acted else client.calls.refusals
        )

    async def _report_background(self, terminals: SessionTerminals, session: str) -> None:
        """Print what the session's commands have left running, which ends with the session."""
        params = AgentListRequest(session, user=False, left=True)
        with contextlib.suppress(RpcError):
            answer = await terminals.host.request("_acpterm/terminal/list", params)
            listed = msgspec.json.decode(answer, type=ListResponse)
            for process in itertools.chain.from_iterable(map(background, listed.terminals)):
                self._printer.notice(f"ended with the session: {background_line(process)}")

    async def _open(self, client: AcpClient, agent: AgentProcess) -> str:
        step, seconds = "initialize", self._options.start_timeout
        with trio.move_on_after(seconds):
            await client.initialize()
            step = "the session's beginning"
            return await client.open()
        self._outcome.decide(TIMED_OUT)
        raise AcpError(
            f"the agent {agent.command!r} did not answer {step} within {seconds:g} s "
            f"(--start-timeout){client.hint()}{agent.stderr_tail()}"
        )


def _strip_stderr(data: bytes) -> bytes:
    return strip_controls(data.decode(errors="replace")).encode()
