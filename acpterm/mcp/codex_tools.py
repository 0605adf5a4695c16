"""The tools of `--tools codex`: those of Codex, with its names, schemas and defaults.

`exec_command` runs a command; `write_stdin` types into it, or polls. A result has a chunk of
output, and a number if the program continues: 7 for the session `term-7`.
"""

import os
import secrets
from typing import Annotated, Final, Literal

import anyio
from msgspec import UNSET, Meta, Struct, UnsetType

from acpterm.mcp.call import Call
from acpterm.mcp.cropping import crop
from acpterm.mcp.sessions import SessionLaunch, TerminalSession
from acpterm.mcp.states import View, call_text, says_more, state_line
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.waiting import read_new, removed_on_failure, type_into, wait_for_end, wait_until

CHARS_PER_TOKEN: Final = 4
DEFAULT_TOKENS: Final = 10_000
_CHUNK_ID_BYTES: Final = 3
_KEYS: Final = r'keys: "\u001b" Escape, "\u001b[A" Up, "\u001b[B" Down, "\r" Enter, "\u0003" Ctrl-C'


class Chunk(Struct, kw_only=True, omit_defaults=True):
    """The structured content of `exec_command` and `write_stdin`."""

    status: Annotated[
        str | UnsetType, Meta(description="What the program does, and what can be done next.")
    ] = UNSET
    wall_time_seconds: Annotated[
        float, Meta(description="Elapsed wall time spent waiting for output in seconds.")
    ]
    output: Annotated[str, Meta(description="Command output text, possibly truncated.")]
    chunk_id: Annotated[
        str | UnsetType, Meta(description="Chunk identifier included when reported.")
    ] = UNSET
    exit_code: Annotated[
        int | UnsetType, Meta(description="Process exit code when the command finished.")
    ] = UNSET
    session_id: Annotated[
        int | UnsetType,
        Meta(description="Session identifier to pass to write_stdin while it runs."),
    ] = UNSET
    original_token_count: Annotated[
        int | UnsetType, Meta(description="Approximate token count before truncation.")
    ] = UNSET


async def chunk_reply(
    call: Call, session: TerminalSession, view: View, tokens: float, waited_s: float
) -> Reply:
    """Return the result with the new output of a session, cropped to about `tokens` tokens."""
    end = view.exit
    text = view.text
    output = crop(text, max(1, round(tokens)) * CHARS_PER_TOKEN, view.lost)
    lost = 0 if view.lost is None else view.lost.bytes
    number = int(session.id.rpartition("-")[2])
    note = call_text("exec_command", cmd="… > file") + ", and read the file"
    next_calls = () if view.screen_size is None else (f"write_stdin with {_KEYS}",)
    runs = end is None or bool(end.background)
    left = "" if end is None else " ".join(str(each.pid) for each in end.background)
    status = state_line(session, view, next_calls=next_calls, stop=f"kill {left}")
    chunk = Chunk(
        status=status,
        chunk_id=secrets.token_hex(_CHUNK_ID_BYTES),
        wall_time_seconds=round(waited_s, 4),
        output=output.with_note(note),
        exit_code=UNSET if end is None else end.shell_status,
        session_id=number if runs else UNSET,
        original_token_count=(len(text) + lost) // CHARS_PER_TOKEN,
    )
    state = status if says_more(session, view) else None
    reply = Reply(state=state, text=_text(chunk), data=chunk)
    if not runs:
        await call.sessions.remove(session)
    return reply


def _text(chunk: Chunk) -> str:
    lines = [f"Chunk ID: {chunk.chunk_id}", f"Wall time: {chunk.wall_time_seconds:.4f} seconds"]
    if chunk.exit_code is not UNSET:
        lines.append(f"Process exited with code {chunk.exit_code}")
    if chunk.session_id is not UNSET:
        lines.append(f"Process running with session ID {chunk.session_id}")
    lines += [f"Original token count: {chunk.original_token_count}", "Output:", chunk.output]
    return "\n".join(lines)


YIELD_MS: Final = 10_000
YIELD_MIN_MS: Final = 250
YIELD_MAX_MS: Final = 30_000
ENVIRONMENT: Final = {
    "NO_COLOR": "1",
    "TERM": "dumb",
    "LANG": "C.UTF-8",
    "LC_CTYPE": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "COLORTERM": "",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GH_PAGER": "cat",
    "CODEX_CI": "1",
}
"""The variables that Codex sets for each command."""


