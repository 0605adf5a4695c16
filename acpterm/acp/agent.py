"""What a client asks of an agent and is answered, and what it is asked beside terminals.

The rule: as far as `acpterm prompt` looks into it. What an agent can do besides is left out.
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
    """A way to log in to an agent, whatever its type."""

    id: str
    name: str
    description: Annotated[str | None, DEFAULT_ON_ERROR] = None
    meta: MetaIn = field(default=None, name="_meta")


class SessionCapabilities(Wire, omit_defaults=True):
    """What an agent can do with sessions. A capability is an object, empty as a rule."""

    resume: Annotated[dict[str, Raw] | None, DEFAULT_ON_ERROR] = None
    additional_directories: Annotated[dict[str, Raw] | None, DEFAULT_ON_ERROR] = None
    meta: MetaIn = field(default=None, name="_meta")


class AgentCapabilities(Wire, omit_defaults=True):
    """What an agent can do."""

    load_session: Annotated[bool, DEFAULT_ON_ERROR] = False
    session_capabilities: Annotated[SessionCapabilities, DEFAULT_ON_ERROR] = field(
        default_factory=SessionCapabilities
    )
    meta: MetaIn = field(default=None, name="_meta")


class InitializeResponse(Wire, omit_defaults=True):
    """An agent's answer to ``initialize``."""

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
    """An agent's answer to ``session/new``."""

    session_id: SessionId
    meta: MetaIn = field(default=None, name="_meta")


class PromptResponse(Wire, omit_defaults=True):
    """An agent's answer to ``session/prompt``: how the turn ended."""

    stop_reason: StopReason
    meta: MetaIn = field(default=None, name="_meta")


class PermissionOption(Wire, omit_defaults=True):
    """One of the answers that a person may give."""

    option_id: str
    name: str
    kind: PermissionOptionKind
    meta: MetaIn = field(default=None, name="_meta")


class RequestPermissionRequest(Wire, omit_defaults=True):
    """``session/request_permission``: whether a tool call may go on."""

    session_id: SessionId
    tool_call: ToolCallUpdate
    options: list[PermissionOption]
    meta: MetaIn = field(default=None, name="_meta")


class ReadTextFileRequest(Wire, omit_defaults=True):
    """``fs/read_text_file``. `line` counts from 1; `limit` is a number of lines."""

    session_id: SessionId
    path: Annotated[str, Meta(description="an absolute path")]
    line: Annotated[_Line | None, DEFAULT_ON_ERROR] = None
    limit: Annotated[_Line | None, DEFAULT_ON_ERROR] = None
    meta: MetaIn = field(default=None, name="_meta")


class WriteTextFileRequest(Wire, omit_defaults=True):
    """``fs/write_text_file``: what is to be all of the file."""

    session_id: SessionId
    path: Annotated[str, Meta(description="an absolute path")]
    content: Annotated[str, Meta(description="the text to write")]
    meta: MetaIn = field(default=None, name="_meta")
