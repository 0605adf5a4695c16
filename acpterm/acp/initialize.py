"""``initialize``, which a terminal host receives, and the host's response.

In ACP the client sends ``initialize`` to the agent. To a terminal host, however, the agent connects
and sends ``initialize``. acpterm responds with the capabilities of an ACP client that has terminals
and no file system.
"""

from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Raw, UnsetType, field

from acpterm.acp.base import DEFAULT_ON_ERROR, MetaIn, MetaOut, Wire

PROTOCOL_VERSION: Final = 1

_Version = Annotated[
    int, Meta(ge=0, le=65535, description="the version of ACP, of which this is 1")
]


class InitializeRequest(Wire, omit_defaults=True):
    """The params of ``initialize``; `client_info` and `client_capabilities` stay raw JSON."""

    protocol_version: _Version
    client_capabilities: Annotated[Raw, DEFAULT_ON_ERROR] | UnsetType = UNSET
    client_info: Annotated[Raw, DEFAULT_ON_ERROR] | UnsetType = UNSET
    meta: MetaIn = field(default=None, name="_meta")


class FileSystemCapabilities(Wire):
    """The ``fs/*`` methods that an agent may call on a client."""

    read_text_file: Annotated[bool, DEFAULT_ON_ERROR] = False
    write_text_file: Annotated[bool, DEFAULT_ON_ERROR] = False
    meta: MetaOut = field(default=UNSET, name="_meta")


class ClientCapabilities(Wire):
    """The groups of methods that an agent may call on a client."""

    fs: Annotated[FileSystemCapabilities, DEFAULT_ON_ERROR] = field(
        default_factory=FileSystemCapabilities
    )
    terminal: Annotated[bool, DEFAULT_ON_ERROR] = False
    session: Annotated[dict[str, Any] | None, DEFAULT_ON_ERROR] | UnsetType = UNSET
    meta: MetaOut = field(default=UNSET, name="_meta")


class Implementation(Wire):
    """The name and version of a program."""

    name: str
    version: str
    title: Annotated[str | None, DEFAULT_ON_ERROR] | UnsetType = UNSET
    meta: MetaOut = field(default=UNSET, name="_meta")


class InitializeAnswer(Wire):
    """The host's response to ``initialize``."""

    client_capabilities: ClientCapabilities
    client_info: Implementation
    protocol_version: int = PROTOCOL_VERSION
    meta: MetaOut = field(default=UNSET, name="_meta")


def host_answer(version: str, extensions: dict[str, Any] | UnsetType = UNSET) -> InitializeAnswer:
    """Return a host's response; `extensions` is ``_meta.acpterm`` of the client capabilities."""
    return InitializeAnswer(
        client_capabilities=ClientCapabilities(
            terminal=True,
            meta=UNSET if isinstance(extensions, UnsetType) else {"acpterm": extensions},
        ),
        client_info=Implementation(name="acpterm", title="acpterm", version=version),
    )
