"""``terminal/*`` as in ACP v1; options of acpterm's own are in `agent_meta` (`CreateMeta`).

An exit status always has both ``exitCode`` and ``signal``, even if null, because agents read both.
A ``terminal/output`` response has no exit status until the program has exited.
"""

from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType, field

from acpterm.acp.base import DEFAULT_ON_ERROR, DEFAULT_ON_NULL, MetaIn, MetaOut, Wire

SessionId = Annotated[str, Meta(description="the id of a session")]
TerminalId = Annotated[str, Meta(description="an id that terminal/create returned")]

TERMINAL_METHODS: Final = (
    "terminal/create",
    "terminal/output",
    "terminal/wait_for_exit",
    "terminal/kill",
    "terminal/release",
)
"""The names of the terminal methods of ACP v1."""


class EnvVariable(Wire, omit_defaults=True):
    """A variable to add to the program's environment, or to remove (`agent_meta.EnvMeta`)."""

    name: str
    value: str
    meta: MetaIn = field(default=None, name="_meta")


class CreateTerminalRequest(Wire, omit_defaults=True):
    """The params of ``terminal/create``: start a command in a new terminal.

    If `args` is a list, even an empty one, `command` is a program; if `args` is None, `command` is
    shell text, or the name or path of a program. `output_byte_limit` is how much output is
    retained, in bytes of UTF-8; the oldest is dropped. None: as much as the settings say.
    """

    session_id: SessionId
    command: Annotated[str, Meta(description="the command to run")]
    args: Annotated[list[str] | None, DEFAULT_ON_NULL] = None
    env: Annotated[list[EnvVariable], DEFAULT_ON_NULL] = field(default_factory=list)
    cwd: str | None = None
    output_byte_limit: Annotated[int, Meta(ge=0)] | None = None
    meta: MetaIn = field(default=None, name="_meta")


class CreateTerminalResponse(Wire):
    """The response to ``terminal/create``."""

    terminal_id: str
    meta: MetaOut = field(default=UNSET, name="_meta")


class TerminalRequest(Wire, omit_defaults=True):
    """The params of all ``terminal/*`` methods except ``terminal/create``."""

    session_id: SessionId
    terminal_id: TerminalId
    meta: MetaIn = field(default=None, name="_meta")


class TerminalExitStatus(Wire):
    """How a program ended: with an `exit_code`, or by a `signal` such as ``SIGTERM``."""

    exit_code: Annotated[Annotated[int, Meta(ge=0, le=2**32 - 1)] | None, DEFAULT_ON_ERROR] = None
    signal: Annotated[str | None, DEFAULT_ON_ERROR] = None
    meta: MetaOut = field(default=UNSET, name="_meta")


class TerminalOutputResponse(Wire):
    """The response to ``terminal/output``; `exit_status` is UNSET until the program has exited."""

    output: str
    truncated: bool
    exit_status: Annotated[TerminalExitStatus | None, DEFAULT_ON_ERROR] | UnsetType = UNSET
    meta: MetaOut = field(default=UNSET, name="_meta")


class WaitForTerminalExitResponse(TerminalExitStatus):
    """The response to ``terminal/wait_for_exit``: an exit status."""


class Empty(Wire):
    """An empty result, such as that of ``terminal/kill`` and ``terminal/release``."""

    meta: MetaOut = field(default=UNSET, name="_meta")
