"""The control channel to a host: a session without a PTY, in which the script `control` runs.

`scripts.control` is the script, which serves requests such as "end the processes of a job".

States: *opening*; *open*, from the script's first reply; *lost*, once the channel is closed, or the
host does not read. Requests that wait when the channel is lost raise `ControlLostError`. If the
connection is lost silently, the channel stays open until ssh notices the loss: `answers` finds out
whether the host still answers.
"""

import contextlib
import itertools
import math
import re
from collections.abc import Sequence
from subprocess import PIPE, STDOUT
from typing import Final

import structlog
import trio

from acpterm.providers.provider import ProviderError
from acpterm.providers.ssh.master import ControlMaster, client_of_master_environment

_PREFIX: Final = b"acpterm "
NUMBER: Final = re.compile("[0-9]{1,9}")
"""The pattern of a number in a reply.

Limits the digits: the other host may send anything, and `int` raises for thousands of digits.
"""
# The first reply has words that are used in command lines, so only printable ASCII is accepted.
_READY: Final = re.compile("ready [ -~]+")
_LINE_MAX: Final = 65536
_CLOSE_TIMEOUT_S: Final = 1.0
_SEND_TIMEOUT_S: Final = 10.0
# For this time after a reply, the host counts as answering, without another request.
_ANSWER_AGE_MAX_S: Final = 5.0

_log = structlog.get_logger("acpterm.provider")


class ControlLostError(Exception):
    """The control channel is lost, or a request was not answered in time."""


class Control:
    """A control channel over the connection `master`. `run` must run during all other calls."""

    def __init__(self, master: ControlMaster) -> None:
        self.master: Final = master
        self.is_lost = False
        self._is_open = False
        self._answered_at = -math.inf
        self.closed: Final = trio.Event()
        self._process: trio.Process | None = None
        self._scope: Final = trio.CancelScope()
        self._waiting: dict[int, tuple[trio.Event, list[str]]] = {}
        self._numbers: Final = itertools.count(1)
        self._sending: Final = trio.Lock()
        # The end of what the login shell has printed before it started the script, for an error.
        self._noise = ""

    async def run(
        self, script: bytes, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run `script` on the host, and receive its replies, until lost or stopped."""
        # While the channel is open, cancelling has no effect, so that last requests can be sent:
        # `stop` closes it. `task_status` gets the command line that runs a job, without the job's
        # id.
        with self._scope:
            try:
                await self._run(script, task_status)
            except Exception as error:
                if self._is_open:
                    _log.exception("a control channel has failed")
                elif isinstance(error, OSError):
                    raise ProviderError(f"ssh cannot be started: {error}") from error
                else:
                    raise

    def stop(self) -> None:
        """Close the channel; waiting requests raise `ControlLostError`."""
        self._scope.cancel()

    async def _run(self, script: bytes, task_status: trio.TaskStatus[str]) -> None:
        argv = self.master.argv("-T", command="exec /bin/sh")
        process = await trio.lowlevel.open_process(
            argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            env=client_of_master_environment(),
            start_new_session=True,
        )
        self._process = process
        try:
            assert process.stdin is not None  # noqa: S101  it was requested
            assert process.stdout is not None  # noqa: S101  it was requested
            with contextlib.suppress(trio.BrokenResourceError):
                await process.stdin.send_all(script)
            rest = b""
            async for data in process.stdout:
                *lines, rest = (rest[-_LINE_MAX:] + data).split(b"\n")
                for number, words in filter(None, map(self._parsed, lines)):
                    self._answered_at = trio.current_time()
                    if number == 0 and not self._is_open:
                        self._is_open = self._scope.shield = _check_opened(words)
                        task_status.started(words.partition(" ")[2])
                    elif (waiting := self._waiting.pop(number, None)) is not None:
                        waiting[1].append(words)
                        waiting[0].set()
            if not self._is_open:
                noise = f": {self._noise.strip()}" if self._noise.strip() else ""
                raise ProviderError(f"the login shell there did not start /bin/sh{noise}")
        finally:
            self.is_lost = True
            self.closed.set()
            for event, _ in self._waiting.values():
                event.set()
            with trio.CancelScope(shield=True):
                with trio.move_on_after(_CLOSE_TIMEOUT_S):
                    assert process.stdin is not None  # noqa: S101  see above
                    await process.stdin.aclose()
                    await process.wait()
                process.kill()
                await process.wait()

    def _parsed(self, line: bytes) -> tuple[int, str] | None:
        """Return the number and the words of a reply; None for another line, kept for errors."""
        number, _, words = line.removeprefix(_PREFIX).decode(errors="replace").partition(" ")
        if line.startswith(_PREFIX) and NUMBER.fullmatch(number):
            return int(number), words
        self._noise = f"{self._noise}{line.decode(errors='replace')} "[-500:]
        return None

    async def answers(self, timeout_s: float) -> bool:
        """Return whether the host has answered in the last 5 s, or answers within `timeout_s`."""
        if trio.current_time() - self._answered_at > _ANSWER_AGE_MAX_S:
            try:
                await self.request("exit", "check", timeout_s=timeout_s)
            except ControlLostError:
                return False
        return not self.is_lost

    async def request(
        self, verb: str, words: str, lines: Sequence[bytes] = (), *, timeout_s: float
    ) -> str:
        """Send a request, and return the words of the host's reply. Raises `ControlLostError`."""
        number = next(self._numbers)
        event, reply = trio.Event(), list[str]()
        self._waiting[number] = event, reply
        try:
            with trio.fail_after(timeout_s):
                await self.send(f"{verb} {number} {words}", lines)
                if not self.is_lost:
                    await event.wait()
        except trio.TooSlowError:
            raise ControlLostError(f"no answer within {timeout_s:g} s") from None
        finally:
            self._waiting.pop(number, None)
        if not reply:
            raise ControlLostError("the connection was lost")
        return reply[0]

    async def send(self, line: str, lines: Sequence[bytes] = ()) -> None:
        """Send a request without waiting for a reply. Raises `ControlLostError`."""
        # Cancellation does not interrupt the sending.
        data = b"\n".join((line.encode(), *lines, b""))
        # Shielded: a cancellation would leave a part of a request in the channel.
        async with self._sending:
            if self.is_lost or self._process is None or self._process.stdin is None:
                raise ControlLostError("the connection was lost")
            try:
                with trio.CancelScope(shield=True), trio.fail_after(_SEND_TIMEOUT_S):
                    await self._process.stdin.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ControlLostError("the connection was lost") from error
            except trio.TooSlowError:
                self._process.kill()
                raise ControlLostError("the host does not read") from None


def _check_opened(words: str) -> bool:
    """Return whether the first reply says that the script is ready. Raises `ProviderError`."""
    if not _READY.fullmatch(words):
        raise ProviderError(words.partition(" ")[2])
    return True
