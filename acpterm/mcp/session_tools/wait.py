"""`terminal_wait`: wait until a terminal session ends, waits for input, is idle or prints a text.

If several sessions are given, the first such event in any of them ends the wait. A session that
waits for input as the last result has reported already ends the wait only if `for` asks for that,
or if no other event can come.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal, NamedTuple, TypeAlias

import anyio
from msgspec import Meta, Struct, field

from acpterm.acp.agent_api import Natural
from acpterm.api.errors import AcptermError, RequestError
from acpterm.mcp.call import Call
from acpterm.mcp.patterns import ModelPattern
from acpterm.mcp.session_tools.replies import session_reply, shell_reply
from acpterm.mcp.sessions import TerminalSession
from acpterm.mcp.shell_replies import crop_command
from acpterm.mcp.shells import Ran
from acpterm.mcp.states import SessionResult
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.tool_error import ToolError
from acpterm.mcp.waiting import Ended, read_new, wait_until

Condition: TypeAlias = Literal["exit", "input", "idle", "text"]


class WaitParams(Struct, kw_only=True):
    session_id: Annotated[
        str | list[str] | None,
        Meta(description="The session, or several of them; by default any that runs"),
    ] = field(name="sessionId", default=None)
    for_: Annotated[
        list[Condition] | Condition | None,
        Meta(
            description="What to wait for: exit, input (the program waits for input), idle (no "
            "output for idle_seconds), text (pattern matches). By default exit, input that is new "
            "since the last result, and text if there is a pattern"
        ),
    ] = field(name="for", default=None)
    pattern: Annotated[
        str | None,
        Meta(description="Regular expression, searched in the output after the last result"),
    ] = None
    since: Annotated[
        Natural | None,
        Meta(description="Search the pattern in all output from this position on, in bytes"),
    ] = None
    idle_seconds: Annotated[
        float, Meta(description="How long there must be no output, for idle", gt=0)
    ] = 2.0
    timeout_seconds: Annotated[
        float | None, Meta(description="How long to wait at most, in seconds")
    ] = None


class _Conditions(NamedTuple):
    pattern: ModelPattern | None
    idle: float | None
    until_input: bool | Literal["prompt"]
    timeout: float
    counts_old_input: bool
    since: int | None = None
    input_since: int = -1


_WaitOne: TypeAlias = Callable[[Call, TerminalSession, _Conditions], Awaitable[Ended | Ran]]


async def _execute(call: Call, params: WaitParams) -> Reply:
    conditions = _conditions(call, params)
    call.approval_s = conditions.timeout
    sessions = await _sessions(call, params.session_id)
    session, waited = await _first(call, sessions, conditions)
    if isinstance(waited, Ran):
        return _command_reply(call, waited)
    async with call.turn(session):
        view = await read_new(call, session, waited)
    reasons = {"idle": f", no output for {params.idle_seconds:g} s", "timeout": ", not yet"}
    # The state says the other reasons.
    view.waited = reasons.get(waited.reason, "")
    if waited.was_shown:
        view.waited = ": call again for the next"
    return await session_reply(call, session, view, shows_id=True)


def _command_reply(call: Call, ran: Ran) -> Reply:
    return shell_reply(ran, crop_command(ran.completed, call.settings.crop_output))


def _conditions(call: Call, params: WaitParams) -> _Conditions:
    pattern = None if params.pattern is None else ModelPattern(params.pattern)
    given = [params.for_] if isinstance(params.for_, str) else params.for_
    wanted: list[Condition] = given or ["exit", "input"]
    if not given and pattern is not None:
        wanted = [*wanted, "text"]
    if "text" in wanted and pattern is None:
        raise ToolError('to wait for text, give the pattern, such as "pattern": "listening on"')
    timeout = call.remaining if params.timeout_seconds is None else params.timeout_seconds
    return _Conditions(
        pattern=pattern if "text" in wanted else None,
        idle=params.idle_seconds if "idle" in wanted else None,
        # A server may read its stdin all the time, and print the text later.
        until_input=("prompt" if "text" in wanted and not given else "input" in wanted),
        timeout=call.limited(timeout),
        counts_old_input="input" in (given or ()),
        since=params.since,
    )


def awaited(call: Call) -> list[TerminalSession]:
    """Return the sessions that a call without `sessionId` waits for."""
    active = call.sessions.active()
    return [each for each in active if call.shells.idle_name(each) is None]


async def _sessions(call: Call, identifiers: str | list[str] | None) -> list[TerminalSession]:
    if not identifiers:
        if found := awaited(call):
            return found
        raise ToolError("there is no session to wait for: start one with terminal_start")
    names = [identifiers] if isinstance(identifiers, str) else identifiers
    return [await call.get(name) for name in names]


async def _first(
    call: Call, sessions: list[TerminalSession], conditions: _Conditions
) -> tuple[TerminalSession, Ended | Ran]:
    """Wait for all sessions at once; return the first whose wait ends, and how.

    If one fails, for example because its session was removed, the others continue.
    """
    found: list[tuple[TerminalSession, Ended | Ran]] = []
    failures: list[AcptermError | ToolError] = []
    is_idle_shell = len(sessions) == 1 and call.shells.idle_name(sessions[0]) is not None
    nothing_else = conditions.pattern is None and (
        is_idle_shell or all(each.reported_waiting >= 0 and not each.is_idle for each in sessions)
    )

    async def wait(session: TerminalSession, wait_one: _WaitOne, conditions: _Conditions) -> None:
        try:
            ended = await wait_one(call, session, conditions)
        except RequestError as error:
            call.sessions.forget(session)
            failures.append(error)
            return
        except (AcptermError, ToolError) as error:
            failures.append(error)
            return
        if _is_over(ended):
            found.insert(0, (session, ended))
            tasks.cancel_scope.cancel()
        else:
            found.append((session, ended))

    async with anyio.create_task_group() as tasks:
        for session in sessions:
            own = conditions
            if not conditions.counts_old_input and not nothing_else:
                own = conditions._replace(input_since=session.reported_waiting)
            is_shell = call.shells.is_busy(session)
            tasks.start_soon(wait, session, _command if is_shell else _program, own)
            if is_shell and (conditions.pattern is not None or conditions.idle is not None):
                # `_command` waits for the command's end and for input, this task for output.
                only_output = own._replace(until_input=own.until_input == "prompt" and "prompt")
                tasks.start_soon(wait, session, _program, only_output)
    if not found:
        raise failures[0]
    return found[0]


async def _program(call: Call, session: TerminalSession, conditions: _Conditions) -> Ended:
    return await wait_until(
        call,
        session,
        pattern=conditions.pattern,
        since=conditions.since,
        idle=conditions.idle,
        until_input=conditions.until_input,
        input_since=conditions.input_since,
        timeout_s=conditions.timeout,
    )


async def _command(call: Call, session: TerminalSession, conditions: _Conditions) -> Ended | Ran:
    """Wait for the end of the command in the persistent shell, or as `_program` if none runs."""
    found = await call.shells.wait(
        call,
        session,
        conditions.timeout,
        until_input=conditions.until_input is True,
        input_since=conditions.input_since,
    )
    return await _program(call, session, conditions) if found is None else found


def _is_over(ended: Ended | Ran) -> bool:
    if isinstance(ended, Ran):
        return ended.completed.state != "running"
    return ended.reason != "timeout"


TOOL = Tool(
    name="terminal_wait",
    description=(
        "Wait for a terminal session, or for any of several, until it ends, waits for input, is "
        "idle, or a regular expression matches its output. Use this instead of polling. Returns "
        "after 45 seconds at the latest, and says so: then call it again."
    ),
    params=WaitParams,
    result=SessionResult,
    execute=_execute,
    reads_only=True,
)
