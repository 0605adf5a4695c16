"""A terminal on its way from a create request to its record, as one immutable value: `Launch`.

Its stages; each is the value of the stage before, with more:

- *asked*: it has what the request says, and `check` has found nothing that no program can be given.
- *judged*: it has the `judgement` on an agent's command. What the user asks for is not judged.
- *placed*: `start` has prepared the program with its provider, and `record` is complete.
- *started*: the keeper has started the program, and stored the record in the same step.
"""

import errno
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from acpterm.acp.agent_meta import CreateMeta
from acpterm.config import Settings
from acpterm.config.profiles import Limits, Profile, lowest
from acpterm.config.providers import isolation_of
from acpterm.host.launch import validation
from acpterm.host.launch.command import (
    ARGUMENT_BYTES_MAX,
    Words,
    summary,
    with_line,
    with_stdin,
    words,
    write_line,
)
from acpterm.host.launch.environment import added_variables, terminal_environment
from acpterm.host.launch.placement import Placement, directory_text, remote_program
from acpterm.host.state.records import (
    ContextRecord,
    LaunchRecord,
    LimitsRecord,
    RequestId,
    RightsRecord,
    TerminalRecord,
    pack_text,
)
from acpterm.host.state.writer import StateWriter
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError, excerpt, quote
from acpterm.keeper.reports import KeeperLostError
from acpterm.policy.losses.loss import Finding, Loss
from acpterm.policy.verdict import Level, Verdict
from acpterm.providers.provider import ENGINES, is_place
from acpterm.pty.limits import NO_LIMITS, RESOURCES, LimitError, ResourceLimits
from acpterm.pty.processes import now as boot_time
from acpterm.pty.program import Program
from acpterm.runtime.command_line import find_shell
from acpterm.runtime.exec_context import ExecContext
from acpterm.runtime.threads import run_blocking
from acpterm.terminal.pool import Pool, ShutDownError
from acpterm.terminal.remote import RemoteProgram
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
_UINT64_MAX: Final = 2**64 - 1


class Creator(NamedTuple):
    """The agent's session that creates a terminal: fields of `TerminalRecord`, by their names."""

    connection: str
    secret: str | None = None
    rights: RightsRecord | None = None
    agent: str | None = None
    session: str | None = None
    request: RequestId | None = None


