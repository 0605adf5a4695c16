"""`LaunchRequest`: a checked request for a terminal, whose method `start` starts the program."""

import errno
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec.structs import replace

from acpterm.config import Settings
from acpterm.config.encodings import Encoding
from acpterm.config.profiles import Limits
from acpterm.config.providers import isolation_of
from acpterm.host.launch import validation
from acpterm.host.launch.command import (
    ARGUMENT_BYTES_MAX,
    with_line,
    with_stdin,
    words,
    write_line,
)
from acpterm.host.launch.environment import added_variables, terminal_environment
from acpterm.host.launch.placement import Placement
from acpterm.host.state.records import LimitsRecord, TerminalRecord, pack_text
from acpterm.host.state.writer import StateWriter
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError, quote
from acpterm.keeper.reports import KeeperLostError
from acpterm.providers.provider import ENGINES, is_place
from acpterm.pty.limits import NO_LIMITS, LimitError, ResourceLimits
from acpterm.pty.processes import now as boot_time
from acpterm.pty.program import Program
from acpterm.runtime.exec_context import ExecContext
from acpterm.runtime.shell import find_shell
from acpterm.runtime.threads import run_blocking
from acpterm.terminal.pool import Pool, ShutDownError
from acpterm.terminal.remote import RemoteProgram
from acpterm.terminal.spec import TerminalSpec
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal

# What the user can do if the system lacks a resource.
_ADVICE: Final = {
    errno.EAGAIN: "the limit of this user's processes is reached (ulimit -u, or pids.max of the "
    "control group): end some of them",
    errno.EMFILE: "the limit of acpterm's open files is reached (ulimit -n): release terminals "
    "that are no longer needed",
    errno.ENFILE: "the limit of the system's open files is reached (fs.file-max)",
    errno.ENOMEM: "no memory is left: end what uses much of it",
    errno.ENOSPC: "the limit of the system's PTYs, or of its files for output, is reached "
    "(kernel.pty.max): release terminals that are no longer needed",
}
# How many characters of a too long line an error message quotes.
_EXCERPT_MAX: Final = 64


