"""`exec_command`: run a command; return its output, and the session id if it continues."""

import os
from typing import Annotated, Final, Literal

import anyio
from msgspec import UNSET, Meta, Struct, UnsetType

from acpterm.mcp.call import Call
from acpterm.mcp.codex_tools.chunks import DEFAULT_TOKENS, Chunk, chunk_reply
from acpterm.mcp.sessions import Launch
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.waiting import read_new, removed_on_failure, wait_for_end

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


class Params(Struct, kw_only=True):
    """The parameters of `exec_command`."""

    cmd: Annotated[str, Meta(description="Shell command to execute.")]
    workdir: Annotated[
        str | UnsetType,
        Meta(description="Working directory to run the command in; defaults to the turn cwd."),
    ] = UNSET
    tty: Annotated[
        bool, Meta(description="Whether to give programs the colours and keys of a terminal.")
    ] = False
    yield_time_ms: Annotated[
        float,
        Meta(description="How long to wait (in milliseconds) for output before yielding."),
    ] = YIELD_MS
    max_output_tokens: Annotated[
        float,
        Meta(description="Maximum number of tokens to return. Excess output is truncated."),
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


async def _execute(call: Call, params: Params) -> Reply:
    began = anyio.current_time()
    shell = params.shell or os.environ.get("SHELL") or "/bin/sh"
    environment = dict(ENVIRONMENT)
    if params.tty:
        del environment["TERM"]
    call.doing = "starting the command"
    session = await call.start(
        Launch(
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


TOOL = Tool(
    name="exec_command",
    description=(
        "Runs a command in a PTY, returning output or a session ID for ongoing interaction."
    ),
    params=Params,
    result=Chunk,
    execute=_execute,
    destructive=True,
)