class Judgement(NamedTuple):
    """The verdict on a command before the user is asked, and where its program may run."""

    profiles: tuple[Profile, ...]
    """The profiles that apply: the selected one, then those that were requested."""
    profile: Profile
    """The profile whose verdict counts."""
    verdict: Verdict
    """The verdict of `profile`."""
    level: Level
    """The most dangerous level in the verdicts of all profiles."""
    is_harmless: bool
    """Whether it only reads and prints, so that its directory need not be kept before it."""
    must_use_shell: bool
    """The verdict is about shell text: run it with `sh -c`, never as the path of a program. False
    for shell text only if every profile allows unknown commands."""
    provider: str
    cwd: str
    pending: tuple[Loss, ...] = ()
    """Losses of which it has to be found out whether they would happen (`gate.settle`)."""
    lost: Mapping[Loss, Finding] | None = None
    """All that a question is about; None if that is not known."""

    @property
    def where(self) -> str:
        """Where the program runs, as text for the user: the place, if any, then the directory."""
        return directory_text(self.provider, self.cwd)

    @property
    def has_network(self) -> bool:
        """Whether all profiles allow the network, which only sandboxes and containers can deny."""
        return all(profile.network for profile in self.profiles)

    @property
    def limits(self) -> Limits:
        """For each limit, the lowest value of all profiles."""
        return lowest(profile.limits for profile in self.profiles)

    @property
    def refuses_unenforceable_limits(self) -> bool:
        """Whether the program must not start if a limit on its resources cannot be enforced."""
        return any(
            profile.unenforceable_limits == "refuse"
            and any(getattr(profile.limits, name) is not None for name in RESOURCES)
            for profile in self.profiles
        )


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A terminal to start. The module describes the stages."""

    settings: Settings
    context: ExecContext
    command: str
    args: list[str] | None = None
    env: Mapping[str, str | None] = field(default_factory=dict)
    """The variables that the request adds, or removes if the value is None."""
    cwd: str
    options: CreateMeta = field(default_factory=CreateMeta)
    output_bytes: int | None = None
    """How many bytes of text to retain; None: the setting `output_bytes`."""
    attended: bool = False
    """Whether the user sends the request, not an agent."""
    name: str | None = None
    cwd_gone: str | None = None
    """The directory of the session if it was gone, so that `cwd` is a parent of it."""
    is_removed_at_end: bool = False
    judgement: Judgement | None = None
    creator: Creator | None = None
    """None for the user."""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self.options.cols or self.settings.cols, self.options.rows or self.settings.rows

    @cached_property
    def program_env(self) -> dict[str, str]:
        """The program's whole environment."""
        return _set(terminal_environment(self.context, self.cwd, self._added))

    @cached_property
    def _added(self) -> dict[str, str | None]:
        return added_variables(self.settings, self.env, attended=self.attended)

    @cached_property
    def _shell(self) -> str:
        return find_shell(self.settings.shell)

    @cached_property
    def _words(self) -> Words:
        shell = self.options.shell
        if shell is None and self.judgement is not None and self.judgement.must_use_shell:
            shell = True
        return words(self.command, self.args, shell=shell, shell_path=self._shell)

    def check(self) -> None:
        """Raise `RpcError` (-32602) for values that no program can be given.

        This does not read the file system, so the directory is not checked.
        """
        args = self.args or [] if self.options.shell is False else self.args
        # First, since the duration of all that follows grows with the size.
        validation.check_size(self.command, args, self.program_env, self.context.rlimits)
        validation.check_command(self.command, args)
        validation.check_environment(self.env.items())
        if self.options.stdin is not None:
            validation.check_absolute(self.options.stdin, "stdin", "a named pipe")
        if (limit := self.output_bytes or 0) > _UINT64_MAX:  # msgspec's bounds are of 63 bits
            what = f"outputByteLimit is {excerpt(str(limit))}"
            raise RpcError(INVALID_PARAMS, f"{what}: it must be an integer, 0 to {_UINT64_MAX}")

    def check_provider(self, name: str) -> None:
        """Raise `RpcError` (-32602) if a provider cannot pass on the stdin or so long a line."""
        if name not in ENGINES and not is_place(name):
            return
        if self.options.stdin is not None:
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
        self, provider: str, *, token: str | None = None, host: str | None = None
    ) -> TerminalRecord:
        """Return the record of the terminal. `token` and `host` are those of `Prepared`."""
        settings, options, judgement = self.settings, self.options, self.judgement
        limits = Limits() if judgement is None else judgement.limits
        limit = settings.output_bytes if self.output_bytes is None else self.output_bytes
        lifetime, lifetime_limit = math.inf, None
        if options.timeout_ms is not None:
            lifetime = validation.seconds(options.timeout_ms)
            lifetime_limit = ("timeoutMs", 1000 * lifetime)
        if limits.wall is not None and limits.wall < lifetime:
            lifetime, lifetime_limit = limits.wall, ("wall", limits.wall)
        started = boot_time()
        background = settings.background, options.background
        return TerminalRecord(
            command=summary(self.command, self.args),
            cwd=pack_text(self.cwd),
            cwd_gone=None if self.cwd_gone is None else pack_text(self.cwd_gone),
            name=self.name,
            created_time=time.time(),
            started_at=started,
            cols=self.size[0],
            rows=self.size[1],
            limit=min(limit, limits.output_bytes or limit, settings.max_output_bytes),
            ring_size=settings.raw_bytes,
            view=options.format or "text",
            lifetime_end=None if lifetime == math.inf else started + lifetime,
            lifetime_limit=lifetime_limit,
            limits=LimitsRecord.from_limits(limits),
            is_users=self.creator is None,
            ends_background=self.creator is not None and "terminal" in background,
            is_removed_at_end=self.is_removed_at_end,
            provider=provider,
            isolation=isolation_of(provider),
            host=host,
            clean_up_token=token,
            level=None if judgement is None else judgement.level,
            loss=None if judgement is None else judgement.verdict.loss,
            **({} if self.creator is None else self.creator._asdict()),
        )

    def stored(self) -> LaunchRecord | None:
        """Return what `acpterm restart` needs; None if the environment is too large to store."""
        context = ContextRecord.from_context(self.context._replace(cwd=self.cwd))
        if context is None:
            return None
        return LaunchRecord(
            command=pack_text(self.command),
            args=None if self.args is None else [pack_text(word) for word in self.args],
            env=[
                (pack_text(name), None if value is None else pack_text(value))
                for name, value in self.env.items()
            ],
            context=context,
            resources=self.options.resources,
        )

    async def start(
        self, pool: Pool, placement: Placement, writer: StateWriter | None = None
    ) -> tuple[Terminal, TerminalRecord]:
        """Start the program on a new terminal; return the terminal and its record.

        The record is stored after all pending changes in `writer`. Raises `RpcError` (-32603) if
        the provider cannot be used, if the system lacks a resource, if a limit cannot be enforced
        and the profile refuses that, or if the host is shutting down.
        """
        program = Program(
            argv=self._words.argv,
            env=self.program_env,
            cwd=self.cwd,
            umask=self.context.umask,
            rlimits=self.context.rlimits,
            fallback_argv=self._words.fallback_argv,
        )
        line, stdin = self._words.long_line, self.options.stdin
        program, prepared = await placement.prepare(program, self._shell, _set(self._added))
        token = prepared.token
        remote = remote_program(placement.provider, token)
        record = self.record(placement.provider.name, token=token, host=prepared.host)
        if stdin is not None:
            # The shell opens the pipe outside of the sandbox: inside, the pipe may not exist.
            argv = with_stdin(stdin, program.argv, program.fallback_argv, shell_path=self._shell)
            program = program._replace(argv=argv, fallback_argv=None)
        path = None
        try:
            if line is not None:
                path = await _line_file(line)
                program = program._replace(argv=with_line(path, program.argv))
            if writer is not None:
                writer.flush()
            terminal = await self._start(program, pool, record, remote)
        except BaseException:
            if path is not None:
                with suppress(OSError):
                    os.unlink(path)
            await placement.clean_up(token)
            raise
        # Stored with the record's next change. Until then the stored time, from just before the
        # start of the program, is close enough.
        record.started_at = terminal.started_at
        if record.limits is not None and terminal.enforcement is not None:
            missing = [str(error) for error in terminal.enforcement.unenforced]
            record.limits = replace(record.limits, unenforced=missing)
        return terminal, record

    async def _start(
        self, program: Program, pool: Pool, record: TerminalRecord, remote: RemoteProgram | None
    ) -> Terminal:
        strict = self.judgement is None or self.judgement.refuses_unenforceable_limits
        limits = NO_LIMITS if record.limits is None else record.limits.resources
        # A creator that reads raw output gets it as it was written.
        is_raw = record.view == "raw"
        encoding = "utf-8" if is_raw else self.options.encoding or self.settings.encoding
        try:
            if remote is not None and record.limits is not None and limits:
                missing = _unenforced(record, limits, strict=strict)
                record.limits = replace(record.limits, unenforced=missing)
                limits = NO_LIMITS
            return await pool.create(
                program,
                record.spec(remote)._replace(encoding=encoding),
                record=record.encode(),
                limits=limits,
                strict=strict,
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


def _set(env: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in env.items() if value is not None}


async def _line_file(line: str) -> str:
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
    """Return why none of `limits` is enforced on the program's host; raise that if `strict`."""
    errors = [
        LimitError(name, value, f"the program runs on {record.host or record.provider}")
        for name, value in limits.items()
    ]
    if strict:
        raise errors[0]
    return [str(error) for error in errors]
