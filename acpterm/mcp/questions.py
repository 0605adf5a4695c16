"""Questions to the user through the MCP client (elicitation).

A client of the protocol of 2025 is sent a request (`ask_by_request`). In the protocol of 2026, a
server sends no requests: the call returns a question, and the client repeats the call with the
answer (`Jobs`). The work of such a call is a job, with a task of its own from the first request to
the last one.

States of a job: *working* → *asking* (a question waits for its answer) → *working* → *done*. If the
client does not answer within `ANSWER_TIMEOUT_S`, the job continues without an answer. Cancelling a
request of a job cancels the job.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeAlias

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

ANSWER_TIMEOUT_S: Final = 300.0
_KEY: Final = "question"
_DONE_MAX: Final = 20
"""How many done jobs are retained, so that a client which answers too late gets their results."""


class Question(NamedTuple):
    """A question: what the user reads, and the JSON schema of the answer."""

    message: str
    schema: dict[str, Any]


Ask: TypeAlias = Callable[[Question], Awaitable[types.ElicitResult | None]]
"""Asks the user; returns None if there is no answer. Cancellation withdraws the question."""


def can_ask(ctx: ServerRequestContext[Any]) -> bool:
    """Return whether the client can ask its user."""
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and capabilities.elicitation is not None


def is_modern(ctx: ServerRequestContext[Any]) -> bool:
    """Return whether the client uses a protocol in which a server sends no requests."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def ask_by_request(ctx: ServerRequestContext[Any]) -> Ask:
    """Return the function that asks the user by a request to the client, during the call `ctx`."""

    async def ask(question: Question) -> types.ElicitResult | None:
        try:
            return await ctx.session.elicit_form(
                question.message, question.schema, related_request_id=ctx.request_id
            )
        except MCPError:
            return None

    return ask


class Job:
    """The work of one call, which may ask the user.

    While the user is asked, the client has no request open: so the work has a task of its own.
    """

    def __init__(self) -> None:
        self.scope: Final = anyio.CancelScope()
        self.result: types.CallToolResult | None = None
        self.error: Exception | None = None
        self.question: Question | None = None
        self._changed = anyio.Event()
        self._answer: types.ElicitResult | None = None
        self._answered = anyio.Event()
        self._one_question: Final = anyio.Lock()

    @property
    def is_done(self) -> bool:
        """Whether the work has ended."""
        return self.result is not None or self.error is not None

    async def run(self, work: Callable[[Ask], Awaitable[types.CallToolResult]]) -> None:
        """Do the work, and store its result or error for `wait`."""
        with self.scope:
            try:
                self.result = await work(self.ask)
            except Exception as error:  # noqa: BLE001  `wait` raises it
                self.error = error
            self._changed.set()

    async def ask(self, question: Question) -> types.ElicitResult | None:
        """Ask the user `question`, and return the answer; None if there is none in time.

        `wait` returns the question, to be sent to the client. The time limit for the answer is
        `ANSWER_TIMEOUT_S`. If this method is called several times at once, the calls ask one after
        another.
        """
        async with self._one_question:
            self.question, self._answer, self._answered = question, None, anyio.Event()
            self._changed.set()
            try:
                with anyio.move_on_after(ANSWER_TIMEOUT_S):
                    await self._answered.wait()
                return self._answer
            finally:
                self.question = None

    def answer(self, responses: dict[str, Any]) -> None:
        """End the waiting call of `ask`, which then returns the client's answer.

        `responses` are the `input_responses` of the request in which the client answers.
        """
        answer = responses.get(_KEY)
        self._answer = answer if isinstance(answer, types.ElicitResult) else None
        self._answered.set()
        self.question = None

    async def wait(self) -> types.CallToolResult | Question:
        """Wait for the end of the work or its next question; return the result or the question.

        Raises the error that the work has raised.
        """
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
    """The jobs of one client. Their tasks run in `group`."""

    def __init__(self, group: TaskGroup) -> None:
        self._group: Final = group
        self._asking: Final[dict[str, Job]] = {}

    async def serve(
        self,
        params: types.CallToolRequestParams,
        work: Callable[[Ask], Awaitable[types.CallToolResult]],
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Begin or continue a job; return the result of the job, or its next question.

        `params` are the params of a request. If they have no `request_state`, a new job does
        `work`. Otherwise the request answers the question of the job that has this state, and the
        job continues. Raises `MCPError` if no job has the state in `params`.
        """
        if params.request_state is None:
            job = Job()
            self._group.start_soon(job.run, work)
        else:
            found = self._asking.pop(params.request_state, None)
            if found is None:
                raise MCPError(
                    types.INVALID_PARAMS, "the call of this requestState is over: call again"
                )
            job = found
            job.answer(dict(params.input_responses or {}))
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
        request = types.ElicitRequest(
            params=types.ElicitRequestFormParams(
                message=outcome.message, requested_schema=outcome.schema
            )
        )
        return types.InputRequiredResult(input_requests={_KEY: request}, request_state=state)
