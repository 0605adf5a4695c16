"""The tools of `--tools claude`: those of Claude Code, with its names and schemas.

- `Bash`: run a command in a persistent shell, or in the background. Commands share the shell's
  directory, variables and functions. A command that has not ended at its time limit keeps its
  shell, which becomes a background session; the next command gets a new shell, which starts in the
  last known directory of the old one.
- `BashOutput`: return the new output of a background shell. With a filter, an incomplete last line
  is left to the next result, because its rest may decide whether it matches, unless it is longer
  than `LINE_CHARS_MAX`, or the command has ended or waits for input.
- `KillShell`: end a background shell.
- `Monitor`: run a command, and report each line of its output as an event. Lines are batched for
  `BATCH_S`, and sent as progress while the call lasts. The result has all lines, too. A command
  that prints more than `FLOOD_LINES` in one batch is killed, since such lines are not events.
"""

from datetime import UTC, datetime
from typing import Annotated, Final

import anyio
from msgspec import UNSET, Meta, Struct, UnsetType

from acpterm.mcp.call import WITHDRAWN, Call
from acpterm.mcp.cropping import REST, crop
from acpterm.mcp.named_shell import has_ended
from acpterm.mcp.patterns import ModelPattern
from acpterm.mcp.sessions import SessionLaunch, TerminalSession
from acpterm.mcp.shell_replies import command_reply, crop_command
from acpterm.mcp.shells import CATCH_UP_S
from acpterm.mcp.states import SessionResult, View, says_more, session_result, state_line, state_of
from acpterm.mcp.tool import Reply, Tool, as_json
from acpterm.mcp.waiting import BACKGROUND_WAIT_S, read_new, removed_on_failure, wait_until

CONTINUED_BY: Final = ("BashOutput", "bash_id")
OUTPUT_CHARS_MAX: Final = 30_000
LINE_CHARS_MAX: Final = 8192
"""A longer incomplete line is reported in pieces."""
NO_KEYS: Final = "no tool of this set presses keys"


def next_calls(session: TerminalSession, screen_size: str | None) -> tuple[str, ...]:
    """Return what can follow while a command waits for input: no tool of this set can type."""
    keys = () if screen_size is None else (NO_KEYS,)
    return (*keys, f"the user can: acpterm attach {session.id}", "KillShell")


async def session_reply(
    call: Call, session: TerminalSession, view: View, text: str, note: str
) -> Reply:
    calls = next_calls(session, view.screen_size)
    runs_on = view.exit is not None and bool(view.exit.background)
    status = state_line(session, view, next_calls=calls, stop="KillShell", shows_id=runs_on)
    reply = Reply(
        state=status if says_more(session, view) else None,
        text=text,
        data=session_result(session, view, status, note),
    )
    if view.exit is not None and not runs_on:
        await call.sessions.remove(session)
    return reply


def crop_output(view: View) -> str:
    """Crop `view` to `OUTPUT_CHARS_MAX`; return how to read the output that was left out."""
    view.cropped = crop(view.text, OUTPUT_CHARS_MAX, view.lost)
    return REST


TIMEOUT_MS: Final = 120_000
TIMEOUT_MAX_MS: Final = 600_000
_SHELL: Final = "Bash"
"""The name of the persistent shell."""


class BashParams(Struct, kw_only=True):
    command: Annotated[str, Meta(description="The command to execute")]
    timeout: Annotated[
        float | UnsetType,
        Meta(description="Optional timeout in milliseconds (max 600000; 120000 by default)"),
    ] = UNSET
    description: Annotated[
        str | UnsetType, Meta(description="What the command does, in a few words")
    ] = UNSET
    run_in_background: Annotated[
        bool | UnsetType,
        Meta(description="Set to true to run it in the background; read it with BashOutput"),
    ] = UNSET
    dangerouslyDisableSandbox: Annotated[  # noqa: N815
        bool | UnsetType, Meta(description="Accepted, and without effect: the user decides.")
    ] = UNSET


