"""Questions to the user through the MCP client (elicitation).

A client of the protocol of 2025 is sent a request (`Request.ask`). In the protocol of 2026, a
server sends no requests: the call returns a question, and the client repeats the call with the
answer (`Jobs`). The work of such a call is a job, with a task of its own from the first request to
the last one.

States of a job: *working* → *asking* (a question waits for its answer) → *working* → *done*. If the
client does not answer within `ANSWER_TIMEOUT_S`, the job continues without an answer. Cancelling a
request of a job cancels the job.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import anyio
import msgspec
from anyio.abc import TaskGroup

from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.mcp import types
from acpterm.mcp.connection import FormQuestion

ANSWER_TIMEOUT_S: Final = 300.0
_KEY: Final = "question"
_DONE_MAX: Final = 20
"""How many done jobs are retained, so that a client which answers too late gets their results."""


Ask: TypeAlias = Callable[[FormQuestion], Awaitable[types.ElicitResult | None]]
"""Asks the user; returns None if there is no answer. Cancellation withdraws the question."""


class Job:
    """The work of one call, which may ask the user while the client has no request open."""

    def __init__(self) -> None:
        self.scope: Final = anyio.CancelScope()
        self.result: types.CallToolResult | None = None
        self.error: Exception | None = None
        self.question: FormQuestion | None = None
        self._changed = anyio.Event()
        self._answer: types.ElicitResult | None = None
        self._answered = anyio.Event()
        self._one_question: Final = anyio.Lock()

    @property
    def is_done(self) -> bool:
        return self.result is not None or self.error is not None

    async def run(self, work: Callable[[Ask], Awaitable[types.CallToolResult]]) -> None:
        with self.scope:
            try:
                self.result = await work(self.ask)
            except Exception as error:  # noqa: BLE001  `wait` raises it
                self.error = error
            self._changed.set()

    async def ask(self, question: FormQuestion) -> types.ElicitResult | None:
        """Ask the user, one question after another; return None if there is no answer in time."""
        async with self._one_question:
            self.question, self._answer, self._answered = question, None, anyio.Event()
            self._changed.set()
            try:
                with anyio.move_on_after(ANSWER_TIMEOUT_S):
                    await self._answered.wait()
                return self._answer
            finally:
                self.question = None

    def answer(self, responses: Any) -> None:
        """Pass the client's `inputResponses` to the waiting call of `ask`, as None if malformed."""
        found = responses.get(_KEY) if isinstance(responses, dict) else None
        try:
            self._answer = msgspec.convert(found, types.ElicitResult)
        except msgspec.ValidationError:
            self._answer = None
        self._answered.set()
        self.question = None

    async def wait(self) -> types.CallToolResult | FormQuestion:
        """Wait for the end of the work or its next question. Raises the error of the work."""
        while True:
            if self.error is not None:
                raise self.error
            if self.result is not None:
                return self.result
            if self.question is not None:
                return self.question
            self._changed = anyio.Event()
            await self._changed.wait()


class Jobs:
    def __init__(self, group: TaskGroup) -> None:
        self._group: Final = group
        self._asking: Final[dict[str, Job]] = {}

    async def serve(
        self, params: dict[str, Any], work: Callable[[Ask], Awaitable[types.CallToolResult]]
    ) -> types.CallToolResult | dict[str, Any]:
        """Begin a job, or continue that of `requestState`; return its result or next question."""
        state = params.get("requestState")
        if state is None:
            job = Job()
            self._group.start_soon(job.run, work)
        else:
            found = self._asking.pop(state, None) if isinstance(state, str) else None
            if found is None:
                raise RpcError(INVALID_PARAMS, "the call of this requestState is over: call again")
            job = found
            job.answer(params.get("inputResponses"))
        try:
            outcome = await job.wait()
        except BaseException:
            job.scope.cancel()
            raise
        if isinstance(outcome, types.CallToolResult):
            return outcome
        state = secrets.token_hex(16)
        self._asking[state] = job
        done = [key for key, each in self._asking.items() if each.is_done]
        for key in done[:-_DONE_MAX]:
            del self._asking[key]
        request = {"method": "elicitation/create", "params": outcome.params()}
        return {
            "resultType": "input_required",
            "inputRequests": {_KEY: request},
            "requestState": state,
        }
