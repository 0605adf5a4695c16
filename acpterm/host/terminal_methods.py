"""The five terminal methods of ACP v1 ("Terminals"), and what is common to all that name one.

A handler that has its answer at once returns it; one that has to wait returns a coroutine, which
the connection runs in a task of its own. Cancelling one leaves the terminal as it is.
"""

import errno
import math
from collections.abc import Coroutine
from typing import Any, Final

import trio
from msgspec import UNSET, UnsetType

from acpterm.acp import (
    CreateMeta,
    CreateTerminalRequest,
    CreateTerminalResponse,
    Empty,
    ExitMeta,
    TerminalExitStatus,
    TerminalOutputResponse,
    TerminalRequest,
    WaitForTerminalExitResponse,
    own_meta,
)
from acpterm.host import checks
from acpterm.host.caller import Caller
from acpterm.host.command import words
from acpterm.jsonrpc import INTERNAL_ERROR, REQUEST_CANCELLED, RpcError
from acpterm.pty.program import Program
from acpterm.pty.signals import number_of
from acpterm.terminal import EndedBy, ExitStatus, ShutDownError, Terminal, views

# What the system says when it has none left of something.
_NO_ROOM: Final = frozenset((errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC))
# Seconds that kill and release wait for the end they cause, before they answer all the same.
PATIENCE: Final = 0.3


def create(
    caller: Caller, params: CreateTerminalRequest
) -> Coroutine[Any, Any, CreateTerminalResponse]:
    """`terminal/create`: start a command in a new terminal."""
    settings = caller.settings
    wishes = own_meta(params.meta, CreateMeta) or CreateMeta()
    env = [(item.name, item.value) for item in params.env]
    checks.check_command(params.command, params.args)
    checks.check_environment(env)
    checks.check_format(wishes.format)
    size = wishes.cols or settings.cols, wishes.rows or settings.rows
    if wishes.format == "screen":
        caller.check_screen(*size)
    session = caller.session(params.session_id)
    # It has something to remember from now on: whether its turn is cancelled meanwhile.
    caller.own(session)
    turn = session.cancelled
    # Taken now: what the agent asks afterwards is not to have been before.
    cwd = params.cwd or session.cwd or caller.asker.cwd
    argv, otherwise = words(
        params.command, params.args, shell=wishes.shell, shell_path=settings.shell
    )

    def program(identifier: str) -> Program:
        return Program(
            argv=argv,
            env=caller.asker.environment(identifier, env),
            cwd=cwd,
            umask=caller.asker.umask,
            rlimits=caller.asker.rlimits,
            otherwise=otherwise,
        )

    limit = settings.output_bytes if params.output_byte_limit is None else params.output_byte_limit

    async def start() -> CreateTerminalResponse:
        await caller.folders.check(cwd)
        if session.cancelled != turn:
            raise _cancelled()
        try:
            terminal = await caller.pool.create(
                program,
                size=size,
                limit=min(limit, settings.max_output_bytes),
                ring_size=settings.raw_bytes,
                lifetime=math.inf
                if wishes.timeout_ms is None
                else checks.seconds(wishes.timeout_ms),
                view=wishes.format or "text",
            )
        except OSError as error:
            what = f"no terminal can be created now: {error.strerror or error}"
            if error.errno in _NO_ROOM:
                what += (
                    "; release terminals that are no longer needed, or ask for higher limits of "
                    "processes, PTYs and open files"
                )
            raise RpcError(INTERNAL_ERROR, what) from error
        except ShutDownError as error:
            raise RpcError(INTERNAL_ERROR, str(error)) from error
        if session.cancelled != turn:
            caller.pool.release(terminal, EndedBy.AGENT)
            raise _cancelled()
        caller.add(session, terminal)
        return CreateTerminalResponse(terminal.id)

    return start()


def _cancelled() -> RpcError:
    return RpcError(REQUEST_CANCELLED, "cancelled with the turn")


def output(
    caller: Caller, params: TerminalRequest
) -> TerminalOutputResponse | Coroutine[Any, Any, TerminalOutputResponse]:
    """`terminal/output`: what the terminal has, and its exit status once it has exited."""
    terminal = caller.session(params.session_id).get(params.terminal_id)
    if terminal.view == "screen":
        return _screen_output(caller, terminal)
    if terminal.view == "raw":
        text, truncated = views.raw(terminal)
    else:
        text, truncated = terminal.text.text(), terminal.text.truncated
    return TerminalOutputResponse(text, truncated, exit_status(caller, terminal.exit))


async def _screen_output(caller: Caller, terminal: Terminal) -> TerminalOutputResponse:
    text, _ = await caller.screen(terminal)
    text, truncated = views.last(text, terminal.limit)
    return TerminalOutputResponse(text, truncated, exit_status(caller, terminal.exit))


def wait_for_exit(
    caller: Caller, params: TerminalRequest
) -> WaitForTerminalExitResponse | Coroutine[Any, Any, WaitForTerminalExitResponse]:
    """`terminal/wait_for_exit`: answered when the program has ended, however that comes."""
    terminal = caller.session(params.session_id).get(params.terminal_id)

    async def wait() -> WaitForTerminalExitResponse:
        return _waited(caller, await terminal.wait_exited())

    return wait() if terminal.exit is None else _waited(caller, terminal.exit)


def kill(caller: Caller, params: TerminalRequest) -> Empty | Coroutine[Any, Any, Empty]:
    """`terminal/kill`: end the program and all that comes from it; the id stays valid."""
    terminal = caller.session(params.session_id).get(params.terminal_id)
    terminal.kill(EndedBy.AGENT)
    return _ended(terminal)


def release(caller: Caller, params: TerminalRequest) -> Empty | Coroutine[Any, Any, Empty]:
    """`terminal/release`: as kill, and the id is valid no more. A second one succeeds too."""
    session = caller.session(params.session_id)
    terminal = caller.release(session, params.terminal_id, EndedBy.AGENT)
    return Empty() if terminal is None else _ended(terminal)


def _ended(terminal: Terminal) -> Empty | Coroutine[Any, Any, Empty]:
    """Answer when the program has ended, or `PATIENCE` is over and it will have to."""
    if terminal.exit is not None:
        return Empty()

    async def wait() -> Empty:
        with trio.move_on_after(PATIENCE):
            await terminal.wait_exited()
        return Empty()

    return wait()


def exit_status(caller: Caller, status: ExitStatus | None) -> TerminalExitStatus | UnsetType:
    """Write an exit status for the wire; absent while there is none."""
    if status is None:
        return UNSET
    return TerminalExitStatus(_code(caller, status), status.signal, _meta(status))


def _waited(caller: Caller, status: ExitStatus) -> WaitForTerminalExitResponse:
    return WaitForTerminalExitResponse(_code(caller, status), status.signal, _meta(status))


def _code(caller: Caller, status: ExitStatus) -> int | None:
    if status.signal is not None and caller.settings.signal_exit_code:
        return 128 + number_of(status.signal)
    return status.code


def _meta(status: ExitStatus) -> dict[str, ExitMeta]:
    return {
        "acpterm": ExitMeta(
            ended_by=status.ended_by.value,
            wall_ms=round(1000 * status.wall),
            cpu_ms=UNSET if math.isnan(status.cpu) else round(1000 * status.cpu),
            max_rss_bytes=status.max_rss,
        )
    }