async def _bash(call: Call, params: BashParams) -> Reply:
    timeout_ms = TIMEOUT_MS if params.timeout is UNSET else params.timeout
    limit = min(max(timeout_ms, 1), TIMEOUT_MAX_MS) / 1000
    if params.run_in_background is not True:
        return await _in_shell(call, params.command, limit)
    call.doing = "starting the command"
    call.approval_s = 0
    session = await call.start(SessionLaunch(params.command))
    async with removed_on_failure(call, session):
        await wait_until(call, session, timeout_s=BACKGROUND_WAIT_S)
        view = await read_new(call, session)
    note = crop_output(view)
    output = view.cropped.with_note(note)
    text = f"Command running in background with ID: {session.id}\n{output}"
    if view.exit is not None:
        text = _with_code(view.exit.code, output)
    return await session_reply(call, session, view, text, note)


async def _in_shell(call: Call, command: str, limit: float) -> Reply:
    call.approval_s = limit
    ran = await call.shells.run(call, _SHELL, command, limit, at_limit="set_aside")
    session, completed = ran.session, ran.completed
    if has_ended(completed):
        heading = _with_code(completed.exit_code, "")
    else:
        is_waiting = completed.state == "waiting_for_input"
        why = "waits for input" if is_waiting else f"has not ended after {limit:g} s"
        if ran.screen_size is not None:
            why = "draws the whole screen"
        heading = f"The command {why}, and continues in the background with ID: {session.id}\n"
    return command_reply(
        ran,
        crop_command(completed, OUTPUT_CHARS_MAX),
        next_calls=next_calls(session, ran.screen_size),
        stop="KillShell",
        heading=heading,
        note=REST,
        is_short=True,
    )


def _with_code(code: int | None, output: str) -> str:
    return output if code == 0 else f"Exit code {'unknown' if code is None else code}\n{output}"


BASH = Tool(
    name="Bash",
    description=(
        "Executes a given bash command with an optional timeout, in a real terminal. A command "
        "that takes longer, or that waits for input, continues in the background. Directory and "
        "variables persist between commands."
    ),
    params=BashParams,
    result=SessionResult,
    execute=_bash,
    continued_by=CONTINUED_BY,
    destructive=True,
)


class OutputParams(Struct, kw_only=True):
    bash_id: Annotated[str, Meta(description="The ID of the background shell")]
    filter: Annotated[
        str | UnsetType,
        Meta(description="Regular expression: only matching lines; others are not read later"),
    ] = UNSET


async def _bash_output(call: Call, params: OutputParams) -> Reply:
    call.approval_s = 0
    session = await call.get(params.bash_id)
    pattern = None if params.filter is UNSET else ModelPattern(params.filter)
    async with call.turn(session):
        return await _read(call, session, pattern)


async def _read(call: Call, session: TerminalSession, pattern: ModelPattern | None) -> Reply:
    ran = await call.shells.wait(call, session, CATCH_UP_S)
    if ran is not None:
        completed, new = ran.completed, ran.new
        if pattern is not None and completed.state == "running":
            new, rest = _split(new)
            call.shells.unread(session, rest)
        ended = has_ended(completed)
        status = "completed" if ended else "running"
        output = crop(await _matching(new, pattern), OUTPUT_CHARS_MAX, ran.lost)
        code = completed.exit_code if ended else None
        return command_reply(
            ran,
            output,
            next_calls=next_calls(session, ran.screen_size),
            stop="KillShell",
            text=_text(status, code, output.with_note(REST)),
            note=REST,
            is_short=True,
        )
    view = await read_new(call, session)
    if pattern is not None and state_of(view) == "running":
        view.text, session.unread = _split(view.text)
    view.text = await _matching(view.text, pattern)
    note = crop_output(view)
    status = {"exited": "completed", "killed": "killed"}.get(state_of(view), "running")
    code = None if view.exit is None else view.exit.code
    text = _text(status, code, view.cropped.with_note(note))
    return await session_reply(call, session, view, text, note)


def _split(text: str) -> tuple[str, str]:
    """Return the complete lines of `text`, and its incomplete last line, which may be empty."""
    begin = text.rfind("\n") + 1
    return (text, "") if len(text) - begin > LINE_CHARS_MAX else (text[:begin], text[begin:])


async def _matching(text: str, pattern: ModelPattern | None) -> str:
    if pattern is None:
        return text
    *lines, last = text.split("\n")
    found = await pattern.matching([*lines, last] if last else lines)
    return "".join(line if number == len(lines) else f"{line}\n" for number, line in found)


