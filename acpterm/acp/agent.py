"""The messages that `acpterm prompt`, as a client, exchanges with an agent, except ``terminal/*``.

``session/update`` and ``session/cancel`` are in `session`. Only the members that `acpterm prompt`
uses are modelled.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Raw, field

from acpterm.acp.base import DEFAULT_ON_ERROR, SKIP_INVALID_ITEMS, MetaIn, Wire
from acpterm.acp.session import ToolCallUpdate
from acpterm.acp.terminal import SessionId

StopReason: TypeAlias = Literal[
    "end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"
]
PermissionOptionKind: TypeAlias = Literal[
    "allow_once", "allow_always", "reject_once", "reject_always"
]

_Line = Annotated[int, Meta(ge=0, le=2**32 - 1)]


class AuthMethod(Wire, omit_defaults=True):
    """A way to log in to an agent.

    The type has only the members that all kinds of login have.
    """

    id: str
    name: str
    description: Annotated[str | None, DEFAULT_ON_ERROR] = None
    meta: MetaIn = field(default=None, name="_meta")


class SessionCapabilities(Wire, omit_defaults=True):
    """What an agent supports for sessions: ``session/resume``, and additional directories.

    Each is supported if its member is an object, even an empty one.
    """

    resume: Annotated[dict[str, Raw] | None, DEFAULT_ON_ERROR] = None
    additional_directories: Annotated[dict[str, Raw] | None, DEFAULT_ON_ERROR] = None
    meta: MetaIn = field(default=None, name="_meta")


class AgentCapabilities(Wire, omit_defaults=True):
    """The optional methods that an agent supports."""

    load_session: Annotated[bool, DEFAULT_ON_ERROR] = False
    session_capabilities: Annotated[SessionCapabilities, DEFAULT_ON_ERROR] = field(
        default_factory=SessionCapabilities
    )
    meta: MetaIn = field(default=None, name="_meta")


class InitializeResponse(Wire, omit_defaults=True):
    """An agent's response to ``initialize``."""

    protocol_version: Annotated[int, Meta(ge=0, le=65535)]
    agent_capabilities: Annotated[AgentCapabilities, DEFAULT_ON_ERROR] = field(
        default_factory=AgentCapabilities
    )
    auth_methods: Annotated[list[AuthMethod], DEFAULT_ON_ERROR, SKIP_INVALID_ITEMS] = field(
        default_factory=list
    )
    agent_info: Annotated[dict[str, Raw] | None, DEFAULT_ON_ERROR] = None
    meta: MetaIn = field(default=None, name="_meta")


class NewSessionResponse(Wire, omit_defaults=True):
    """An agent's response to ``session/new``."""

    session_id: SessionId
    meta: MetaIn = field(default=None, name="_meta")


class PromptResponse(Wire, omit_defaults=True):
    """An agent's response to ``session/prompt``: how the turn ended."""

    stop_reason: StopReason
    meta: MetaIn = field(default=None, name="_meta")


class PermissionOption(Wire, omit_defaults=True):
    """One of the choices that a permission request offers to the user."""

    option_id: str
    name: str
    kind: PermissionOptionKind
    meta: MetaIn = field(default=None, name="_meta")


class RequestPermissionRequest(Wire, omit_defaults=True):
    """The params of ``session/request_permission``: ask the user whether a tool call may run."""

    session_id: SessionId
    tool_call: ToolCallUpdate
    options: list[PermissionOption]
    meta: MetaIn = field(default=None, name="_meta")


class ReadTextFileRequest(Wire, omit_defaults=True):
    """The params of ``fs/read_text_file``: read at most `limit` lines from line number `line` on.

    The first line has the number 1. Without `line`, read from the first line; without `limit`, to
    the end of the file.
    """

    session_id: SessionId
    path: Annotated[str, Meta(description="an absolute path")]
    line: _Line | None = None
    limit: _Line | None = None
    meta: MetaIn = field(default=None, name="_meta")


class WriteTextFileRequest(Wire, omit_defaults=True):
    """The params of ``fs/write_text_file``: replace the whole content of a file."""

    session_id: SessionId
    path: Annotated[str, Meta(description="an absolute path")]
    content: Annotated[str, Meta(description="the text to write")]
    meta: MetaIn = field(default=None, name="_meta")
