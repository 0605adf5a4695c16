"""The control channel: a session without a PTY, in which `scripts.control` serves requests.

States: *open*, from the first line that says so; *lost*, once the other end has closed it, or does
not answer. Requests that wait when it is lost raise `ControlLostError`. An open channel may not
answer either, until ssh notices that the connection is lost: `answers` finds out.
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
from acpterm.providers.ssh.master import Master, client_of_master_environment

_PREFIX: Final = b"acpterm "
NUMBER: Final = re.compile("[0-9]{1,9}")
"""A number from the other host: it may send anything, and `int` raises for thousands of digits."""
# The reply is used in command lines.
_READY: Final = re.compile("ready [ -~]+")
_LINE_MAX: Final = 65536
_CLOSE_TIMEOUT_S: Final = 1.0
_SEND_TIMEOUT_S: Final = 10.0
# How long after a reply the host is taken to answer.
_ANSWER_AGE_MAX_S: Final = 5.0

_log = structlog.get_logger("acpterm.provider")


class ControlLostError(Exception):
    """The control channel does not answer any more."""


class Control:
    """A control channel over `master`. `run` must run during all other calls."""

    def __init__(self, master: Master) -> None:
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
        # What the login shell has printed before it started ours.
        self._noise = ""

    async def run(
        self, script: bytes, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve the channel until it is lost or stopped; reports the words that run a job.

        Once the channel is open, it is not cancelled: only `stop` ends it, so that its last
        requests are sent. Raises `ProviderError` if the channel cannot be opened. Later errors are
        logged, and the channel is lost.
        """
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
        """Close the channel."""
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
        """Return the number of the request that a line replies to, and the reply."""
        number, _, words = line.removeprefix(_PREFIX).decode(errors="replace").partition(" ")
        if line.startswith(_PREFIX) and NUMBER.fullmatch(number):
            return int(number), words
        self._noise = f"{self._noise}{line.decode(errors='replace')} "[-500:]
        return None

    async def answers(self, timeout_s: float) -> bool:
        """Return whether the host has answered lately, or does so now."""
        if trio.current_time() - self._answered_at > _ANSWER_AGE_MAX_S:
            try:
                await self.request("exit", "check", timeout_s=timeout_s)
            except ControlLostError:
                return False
        return not self.is_lost

    async def request(
        self, verb: str, words: str, lines: Sequence[bytes] = (), *, timeout_s: float
    ) -> str:
        """Send a request, and return the reply. Raises `ControlLostError`."""
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
        """Send a line, and `lines` after it, without waiting for a reply.

        Raises `ControlLostError`.
        """
        data = b"\n".join((line.encode(), *lines, b""))
        # Not cancelled in the middle, which would leave a part of a request in the channel.
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
    """Return True if the first reply says so; raise `ProviderError` with what it says otherwise."""
    if not _READY.fullmatch(words):
        raise ProviderError(words.partition(" ")[2])
    return True