class ExecParams(Struct, kw_only=True):
    cmd: Annotated[str, Meta(description="Shell command to execute.")]
    workdir: Annotated[
        str | UnsetType,
        Meta(description="Working directory to run the command in; defaults to the turn cwd."),
    ] = UNSET
    tty: Annotated[
        bool, Meta(description="Whether to give programs the colours and keys of a terminal.")
    ] = False
    yield_time_ms: Annotated[
        float, Meta(description="How long to wait (in milliseconds) for output before yielding.")
    ] = YIELD_MS
    max_output_tokens: Annotated[
        float, Meta(description="Maximum number of tokens to return. Excess output is truncated.")
    ] = DEFAULT_TOKENS
    shell: Annotated[
        str | UnsetType,
        Meta(description="Shell binary to launch. Defaults to the user's default shell."),
    ] = UNSET
    login: Annotated[bool, Meta(description="Whether to run the shell with -l semantics.")] = True
    sandbox_permissions: Annotated[
        Literal["use_default", "with_additional_permissions", "require_escalated"] | UnsetType,
        Meta(description="Accepted, and without effect: the user's policy decides."),
    ] = UNSET
    justification: Annotated[
        str | UnsetType, Meta(description="Why the command needs more permissions.")
    ] = UNSET
    prefix_rule: Annotated[
        list[str] | UnsetType, Meta(description="Accepted, and without effect.")
    ] = UNSET


async def _exec_command(call: Call, params: ExecParams) -> Reply:
    began = anyio.current_time()
    shell = params.shell or os.environ.get("SHELL") or "/bin/sh"
    environment = dict(ENVIRONMENT)
    if params.tty:
        del environment["TERM"]
    call.doing = "starting the command"
    session = await call.start(
        SessionLaunch(
            shell,
            ["-lc" if params.login else "-c", params.cmd],
            cwd=params.workdir or None,
            env=environment,
            shell=False,
        )
    )
    session.command = params.cmd
    async with removed_on_failure(call, session):
        wait_ms = min(max(params.yield_time_ms, YIELD_MIN_MS), YIELD_MAX_MS)
        await wait_for_end(call, session, wait_ms / 1000)
        view = await read_new(call, session)
    waited = anyio.current_time() - began
    return await chunk_reply(call, session, view, params.max_output_tokens, waited)


EXEC_COMMAND = Tool(
    name="exec_command",
    description=(
        "Runs a command in a PTY, returning output or a session ID for ongoing interaction."
    ),
    params=ExecParams,
    result=Chunk,
    execute=_exec_command,
    destructive=True,
)


POLL_MIN_MS: Final = 5_000
POLL_MAX_MS: Final = 300_000


class WriteParams(Struct, kw_only=True):
    session_id: Annotated[
        float, Meta(description="Identifier of the running unified exec session.")
    ]
    chars: Annotated[str, Meta(description="Bytes to write to stdin (may be empty to poll).")] = ""
    yield_time_ms: Annotated[
        float | UnsetType,
        Meta(description="How long to wait (in milliseconds) for output before yielding."),
    ] = UNSET
    max_output_tokens: Annotated[
        float, Meta(description="Maximum number of tokens to return. Excess output is truncated.")
    ] = DEFAULT_TOKENS


async def _write_stdin(call: Call, params: WriteParams) -> Reply:
    began = anyio.current_time()
    session = await call.get(f"{params.session_id:g}")
    wait_ms = YIELD_MIN_MS if params.yield_time_ms is UNSET else params.yield_time_ms
    if params.chars:
        async with call.turn(session):
            await type_into(session, params.chars)
            await anyio.sleep(YIELD_MIN_MS / 1000)
            await _wait(call, session, min(wait_ms, YIELD_MAX_MS) - YIELD_MIN_MS)
            view = await read_new(call, session)
    else:
        await _wait(call, session, min(max(wait_ms, POLL_MIN_MS), POLL_MAX_MS))
        async with call.turn(session):
            view = await read_new(call, session)
    waited = anyio.current_time() - began
    return await chunk_reply(call, session, view, params.max_output_tokens, waited)


async def _wait(call: Call, session: TerminalSession, wait_ms: float) -> None:
    await wait_until(call, session, input_since=session.reported_waiting, timeout_s=wait_ms / 1000)


WRITE_STDIN = Tool(
    name="write_stdin",
    description=(
        "Writes characters to an existing unified exec session and returns recent output."
    ),
    params=WriteParams,
    result=Chunk,
    execute=_write_stdin,
    destructive=True,
)