class LaunchRequest:
    """A checked request for a terminal.

    `context` is the execution context that the program starts with, and `size` is columns and rows.
    The argument `env` has the variables that the request adds, or removes if the value is None; the
    attribute `env` is the program's whole environment. `encoding` is that of the output; None: the
    setting. `attended` says whether the user sends the request, not an agent. `shell` says whether
    `command` is shell text; None decides by the rules of `launch.command`. `stdin` is the path of a
    named pipe to use as stdin instead of the terminal.

    The constructor does not access the file system, so it does not check `cwd`, the working
    directory. It raises `RpcError` (-32602) for a command or an environment that no program can be
    given, and for a `stdin` that is no absolute path.
    """

    def __init__(
        self,
        settings: Settings,
        context: ExecContext,
        *,
        command: str,
        args: list[str] | None,
        env: list[tuple[str, str | None]],
        cwd: str,
        shell: bool | None = None,
        size: tuple[int, int],
        encoding: Encoding | None = None,
        attended: bool = False,
        stdin: str | None = None,
    ) -> None:
        # This check is first, since the duration of the other checks grows with the size.
        validation.check_size(command, args, dict(env), context.rlimits)
        validation.check_command(command, args)
        validation.check_environment(env)
        self._settings = settings
        self._context = context
        added = added_variables(settings, dict(env), attended=attended)
        self._added: Final = _set(added)
        self.env: Final = _set(terminal_environment(context, cwd, added))
        self.cwd: Final = cwd
        self.size: Final = size
        self._encoding: Final = encoding or settings.encoding
        self._shell: Final = find_shell(settings.shell)
        self._words: Final = words(command, args, shell=shell, shell_path=self._shell)
        if stdin is not None:
            validation.check_absolute(stdin, "stdin", "a named pipe")
        self._stdin = stdin
        program, *rest = self._words.fallback_argv or self._words.argv
        validation.check_size(program, rest, self.env, context.rlimits)

    def check_provider(self, name: str) -> None:
        """Raise `RpcError` (-32602) if a provider cannot pass on the stdin or so long a line."""
        if name not in ENGINES and not is_place(name):
            return
        if self._stdin is not None:
            raise RpcError(
                INVALID_PARAMS,
                f"the provider {name!r} cannot pass stdin on to the program: its stdin is the "
                "terminal (acpterm run -n)",
            )
        if (line := self._words.long_line) is not None:
            raise RpcError(
                INVALID_PARAMS,
                f"{quote(line, _EXCERPT_MAX)} is a line of {len(line)} characters, and the "
                f"provider {name!r} can pass a line only as an argument, of at most "
                f"{ARGUMENT_BYTES_MAX} bytes: write it to a file, and give its path",
            )

    def record(
        self,
        command: str,
        *,
        limit: int | None = None,
        lifetime: float = math.inf,
        view: str = "text",
        limits: Limits | None = None,
    ) -> TerminalRecord:
        """Return the record of the terminal that `start` will start.

        The record names the user as the owner; for an agent's terminal, the caller changes that.
        `command` is the summary for lists. `limit` is how many bytes of text to retain; None means
        the setting `output_bytes`. A `limit` above the setting `max_output_bytes` is lowered. The
        program is killed after `lifetime` seconds. `view` is the default format of the output:
        "text", "raw" or "screen". `limits` are those of the profile: its `wall` replaces a greater
        `lifetime`, and its `output_bytes` a greater `limit`. None: no limits, as for the user.
        """
        settings = self._settings
        limit = settings.output_bytes if limit is None else limit
        lifetime_limit = None if lifetime == math.inf else ("timeoutMs", 1000 * lifetime)
        if limits is not None:
            limit = min(limit, limits.output_bytes or limit)
            if limits.wall is not None and limits.wall < lifetime:
                lifetime, lifetime_limit = limits.wall, ("wall", limits.wall)
        started = boot_time()
        return TerminalRecord(
            command=command,
            cwd=pack_text(self.cwd),
            created_time=time.time(),
            started_at=started,
            cols=self.size[0],
            rows=self.size[1],
            limit=min(limit, settings.max_output_bytes),
            ring_size=settings.raw_bytes,
            view=view,
            lifetime_end=None if lifetime == math.inf else started + lifetime,
            lifetime_limit=lifetime_limit,
            limits=None if limits is None else LimitsRecord.from_limits(limits),
            is_users=True,
        )

    async def start(
        self,
        pool: Pool,
        record: TerminalRecord,
        placement: Placement,
        writer: StateWriter | None = None,
        *,
        strict: bool = True,
    ) -> Terminal:
        """Start the program on a new terminal, and return the terminal.

        `placement` says where the program runs: see `check_provider`. `record` is stored together
        with the terminal, after all pending changes in `writer`, if given. Raises `RpcError`
        (-32603) if the provider cannot be used, if the system lacks a resource, or if the host is
        shutting down. With `strict`, also raises `RpcError` (-32603) if a limit in `record` cannot
        be enforced. Otherwise, such a limit is recorded in `record.limits.unenforced`.
        """
        program = Program(
            argv=self._words.argv,
            env=self.env,
            cwd=self.cwd,
            umask=self._context.umask,
            rlimits=self._context.rlimits,
            fallback_argv=self._words.fallback_argv,
        )
        shell, line = self._shell, self._words.long_line
        program, prepared = await placement.prepare(program, shell, self._added)
        record.provider = placement.provider.name
        record.isolation = isolation_of(record.provider)
        record.clean_up_token, record.host = prepared.token, prepared.host
        remote = placement.remote(prepared.token)
        if self._stdin is not None:
            # The shell opens the pipe outside of the sandbox: inside, the pipe may not exist.
            argv = with_stdin(self._stdin, program.argv, program.fallback_argv, shell_path=shell)
            program = program._replace(argv=argv, fallback_argv=None)
        path = None
        try:
            if line is not None:
                path = await _line_file(line)
                program = program._replace(argv=with_line(path, program.argv))
            return await self._start(program, pool, record, writer, remote, strict=strict)
        except BaseException:
            if path is not None:
                with suppress(OSError):
                    os.unlink(path)
            await placement.clean_up(prepared.token)
            raise

    async def _start(
        self,
        program: Program,
        pool: Pool,
        record: TerminalRecord,
        writer: StateWriter | None,
        remote: RemoteProgram | None,
        *,
        strict: bool,
    ) -> Terminal:
        end = record.lifetime_end
        if writer is not None:
            writer.flush()
        try:
            spec = TerminalSpec(
                size=(record.cols, record.rows),
                limit=record.limit,
                ring_size=record.ring_size,
                lifetime=math.inf if end is None else end - record.started_at,
                lifetime_cause=record.cause_of(EndedBy.TIMEOUT),
                view=record.view,
                # A creator that reads raw output gets it as it was written.
                encoding="utf-8" if record.view == "raw" else self._encoding,
                remote=remote,
            )
            limits = NO_LIMITS if record.limits is None else record.limits.resources
            if remote is not None and record.limits is not None and limits:
                missing = _unenforced(record, limits, strict=strict)
                record.limits = replace(record.limits, unenforced=missing)
                limits = NO_LIMITS
            terminal = await pool.create(
                program, spec, record=record.encode(), limits=limits, strict=strict
            )
        except LimitError as error:
            raise RpcError(
                INTERNAL_ERROR,
                f"no terminal is created: {error}; the user can remove the limit from the profile, "
                "or set its unenforceable_limits = 'warn'",
            ) from error
        except OSError as error:
            what = f"no terminal can be created now: {error.strerror or error}"
            if why := _ADVICE.get(error.errno or 0):
                what += f": {why}"
            raise RpcError(INTERNAL_ERROR, what) from error
        except ShutDownError as error:
            raise RpcError(INTERNAL_ERROR, str(error)) from error
        except KeeperLostError as error:
            raise RpcError(INTERNAL_ERROR, f"acpterm is shutting down: {error}") from error
        # Stored with the record's next change. Until then the stored time, from just before the
        # start of the program, is close enough.
        record.started_at = terminal.started_at
        if record.limits is not None and terminal.enforcement is not None:
            missing = [str(error) for error in terminal.enforcement.unenforced]
            record.limits = replace(record.limits, unenforced=missing)
        return terminal


def _set(env: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in env.items() if value is not None}


async def _line_file(line: str) -> str:
    """Write a line to a new private file in a thread; return its path."""
    try:
        # Not cancelled half way: the path would be lost, and the file left.
        return await run_blocking(partial(write_line, line))
    except OSError as error:
        raise RpcError(
            INTERNAL_ERROR,
            f"no terminal is created: the line cannot be written to a file for the shell, because "
            f"it is too long for an argument: {error.strerror or error}",
        ) from error


def _unenforced(record: TerminalRecord, limits: ResourceLimits, *, strict: bool) -> list[str]:
    """Return one message for each limit in `limits`: that the limit cannot be enforced, and why.

    Called if at least one limit is set and the program runs on another host, where no limit is
    enforced. `record` is the terminal's record, which names that host. If `strict`, raise
    `LimitError` for the first limit instead of returning messages.
    """
    errors = [
        LimitError(name, value, f"the program runs on {record.host or record.provider}")
        for name, value in limits.items()
    ]
    if strict:
        raise errors[0]
    return [str(error) for error in errors]