def _text(status: str, code: int | None, output: str) -> str:
    parts = [f"<status>{status}</status>"]
    if code is not None:
        parts.append(f"<exit_code>{code}</exit_code>")
    if output:
        parts.append(f"<stdout>\n{output.rstrip()}\n</stdout>")
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    parts.append(f"<timestamp>{now.replace('+00:00', 'Z')}</timestamp>")
    return "\n\n".join(parts)


BASH_OUTPUT = Tool(
    name="BashOutput",
    description=(
        "Retrieves output from a running or completed background bash shell: always only what is "
        "new since the last check, and the status."
    ),
    params=OutputParams,
    result=SessionResult,
    execute=_bash_output,
    continued_by=CONTINUED_BY,
    reads_only=True,
)


class KillParams(Struct, kw_only=True):
    shell_id: Annotated[str, Meta(description="The ID of the background shell to kill")]


class KilledShell(Struct, kw_only=True):
    message: str
    shell_id: str


async def _kill_shell(call: Call, params: KillParams) -> Reply:
    session = await call.stop(params.shell_id)
    what = params.shell_id if session is None else f"{session.id} ({session.command})"
    killed = KilledShell(
        message=f"Successfully killed shell: {what}",
        shell_id=params.shell_id if session is None else session.id,
    )
    state = WITHDRAWN if session is None else None
    return Reply(state=state, text=as_json(killed), data=killed)


KILL_SHELL = Tool(
    name="KillShell",
    description="Kills a running background bash shell by its ID.",
    params=KillParams,
    result=KilledShell,
    execute=_kill_shell,
    destructive=True,
)


MONITOR_TIMEOUT_MS: Final = 300_000
BATCH_S: Final = 0.2
FLOOD_LINES: Final = 500
"""More lines in one batch than this are a flood."""


class MonitorParams(Struct, kw_only=True):
    command: Annotated[str, Meta(description="Each line that it prints is an event")]
    description: Annotated[str, Meta(description="What is monitored, in a few words")] = ""
    timeout_ms: Annotated[
        float, Meta(description="Ends the command after this time, unless it is persistent")
    ] = MONITOR_TIMEOUT_MS
    persistent: Annotated[bool, Meta(description="Run until KillShell, without a time limit")] = (
        False
    )


async def _monitor(call: Call, params: MonitorParams) -> Reply:
    limit = max(params.timeout_ms, 1) / 1000
    call.doing = "starting the command"
    session = await call.start(
        SessionLaunch(params.command, timeout_s=None if params.persistent else limit)
    )
    async with removed_on_failure(call, session):
        is_flood = await _follow(call, session, params.description or params.command)
        if is_flood:
            await session.terminal.kill()
            await session.terminal.wait(call.limited(5))
        view = await read_new(call, session)
    note = crop_output(view)
    why = "ended, because it flooded its output" if is_flood else "still monitored"
    if view.exit is not None and not is_flood:
        timed_out = view.exit.ended_by == "timeout"
        why = f"ended after {limit:g} s" if timed_out else f"ended, exit code {view.exit.code}"
    text = f"Monitor {session.id}: {why}\n{view.cropped.with_note(note)}"
    return await session_reply(call, session, view, text, note)


async def _follow(call: Call, session: TerminalSession, what: str) -> bool:
    """Send each batch of lines as progress. Return True at once if one is a flood."""
    position, rest = session.position, ""
    while call.remaining > 0:
        call.doing = f"monitoring {what}"
        output = await session.terminal.read(position, wait=call.limited(10))
        if output.exit is not None and not output.text:
            if rest:
                await call.report(rest)
            return False
        if not output.text:
            continue
        await anyio.sleep(BATCH_S)
        batch = await session.terminal.read(position)
        position = batch.position
        if batch.lost and rest:
            # The text after the gap is not the end of this line.
            rest += "\n"
        *lines, rest = (rest + batch.text).split("\n")
        if len(lines) > FLOOD_LINES:
            return True
        if len(rest) > LINE_CHARS_MAX:
            lines.append(rest)
            rest = ""
        if lines:
            await call.report("\n".join(lines))
    return False


MONITOR = Tool(
    name="Monitor",
    description=(
        "Runs a command in the background and reports each line of its output as an event. If it "
        "still runs when the call returns, read further events with BashOutput."
    ),
    params=MonitorParams,
    result=SessionResult,
    execute=_monitor,
    continued_by=CONTINUED_BY,
    destructive=True,
)
